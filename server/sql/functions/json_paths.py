"""Functions and operators of JSON paths (chapter 9.16.2). A path is a text, which `json_path.parser` caches parsed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.json_values import loaded_jsonb, printed_jsonb
from server.sql.expressions import Expression, Literal
from server.sql.functions.table import FUNCTIONS, OPERATORS, SET_ARRAYS, Nulls, row
from server.sql.json_path.datetimes import Moment
from server.sql.json_path.evaluation import Evaluation, PathError
from server.sql.json_path.parser import parsed


def _evaluation(json: str, path: str, variables: str, timezone: str | None) -> Evaluation:
    named = loaded_jsonb(variables)
    if not isinstance(named, dict):
        raise PgError(
            SqlState.INVALID_PARAMETER_VALUE,
            '"vars" argument is not an object',
            detail='Jsonpath parameters should be encoded as key-value pairs of "vars" object.',
        )
    return Evaluation(parsed(path), loaded_jsonb(json), named, timezone)


def _limited(of: Callable[..., Any]) -> Callable[..., Any]:
    """54001 for a value that is nested too deeply."""

    def python(*arguments: Any, timezone: str | None = None) -> Any:
        try:
            return of(*arguments, timezone=timezone)
        except RecursionError:
            raise PgError(SqlState.STATEMENT_TOO_COMPLEX, "stack depth limit exceeded") from None

    return python


def _exists(json: str, path: str, variables: str = "{}", silent: bool = False, *, timezone: str | None) -> bool | None:
    try:
        return _evaluation(json, path, variables, timezone).has_items()
    except PathError:
        if not silent:
            raise
        return None


def _items(json: str, path: str, variables: str, silent: bool, timezone: str | None) -> Iterator[Any]:
    """The items, datetimes as texts. If `silent`, those before the first error."""
    try:
        for item in _evaluation(json, path, variables, timezone).items():
            yield str(item) if isinstance(item, Moment) else item
    except PathError:
        if not silent:
            raise


def _match(json: str, path: str, variables: str = "{}", silent: bool = False, *, timezone: str | None) -> bool | None:
    found = list(_items(json, path, variables, silent, timezone))
    if len(found) == 1 and (found[0] is None or isinstance(found[0], bool)):
        return found[0]
    if not silent:
        raise PgError(SqlState.SINGLETON_SQL_JSON_ITEM_REQUIRED, "single boolean result is expected")
    return None


def _query(json: str, path: str, variables: str = "{}", silent: bool = False, *, timezone: str | None) -> list[str]:
    return [printed_jsonb(item) for item in _items(json, path, variables, silent, timezone)]


def _array(json: str, path: str, variables: str = "{}", silent: bool = False, *, timezone: str | None) -> str:
    return printed_jsonb(list(_items(json, path, variables, silent, timezone)))


def _first(json: str, path: str, variables: str = "{}", silent: bool = False, *, timezone: str | None) -> str | None:
    found = list(_items(json, path, variables, silent, timezone))
    return printed_jsonb(found[0]) if found else None


def _checked(arguments: tuple[Expression, ...]) -> tuple[Expression, ...]:
    """Reports a syntax error of a constant path when the query is planned, as PostgreSQL does."""
    path = arguments[1]
    if isinstance(path, Literal) and path.value is not None:
        parsed(path.value)
    return arguments


for _arguments in ("jsonb text", "jsonb text jsonb", "jsonb text jsonb bool"):
    for _suffix in ("", "_tz"):  # the latter compare datetimes without a time zone with those that have one
        for _name, _result, _of in (
            ("exists", "bool", _exists),
            ("match", "bool", _match),
            ("query_array", "jsonb", _array),
            ("query_first", "jsonb", _first),
        ):
            row(FUNCTIONS, f"jsonb_path_{_name}{_suffix}", _arguments, _result, nulls=Nulls.OPTIONAL,
                prepare=_checked, zoned=bool(_suffix), python=_limited(_of))  # fmt: skip
        row(SET_ARRAYS, f"jsonb_path_query{_suffix}", _arguments, "jsonb[]", prepare=_checked, zoned=bool(_suffix),
            python=_limited(_query))  # fmt: skip
row(OPERATORS, "@?", "jsonb text", "bool", nulls=Nulls.OPTIONAL, prepare=_checked,
    python=_limited(lambda json, path, timezone: _exists(json, path, silent=True, timezone=timezone)))  # fmt: skip
row(OPERATORS, "@@", "jsonb text", "bool", nulls=Nulls.OPTIONAL, prepare=_checked,
    python=_limited(lambda json, path, timezone: _match(json, path, silent=True, timezone=timezone)))  # fmt: skip
