"""Runs in files, and what Spark's Python workers do with them: tasks that are sent there, and answered there.

    server            SELECT arrangement_task(task) FROM tasks         one `Task` a row, pickled
    a Python worker   maps the files that the task names, searches or merges them, answers with Arrow

A run is cut into pieces, each a file in Arrow's format, sorted by code: so a range of codes is a few files, and a task
is about a range. Files are never changed; a worker keeps those that it uses mapped.

A worker that cannot read or write a file says so in its answer: it is no error of the statement, and is not tried again
by Spark but by who asked. What is in a file that is not there yet, or not yet whole, is never taken for nothing.
"""

from __future__ import annotations

import dataclasses
import errno
import itertools
import pickle
import time
import uuid
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from catalog import spill
from catalog import updates as u
from catalog.hashing import Hashes
from server.dataflow.run import ByKeyAndOrder, Run, Sorting, first, first_of, merged, probed, sorted_run, whole

FUNCTION = "arrangement_task"
PIECE_BYTES = 32 << 20  # of a file; a merge needs some six times as much memory in a worker
ANSWER_BYTES_MAX = 8 << 20  # larger answers go through a file
MAPPED_MAX = 512  # files that a worker keeps mapped,
MAPPED_S = 60.0  # and for how long without use: a file that was removed takes room until then
PATH, ERROR, ERRNO = b"path", b"error", b"errno"  # in the metadata of an answer

