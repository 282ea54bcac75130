"""Payload files are complete or absent, on the local disk and on a filesystem that Arrow reaches by URI."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from catalog import payloads as module
from catalog.payloads import Payloads

TABLE = pa.table({"c0": pa.array([1, None, 3]), "c1": ["a", "b", None]})
EMPTY = TABLE.slice(0, 0)


@pytest.fixture(params=["path", "file uri", "another file system"])
def payloads(request: pytest.FixtureRequest, tmp_path: Path) -> Payloads:
    place = tmp_path / "deep" / "payloads"
    places: dict[str, Path | str] = {
        "path": place,
        "file uri": place.as_uri(),
        "another file system": "mock:///deep/payloads",
    }
    return Payloads(places[request.param])


def test_a_payload_is_readable_until_it_is_removed(payloads: Payloads) -> None:
    first = payloads.write(TABLE.schema, TABLE.to_batches(max_chunksize=1))
    second = payloads.write(EMPTY.schema, [])
    assert payloads.names() == {first, second}
    assert payloads.open(first).equals(TABLE)
    assert payloads.open(second).equals(EMPTY)
    payloads.remove(first)
    payloads.remove(first)  # removing it again is no error
    assert payloads.names() == {second}
    with pytest.raises(OSError):
        payloads.open(first)


def test_a_failed_write_leaves_no_file(payloads: Payloads) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from TABLE.to_batches()
        raise RuntimeError("the client went away")

    with pytest.raises(RuntimeError, match="went away"):
        payloads.write(TABLE.schema, batches())
    assert payloads.names() == set()


def test_a_failed_sync_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    payloads = Payloads(tmp_path / "payloads")

    def broken(path: str) -> None:
        raise OSError("disk failed")

    monkeypatch.setattr(module, "sync", broken)
    with pytest.raises(OSError, match="disk failed"):
        payloads.write(TABLE.schema, TABLE.to_batches())
    assert payloads.names() == set()


def test_the_file_the_directory_and_its_parent_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(module, "sync", synced.append)
    name = Payloads(tmp_path / "payloads").write(TABLE.schema, TABLE.to_batches())
    root = tmp_path / "payloads"
    assert synced == [str(tmp_path), str(root / name), str(root)]


def test_a_reader_keeps_an_unlinked_file(tmp_path: Path) -> None:
    payloads = Payloads(tmp_path)
    name = payloads.write(TABLE.schema, TABLE.to_batches())
    table = payloads.open(name)
    payloads.remove(name)
    assert table.equals(TABLE)


def test_other_files_are_not_payloads(tmp_path: Path) -> None:
    (tmp_path / "README").write_text("not ours")
    assert Payloads(tmp_path).names() == set()


@pytest.mark.parametrize("keep", [0, 4, mmap.PAGESIZE // 8, -1])
def test_a_truncated_file_is_an_error(tmp_path: Path, keep: int) -> None:
    payloads = Payloads(tmp_path)
    name = payloads.write(TABLE.schema, TABLE.to_batches())
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:keep])
    with pytest.raises((OSError, pa.ArrowInvalid)):
        payloads.open(name)
