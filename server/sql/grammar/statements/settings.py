"""Settings, and DISCARD, which resets other state of a session."""

from __future__ import annotations

from dataclasses import dataclass

from server.sql.grammar.statements.parts import Definition, Parsed


@dataclass(frozen=True, slots=True)
class SetVariable(Parsed):
    """SET [LOCAL] name = values; `is_default` is TO DEFAULT, without values.

    SET TIME ZONE, SET NAMES and SET SCHEMA set `timezone`, `client_encoding` and `search_path`.
    """

    name: str
    values: tuple[str, ...]
    local: bool
    is_default: bool


@dataclass(frozen=True, slots=True)
class AlterSystem(Definition):
    """ALTER SYSTEM SET name = values, or RESET; `values` None: RESET, `name` None: ALL."""

    tag = "ALTER SYSTEM"

    name: str | None
    values: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class ResetVariable(Parsed):
    """name None: ALL."""

    name: str | None


@dataclass(frozen=True, slots=True)
class Discard(Parsed):
    """target: `ALL`, `PLANS`, `SEQUENCES` or `TEMP`."""

    target: str