Pieces = tuple["Piece", ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """A file with entries of a run, whose codes are from `low` to `high`."""

    path: str
    rows: int
    bytes: int
    low: int
    high: int

    def overlaps(self, low: int, end: int | None) -> bool:
        """Whether it may have codes in [low, end)."""
        return self.high >= low and (end is None or self.low < end)

    def has_any(self, codes: Hashes) -> bool:
        """Whether it may have one of these codes, which are ascending."""
        low, high = codes.dtype.type(self.low), codes.dtype.type(self.high)
        return bool(np.searchsorted(codes, low, "left") < np.searchsorted(codes, high, "right"))


class Task(Protocol):
    """Something to do where the files can be reached. Pickled, it is what `arrangement_task` is called with."""

    @property
    def pieces(self) -> Pieces:
        """What is read; at least one."""

    @property
    def effort(self) -> int:
        """How many searches or entries it takes, about."""

    def answer(self) -> pa.Table: ...


@dataclass(frozen=True, slots=True)
class Probe:
    """The rows with one of these codes at `as_of`, consolidated."""

    pieces: Pieces
    codes: Hashes
    as_of: int

    @property
    def effort(self) -> int:
        return len(self.codes)

    def answer(self) -> pa.Table:
        runs = [_mapped(piece) for piece in self.pieces]
        return probed(runs, runs[0].rows.schema, self.codes, self.as_of)


@dataclass(frozen=True, slots=True)
class Whole:
    """The rows whose codes are in [low, end) at `as_of`, consolidated."""

    pieces: Pieces
    low: int
    end: int | None
    as_of: int

    @property
    def effort(self) -> int:
        return sum(piece.rows for piece in self.pieces)

    def answer(self) -> pa.Table:
        runs = [_mapped(piece).between(self.low, self.end) for piece in self.pieces]
        return whole(runs, runs[0].rows.schema, self.as_of)


@dataclass(frozen=True, slots=True)
class First:
    """The first of the rows whose codes are in [low, end) at `as_of`: `count` copies, with ties; or all of them."""

    pieces: Pieces
    low: int
    end: int | None
    as_of: int
    count: int

    @property
    def effort(self) -> int:
        return self.count * len(self.pieces)

    def answer(self) -> pa.Table:
        runs = [_mapped(piece).between(self.low, self.end) for piece in self.pieces]
        return first(runs, runs[0].rows.schema, self.count, self.as_of)


@dataclass(frozen=True, slots=True)
class FirstOf:
    """The first of the rows with each of these codes at `as_of`: `counts` copies, with ties."""

    pieces: Pieces
    sorted_by: ByKeyAndOrder
    codes: Hashes
    counts: NDArray[np.int64]
    as_of: int

    @property
    def effort(self) -> int:
        return len(self.codes)

    def answer(self) -> pa.Table:
        runs = [_mapped(piece) for piece in self.pieces]
        return first_of(runs, runs[0].rows.schema, self.sorted_by, self.codes, self.counts, self.as_of)


@dataclass(frozen=True, slots=True)
class Merge:
    """The entries whose codes are in [low, end) as one run. The answer: its pieces, whose names begin with `name`."""

    pieces: Pieces
    low: int
    end: int | None
    sorted_by: Sorting
    since: int
    directory: str
    name: str

    @property
    def effort(self) -> int:
        return sum(piece.rows for piece in self.pieces)

    def answer(self) -> pa.Table:
        parts = [_mapped(piece).between(self.low, self.end) for piece in self.pieces]
        run = merged(self.sorted_by, parts, self.since)
        return table_of([] if run is None else written(run, Path(self.directory), self.name))


# -- files ----------------------------------------------------------------------------------------------------------


def written(run: Run, directory: Path, name: str) -> list[Piece]:
    """The run in files. OSError without room; those that were written before are left to the caller."""
    count = -(-run.bytes // PIECE_BYTES)
    places = np.linspace(0, len(run.codes), count + 1, dtype=np.int64)
    return [_written(run.part(first, last), directory, name) for first, last in itertools.pairwise(places.tolist())]


def written_sorted(
    sorted_by: Sorting, changes: pa.Table, time: int, directory: Path, name: str, scratch: Path | None
) -> list[Piece]:
    """Changes of one time as a run in files. More than a piece is sorted by way of a file in `scratch`."""
    if changes.nbytes <= PIECE_BYTES:
        return written(sorted_run(sorted_by, changes, time), directory, name)
    codes = np.concatenate([sorted_by.codes(u.rows_of(part)) for part in spill.pieces(changes, PIECE_BYTES)])
    count = min(spill.PARTITIONS_MAX, -(-changes.nbytes // PIECE_BYTES))
    bounds = np.unique(np.sort(codes)[:: -(-len(codes) // count)])  # what the partitions begin with
    partitions = spill.Partitions(changes.schema, len(bounds), scratch)
    try:
        done = 0
        for part in spill.pieces(changes, PIECE_BYTES):
            own = codes[done : done + part.num_rows]
            partitions.add(part, np.searchsorted(bounds, own, "right") - 1)
            done += part.num_rows
        partitions.written()
        found: list[Piece] = []
        for number in range(len(bounds)):
            part = pa.concat_tables(partitions.tables(number))
            found += written(sorted_run(sorted_by, part, time), directory, name)
        return found
    finally:
        partitions.close()


def _written(run: Run, directory: Path, name: str) -> Piece:
    path = directory / f"{name}-{uuid.uuid4().hex}.arrow"
    table = run.table()
    try:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table.combine_chunks())
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return Piece(str(path), len(run.codes), run.bytes, int(run.codes[0]), int(run.codes[-1]))


_used: OrderedDict[str, tuple[Run, float]] = OrderedDict()  # the one that was used last is the last


def _mapped(piece: Piece) -> Run:
    """OSError when it is not there, or not whole."""
    now = time.monotonic()
    known = _used.pop(piece.path, None)
    run = known[0] if known is not None else _opened(piece)
    _used[piece.path] = run, now
    while len(_used) > MAPPED_MAX or next(iter(_used.values()))[1] < now - MAPPED_S:
        _used.popitem(last=False)
    return run


def _opened(piece: Piece) -> Run:
    try:
        run = Run.of(pa.ipc.open_file(pa.memory_map(piece.path)).read_all())
    except pa.ArrowInvalid as error:
        raise OSError(errno.EIO, f"{piece.path}: {error}") from error
    if len(run.codes) != piece.rows:
        raise OSError(errno.EIO, f"{piece.path} has {len(run.codes)} of {piece.rows} rows")
    return run


# -- what Spark calls --------------------------------------------------------------------------------------------------


def answers(tasks: pa.Array) -> pa.Array:
    """`arrangement_task`: what each pickled task answers, as a stream of Arrow."""
    return pa.array([_answer(pickle.loads(task.as_py())) for task in tasks], pa.binary())


def _answer(task: Task) -> bytes:
    try:
        table = task.answer()
        if table.nbytes > ANSWER_BYTES_MAX:
            table = _left(table, Path(task.pieces[0].path).parent)
    except OSError as error:
        words = {ERROR: str(error), ERRNO: str(error.errno or errno.EIO)}
        table = pa.table({}).replace_schema_metadata(words)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _left(table: pa.Table, directory: Path) -> pa.Table:
    """The table's schema, with a word where the rows are."""
    path = directory / f"answer-{uuid.uuid4().hex}.arrow"
    try:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return table.schema.empty_table().replace_schema_metadata({PATH: str(path)})


def answered(answer: bytes) -> pa.Table:
    """What a worker answered. OSError: what it, or we, could not read or write."""
    table = pa.ipc.open_stream(answer).read_all()
    words = table.schema.metadata or {}
    if ERROR in words:
        raise OSError(int(words[ERRNO]), words[ERROR].decode())
    if PATH not in words:
        return table
    path = words[PATH].decode()
    try:
        return pa.ipc.open_file(pa.memory_map(path)).read_all()
    except pa.ArrowInvalid as error:
        raise OSError(errno.EIO, f"{path}: {error}") from error
    finally:
        Path(path).unlink(missing_ok=True)


_PIECES = pa.schema(
    [("path", pa.string()), ("rows", pa.int64()), ("bytes", pa.int64()), ("low", pa.uint64()), ("high", pa.uint64())]
)


def table_of(pieces: Sequence[Piece]) -> pa.Table:
    return pa.Table.from_pylist([dataclasses.asdict(piece) for piece in pieces], _PIECES)


def pieces_of(table: pa.Table) -> list[Piece]:
    return [Piece(**fields) for fields in table.to_pylist()]


FUNCTIONS = {FUNCTION: (answers, '"binary"')}
"""What the engine registers; see `server.spark.python_functions`."""
