"""The names of sequences in texts: the argument of nextval(), and the stored text of defaults."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from catalog.ids import ObjectId
from catalog.objects.sequences import Sequence as SequenceItem
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError, SqlState
from server.sql.grammar.lexer import Kind, quote_identifier, tokenize
from server.sql.scope import ID_SCHEMA, find_relation

_TYPE_BY_ID = re.compile(r"""(?<!')"\$id"\."(u\d+)"(?:\."(?:[^"]|"")*")?(?!')""")
_BY_ID = re.compile(r"""'"\$id"\.([us]\d+)'(?:::regclass)*""")


def name_parts(name: str) -> tuple[str, ...]:
    """Splits a name in SQL syntax, which may have quoted parts. 42602 if it is malformed."""
    tokens = tokenize(name)[:-1]
    parts = tuple(token.value for token in tokens[::2])
    names = all(token.kind in (Kind.WORD, Kind.IDENT) for token in tokens[::2])
    if not parts or not names or len(tokens) % 2 == 0 or any(dot.value != "." for dot in tokens[1::2]):
        raise PgError(SqlState.INVALID_NAME, "invalid name syntax")
    return parts


def find_sequence(
    state: CatalogState, name: str, database: str, search_path: Sequence[str], position: int | None
) -> SequenceItem:
    """The sequence with a name in SQL syntax, or with an id (`"$id"."u12"`). PgError 42P01, 42809."""
    item = find_relation(state, name_parts(name), database, search_path, position)
    if not isinstance(item, SequenceItem):
        raise PgError(SqlState.WRONG_OBJECT_TYPE, f'"{item.name}" is not a sequence', position=position)
    return item


def by_id(sequence: ObjectId) -> str:
    """The text of a string literal that names a sequence by its id."""
    return f"""'{quote_identifier(ID_SCHEMA)}.{quote_identifier(sequence)}'"""


def nextval_text(sequence: ObjectId) -> str:
    """The stored default of a SERIAL or identity column."""
    return f"nextval({by_id(sequence)})"


def with_names(text: str, name_of: Callable[[ObjectId], str]) -> str:
    """A stored expression as PostgreSQL shows it: ids are replaced by names, and those of sequences are a regclass."""
    text = _TYPE_BY_ID.sub(lambda found: name_of(ObjectId(found[1])), text)
    return _BY_ID.sub(lambda found: f"'{_escaped(name_of(ObjectId(found[1])))}'::regclass", text)


def _escaped(name: str) -> str:
    return name.replace("'", "''")
