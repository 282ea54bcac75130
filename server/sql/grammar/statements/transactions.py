"""Transactions."""

from __future__ import annotations

from dataclasses import dataclass

from server.sql.grammar.statements.parts import Ident, Name, Parsed


@dataclass(frozen=True, slots=True)
class TransactionModes:
    """None: not specified. `isolation` is `serializable`, `repeatable read`, `read committed` or `read uncommitted`,
    or Materialize's `strict serializable` or `strong session serializable`."""

    isolation: str | None = None
    read_only: bool | None = None
    deferrable: bool | None = None


@dataclass(frozen=True, slots=True)
class Begin(Parsed):
    """BEGIN or START TRANSACTION; `tag` is the command tag, which differs between the two."""

    modes: TransactionModes
    tag: str


@dataclass(frozen=True, slots=True)
class Commit(Parsed):
    """COMMIT or END. chain: AND CHAIN."""

    chain: bool = False


@dataclass(frozen=True, slots=True)
class Rollback(Parsed):
    """ROLLBACK or ABORT. chain: AND CHAIN."""

    chain: bool = False


@dataclass(frozen=True, slots=True)
class Savepoint(Parsed):
    """SAVEPOINT."""

    name: Ident


@dataclass(frozen=True, slots=True)
class ReleaseSavepoint(Parsed):
    """RELEASE SAVEPOINT."""

    name: Ident


@dataclass(frozen=True, slots=True)
class RollbackToSavepoint(Parsed):
    """ROLLBACK TO SAVEPOINT."""

    name: Ident


@dataclass(frozen=True, slots=True)
class SetTransaction(Parsed):
    """SET TRANSACTION modes, or with `session` SET SESSION CHARACTERISTICS AS TRANSACTION modes."""

    modes: TransactionModes
    session: bool


@dataclass(frozen=True, slots=True)
class SetConstraints(Parsed):
    """SET CONSTRAINTS {ALL | names} {DEFERRED | IMMEDIATE}. names None: ALL."""

    names: tuple[Name, ...] | None
    deferred: bool
