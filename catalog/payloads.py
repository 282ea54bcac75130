"""Where large batches lie: one Arrow IPC file each, complete and synced before the catalog names it.

The place is a directory or a filesystem URI (`s3://bucket/prefix`), so that executors elsewhere can read it. Local
files are memory-mapped: opening one reads nothing, and a reader keeps what it mapped when the file is unlinked.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from catalog.directory import sync

SUFFIX = ".arrow"


class Payloads:
    """The files below one place. Names are opaque, never reused, and say nothing of their content."""

    def __init__(self, place: str | Path) -> None:
        if isinstance(place, Path):
            self._fs, self._root = fs.LocalFileSystem(), str(place.absolute())
        else:
            self._fs, self._root = fs.FileSystem.from_uri(place)
        self._local = isinstance(self._fs, fs.LocalFileSystem)
        self._fs.create_dir(self._root, recursive=True)
        if self._local:
            sync(os.path.dirname(self._root))

    def write(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> str:
        """Writes a file to the end, syncs it and its directory, and returns its name. Takes batches as they come."""
        name = f"{uuid.uuid4().hex}{SUFFIX}"
        path = self._path(name)
        try:
            with self._fs.open_output_stream(path) as sink, pa.ipc.new_file(sink, schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
            if self._local:
                sync(path)
                sync(self._root)
        except BaseException:
            self.remove(name)
            raise
        return name

    def open(self, name: str) -> pa.Table:
        """The file's rows. Raises OSError or pa.ArrowInvalid when the file is gone or damaged."""
        path = self._path(name)
        source = pa.memory_map(path) if self._local else self._fs.open_input_file(path)
        table = pa.ipc.open_file(source).read_all()
        table.validate()  # the ends of each buffer: a damaged file must not be read out of bounds
        return table

    def remove(self, name: str) -> None:
        """Unlinks a file that no transaction names any more. One that is gone already is no error."""
        with contextlib.suppress(FileNotFoundError):
            self._fs.delete_file(self._path(name))

    def names(self) -> set[str]:
        listing = self._fs.get_file_info(fs.FileSelector(self._root))
        return {info.base_name for info in listing if info.base_name.endswith(SUFFIX)}

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"
