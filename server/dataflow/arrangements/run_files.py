"""Runs in files, and the tasks with which Spark's Python workers search and merge them.

    server            SELECT arrangement_task(task) FROM tasks         one pickled `Task` per row
    Python worker     maps the files that the task names, searches or merges them, returns an Arrow stream

A run consists of Arrow files, sorted by code. A range of codes is in few files, and most tasks are about a
range. Files are immutable; a worker keeps the files that it uses mapped.

A worker that cannot read or write a file reports that in its answer. The statement does not fail and Spark does not
retry it; the server does. A missing or incomplete file is always an error, never treated as empty.
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
from protocol.columnar.hashing import Hashes
from server.dataflow.arrangements.run import (
    ByKeyAndOrder,
    Run,
    Sorting,
    all_rows,
    first,
    first_of,
    merged,
    probed,
    sorted_run,
)

FUNCTION = "arrangement_task"
FILE_BYTES = 32 << 20  # per file; a merge needs about six times as much memory in a worker
ANSWER_BYTES_MAX = 8 << 20  # larger answers are written to a file
MAPPED_MAX = 512  # files that a worker keeps mapped
MAPPED_S = 60.0  # for which a worker keeps an unused file mapped; a removed file takes disk space until then
PATH, ERROR, ERRNO = b"path", b"error", b"errno"  # keys in the metadata of an answer

RunFiles = tuple["RunFile", ...]


@dataclass(frozen=True, slots=True)
class RunFile:
    """A file with entries of a run, with codes from `low` to `high`, both inclusive."""

    path: str
    rows: int
    bytes: int
    low: int
    high: int

    def overlaps(self, low: int, end: int | None) -> bool:
        """Whether it may contain codes in [low, end); without `end`, codes >= `low`."""
        return self.high >= low and (end is None or self.low < end)

    def has_any(self, codes: Hashes) -> bool:
        """Whether it may contain one of these codes, which are ascending."""
        low, high = codes.dtype.type(self.low), codes.dtype.type(self.high)
        return bool(np.searchsorted(codes, low, "left") < np.searchsorted(codes, high, "right"))


class Task(Protocol):
    """Work on files in a process that can access them. Pickled, it is the argument of `arrangement_task`."""

    @property
    def files(self) -> RunFiles:
        """The files to read, at least one."""

    @property
    def cost(self) -> int:
        """The approximate number of searches, or of entries to read."""

    def answer(self) -> pa.Table: ...


@dataclass(frozen=True, slots=True)
class Probe:
    """The rows with one of these codes at `as_of`, consolidated."""

    files: RunFiles
    codes: Hashes
    as_of: int

    @property
    def cost(self) -> int:
        return len(self.codes)

    def answer(self) -> pa.Table:
        runs = [_mapped(file) for file in self.files]
        return probed(runs, runs[0].rows.schema, self.codes, self.as_of)


@dataclass(frozen=True, slots=True)
class AllRows:
    """The rows whose codes are in [low, end) at `as_of`, consolidated."""

    files: RunFiles
    low: int
    end: int | None
    as_of: int

    @property
    def cost(self) -> int:
        return sum(file.rows for file in self.files)

    def answer(self) -> pa.Table:
        runs = [_mapped(file).between(self.low, self.end) for file in self.files]
        return all_rows(runs, runs[0].rows.schema, self.as_of)


@dataclass(frozen=True, slots=True)
class First:
    """The first rows with codes in [low, end) at `as_of`, as `run.first`."""

    files: RunFiles
    low: int
    end: int | None
    as_of: int
    count: int

    @property
    def cost(self) -> int:
        return self.count * len(self.files)

    def answer(self) -> pa.Table:
        runs = [_mapped(file).between(self.low, self.end) for file in self.files]
        return first(runs, runs[0].rows.schema, self.count, self.as_of)


@dataclass(frozen=True, slots=True)
class FirstOf:
    """The first rows with each of these codes at `as_of`, as `run.first_of`."""

    files: RunFiles
    sorted_by: ByKeyAndOrder
    codes: Hashes
    counts: NDArray[np.int64]
    as_of: int

    @property
    def cost(self) -> int:
        return len(self.codes)

    def answer(self) -> pa.Table:
        runs = [_mapped(file) for file in self.files]
        return first_of(runs, runs[0].rows.schema, self.sorted_by, self.codes, self.counts, self.as_of)


@dataclass(frozen=True, slots=True)
class Merge:
    """Merges the entries with codes in [low, end) into one run. Returns its files; file names begin with `name`."""

    files: RunFiles
    low: int
    end: int | None
    sorted_by: Sorting
    since: int
    directory: str
    name: str

    @property
    def cost(self) -> int:
        return sum(file.rows for file in self.files)

    def answer(self) -> pa.Table:
        parts = [_mapped(file).between(self.low, self.end) for file in self.files]
        run = merged(self.sorted_by, parts, self.since)
        return table_of([] if run is None else written(run, Path(self.directory), self.name))


# -- files ----------------------------------------------------------------------------------------------------------


def written(run: Run, directory: Path, name: str) -> list[RunFile]:
    """Writes the run to files. OSError if the disk is full; the caller removes the files already written."""
    count = -(-run.bytes // FILE_BYTES)
    bounds = np.linspace(0, len(run.codes), count + 1, dtype=np.int64)
    return [_written(run.part(first, last), directory, name) for first, last in itertools.pairwise(bounds.tolist())]


def written_sorted(
    sorted_by: Sorting, changes: pa.Table, time: int, directory: Path, name: str, scratch: Path | None
) -> list[RunFile]:
    """Writes changes of one time to files as a run. More than a file is sorted with a temporary file in `scratch`."""
    if changes.nbytes <= FILE_BYTES:
        return written(sorted_run(sorted_by, changes, time), directory, name)
    codes = np.concatenate([sorted_by.codes(u.rows_of(part)) for part in spill.slices(changes, FILE_BYTES)])
    count = min(spill.PARTITIONS_MAX, -(-changes.nbytes // FILE_BYTES))
    bounds = np.unique(np.sort(codes)[:: -(-len(codes) // count)])  # the first code of each partition
    partitions = spill.Partitions(changes.schema, len(bounds), scratch)
    try:
        done = 0
        for part in spill.slices(changes, FILE_BYTES):
            own = codes[done : done + part.num_rows]
            partitions.add(part, np.searchsorted(bounds, own, "right") - 1)
            done += part.num_rows
        partitions.written()
        found: list[RunFile] = []
        for number in range(len(bounds)):
            part = pa.concat_tables(partitions.tables(number))
            found += written(sorted_run(sorted_by, part, time), directory, name)
        return found
    finally:
        partitions.close()


def _written(run: Run, directory: Path, name: str) -> RunFile:
    path = directory / f"{name}-{uuid.uuid4().hex}.arrow"
    table = run.table()
    try:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table.combine_chunks())
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return RunFile(str(path), len(run.codes), run.bytes, int(run.codes[0]), int(run.codes[-1]))


_used: OrderedDict[str, tuple[Run, float]] = OrderedDict()  # in order of last use


def _mapped(file: RunFile) -> Run:
    """The file's run, mapped. OSError if the file is missing or incomplete."""
    now = time.monotonic()
    known = _used.pop(file.path, None)
    run = known[0] if known is not None else _opened(file)
    _used[file.path] = run, now
    while len(_used) > MAPPED_MAX or next(iter(_used.values()))[1] < now - MAPPED_S:
        _used.popitem(last=False)
    return run


