"""The functions that wait, advisory locks and pg_sleep(), and pg_notify(), which has an effect.

They are called once per statement, before the other expressions are evaluated, so only queries of constants can call
them, with arguments that depend on no row. `calls` finds them, `with_results` replaces them by what they returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import BOOL, FLOAT8, INT4, INT8, INTERVAL, TEXT, TIMESTAMPTZ, VOID, PgType
from server.sql.expressions import Literal, SessionValue, transform, walk
from server.sql.relations import Project, Relation

_KEYS = ((INT8,), (INT4, INT4))

WAITING: dict[str, tuple[PgType, tuple[tuple[PgType, ...], ...]]] = {
    **{
        f"pg_{function}{shared}": (type, _KEYS)
        for function, type in (
            ("advisory_lock", VOID),
            ("advisory_xact_lock", VOID),
            ("try_advisory_lock", BOOL),
            ("try_advisory_xact_lock", BOOL),
            ("advisory_unlock", BOOL),
        )
        for shared in ("", "_shared")
    },
    "pg_advisory_unlock_all": (VOID, ((),)),
    "pg_notify": (VOID, ((TEXT, TEXT),)),
    "pg_sleep": (VOID, ((FLOAT8,),)),
    "pg_sleep_for": (VOID, ((INTERVAL,),)),
    "pg_sleep_until": (VOID, ((TIMESTAMPTZ,),)),
}
"""The result type of each function, and the types of its arguments in each of its forms."""


def is_waiting(node: Any) -> bool:
    """Whether a node calls a function of WAITING."""
    return isinstance(node, SessionValue) and node.name in WAITING


def check_once(relation: Relation, *, is_constant: bool) -> None:
    """PgError 0A000 if a call of WAITING in this relation would be evaluated for each row, or only for some rows."""
    for node in walk(relation):
        if isinstance(node, Project) and not _is_single_row(node.input):
            called = next((n for e in node.expressions for n in walk(e) if is_waiting(n)), None)
            if called is not None:
                raise per_row(called.name)
        elif not is_constant and is_waiting(node):
            raise per_row(node.name)


def _is_single_row(relation: Relation) -> bool:
    while isinstance(relation, Project):
        relation = relation.input
    return len(getattr(relation, "rows", ())) == 1


def per_row(name: str, position: int | None = None) -> PgError:
    """The error for a call that is not evaluated exactly once."""
    return PgError(
        SqlState.FEATURE_NOT_SUPPORTED,
        f"{name}() is not supported in a query that computes with rows",
        hint=f"Call it alone: SELECT {name}(...), with constants or parameters.",
        position=position,
    )


def calls(relation: Relation) -> list[SessionValue]:
    """The calls of WAITING, in the order in which they are written."""
    found: list[SessionValue] = []

    def find(node: Any) -> Any | None:
        if is_waiting(node):
            found.append(node)
            return node
        return None

    transform(relation, find)
    return found


def with_results(relation: Relation, results: Sequence[Any]) -> Relation:
    """The relation with a literal for each of its `calls`."""
    remaining = iter(results)
    return transform(relation, lambda node: Literal(next(remaining), node.type) if is_waiting(node) else None)
