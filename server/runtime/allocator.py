"""Settings of the allocator of Arrow's buffers (mimalloc), which reads them when pyarrow is imported.

- Without transparent huge pages. The buffers of a step are freed after it, and a page fault that gets a huge page
  clears two megabytes, even for a buffer that needs 64 KiB of them. The kernel disables them for the whole process and
  for the processes that it starts.
- Memory that was freed is returned to the system after ten seconds instead of one, so that the next steps of a busy
  dataflow use it again without page faults.
"""

from __future__ import annotations

from collections.abc import MutableMapping

SETTINGS = {"MIMALLOC_ALLOW_THP": "0", "MIMALLOC_PURGE_DELAY": "10000"}  # the delay is in milliseconds


def configure_allocator(environ: MutableMapping[str, str]) -> None:
    """Adds the settings that `environ` does not have. It must be the environment of a process without pyarrow."""
    for name, value in SETTINGS.items():
        environ.setdefault(name, value)
