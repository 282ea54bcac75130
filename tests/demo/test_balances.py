"""The demo of the PostgreSQL source as a program: it checks itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.demo.conftest import DEMO

TIMEOUT_S = 240


@pytest.mark.crash
@pytest.mark.long
def test_the_view_equals_what_pgbench_wrote(tmp_path: Path) -> None:
    command = [sys.executable, str(DEMO / "balances.py"), "--seconds", "3", "--scale", "1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The view is equal to PostgreSQL's result." in done.stdout
