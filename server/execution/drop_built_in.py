"""DROP of kinds of object that users cannot create: functions, triggers, extensions and others.

A name is that of a built-in object, which cannot be dropped, or of none. Then the answer is PostgreSQL's: a notice with
IF EXISTS, an error without it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow.compute as pc

from catalog.objects.catalog_object import Item
from protocol.pgwire.errors import Notice, PgError, SqlState
from protocol.pgwire.types import PgType
from server.execution.catalog_query.session_rows import catalog_rows
from server.execution.extensions import ACCEPTED
from server.pg_catalog.static import types_by_name
from server.session_state.context import Context
from server.session_state.results import Result
from server.sql.grammar.statements.objects import DropBuiltIn, NamedBuiltIn, SignatureType
from server.sql.grammar.statements.parts import Name, NamedType
from server.sql.type_names import check_schema, resolved

_FUNCTIONS = ("function", "procedure", "routine", "aggregate")
_OF_TABLES = ("trigger", "rule", "policy")
_CATALOGS = {
    "access method": ("pg_am", "amname"),
    "collation": ("pg_collation", "collname"),
    "conversion": ("pg_conversion", "conname"),
    "extension": ("pg_extension", "extname"),
    "language": ("pg_language", "lanname"),
    "operator class": ("pg_opclass", "opcname"),
    "operator family": ("pg_opfamily", "opfname"),
    "tablespace": ("pg_tablespace", "spcname"),
    "text search configuration": ("pg_ts_config", "cfgname"),
    "text search dictionary": ("pg_ts_dict", "dictname"),
    "text search parser": ("pg_ts_parser", "prsname"),
    "text search template": ("pg_ts_template", "tmplname"),
}
"""The system relations that list the built-in objects of a kind, and the columns with their names."""
_SHOWN = {"foreign data wrapper": "foreign-data wrapper", "statistics": "statistics object"}
"""The kinds that PostgreSQL's messages call by other names."""


class _Missing(Exception):
    """What a statement names does not exist. `skipped`: the message of the notice, without `, skipping`."""

    def __init__(self, error: PgError, skipped: str) -> None:
        super().__init__(error)
        self.error, self.skipped = error, skipped


def drop_built_in(context: Context, statement: DropBuiltIn) -> Result:
    """Executes DROP of a kind of which users create nothing. PgError 42883, 42704, 42P01, 3F000; 2BP01 if it exists."""
    if context.transaction.read_only:
        message = f"cannot execute {statement.tag} in a read-only transaction"
        raise PgError(SqlState.READ_ONLY_SQL_TRANSACTION, message)
    for named in statement.objects:
        try:
            described = _found(context, statement.kind, named)
        except _Missing as missing:
            if not statement.if_exists:
                raise missing.error from None
            context.notice(Notice(f"{missing.skipped}, skipping"))
            continue
        raise PgError(
            SqlState.DEPENDENT_OBJECTS_STILL_EXIST,
            f"cannot drop {described} because it is required by the database system",
        )
    return Result(statement.tag)


def _found(context: Context, kind: str, named: NamedBuiltIn) -> str:
    """The description of the built-in object that is named. _Missing if there is none."""
    if kind in _OF_TABLES:
        raise _missing_of_table(context, kind, named)
    if named.name is not None:
        _check_schema(context, named.name)
    types = [_known(context, each) for each in named.signature or ()]
    if kind in _FUNCTIONS:
        return _function(context, kind, named, types)
    if kind == "operator":
        return _operator(context, named, types)
    if kind == "cast":
        return _cast(context, named, types)
    if kind == "transform":
        raise _missing_transform(context, named, types)
    assert named.name is not None
    if named.on is not None:
        try:
            _require(context, "access method", named.on)
        except _Missing as missing:
            raise missing.error from None  # also with IF EXISTS
    return _require(context, kind, named.name, named.on)


def _missing(what: str, skipped: str | None = None, state: SqlState = SqlState.UNDEFINED_OBJECT) -> _Missing:
    return _Missing(PgError(state, f"{what} does not exist"), f"{skipped or what} does not exist")


def _check_schema(context: Context, name: Name) -> None:
    try:
        check_schema(context.state, name.parts, context.settings["database"], None)
    except PgError as error:
        raise _Missing(error, f'schema "{name.parts[-2]}" does not exist') from None


def _known(context: Context, written: SignatureType) -> SignatureType:
    """The type with what it denotes. _Missing if there is no such type, in PostgreSQL neither."""
    type = written.type
    if not isinstance(type, NamedType):
        return written
    _check_schema(context, Name(type.parts, 0))
    if type.parts[:-1] in ((), ("pg_catalog",)) and type.parts[-1] in types_by_name():
        return written
    try:
        found, _ = resolved(context.state, type, context.settings["database"], context.search_path)
    except PgError:
        raise _missing(f'type "{written.spelling}"') from None
    return SignatureType(found, written.spelling)


def _missing_of_table(context: Context, kind: str, named: NamedBuiltIn) -> _Missing:
    """No table has triggers, rules or policies."""
    assert named.on is not None
    _check_schema(context, named.on)
    found = context.state.resolve(named.on.parts, context.settings["database"], context.search_path)
    if not isinstance(found, Item) or found.relkind is None:
        return _missing(f'relation "{named.on}"', state=SqlState.UNDEFINED_TABLE)
    word = "relation" if kind == "rule" else "table"
    return _missing(
        f'{kind} "{named.name}" for {word} "{named.on}"', f'{kind} "{named.name}" for relation "{named.on}"'
    )


