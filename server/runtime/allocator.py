"""Settings of the allocator of Arrow's buffers, which it reads when pyarrow is imported.

- jemalloc, which returns the memory of threads that do nothing. Arrow's default, mimalloc, keeps it until they allocate
  again, or end.
- Memory that was freed is returned to the system ten seconds later, so that the next steps of a busy dataflow use it
  again without page faults.
- Without transparent huge pages. The buffers of a step are freed after it, and a page fault that gets a huge page
  clears two megabytes, even for a buffer that needs 64 KiB of them. mimalloc, which is also initialized, has the kernel
  disable them for the whole process and for the processes that it starts.
"""

from __future__ import annotations

import sys
from collections.abc import MutableMapping

SETTINGS = {"MIMALLOC_ALLOW_THP": "0", "MIMALLOC_PURGE_DELAY": "10000"}  # the delay is in milliseconds
if sys.platform == "linux":  # pyarrow's packages for other systems do not always contain jemalloc
    SETTINGS["ARROW_DEFAULT_MEMORY_POOL"] = "jemalloc"
    SETTINGS["JE_ARROW_MALLOC_CONF"] = "dirty_decay_ms:10000,muzzy_decay_ms:0"


def configure_allocator(environ: MutableMapping[str, str]) -> None:
    """Adds the settings that `environ` does not have. It must be the environment of a process without pyarrow."""
    for name, value in SETTINGS.items():
        environ.setdefault(name, value)
