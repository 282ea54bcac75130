"""The command lines set the options of Arrow's allocator before pyarrow reads them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from server.runtime.allocator import SETTINGS, configure_allocator

SERVER = """
import sys
from unittest import mock
import server.__main__ as program

def serve():
    import pyarrow as pa
    with open("/proc/self/status") as status:
        print(pa.default_memory_pool().backend_name, *[line.split()[1] for line in status if "THP_enabled" in line])

assert "pyarrow" not in sys.modules
with mock.patch.object(program, "app", serve):
    program.main()
"""
BENCHMARKS = """
import contextlib, io, runpy, sys

sys.argv = ["bench", "--help"]
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    runpy.run_module("tests.bench", run_name="__main__")

import pyarrow as pa
with open("/proc/self/status") as status:
    print(pa.default_memory_pool().backend_name, *[line.split()[1] for line in status if "THP_enabled" in line])
"""


def test_existing_settings_are_kept() -> None:
    environ = {"MIMALLOC_PURGE_DELAY": "0"}
    configure_allocator(environ)
    assert environ == {**SETTINGS, "MIMALLOC_PURGE_DELAY": "0"}


@pytest.mark.skipif("THP_enabled" not in Path("/proc/self/status").read_text(), reason="the kernel does not tell")
@pytest.mark.parametrize("program", [SERVER, BENCHMARKS], ids=["server", "benchmarks"])
@pytest.mark.long
def test_the_allocator_has_disabled_huge_pages(program: str) -> None:
    own = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    done = subprocess.run([sys.executable, "-c", program], env=own, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["jemalloc", "0"]
