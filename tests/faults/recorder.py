"""The operations of a process on files below a directory, recorded by strace: writes, syncs, creations and removals.

    command = recording(trace)               the prefix for the command of the process
    for event in events(trace, root): ...    after the process has ended

strace is a package of the system; `recording` raises an error if it is not installed. The recorded process is the child
and strace a detached grandchild (-D), so killing the process does not kill strace.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CALLS = (
    *("openat", "open", "creat", "write", "pwrite64", "writev", "pwritev", "lseek", "ftruncate", "truncate"),
    *("fallocate", "fsync", "fdatasync", "rename", "renameat", "renameat2", "unlink", "unlinkat", "mkdir", "mkdirat"),
    *("rmdir", "link", "linkat", "copy_file_range", "sendfile", "sync_file_range"),
)
_HEX = r"(?:\\x[0-9a-f]{2})*"
_LINE = re.compile(r"^(\d+) +(\d+\.\d+) (.*)$")
_CALL = re.compile(r"^(\w+)\((.*?)\)? += +(-?\d+|\?)(.*)$", re.DOTALL)
_DESCRIPTOR = re.compile(rf"^(\d+)<({_HEX})>")
_TEXT = re.compile(rf'"({_HEX})"')


@dataclass(frozen=True)
class Event:
    """`at`: when the call began, in seconds since 1970. `path` is relative to the root; `to` is the target of a rename.

    what: create, mkdir, write (`offset`, `data`), truncate (`offset` is the new size), remove, rename, sync begun,
    sync done (`token` connects the two; of a file or a directory).
    """

    at: float
    what: str
    path: Path
    offset: int = 0
    data: bytes = b""
    token: int = 0
    to: Path | None = None


def recording(trace: Path) -> list[str]:
    """The prefix of the command. FileNotFoundError if strace is not installed."""
    strace = shutil.which("strace")
    if strace is None:
        raise FileNotFoundError("lost power is tested with strace, which is not installed: apt-get install strace")
    options = ["-D", "-f", "-y", "-xx", "-ttt", "-s", "100000000", "-e", f"trace={','.join(CALLS)}", "--seccomp-bpf"]
    return [strace, *options, "-e", "signal=none", "-o", str(trace)]


def await_end(trace: Path, pid: int) -> None:
    """Returns when strace has written all calls of a process that has ended."""
    deadline = time.monotonic() + 60
    end = re.compile(rf"^{pid} +\S+ \+\+\+ ", re.MULTILINE)
    while not end.search(trace.read_text()[-4_000:]):
        assert time.monotonic() < deadline, "the tracer did not end"
        time.sleep(0.05)


def events(trace: Path, root: Path) -> Iterator[Event]:
    """The events in the order in which the calls ended; "sync begun" is at the beginning of its call."""
    unfinished: dict[str, tuple[float, str, int]] = {}
    offsets: dict[int, tuple[Path, int]] = {}  # the file positions of descriptors
    known: dict[Path, int] = {}  # the sizes of existing files
    for number, line in enumerate(trace.read_text().splitlines()):
        match = _LINE.match(line)
        assert match, line[:200]
        pid, at, text = match[1], float(match[2]), match[3]
        if text.startswith(("+++", "---")):
            continue
        token = number
        if text.endswith("<unfinished ...>"):
            text = text.removesuffix("<unfinished ...>")
            unfinished[pid] = at, text, token
            if text.startswith(("fsync", "fdatasync")) and (path := _path(text, root)):
                yield Event(at, "sync begun", path, token=token)
            continue
        if text.startswith("<... "):
            begun, head, token = unfinished.pop(pid)
            at, text = begun, head + text.partition(" resumed>")[2]
        elif text.startswith(("fsync", "fdatasync")) and (path := _path(text, root)):
            yield Event(at, "sync begun", path, token=token)
        call = _CALL.match(text)
        if call is None or call[3] == "?" or call[3].startswith("-"):
            continue  # it failed, or did not return
        yield from _events(at, call[1], call[2], int(call[3]), token, root, offsets, known)


def _path(text: str, root: Path) -> Path | None:
    match = _DESCRIPTOR.match(text.partition("(")[2])
    return _below(match[2], root) if match else None


def _below(text: str, root: Path) -> Path | None:
    path = Path(_bytes(text).decode())
    return path.relative_to(root) if path.is_relative_to(root) else None


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def _events(
    at: float,
    call: str,
    arguments: str,
    result: int,
    token: int,
    root: Path,
    offsets: dict[int, tuple[Path, int]],
    known: dict[Path, int],
) -> Iterator[Event]:
    descriptor = _DESCRIPTOR.match(arguments)
    path = _below(descriptor[2], root) if descriptor else None
    names = [_below(text, root) for text in _TEXT.findall(arguments)] if descriptor is None else []
    if descriptor is None and not any(names):
        if call in ("openat", "open", "creat"):
            offsets.pop(result, None)
    elif call in ("openat", "open", "creat"):
        opened = names[0]
        offsets.pop(result, None)
        if opened is None or "O_DIRECTORY" in arguments:
            return
        if opened not in known and "O_CREAT" in arguments:
            known[opened] = 0
            yield Event(at, "create", opened)
        elif "O_TRUNC" in arguments:
            known[opened] = 0
            yield Event(at, "truncate", opened)
        offsets[result] = opened, known.get(opened, 0) if "O_APPEND" in arguments else 0
    elif call in ("mkdir", "mkdirat") and names[0] is not None:
        yield Event(at, "mkdir", names[0])
    elif call in ("unlink", "unlinkat", "rmdir") and names[0] is not None:
        known.pop(names[0], None)
        yield Event(at, "remove", names[0])
    elif call in ("rename", "renameat", "renameat2") and names[0] is not None:
        assert names[1] is not None, "a file leaves the directory that is recorded"
        known[names[1]] = known.pop(names[0], 0)
        yield Event(at, "rename", names[0], to=names[1])
    elif path is None or descriptor is None:
        return
    elif call in ("fsync", "fdatasync"):
        yield Event(at, "sync done", path, token=token)
    elif call == "lseek":
        offsets[int(descriptor[1])] = path, result
    elif call in ("ftruncate", "truncate"):
        known[path] = int(arguments.rpartition(",")[2])
        yield Event(at, "truncate", path, known[path])
    elif call in ("write", "pwrite64"):
        data = _bytes(_TEXT.findall(arguments)[0])[:result]
        fd = int(descriptor[1])
        if call == "pwrite64":
            offset = int(arguments.rpartition(",")[2])
        else:
            offset = offsets.get(fd, (path, 0))[1]
            offsets[fd] = path, offset + result
        known[path] = max(known.get(path, 0), offset + result)
        yield Event(at, "write", path, offset, data)
    else:
        raise AssertionError(f"{call} of {path} is not known to the recorder")
