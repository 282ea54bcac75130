"""The files of large batches: one Arrow IPC file for each, complete and synced before the catalog names it.

Their location is a directory or a filesystem URI (`s3://bucket/prefix`), which executors on other machines can read.
Local files are memory-mapped: opening one reads no data, and a mapping stays valid when the file is unlinked. Only
the user that runs the server can read local files.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from catalog.directory import DIRECTORY_MODE, FILE_MODE, sync

SUFFIX = ".arrow"


class Payloads:
    """The payload files in one location. Names are opaque and never reused."""

    def __init__(self, location: str | Path, *, create: bool = True) -> None:
        """`create`: create the directory if it does not exist."""
        if isinstance(location, Path):
            self._fs, self._root = fs.LocalFileSystem(), str(location.absolute())
        else:
            self._fs, self._root = fs.FileSystem.from_uri(location)
        self._local = isinstance(self._fs, fs.LocalFileSystem)
        if create:
            self._fs.create_dir(self._root, recursive=True)
        if self._local and create:
            os.chmod(self._root, DIRECTORY_MODE)
            sync(os.path.dirname(self._root))

    def write(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> str:
        """Writes the batches to a new file and returns its name. Local files and their directory are synced."""
        name = f"{uuid.uuid4().hex}{SUFFIX}"
        path = self._path(name)
        try:
            if self._local:  # Arrow cannot create a file with given permissions
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
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
        return parsed(self.read(name))

    def read(self, name: str) -> pa.Buffer:
        """The file's bytes, memory-mapped if the file is local. OSError when the file is gone or empty."""
        path = self._path(name)
        with pa.memory_map(path) if self._local else self._fs.open_input_file(path) as source:
            return source.read_buffer()

    def size(self, name: str) -> int:
        """The file's size in bytes. OSError when the file is gone."""
        if self._local:
            return os.stat(self._path(name)).st_size
        return int(self._fs.get_file_info(self._path(name)).size or 0)

    def remove(self, name: str) -> None:
        """Unlinks a file that no transaction names any more. It is no error if the file does not exist."""
        with contextlib.suppress(FileNotFoundError):
            self._fs.delete_file(self._path(name))

    def names(self) -> set[str]:
        listing = self._fs.get_file_info(fs.FileSelector(self._root, allow_not_found=True))
        return {info.base_name for info in listing if info.base_name.endswith(SUFFIX)}

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"


def parsed(content: pa.Buffer) -> pa.Table:
    """The table in a file's content, without a copy. pa.ArrowInvalid when it is damaged."""
    table = pa.ipc.open_file(pa.BufferReader(content)).read_all()
    table.validate()  # checks buffer bounds: a damaged file must not be read out of bounds
    return table
