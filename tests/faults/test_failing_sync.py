"""A sync that fails: a commit that was reported as failed must be absent after the next start of the server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from catalog.store import Store

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("way", ["transaction", "alone"])
def test_a_commit_that_was_reported_as_failed_is_absent_after_a_restart(tmp_path: Path, way: str) -> None:
    # strace counts the calls of each thread. The 41st is one of the writer's, which syncs once per commit.
    inject = ["strace", "-f", "-o", "/dev/null", "-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO:when=41"]
    command = [*inject, sys.executable, "-m", "tests.faults.failing_sync", str(tmp_path), way]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout == "40\n", done.stderr
    store = Store(tmp_path)
    found = {int(name) for (name,) in store.read("SELECT name FROM settings")}
    store.close()
    assert found == set(range(40))
