"""A model of a disk that loses power: the possible states of its files, given what was written and what was synced.

Synced data is present. A sector of 512 bytes that was written but not synced has any of the versions written since the
last sync, independently of other sectors. A file may be longer than what was written to it, filled with zeros. If a
name was created, removed or renamed and its directory was not synced, the change may be lost. A file whose name was not
synced may be missing although its content was synced.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.recorder import Event

SECTOR = 512


@dataclass
class File:
    content: bytearray = field(default_factory=bytearray)
    """The content that is certainly on disk."""
    pending: list[tuple[int, int, bytes | None]] = field(default_factory=list)
    """(number of the event, offset, data), in order. `data` None is a truncation to the offset."""

    def settle(self, before: int) -> None:
        """Makes everything that was written before that event durable."""
        for _, offset, data in [change for change in self.pending if change[0] < before]:
            _apply(self.content, offset, data)
        self.pending = [change for change in self.pending if change[0] >= before]

    def survivor(self, dice: random.Random, chance: Callable[[int], int]) -> bytes:
        """One possible content. `chance(n)` returns how many of n changes, counted from the first, reached the disk."""
        content = bytearray(self.content)
        changes = self.pending
        for at, (_, _, data) in enumerate(changes):
            if data is None:  # a truncation separates the changes: it takes effect after all changes before it
                if chance(2) < 2:
                    changes = changes[:at]
                    break
                content = bytearray(self.content)
                for _, offset, earlier in changes[: at + 1]:
                    _apply(content, offset, earlier)
        start = 1 + max((at for at, (_, _, data) in enumerate(changes) if data is None), default=-1)
        rest = changes[start:]
        limits: dict[int, int] = {}
        for at, (_, offset, data) in enumerate(rest):
            assert data is not None
            position = offset
            while position < offset + len(data):
                sector = position // SECTOR
                end = min((sector + 1) * SECTOR, offset + len(data))
                if at < limits.setdefault(sector, chance(len(rest))):
                    _apply(content, position, data[position - offset : end - offset])
                position = end
        size = max((offset + len(data) for _, offset, data in rest if data is not None), default=0)
        if size > len(content) and dice.random() < 0.5:
            content.extend(bytes(size - len(content)))
        return bytes(content)


@dataclass
class Directory:
    names: dict[str, File | Directory] = field(default_factory=dict)
    """The names that the process sees."""
    synced: dict[str, File | Directory] = field(default_factory=dict)
    pending: list[tuple[int, str, File | Directory | None]] = field(default_factory=list)

    def put(self, number: int, name: str, node: File | Directory | None) -> None:
        if node is None:
            self.names.pop(name, None)
        else:
            self.names[name] = node
        self.pending.append((number, name, node))

    def settle(self, before: int) -> None:
        for _, name, node in [change for change in self.pending if change[0] < before]:
            _put(self.synced, name, node)
        self.pending = [change for change in self.pending if change[0] >= before]

    def survivors(self, chance: Callable[[int], int]) -> dict[str, File | Directory]:
        names = dict(self.synced)
        for name in {name for _, name, _ in self.pending}:
            changes = [node for _, changed, node in self.pending if changed == name]
            for node in changes[: chance(len(changes))]:
                _put(names, name, node)
        return names


def _put(names: dict[str, File | Directory], name: str, node: File | Directory | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


def _apply(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del content[offset:]
        content.extend(bytes(offset - len(content)))
        return
    content.extend(bytes(max(0, offset - len(content))))
    content[offset : offset + len(data)] = data


class Disk:
    """`do` applies the events in order. `lose_power` can be called at any time and repeatedly."""

    def __init__(self) -> None:
        self._root = Directory()
        self._number = 0
        self._begun: dict[int, int] = {}

    def do(self, event: Event) -> None:
        self._number += 1
        match event.what:
            case "create":
                self._parent(event.path).put(self._number, event.path.name, File())
            case "mkdir":
                self._parent(event.path).put(self._number, event.path.name, Directory())
            case "remove":
                self._parent(event.path).put(self._number, event.path.name, None)
            case "rename":
                assert event.to is not None
                node = self._node(event.path)
                self._parent(event.path).put(self._number, event.path.name, None)
                self._parent(event.to).put(self._number, event.to.name, node)
            case "write" | "truncate":
                file = self._node(event.path)
                if isinstance(file, File):  # otherwise it was removed, and a process that has it open writes to it
                    data = event.data if event.what == "write" else None
                    file.pending.append((self._number, event.offset, data))
            case "sync begun":
                self._begun[event.token] = self._number
            case "sync done":
                node = self._node(event.path)
                if node is not None:
                    node.settle(self._begun[event.token])

    def _node(self, path: Path) -> File | Directory | None:
        node: File | Directory | None = self._root
        for part in path.parts:
            node = node.names.get(part) if isinstance(node, Directory) else None
        return node

    def _parent(self, path: Path) -> Directory:
        node = self._node(path.parent)
        assert isinstance(node, Directory), path
        return node

    def lose_power(self, target: Path, dice: random.Random) -> None:
        """Writes one possible state of all files to the directory `target`."""
        match dice.randrange(4):
            case 0:
                chance = lambda n: 0
            case 1:
                chance = lambda n: n
            case 2:
                chance = lambda n: dice.choice((0, n))
            case _:
                chance = lambda n: dice.randrange(n + 1)
        _write(self._root.survivors(chance), target, dice, chance)


def _write(names: dict[str, File | Directory], target: Path, dice: random.Random, chance: Callable[[int], int]) -> None:
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, node in names.items():
        if isinstance(node, Directory):
            _write(node.survivors(chance), target / name, dice, chance)
        elif not name.endswith("-shm"):  # the index of SQLite's WAL; the next process that opens the WAL rebuilds it
            (target / name).write_bytes(node.survivor(dice, chance))
