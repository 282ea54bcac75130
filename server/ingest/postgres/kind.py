"""The kind of source `postgres`: the tables of a publication, read through a logical replication slot."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from protocol.pgwire.errors import PgError, SqlState
from server.ingest.postgres.connection import Server
from server.ingest.postgres.publication import PublishedTable, chosen, published_tables
from server.ingest.postgres.replication import Replication
from server.ingest.postgres.upstream import Postgres, drop_slot
from server.ingest.source_definition import Options, Output, SourceDefinition, Target
from server.ingest.source_kind import SourceContext
from server.ingest.upstream import Upstream, UpstreamError

DROP_S = 20.0
_PUBLICATION, _TEXT_COLUMNS, _EXCLUDED_COLUMNS = "publication", "text columns", "exclude columns"


class PostgresSource:
    """CREATE SOURCE ... FROM POSTGRES CONNECTION c (PUBLICATION 'p')."""

    async def validate(self, connection: Options) -> None:
        server = Server.of(connection)
        try:
            found = await server.connect()
        except UpstreamError as error:
            raise _unreachable(error) from error
        found.terminate()

    async def outputs(self, definition: SourceDefinition) -> Sequence[Output]:
        server, publication = Server.of(definition.connection), _publication(definition)
        try:
            connection = await server.connect()
            try:
                with server.understanding(), server.reporting():
                    level = await connection.fetchval("SELECT current_setting('wal_level')")
                if level != "logical":
                    raise PgError(
                        SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE,
                        f"wal_level of {server} is {level}, not logical",
                        hint="Set wal_level = logical in its postgresql.conf and restart it.",
                    )
                tables = await published_tables(connection, server, publication)
            finally:
                connection.terminate()
            (await Replication.open(server)).close()  # the user may replicate
        except UpstreamError as error:
            raise _unreachable(error) from error
        outputs = chosen(tables, definition.tables, publication)
        paths = {table.reference: _paths(server.database, table) for table in tables}
        as_text, excluded = (_columns(definition.options.get(name, "")) for name in (_TEXT_COLUMNS, _EXCLUDED_COLUMNS))
        if definition.present is None:  # later, a column may have been dropped
            every = [path for found in paths.values() for path in found.values()]
            for option, listed in ((_TEXT_COLUMNS, as_text), (_EXCLUDED_COLUMNS, excluded)):
                _check_listed(option, listed, every, publication)
        return [_adapted(output, paths[output.reference], as_text, excluded) for output in outputs]

    async def fixed_options(self, definition: SourceDefinition) -> Mapping[str, str]:
        return definition.options

    def upstream(self, definition: SourceDefinition, targets: Sequence[Target], context: SourceContext) -> Upstream:
        server = Server.of(definition.connection)
        return Postgres(server, _publication(definition), _slot(definition), targets, context)

    async def dropped(self, definition: SourceDefinition) -> None:
        server, slot = Server.of(definition.connection), _slot(definition)
        try:
            replication = await Replication.open(server)
            try:
                await asyncio.wait_for(drop_slot(replication, slot, wait=True), DROP_S)
            finally:
                replication.close()
        except (TimeoutError, UpstreamError) as error:
            reason = error.message if isinstance(error, UpstreamError) else "it is in use"
            raise UpstreamError(
                f'could not drop replication slot "{slot}" of {server}: {reason}',
                "Drop it there with pg_drop_replication_slot(), or its WAL will be kept.",
            ) from None


def _slot(definition: SourceDefinition) -> str:
    return f"tidewire_{definition.identity}"


def _publication(definition: SourceDefinition) -> str:
    for name in definition.options:
        if name not in (_PUBLICATION, _TEXT_COLUMNS, _EXCLUDED_COLUMNS):
            raise PgError(
                SqlState.INVALID_PARAMETER_VALUE,
                f"invalid source option {name.upper()}",
                hint="A source from PostgreSQL has: PUBLICATION, TEXT COLUMNS, EXCLUDE COLUMNS.",
            )
    publication = definition.options.get(_PUBLICATION)
    if not publication:
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, "source option PUBLICATION is required")
    return publication


def _columns(listed: str) -> frozenset[str]:
    """The columns of an option, such as `public.t.a, t.b`."""
    return frozenset(name.strip() for name in listed.strip("() ").split(",") if name.strip())


def _paths(database: str, table: PublishedTable) -> dict[str, str]:
    """The full names of a table's columns, after a dot, by name."""
    return {column.name: f".{database}.{table.schema}.{table.name}.{column.name}" for column in table.columns}


def _is_named(path: str, name: str) -> bool:
    """Whether `name`, such as `public.t.a` or `t.a`, names the column with this path."""
    return "." in name and path.endswith(f".{name}")


def _check_listed(option: str, listed: frozenset[str], paths: Sequence[str], publication: str) -> None:
    """PgError if a name of an option names no column of the publication."""
    for name in sorted(listed):
        if not any(_is_named(path, name) for path in paths):
            raise PgError(
                SqlState.UNDEFINED_COLUMN,
                f'column "{name}" of option {option.upper()} is not in publication "{publication}"',
                hint="Write schema.table.column, with the names that PostgreSQL has.",
            )


def _adapted(output: Output, paths: Mapping[str, str], as_text: frozenset[str], excluded: frozenset[str]) -> Output:
    """The output with the columns of TEXT COLUMNS as text and without those of EXCLUDE COLUMNS.

    `paths`: as of `_paths`.
    """

    def is_in(listed: frozenset[str], column: str) -> bool:
        return any(_is_named(paths[column], name) for name in listed)

    columns = tuple(
        replace(column, type="text") if is_in(as_text, column.name) else column
        for column in output.columns
        if not is_in(excluded, column.name)
    )
    if not columns:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f'no columns of table "{output.reference}" are left',
            hint="Name fewer columns in EXCLUDE COLUMNS, or omit the table.",
        )
    key = output.key if {*output.key} <= {column.name for column in columns} else ()
    return replace(output, columns=columns, key=key)


def _unreachable(error: UpstreamError) -> PgError:
    return PgError(SqlState.CONNECTION_FAILURE, error.message, hint=error.hint)
