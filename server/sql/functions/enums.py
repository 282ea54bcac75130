"""enum_first, enum_last and enum_range (chapter 9.10)."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import PgType
from server.sql.functions.table import FUNCTIONS, Nulls, row


def _positions(types: Sequence[PgType]) -> tuple[str, ...]:
    """The positions of the enumerated type of the first argument."""
    assert types[0].enum is not None
    return types[0].enum.positions


def _extreme(types: Sequence[PgType], at: int) -> str:
    positions = _positions(types)
    if not positions:
        message = f"enum {types[0].display} contains no values"
        raise PgError(SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE, message)
    return positions[at]


def _range(low: str | None, high: str | None, *, types: Sequence[PgType]) -> list[str]:
    """The positions from `low` to `high`; NULL is no bound."""
    return [p for p in _positions(types) if (low is None or low <= p) and (high is None or p <= high)]


row(FUNCTIONS, "enum_first", "anyenum", "anyenum", python=lambda value, types: _extreme(types, 0),
    nulls=Nulls.NEVER, typed=True)  # fmt: skip
row(FUNCTIONS, "enum_last", "anyenum", "anyenum", python=lambda value, types: _extreme(types, -1),
    nulls=Nulls.NEVER, typed=True)  # fmt: skip
row(FUNCTIONS, "enum_range", "anyenum", "anyarray", python=lambda value, types: list(_positions(types)),
    nulls=Nulls.NEVER, typed=True)  # fmt: skip
row(FUNCTIONS, "enum_range", "anyenum anyenum", "anyarray", python=_range, nulls=Nulls.NEVER, typed=True)
