"""Where arrangements are stored and probed."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from pathlib import Path

from catalog.store import StoreError
from server.dataflow.arrangements.arrangement import Arranger, Storage
from server.dataflow.arrangements.file_arrangement import SERVER, Executors
from server.dataflow.arrangements.shared import SharedArrangements
from server.spark import Engine
from server.timeline.frontiers import Frontiers


class Arrangements:
    """The storage of arrangements: in the server, and in files that Spark's executors probe if a directory is given."""

    def __init__(self, scratch: Path, frontiers: Frontiers) -> None:
        """`scratch`: the directory for temporary files of the server."""
        self._storage = Storage(scratch)
        self._executors: Executors | None = None
        self._setting: Callable[[], str] = lambda: SERVER
        self.shared = SharedArrangements(self._storage, frontiers.hold_log)

    def use_directory(self, directory: Path, name: Path, engine: Engine, setting: Callable[[], str]) -> None:
        """Stores large arrangements in a subdirectory of `directory`. Several servers may share the directory.

        `name`: the file that contains the name of this server's subdirectory. `setting` returns the value of
        `arrangement_probing`. StoreError if the directory cannot be used.
        """
        try:
            if not name.exists():
                name.write_text(f"tidewire-{uuid.uuid4().hex}")
            self._executors = Executors(directory / name.read_text(), engine, self._storage, setting)
        except OSError as error:
            raise StoreError(
                f'could not use the arrangement directory "{directory}": {error.strerror}',
                "Choose another with --arrangement-directory, or leave it out.",
            ) from error
        self._setting = setting
        self.shared.arranger = self._executors

    @property
    def arranger(self) -> Arranger:
        return self.shared.arranger

    @property
    def has_directory(self) -> bool:
        """Whether Spark's executors can probe arrangements."""
        return self._executors is not None

    @property
    def probing(self) -> str:
        """Where arrangements that are created from now on are probed: `auto`, `server` or `executors`."""
        return self._setting()

    async def close(self) -> None:
        if self._executors is not None:
            self._executors.close()
            await asyncio.to_thread(self._executors.join)
        await asyncio.to_thread(self._storage.close)
