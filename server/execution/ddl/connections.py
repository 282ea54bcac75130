"""CREATE CONNECTION, ALTER CONNECTION and VALIDATE CONNECTION."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from catalog.ids import ObjectId
from catalog.objects.connections import Connection
from catalog.objects.secrets import NamedSecret
from catalog.roles import Privilege
from catalog.state import CatalogState, NameTaken
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import TEXT
from server.authorization import privileges
from server.execution.ddl.named_objects import altered_item, named_item, unless_exists
from server.execution.names import qualified_name, schema_of
from server.ingest.definitions import connection_options
from server.ingest.kinds import validate_connection
from server.session_state.context import Context
from server.session_state.results import Result
from server.session_state.transaction import Mode
from server.sql.functions.strings import quote_text
from server.sql.grammar.rules.sources import CONNECTION_OPTIONS
from server.sql.grammar.statements.objects import ObjectKind
from server.sql.grammar.statements.parts import Ident, Name
from server.sql.grammar.statements.sources import AlterConnection, CreateConnection, Option, ValidateConnection
from server.sql.plan import Field

_REQUIRED: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "kafka": (("broker", "brokers"),),
    "confluent schema registry": (("url",),),
    "postgres": (("host",), ("database",)),
}
"""The options that a connection must have: one of each tuple."""


async def evaluate(context: Context, statement: CreateConnection | AlterConnection) -> object:
    """Contacts the external system, if the statement has VALIDATE. PgError if it cannot be reached."""
    await context.enter(Mode.DEFINE, statement.tag)
    if statement.validate:
        state = context.state
        match statement:
            case CreateConnection(name=name):
                schema, last = schema_of(context, name)
                if state.item_named(schema.id, last) is None:
                    connection = _connection(context, ObjectId(""), schema.id, last, statement)
                    await validate_connection(connection.system, connection_options(state, connection))
            case AlterConnection():
                altered = _altered(context, statement)
                if altered is not None:
                    await validate_connection(altered.system, connection_options(state, altered))
    return statement


def create(context: Context, statement: CreateConnection) -> CatalogState:
    """Executes CREATE CONNECTION. PgError 42501."""
    schema, name = schema_of(context, statement.name)
    id, state = context.state.new_id()
    try:
        return state.with_item(_connection(context, id, schema.id, name, statement))
    except NameTaken as error:
        return unless_exists(context, error, statement.if_not_exists)


def alter(context: Context, statement: AlterConnection) -> CatalogState:
    """Executes ALTER CONNECTION ... SET or RESET. Sources that use the connection reconnect. PgError 42501."""
    altered = _altered(context, statement)
    return context.state if altered is None else context.state.with_item(altered)


async def validate(context: Context, statement: ValidateConnection) -> Result:
    """Executes VALIDATE CONNECTION: contacts the external system. PgError if it cannot be reached."""
    connection = used_connection(context, statement.name)
    await validate_connection(connection.system, connection_options(context.state, connection))
    return Result(statement.tag)


def used_connection(context: Context, name: Name, *, system: str | None = None) -> Connection:
    """The connection that a statement uses. PgError 42704; 42809, also if it is to another system; 42501."""
    connection = named_item(context, ObjectKind.CONNECTION, name)
    assert isinstance(connection, Connection)
    privileges.require_names(context.state, context.role, (connection.id,))
    privileges.require(context.state, context.role, connection.id, Privilege.USAGE)
    if system is not None and connection.system != system:
        raise PgError(
            SqlState.WRONG_OBJECT_TYPE,
            f'connection "{connection.name}" is not a connection to {system.upper()}',
            detail=f"It is a connection to {connection.system.upper()}.",
            position=name.position,
        )
    return connection


def _connection(context: Context, id: ObjectId, schema: ObjectId, name: str, statement: CreateConnection) -> Connection:
    _require_superuser(context, "create", name)
    plain, secrets = _split(context, statement.options)
    connection = Connection(id, schema, name, statement.system, plain, secrets)
    _check(connection)
    return connection


def _altered(context: Context, statement: AlterConnection) -> Connection | None:
    """The connection with its new options; None if it does not exist and IF EXISTS is given."""
    found = altered_item(context, ObjectKind.CONNECTION, statement.name, if_exists=statement.if_exists)
    if found is None:
        return None
    assert isinstance(found, Connection)
    _require_superuser(context, "alter", found.name)
    changed: list[Option | Ident] = [*statement.set, *statement.reset]
    for option in changed:
        _check_known(found.system, option)
    plain, secrets = _split(context, statement.set)
    replaced = {option.name for option in changed}
    altered = replace(
        found,
        options={**{k: v for k, v in found.options.items() if k not in replaced}, **plain},
        secrets={**{k: v for k, v in found.secrets.items() if k not in replaced}, **secrets},
    )
    _check(altered)
    return altered


def _require_superuser(context: Context, verb: str, name: str) -> None:
    """PgError 42501 except for superusers.

    Systems that trust the server's address, such as the server itself, would let the role in.
    """
    if not privileges.is_superuser(context.state, context.role):
        raise PgError(
            SqlState.INSUFFICIENT_PRIVILEGE,
            f'permission denied to {verb} connection "{name}"',
            hint=f"Must be superuser to {verb} a connection. A superuser can grant USAGE on it.",
        )


def _check_known(system: str, option: Option | Ident) -> None:
    if option.name not in CONNECTION_OPTIONS[system]:
        raise PgError(
            SqlState.INVALID_PARAMETER_VALUE,
            f"unrecognized option {option.name.upper()} of TO {system.upper()}",
            hint=f"The options are {', '.join(name.upper() for name in CONNECTION_OPTIONS[system])}.",
            position=option.position,
        )


def _check(connection: Connection) -> None:
    """PgError 22023 without a required option, or with a password in a URL, which is no secret."""
    given = connection.options.keys() | connection.secrets.keys()
    for choices in _REQUIRED[connection.system]:
        if not given & set(choices):
            message = f"connection to {connection.system.upper()} needs the option {choices[0].upper()}"
            raise PgError(SqlState.INVALID_PARAMETER_VALUE, message)
    try:
        host = urlsplit(connection.options.get("url", "")).netloc
    except ValueError:
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, "option URL is not a URL") from None
    if "@" in host:
        raise PgError(
            SqlState.INVALID_PARAMETER_VALUE,
            "option URL contains a user name or password",
            hint="Use the options USERNAME and PASSWORD.",
        )


def _split(context: Context, options: Sequence[Option]) -> tuple[dict[str, str], dict[str, ObjectId]]:
    """The options with plain values, and those that name secrets. PgError 42704 or 42809 for a secret."""
    plain, secrets = {}, {}
    for option in options:
        if option.secret is None:
            plain[option.name] = option.value
            continue
        secret = named_item(context, ObjectKind.SECRET, option.secret)
        assert isinstance(secret, NamedSecret)
        secrets[option.name] = secret.id
    return plain, secrets


def show_create(context: Context, connection: Connection) -> str:
    """The CREATE CONNECTION statement. Secrets are shown by name."""
    options = [f"{name.upper()} = {quote_text(value)}" for name, value in connection.options.items()]
    for name, id in connection.secrets.items():
        options.append(f"{name.upper()} = SECRET {qualified_name(context, context.state.items[id])}")
    name, system = qualified_name(context, connection), connection.system.upper()
    return f"CREATE CONNECTION {name} TO {system} ({', '.join(options)})"


SHOW_FIELDS = (Field("name", TEXT, False), Field("type", TEXT, False))


def show_row(context: Context, connection: Connection) -> tuple[object, ...]:
    """A row of SHOW CONNECTIONS."""
    return connection.name, connection.system.replace(" ", "-")
