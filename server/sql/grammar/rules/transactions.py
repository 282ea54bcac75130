"""BEGIN, COMMIT, ROLLBACK and savepoints."""

from __future__ import annotations

from server.sql.grammar.statements.transactions import (
    Begin,
    Commit,
    ReleaseSavepoint,
    Rollback,
    RollbackToSavepoint,
    Savepoint,
    TransactionModes,
)
from server.sql.grammar.token_reader import TokenReader

NO_TWO_PHASES = "Use COMMIT. A transaction that is committed in two phases by a coordinator cannot include this server."
_ISOLATION_LEVELS = (
    "serializable",
    "repeatable read",
    "read committed",
    "read uncommitted",
    "strict serializable",
    "strong session serializable",
)


def parse_begin(tokens: TokenReader) -> Begin:
    start = tokens.index
    if tokens.take("start"):
        tokens.expect("transaction")
        tag = "START TRANSACTION"
    else:
        tokens.expect("begin")
        _skip_work(tokens)
        tag = "BEGIN"
    modes = TransactionModes() if tokens.at_statement_end else parse_transaction_modes(tokens)
    return Begin(*tokens.text_from(start), modes, tag)


def _skip_work(tokens: TokenReader) -> None:
    _ = tokens.take("work") or tokens.take("transaction")


def parse_transaction_modes(tokens: TokenReader) -> TransactionModes:
    isolation: str | None = None
    read_only: bool | None = None
    deferrable: bool | None = None
    while True:
        if tokens.take("isolation"):
            tokens.expect("level")
            isolation = _parse_isolation_level(tokens)
        elif tokens.take("read"):
            read_only = tokens.choose("only", "write") == "only"
        elif tokens.take("not"):
            tokens.expect("deferrable")
            deferrable = False
        else:
            tokens.expect("deferrable")
            deferrable = True
        if not tokens.take(",") and tokens.at_statement_end:
            return TransactionModes(isolation, read_only, deferrable)


def _parse_isolation_level(tokens: TokenReader) -> str:
    for level in _ISOLATION_LEVELS:
        if tokens.take(*level.split()):
            return level
    for head in ("read", "repeatable", "strict", "strong", "session"):
        tokens.take(head)
    raise tokens.syntax_error()


def parse_commit(tokens: TokenReader) -> Commit:
    start = tokens.index
    tokens.choose("commit", "end")
    tokens.reject("COMMIT PREPARED", "prepared", hint=NO_TWO_PHASES)
    _skip_work(tokens)
    chain = _parse_chain(tokens)
    return Commit(*tokens.text_from(start), chain)


def parse_rollback(tokens: TokenReader) -> Rollback | RollbackToSavepoint:
    start = tokens.index
    head = tokens.choose("rollback", "abort")
    tokens.reject("ROLLBACK PREPARED", "prepared", hint=NO_TWO_PHASES)
    _skip_work(tokens)
    if head == "rollback" and tokens.take("to"):
        tokens.take("savepoint")
        name = tokens.ident()
        return RollbackToSavepoint(*tokens.text_from(start), name)
    chain = _parse_chain(tokens)
    return Rollback(*tokens.text_from(start), chain)


def _parse_chain(tokens: TokenReader) -> bool:
    """[AND [NO] CHAIN]. Returns whether it is AND CHAIN."""
    if not tokens.take("and"):
        return False
    if tokens.take("chain"):
        return True
    tokens.expect("no", "chain")
    return False


def parse_savepoint(tokens: TokenReader) -> Savepoint:
    start = tokens.index
    tokens.expect("savepoint")
    name = tokens.ident()
    return Savepoint(*tokens.text_from(start), name)


def parse_release(tokens: TokenReader) -> ReleaseSavepoint:
    start = tokens.index
    tokens.expect("release")
    tokens.take("savepoint")
    name = tokens.ident()
    return ReleaseSavepoint(*tokens.text_from(start), name)
