"""COLLATE in definitions of columns, domains and indexes."""

from __future__ import annotations

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import PgType
from server.sql.grammar.statements.parts import Name, NamedType
from server.sql.grammar.token_reader import TokenReader

BYTE_ORDER = ("C", "POSIX", "default", "ucs_basic")
"""The collations that compare texts by their bytes, as Tidewire always does."""
COLLATION_HINT = (
    'Text is compared by its bytes, as under the collation "C". '
    "For another order, add a column with a text that sorts as wanted."
)


def parse_collation(tokens: TokenReader) -> Name | None:
    """[COLLATE name], one of `BYTE_ORDER`. 0A000 for another collation."""
    if not tokens.take("collate"):
        return None
    name = tokens.name()
    if name.parts[-1] in BYTE_ORDER and name.parts[:-1] in ((), ("pg_catalog",)):
        return name
    message = f'collation "{name}" is not supported'
    raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, hint=COLLATION_HINT, position=name.position)


def parse_collation_of(tokens: TokenReader, type: PgType, before: Name | None) -> Name | None:
    """COLLATE name of a column or domain. `before`: an earlier one. PgError 42601, 42804, 0A000."""
    position = tokens.token.start + 1
    name = parse_collation(tokens)
    if before is not None:
        raise PgError(SqlState.SYNTAX_ERROR, "multiple COLLATE clauses not allowed", position=position)
    base = type.element or type
    if not isinstance(base, NamedType) and base.name not in ("text", "varchar", "bpchar"):
        message = f"collations are not supported by type {type.base_display}"
        raise PgError(SqlState.DATATYPE_MISMATCH, message, position=position)
    return name
