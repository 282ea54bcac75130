"""The server returns memory that its threads have freed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio
import threading

from server.runtime import freed_memory

def resident_mib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) // 1024 for line in status if line.startswith("RssAnon"))

kept = []

def allocate():
    blocks = [bytearray(20_000) for _ in range(4_000)]
    kept.extend(blocks[::100])  # each prevents the allocator from returning all that was freed before it

async def main():
    freed_memory.PERIOD_S = 0.05
    returning = asyncio.create_task(freed_memory.return_periodically())
    async with asyncio.timeout(120):
        while resident_mib() > before + 40:
            await asyncio.sleep(0.01)
    returning.cancel()

before = resident_mib()
threads = [threading.Thread(target=allocate) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert resident_mib() > before + 80, "the allocator kept nothing"
asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the C library has no malloc_trim")
def test_freed_memory_is_returned() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], cwd=Path(__file__).parents[3], check=True)
