"""Parser: PostgreSQL text to statements. Recursive descent for the statements, sqlglot for the queries inside them.

`parse(text)` reads a whole Query message before any of it is executed. It returns a list of statements or raises the
first error, with its position and PostgreSQL's message (`syntax error at or near "x"`, 42601). For a feature of
PostgreSQL, Materialize or RisingWave that Tidewire lacks, the error is 0A000 and names the feature. For syntax that
only Materialize has, such as SUBSCRIBE, the messages are Materialize's (`Expected one of PROGRESS or SNAPSHOT, found
...`).

lexer.py makes the list of tokens, token_reader.py reads it, and trees.py calls sqlglot. The first keyword of a
statement selects its rule in `rules`. The only nesting of statements is EXPLAIN, PREPARE, COPY or DECLARE around
another statement.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from sqlglot import exp

from server.sql.grammar.literal_rows import split
from server.sql.grammar.rules import Rule
from server.sql.grammar.rules.blocks import parse_do
from server.sql.grammar.rules.copy import parse_copy
from server.sql.grammar.rules.cursors import parse_close, parse_declare, parse_fetch, parse_move
from server.sql.grammar.rules.definitions import parse_alter, parse_comment, parse_create, parse_drop
from server.sql.grammar.rules.explain import parse_explain
from server.sql.grammar.rules.maintenance import parse_checkpoint, parse_maintain, parse_refresh, parse_reindex
from server.sql.grammar.rules.merges import parse_merge
from server.sql.grammar.rules.notifications import parse_listen, parse_notify, parse_unlisten
from server.sql.grammar.rules.prepared import parse_deallocate, parse_execute, parse_prepare
from server.sql.grammar.rules.queries import parse_select
from server.sql.grammar.rules.roles import parse_grant, parse_reassign_owned, parse_revoke
from server.sql.grammar.rules.settings import parse_discard, parse_reset, parse_set
from server.sql.grammar.rules.show import parse_show
from server.sql.grammar.rules.sources import parse_validate
from server.sql.grammar.rules.subscribe import parse_subscribe
from server.sql.grammar.rules.transactions import (
    parse_begin,
    parse_commit,
    parse_release,
    parse_rollback,
    parse_savepoint,
)
from server.sql.grammar.rules.with_clauses import parse_with
from server.sql.grammar.rules.writes import (
    parse_delete,
    parse_insert,
    parse_lock,
    parse_truncate,
    parse_update,
)
from server.sql.grammar.statements import Statement
from server.sql.grammar.statements.merges import Merge
from server.sql.grammar.statements.parts import Expr, Query
from server.sql.grammar.statements.queries import Select
from server.sql.grammar.statements.with_writes import WithWrites
from server.sql.grammar.statements.writes import Delete, Insert, Update
from server.sql.grammar.token_reader import QUERY_HEADS, TokenReader

# The rules by the first keyword of the statement.
_RULES: dict[str, Rule] = {
    **dict.fromkeys(QUERY_HEADS, parse_select),
    "abort": parse_rollback,
    "alter": parse_alter,
    "analyze": parse_maintain,
    "begin": parse_begin,
    "checkpoint": parse_checkpoint,
    "close": parse_close,
    "comment": parse_comment,
    "commit": parse_commit,
    "create": parse_create,
    "deallocate": parse_deallocate,
    "delete": parse_delete,
    "discard": parse_discard,
    "drop": parse_drop,
    "end": parse_commit,
    "execute": parse_execute,
    "fetch": parse_fetch,
    "grant": parse_grant,
    "insert": parse_insert,
    "merge": parse_merge,
    "listen": parse_listen,
    "lock": parse_lock,
    "move": parse_move,
    "notify": parse_notify,
    "reassign": parse_reassign_owned,
    "refresh": parse_refresh,
    "reindex": parse_reindex,
    "release": parse_release,
    "reset": parse_reset,
    "revoke": parse_revoke,
    "rollback": parse_rollback,
    "savepoint": parse_savepoint,
    "set": parse_set,
    "show": parse_show,
    "start": parse_begin,
    "subscribe": parse_subscribe,
    "truncate": parse_truncate,
    "unlisten": parse_unlisten,
    "update": parse_update,
    "vacuum": parse_maintain,
    "validate": parse_validate,
    "with": parse_with,
}
# The rules of statements that contain a statement.
_OUTER_RULES: dict[str, Callable[[TokenReader, Rule], Statement]] = {
    "copy": parse_copy,
    "declare": parse_declare,
    "do": parse_do,
    "explain": parse_explain,
    "prepare": parse_prepare,
}
_BLOCK = "Send the statements between BEGIN and COMMIT."
_DESCRIBE = "SHOW COLUMNS FROM lists the columns of a relation. SHOW CREATE shows its definition."
# Statements of PostgreSQL, Materialize and RisingWave that Tidewire lacks, with the hint for each.
_UNSUPPORTED = {
    "call": _BLOCK,
    "cluster": "CREATE INDEX makes lookups by a key fast.",
    "desc": _DESCRIBE,
    "describe": _DESCRIBE,
    "flush": "Omit it: every acknowledged commit is visible to all later statements.",
    "import": "CREATE SOURCE ... FROM POSTGRES ... FOR ALL TABLES creates copies of the tables of another server.",
    "load": "COPY ... FROM STDIN inserts rows that the client sends.",
    "security": "GRANT and views determine who reads what.",
}


def parse(text: str) -> list[Statement]:
    """Returns the statements of a Query message; an empty list if the text is blank.

    Raises PgError 42601 (syntax), 0A000 (not supported), 42704 (unknown type), 54001 (nested too deeply), 22xxx
    (invalid string or number), and no other exception. The time is linear in the length of the text.
    """
    rows = split(text)
    if rows is None:
        return parse_each(text)
    first, _ = rows.row(0)
    match parse_each(first):
        case [Insert(source=Query(tree=exp.Values(expressions=[_]))) as statement]:
            return [replace(statement, text=text, rows=rows)]
    return parse_each(text)


def parse_each(text: str) -> list[Statement]:
    """As `parse`, but always with a tree for each value of an INSERT (no `LiteralRows`)."""
    tokens = TokenReader(text)
    statements: list[Statement] = []
    while not tokens.at_end:
        if not tokens.take(";"):
            statements.append(_parse_statement(tokens))
            if not tokens.at_end:
                tokens.expect(";")
    return statements


def parse_storing(statement: Statement, names: Collection[str]) -> WithWrites | None:
    """Parses a statement again, so that the items of its WITH that have these names are computed once.

    None if the statement does not begin with WITH, has no such items, or reads AS OF.
    """
    if not isinstance(statement, Select | Insert | Update | Delete | Merge | WithWrites):
        return None
    if isinstance(statement, Select) and statement.as_of is not None:
        return None
    text = " " * statement.offset + statement.text  # positions are those in the client's text
    parsed = _parse_statement(TokenReader(text, names))
    if not isinstance(parsed, WithWrites):
        return None
    stored = {item.name.name for item in parsed.items if isinstance(item.statement, Select)}
    return parsed if stored.issuperset(names) else None


def parse_query(text: str) -> Query:
    """Parses a single query, as stored in the catalog for a view."""
    tokens = TokenReader(text)
    query = tokens.query()
    tokens.expect_end()
    return query


def parse_expression(text: str) -> Expr:
    """Parses a single scalar expression, as stored in the catalog for a default or an index key."""
    tokens = TokenReader(text)
    expression = tokens.expression()
    tokens.expect_end()
    return expression


def _parse_statement(tokens: TokenReader) -> Statement:
    head = tokens.word
    if rule := _RULES.get(head):
        return rule(tokens)
    if outer_rule := _OUTER_RULES.get(head):
        return outer_rule(tokens, _parse_statement)
    if head in _UNSUPPORTED:
        raise tokens.not_supported(head.upper(), _UNSUPPORTED[head])
    raise tokens.syntax_error()
