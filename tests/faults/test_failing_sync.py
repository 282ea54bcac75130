"""A sync that fails: what was told to have failed must not be there after all when the server comes back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from catalog.store import Store

pytestmark = pytest.mark.faults


def test_a_commit_that_was_told_to_have_failed_does_not_come_back(tmp_path: Path) -> None:
    # Counted for each thread: the 41st of the writer's, which syncs once a commit; opening takes fewer.
    inject = ["strace", "-f", "-o", "/dev/null", "-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO:when=41"]
    command = [*inject, sys.executable, "-m", "tests.faults.failing_sync", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout == "40\n", done.stderr
    store = Store(tmp_path)
    found = {int(name) for (name,) in store.read("SELECT name FROM settings")}
    store.close()
    assert found == set(range(40))
