"""The interface of a kind of sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from catalog.ids import ObjectId
from catalog.objects.columns import Column
from catalog.source_definition import Format
from protocol.avro.encoder import EncodedColumn
from protocol.pgwire.types import parse_type
from server.egress.downstream import Downstream, Written
from server.ingest.option_values import OptionValues
from server.ingest.source_definition import Options
from server.spark import Runner


@dataclass(frozen=True)
class SinkDefinition:
    """The definition of a sink, with secrets resolved. Its repr contains no options of connections.

    `name`: of the sink. `on`, `columns`: the name and the columns of its collection. `connection`: the options of the
    connection, {} if there is none. `options`: by lower-case name: `path`, `schema` and `table`, or those of a topic;
    and `key not enforced`, `partition by`, `headers`, `progress interval` and `continue`. `identity`: as in
    `Sink`. `registries`: the options of the schema registries.
    """

    name: str
    on: str
    columns: tuple[Column, ...]
    connection: Options = field(default_factory=dict, repr=False)
    options: Mapping[str, str] = field(default_factory=dict)
    format: Format | None = None
    key: tuple[str, ...] = ()
    with_snapshot: bool = True
    identity: str = ""
    registries: Mapping[ObjectId, Options] = field(default_factory=dict, repr=False)

    @property
    def continues(self) -> bool:
        """Whether other sinks have written the history up to the time at which this one begins."""
        return "continue" in self.options

    @property
    def encoded_columns(self) -> tuple[EncodedColumn, ...]:
        """The columns for the encoders of messages."""
        return tuple(EncodedColumn(c.name, parse_type(c.type), c.nullable) for c in self.columns)

    @property
    def key_positions(self) -> tuple[int, ...] | None:
        """The positions of the columns of KEY; None without KEY."""
        names = [column.name for column in self.columns]
        return tuple(names.index(name) for name in self.key) if self.key else None


def progress_interval_s(options: Mapping[str, str], default: float) -> float:
    """The option PROGRESS INTERVAL in seconds. PgError 22023."""
    given_us = OptionValues(options).microseconds("progress interval")
    return default if given_us is None else given_us / 1e6


class SinkKind(Protocol):
    """A kind of sink. Its methods do not block the event loop."""

    async def check(self, definition: SinkDefinition) -> None:
        """Called by CREATE SINK. PgError if the definition is invalid, or the external system cannot be written to."""
        ...

    def downstream(
        self, definition: SinkDefinition, written: Written, runner: Runner, scratch: Path | None = None
    ) -> Downstream:
        """The interface to the external system, which counts what it writes in `written`. PgError as in `check`.

        `runner` evaluates expressions. `scratch`: the directory for temporary files.
        """
        ...

    async def dropped(self, definition: SinkDefinition) -> None:
        """Removes the sink's own state from the external system. Errors as in `Downstream` are logged."""
        ...
