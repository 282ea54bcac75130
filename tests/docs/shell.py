"""Runs the shell commands of the documentation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT
from tests.fix_postgres import binaries
from tests.polling import HANG_S


def shell(commands: str, directory: Path, **environment: str) -> subprocess.Popen[str]:
    """Starts bash with the commands in a directory. The programs of Tidewire are those of this repository.

    bash ends at the first command that fails. The process is a group of its own.
    """
    programs = directory / "bin"
    programs.mkdir(exist_ok=True)
    for name, module in (("python", ""), ("tidewire", "-m server"), ("testdrive", "-m testdrive")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
        (programs / name).chmod(0o755)
    path = f"{programs}:{binaries()}:{os.environ['PATH']}"
    return subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=directory,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def output(commands: str, directory: Path, **environment: str) -> str:
    """What the commands print. AssertionError if one of them fails."""
    with shell(commands, directory, **environment) as process:
        assert process.stdout is not None
        printed = process.stdout.read()
        assert process.wait(HANG_S) == 0, printed
    return printed