def _opened(file: RunFile) -> Run:
    try:
        run = Run.of(pa.ipc.open_file(pa.memory_map(file.path)).read_all())
    except pa.ArrowInvalid as error:
        raise OSError(errno.EIO, f"{file.path}: {error}") from error
    if len(run.codes) != file.rows:
        raise OSError(errno.EIO, f"{file.path} has {len(run.codes)} of {file.rows} rows")
    return run


# -- the function that Spark calls -------------------------------------------------------------------------------------


def answers(tasks: pa.Array) -> pa.Array:
    """`arrangement_task`: the answer of each pickled task as an Arrow stream."""
    return pa.array([_answer(pickle.loads(task.as_py())) for task in tasks], pa.binary())


def _answer(task: Task) -> bytes:
    try:
        table = task.answer()
        if table.nbytes > ANSWER_BYTES_MAX:
            table = _left(table, Path(task.files[0].path).parent)
    except OSError as error:
        words = {ERROR: str(error), ERRNO: str(error.errno or errno.EIO)}
        table = pa.table({}).replace_schema_metadata(words)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _left(table: pa.Table, directory: Path) -> pa.Table:
    """Writes the table to a file. Returns an empty table with its schema and the file's path in the metadata."""
    path = directory / f"answer-{uuid.uuid4().hex}.arrow"
    try:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return table.schema.empty_table().replace_schema_metadata({PATH: str(path)})


def answered(answer: bytes) -> pa.Table:
    """The table in a worker's answer. OSError if the worker or this process could not read or write a file."""
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


_RUN_FILES = pa.schema(
    [("path", pa.string()), ("rows", pa.int64()), ("bytes", pa.int64()), ("low", pa.uint64()), ("high", pa.uint64())]
)


def table_of(files: Sequence[RunFile]) -> pa.Table:
    """One row for each file, in the form in which tasks return them."""
    return pa.Table.from_pylist([dataclasses.asdict(file) for file in files], _RUN_FILES)


def files_of(table: pa.Table) -> list[RunFile]:
    """The inverse of `table_of`."""
    return [RunFile(**fields) for fields in table.to_pylist()]


FUNCTIONS = {FUNCTION: (answers, '"binary"')}
"""The functions that the engine registers; see `server.spark.python_functions`."""
