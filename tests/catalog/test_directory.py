"""Directories whose names survive a power failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog import directory


def test_the_names_of_new_directories_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(directory, "sync", synced.append)
    directory.make(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()
    assert set(synced) == {tmp_path, tmp_path / "a", tmp_path / "a" / "b"}


def test_existing_directories_are_left_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(directory, "sync", synced.append)
    directory.make(tmp_path)
    assert synced == []
