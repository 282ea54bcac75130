"""PRIMARY KEY and UNIQUE constraints of CREATE TABLE and ALTER TABLE."""

from __future__ import annotations

from server.sql.grammar.statements.parts import Ident
from server.sql.grammar.statements.tables import Key
from server.sql.grammar.token_reader import TokenReader


def at_key(tokens: TokenReader) -> bool:
    """Whether a PRIMARY KEY or UNIQUE constraint follows, without its name."""
    return tokens.at("primary", "unique")


def parse_key(tokens: TokenReader, name: Ident | None, columns: tuple[Ident, ...] | None) -> Key:
    """PRIMARY KEY or UNIQUE, as a table constraint (`columns` None: the list follows) or a column constraint."""
    position = tokens.token.start + 1
    primary = tokens.choose("primary", "unique") == "primary"
    if primary:
        tokens.expect("key")
    nulls_not_distinct = not primary and parse_nulls_not_distinct(tokens)
    tokens.reject("a key with USING INDEX", "using", hint="Drop the index, and add the constraint with its columns.")
    names = tokens.in_parentheses(tokens.ident) if columns is None else columns
    not_enforced = deferrable = deferred = False
    while True:
        if tokens.at_all("not", "enforced") or tokens.at("enforced"):
            not_enforced = tokens.take("not")
            tokens.expect("enforced")
        elif tokens.take("deferrable"):
            deferrable = True
        elif tokens.take("initially"):
            deferred = tokens.choose("deferred", "immediate") == "deferred"
        elif not tokens.take("not", "deferrable"):
            break
    tokens.reject(
        "an indexed constraint",
        "using",
        "include",
        "with",
        hint="Omit it: a key has no index with other columns. CREATE UNIQUE INDEX takes INCLUDE.",
    )
    return Key(names, primary, name, position, not_enforced, nulls_not_distinct, deferrable or deferred, deferred)


def parse_nulls_not_distinct(tokens: TokenReader) -> bool:
    """[NULLS [NOT] DISTINCT]. Returns whether it is NULLS NOT DISTINCT."""
    if not tokens.take("nulls"):
        return False
    not_distinct = tokens.take("not")
    tokens.expect("distinct")
    return not_distinct
