"""javac compiles the Java sources without warnings. Janino, which the server uses, ignores type arguments."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.skipif(shutil.which("javac") is None, reason="needs a JDK")
@pytest.mark.long
def test_javac_has_no_warnings() -> None:
    # the JVM prints it if it is set
    environ = {name: value for name, value in os.environ.items() if name != "JAVA_TOOL_OPTIONS"}
    command = [ROOT / ".ci" / "check-java", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=environ)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
