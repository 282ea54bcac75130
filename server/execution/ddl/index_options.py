"""The access method, the operator classes, the order and the INCLUDE of an index.

An index finds rows by equal keys and keeps whole rows. These options therefore have no effect. They are checked as in
PostgreSQL, and the system catalogs show them.
"""

from __future__ import annotations

from dataclasses import dataclass

from catalog.objects.columns import Column
from catalog.objects.relations import Relation
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import PgType, parse_type
from server.pg_catalog.static import default_class, operator_class, types_by_oid
from server.sql.expressions import Expression
from server.sql.grammar.lexer import quote_identifier
from server.sql.grammar.statements.parts import Ident
from server.sql.grammar.statements.views import CreateIndex, IndexKey
from server.sql.index_keys import DESCENDING, NULLS_FIRST, index_keys

_LACKING = {
    "btree": (),
    "hash": ("unique indexes", "included columns", "multicolumn indexes"),
    "gin": ("unique indexes", "included columns"),
    "gist": ("unique indexes",),
    "spgist": ("unique indexes", "multicolumn indexes"),
    "brin": ("unique indexes", "included columns"),
}
"""What each access method does not support, in the order in which PostgreSQL reports it."""
SEARCHING = frozenset(("gin", "gist", "spgist", "brin"))
"""The access methods that PostgreSQL uses for other searches than by equal keys."""
_CLASS_HINT = "Omit the operator class: an index finds rows by equal keys. Other searches read all rows."
COLUMNS_MAX = 32  # as in PostgreSQL


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """The fields of `Index` of the same names."""

    method: str
    included: tuple[str, ...]
    options: tuple[int, ...]
    classes: tuple[str, ...]


def index_options(statement: CreateIndex, relation: Relation, keys: tuple[str, ...]) -> IndexOptions:
    """The options of CREATE INDEX. `keys`: the texts of its keys. PgError 42704, 42804, 0A000, 42703, 54011."""
    method = _method(statement)
    if statement.keys and len(statement.keys) + len(statement.included) > COLUMNS_MAX:
        message = f"cannot use more than {COLUMNS_MAX} columns in an index"
        raise PgError(SqlState.TOO_MANY_COLUMNS, message)
    included = tuple(_included(relation, column) for column in statement.included)
    options = tuple(_order(key, method) for key in statement.keys)
    classes: tuple[str, ...] = ()
    if any(key.operator_class is not None for key in statement.keys) or method in SEARCHING:
        types = key_types(relation.columns, keys)
        classes = tuple(_class(key, type, method) for key, type in zip(statement.keys, types, strict=True))
    return IndexOptions(method, included, options if any(options) else (), classes if any(classes) else ())


def key_types(columns: tuple[Column, ...], keys: tuple[str, ...]) -> list[PgType]:
    """The types of the keys of an index."""
    found = index_keys(columns, keys)
    return [key.type if isinstance(key, Expression) else parse_type(columns[key].type) for key in found]


def check_classes(columns: tuple[Column, ...], keys: tuple[str, ...], classes: tuple[str, ...], method: str) -> None:
    """PgError 42804 if an operator class of an index does not accept the new type of its column."""
    for name, type in zip(classes, key_types(columns, keys) if classes else (), strict=True):
        if name:
            _require_accepted(name, type, method)


def _method(statement: CreateIndex) -> str:
    if statement.method is None:
        return "btree"
    name = statement.method.name
    if name not in _LACKING:
        raise PgError(SqlState.UNDEFINED_OBJECT, f'access method "{name}" does not exist')
    for used, what in (
        (statement.unique, "unique indexes"),
        (statement.included, "included columns"),
        (len(statement.keys) > 1, "multicolumn indexes"),
    ):
        if used and what in _LACKING[name]:
            message = f'access method "{name}" does not support {what}'
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message)
    return name


def _included(relation: Relation, column: Ident) -> str:
    if all(known.name != column.name for known in relation.columns):
        message = f'column "{column.name}" does not exist'
        raise PgError(SqlState.UNDEFINED_COLUMN, message)
    return quote_identifier(column.name)


def _order(key: IndexKey, method: str) -> int:
    if method != "btree":
        for given, what in ((key.order, "ASC/DESC"), (key.nulls, "NULLS FIRST/LAST")):
            if given:
                message = f'access method "{method}" does not support {what} options'
                raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message)
        return 0
    descending = key.order == "desc"
    nulls_first = key.nulls == "first" if key.nulls else descending
    return DESCENDING * descending | NULLS_FIRST * nulls_first


def _class(key: IndexKey, type: PgType, method: str) -> str:
    """The operator class of a key; "" for the default one of its type. PgError 42704, 42804."""
    name = key.operator_class
    if name is None:
        if method in SEARCHING and default_class(type.oid, method) is None:
            message = f'data type {type.base_display} has no default operator class for access method "{method}"'
            hint = (
                "You must specify an operator class for the index or define a default operator class for the data type."
            )
            raise PgError(SqlState.UNDEFINED_OBJECT, message, hint=hint)
        return ""
    if name.parts[:-1] not in ((), ("pg_catalog",)) or operator_class(name.parts[-1], method) is None:
        message = f'operator class "{name}" does not exist for access method "{method}"'
        raise PgError(SqlState.UNDEFINED_OBJECT, message, hint=_CLASS_HINT)
    _require_accepted(name.parts[-1], type, method)
    default = default_class(type.oid, method)
    return "" if default is not None and default["opcname"] == name.parts[-1] else name.parts[-1]


# The types whose values are also values of another type, without a conversion.
_COERCIBLE = {"varchar": ("text", "bpchar"), "text": ("bpchar",), "cidr": ("inet",)}


def _require_accepted(name: str, type: PgType, method: str) -> None:
    """PgError 42804 if an operator class does not accept a type."""
    found = operator_class(name, method)
    assert found is not None
    accepted = [type.name, *_COERCIBLE.get(type.name, ())]
    if type.element is not None:
        accepted = ["anyarray"]
    elif type.enum is not None:
        accepted = ["anyenum"]
    if types_by_oid()[found["opcintype"]]["typname"] not in accepted:
        message = f'operator class "{name}" does not accept data type {type.base_display}'
        raise PgError(SqlState.DATATYPE_MISMATCH, message)
