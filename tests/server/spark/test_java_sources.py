"""The Java sources compile with javac, not only with Janino, which ignores type arguments."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.skipif(shutil.which("javac") is None, reason="needs a JDK")
def test_javac_has_no_warnings() -> None:
    done = subprocess.run([ROOT / ".ci" / "check-java", sys.executable], capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