def _missing_transform(context: Context, named: NamedBuiltIn, types: Sequence[SignatureType]) -> _Missing:
    """There are no transforms."""
    assert named.on is not None
    of, language = "transform for type", f'language "{named.on}"'
    missing = _missing(f"{of} {_displayed(types)} {language}", f"{of} {_spelled(named)} {language}")
    try:
        _require(context, "language", named.on)
    except _Missing as other:
        missing.error = other.error
    return missing


def _function(context: Context, kind: str, named: NamedBuiltIn, types: Sequence[SignatureType]) -> str:
    assert named.name is not None
    name, oids = named.name, [_oid(each) for each in types]
    rows = catalog_rows(context)["pg_proc"].select(["proname", "proargtypes"])
    same_name = rows.filter(pc.equal(rows["proname"], name.parts[-1])).to_pylist() if _is_built_in(name) else []
    if named.signature is None and len(same_name) > 1:
        raise PgError(SqlState.AMBIGUOUS_FUNCTION, f'{kind} name "{name}" is not unique')
    if same_name and named.signature is None:
        return f"function {name}"
    if any(row["proargtypes"] == oids for row in same_name):
        return f"function {name.parts[-1]}({_displayed(types, ',')})"
    shown = "function" if kind == "routine" else kind
    skipped = f"{kind} {name}({_spelled(named)})"
    if named.signature is None:
        article = "an" if shown == "aggregate" else "a"
        error = PgError(SqlState.UNDEFINED_FUNCTION, f'could not find {article} {shown} named "{name}"')
        raise _Missing(error, f"{skipped} does not exist")
    arguments = "*" if kind == "aggregate" and not types else _displayed(types)
    raise _missing(f"{shown} {name}({arguments})", skipped, SqlState.UNDEFINED_FUNCTION)


def _operator(context: Context, named: NamedBuiltIn, types: Sequence[SignatureType]) -> str:
    assert named.name is not None
    left, right = map(_oid, types)
    for row in catalog_rows(context)["pg_operator"].select(["oprname", "oprleft", "oprright"]).to_pylist():
        if (row["oprname"], row["oprleft"], row["oprright"]) == (named.name.parts[-1], left, right):
            return f"operator {named.name.parts[-1]}({_displayed(types, ',')})"
    operands = [_displayed([each]) for each in types if each.type is not None]
    shown = f"{operands[0]} {named.name} {operands[1]}" if len(operands) == 2 else f"{named.name} {operands[0]}"
    error = PgError(SqlState.UNDEFINED_FUNCTION, f"operator does not exist: {shown}")
    raise _Missing(error, f"operator {named.name} does not exist")


def _cast(context: Context, named: NamedBuiltIn, types: Sequence[SignatureType]) -> str:
    assert named.signature is not None
    source, target = types
    for row in catalog_rows(context)["pg_cast"].select(["castsource", "casttarget"]).to_pylist():
        if (row["castsource"], row["casttarget"]) == (_oid(source), _oid(target)):
            return f"cast from {_displayed([source])} to {_displayed([target])}"
    skipped = " to type ".join(each.spelling for each in named.signature)
    raise _missing(f"cast from type {_displayed([source])} to type {_displayed([target])}", f"cast from type {skipped}")


def _require(context: Context, kind: str, name: Name, method: Name | None = None) -> str:
    """The description of the built-in object of that name. _Missing if there is none."""
    shown = _SHOWN.get(kind, kind)
    if kind in _CATALOGS and _is_built_in(name):
        relation, column = _CATALOGS[kind]
        if name.parts[-1] in catalog_rows(context)[relation].column(column).to_pylist():
            return f"{shown} {name.parts[-1]}{'' if method is None else f' for access method {method}'}"
    skipped = f'{shown} "{name}"'
    if kind == "extension" and name.parts[-1] in ACCEPTED:
        return f"{kind} {name}"
    if kind == "collation":
        raise _missing(f'{skipped} for encoding "UTF8"', skipped)
    if method is None:
        raise _missing(skipped)
    message = f'{skipped} does not exist for access method "{method}"'
    raise _Missing(PgError(SqlState.UNDEFINED_OBJECT, message), message)


def _is_built_in(name: Name) -> bool:
    """Whether a name can be that of an object in pg_catalog."""
    return name.parts[:-1] in ((), ("pg_catalog",))


def _oid(written: SignatureType) -> int:
    """The type's OID; 0 for NONE."""
    type = written.type
    if type is None:
        return 0
    if isinstance(type, NamedType):
        return int(types_by_name()[f"{'_' if type.is_array else ''}{type.parts[-1]}"]["oid"])
    return type.oid


def _displayed(types: Sequence[SignatureType], separator: str = ", ") -> str:
    """The types as errors name them."""
    return separator.join(_display(each.type) for each in types)


def _display(type: PgType | None) -> str:
    if type is None:
        return "NONE"
    if isinstance(type, NamedType):
        return '"char"' if type.parts[-1] == "char" else str(type)
    return type.base_display


def _spelled(named: NamedBuiltIn) -> str:
    """The types as notices name them."""
    return ",".join(each.spelling for each in named.signature or ())
