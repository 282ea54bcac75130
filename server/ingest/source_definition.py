"""What CREATE SOURCE says of a source, and the collections that it fills."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from catalog.ids import ObjectId
from catalog.objects.columns import Column
from catalog.objects.secrets import Secret
from catalog.source_definition import Format, ForTables
from protocol.pgwire.errors import PgError, SqlState

Options = Mapping[str, str | Secret]
"""Options of a connection by lower-case name, such as `sasl password`."""

COLUMNS_MAX = 1_600  # of an output, as of a table


def check_column_count(count: int) -> None:
    """PgError 54011 if an output would have more columns than a table may have."""
    if count > COLUMNS_MAX:
        raise PgError(SqlState.TOO_MANY_COLUMNS, f"sources can have at most {COLUMNS_MAX} columns")


@dataclass(frozen=True, slots=True)
class Output:
    """A collection that a source fills.

    `reference`: its name in the external system (`public.orders`; a topic). `name`: the name of the collection, from
    FOR TABLES (... AS name) or derived from the reference. `key`: the columns of a key that is unique in the output.
    """

    reference: str
    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Target:
    """An output that exists as a collection. `output` is as `SourceKind.outputs` returned it, without its name.

    `format`: of the collection, if it was created by CREATE TABLE ... FROM SOURCE, otherwise of the source.
    """

    id: ObjectId
    output: Output
    format: Format | None = None


@dataclass(frozen=True)
class SourceDefinition:
    """What a CREATE SOURCE statement says, with secrets resolved. Its repr shows no values of options.

    `kind`: kafka, postgres, file or load generator. `connection`: the options of the connection, {} if there is none.
    `options`: those of the source by lower-case name (`topic`, `publication`, `path`); lists are joined by commas.
    `columns`: the column list of CREATE SOURCE ... FROM FILE, if it has types. `registries`: the options of the
    connections that formats name. `identity`: unique among all sources of all servers, for names in the external
    system such as that of a replication slot; lower-case letters and digits. `present`: the references of the outputs
    that the source has when others are added; None at CREATE SOURCE.
    """

    kind: str
    connection: Options = field(default_factory=dict, repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    format: Format | None = None
    tables: ForTables = field(default_factory=ForTables)
    columns: tuple[Column, ...] = ()
    registries: Mapping[ObjectId, Options] = field(default_factory=dict, repr=False)
    identity: str = ""
    present: frozenset[str] | None = None
