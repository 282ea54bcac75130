"""The interface of a file to the task of a sink."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from protocol.cdcv2.json_form import JsonEncoder
from server.egress.file.changes_file import ChangesFile
from server.egress.sink_kind import SinkDefinition


class FileOutput:
    """A `MessageOutput`: each message is a line."""

    def __init__(self, definition: SinkDefinition) -> None:
        self._encoder = JsonEncoder(definition.encoded_columns)
        self._file = ChangesFile(Path(definition.options["path"]))

    async def open(self, *, is_new: bool) -> JsonEncoder:
        await asyncio.to_thread(self._file.open, is_new=is_new)
        return self._encoder

    async def append(self, messages: Iterable[bytes]) -> tuple[int, int]:
        return await asyncio.to_thread(self._file.append, messages)

    async def flush(self) -> None:
        await asyncio.to_thread(self._file.sync)

    async def close(self) -> None:
        await asyncio.to_thread(self._file.close)
