"""Session functions: current_user, now(), current_setting(), privilege functions, and signals to other sessions.

Except for mz_now(), they are not allowed in maintained queries (0A000), whose results all sessions share.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import (
    BOOL,
    DATE,
    INT2,
    INT4,
    INT8,
    MZ_TIMESTAMP,
    TEXT,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    UNKNOWN,
    PgType,
    array_of,
)
from server.sql.bind.binder import Binder, form
from server.sql.casts import find_cast
from server.sql.coerce import ASSIGNMENT, EXPLICIT, IMPLICIT
from server.sql.constant import COLUMN_NUMBER_PRIVILEGE, FACTS, SETTING_OR_NULL
from server.sql.expressions import Array, ColumnRef, Expression, SessionValue, Subquery, walk
from server.sql.scope import Scope
from server.sql.waiting import WAITING, per_row

SESSION_FUNCTIONS: dict[str, PgType] = {
    **dict.fromkeys(("now", "transaction_timestamp", "statement_timestamp", "current_timestamp"), TIMESTAMPTZ),
    "clock_timestamp": TIMESTAMPTZ,
    "localtimestamp": TIMESTAMP,
    **dict.fromkeys(("localtime", "current_time"), TIME),
    "current_date": DATE,
    **dict.fromkeys(("current_database", "current_catalog", "current_schema", "version", "mz_version"), TEXT),
    **dict.fromkeys(("current_user", "session_user", "user", "current_role"), TEXT),
    "pg_backend_pid": INT4,
    "pg_postmaster_start_time": TIMESTAMPTZ,
    **FACTS,
    "mz_now": MZ_TIMESTAMP,
}
"""Session functions without arguments; `constant.session_value` computes them."""
SESSION_NAMES: dict[type[exp.Expr], str] = {
    exp.CurrentDate: "current_date",
    exp.CurrentTimestamp: "current_timestamp",
    exp.Localtimestamp: "localtimestamp",
    exp.Localtime: "localtime",
    exp.CurrentTime: "current_time",
    exp.CurrentUser: "current_user",
    exp.SessionUser: "session_user",
    exp.CurrentCatalog: "current_catalog",
    exp.CurrentSchema: "current_schema",
    exp.CurrentRole: "current_role",
}


@form(*SESSION_NAMES)
def session_word(binder: Binder, tree: exp.Expr, scope: Scope) -> Expression:
    """current_date and the other functions that are called without parentheses."""
    return session_value(binder, session_name(tree), tree)


def session_value(binder: Binder, name: str, tree: exp.Expr) -> Expression:
    """A session function without arguments (`SESSION_FUNCTIONS`)."""
    if name != "mz_now":  # `temporal` checks where mz_now() is allowed
        check_maintained(binder, name, tree)
    if (type := SESSION_FUNCTIONS[name]) in (DATE, TIME, TIMESTAMP):
        return binder.coerce(SessionValue("now", TIMESTAMPTZ), type, ASSIGNMENT)  # in the session's time zone
    return SessionValue(name, SESSION_FUNCTIONS[name])


def check_maintained(binder: Binder, name: str, tree: exp.Expr) -> None:
    """0A000 if the query is maintained."""
    if binder.maintained:
        clocks = (DATE, TIME, TIMESTAMP, TIMESTAMPTZ)
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f"cannot materialize call to {name}()",
            hint="Use mz_now(), alone on one side of a comparison in WHERE, such as mz_now() < t + INTERVAL '1 hour'."
            if SESSION_FUNCTIONS.get(name) in clocks
            else None,
            position=binder.at(tree),
        )


def current_setting(binder: Binder, arguments: Sequence[exp.Expr], scope: Scope, tree: exp.Expr) -> Expression:
    """current_setting(name [, missing_ok])"""
    check_maintained(binder, "current_setting", tree)
    name = binder.coerce(binder.expression(arguments[0], scope), TEXT)
    if len(arguments) == 1:
        return SessionValue("current_setting", TEXT, name)
    missing_ok = binder.coerce(binder.expression(arguments[1], scope), BOOL)
    both = (name, binder.coerce(missing_ok, TEXT, EXPLICIT))
    return SessionValue(SETTING_OR_NULL, TEXT, Array(both, array_of(TEXT)))


def signal(binder: Binder, name: str, process_id: exp.Expr, scope: Scope, tree: exp.Expr) -> Expression:
    """pg_cancel_backend(pid), pg_terminate_backend(pid)"""
    check_maintained(binder, name, tree)
    return SessionValue(name, BOOL, binder.coerce(binder.expression(process_id, scope), INT4))


def waiting(
    binder: Binder, name: str, arguments: Sequence[exp.Expr], scope: Scope, tree: exp.Expr
) -> Expression | None:
    """A function of WAITING, called once per statement. 0A000 if the arguments depend on columns.

    None if it has no form with arguments of these types.
    """
    check_maintained(binder, name, tree)
    type, forms = WAITING[name]
    bound = [binder.expression(argument, scope) for argument in arguments]
    for types in forms:
        if len(types) == len(bound) and all(_is_accepted(a.type, to) for a, to in zip(bound, types, strict=True)):
            values = tuple(binder.coerce(a, to) for a, to in zip(bound, types, strict=True))
            if any(isinstance(node, ColumnRef | Subquery) for value in values for node in walk(value)):
                raise per_row(name, binder.at(tree))
            return SessionValue(name, type, Array(values, array_of(types[0] if types else INT8)))
    return None


def _is_accepted(type: PgType, target: PgType) -> bool:
    """Whether an argument of a type is implicitly converted to another."""
    source = type.without_modifiers
    rule = find_cast(source, target)
    return source in (UNKNOWN, target) or (rule is not None and rule.context <= IMPLICIT)


def privilege_function(
    binder: Binder, name: str, arguments: Sequence[exp.Expr], scope: Scope, tree: exp.Expr
) -> Expression:
    """has_table_privilege(...) etc., evaluated once per statement. 0A000 if the arguments depend on columns."""
    check_maintained(binder, name, tree)
    bound = [binder.expression(argument, scope) for argument in arguments]
    if name == "has_column_privilege" and bound[-2].type in (INT2, INT4):
        bound[-2], name = binder.coerce(bound[-2], TEXT, EXPLICIT), COLUMN_NUMBER_PRIVILEGE
    texts = tuple(binder.coerce(value, TEXT) for value in bound)
    if any(isinstance(node, ColumnRef | Subquery) for text in texts for node in walk(text)):
        raise binder.unsupported(
            f"{name}() of columns",
            tree,
            hint="Pass literals or parameters, or query the catalog pg_class, where columns can be passed.",
        )
    return SessionValue(name, BOOL, Array(texts, array_of(TEXT)))


def session_name(tree: exp.Expr) -> str:
    """The function that a keyword calls."""
    return SESSION_NAMES[type(tree)]
