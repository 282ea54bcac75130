"""The kinds of object in CREATE, ALTER, DROP, COMMENT, SHOW CREATE and EXPLAIN."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from catalog.objects.clusters import QUICKSTART
from protocol.pgwire.errors import PgError, SqlState
from server.sql.grammar.statements.objects import ObjectKind
from server.sql.grammar.token_reader import TokenReader

NAMES_MAX = 5_000
"""The number of objects in a list of DROP, LOCK, TRUNCATE, VACUUM or ANALYZE, which find them on the event loop."""

TABLESPACE_HINT = "Omit it: all data is in the data directory of the server (--data-dir)."
_COMPUTE = "Define a view with the query, or compute in the client."
_REACT = "A materialized view is kept up to date when its tables change, and SUBSCRIBE sends the changes to a client."
SOURCES_HINT = (
    "Sources are FROM KAFKA, POSTGRES, FILE and LOAD GENERATOR. Debezium writes changes of other databases to Kafka."
)
_BYTES = 'Text is compared by its bytes, as under the collation "C".'
_CAST = "Write the conversion as an expression, for example in a view."
_SUBSCRIBE = (
    "CREATE SOURCE ... FROM POSTGRES follows the tables of a publication. SUBSCRIBE follows a relation of this server; "
    "CREATE HOLD keeps its history for a client that resumes."
)
_TEXT_SEARCH = "Use LIKE, or regular expressions."
# What to do instead of CREATE, and the plural of the kind.
_HINTS = {
    "access": ("Indexes are btree or hash.", "access methods"),
    "aggregate": (_COMPUTE, "aggregates of users"),
    "cast": (_CAST, "casts of users"),
    "cluster": ("There is one cluster, quickstart.", "other clusters"),
    "collation": (_BYTES, "collations"),
    "constraint": (_REACT, "triggers"),
    "conversion": ("The encoding is always UTF8.", "conversions"),
    "event": (_REACT, "triggers"),
    "extension": ("Functions such as gen_random_uuid() are built in.", "extensions that can be changed"),
    "foreign": ("CREATE SOURCE ... FROM POSTGRES keeps copies of the tables of another server.", "foreign tables"),
    "function": (_COMPUTE, "functions of users"),
    "group": ("Use ROLE instead of GROUP.", "groups: use ROLE instead of GROUP"),
    "language": (_COMPUTE, "languages"),
    "large": ("Use a column of type bytea.", "large objects"),
    "operator": (_COMPUTE, "operators of users"),
    "policy": ("Grant SELECT on a view with the condition, instead of the table.", "policies"),
    "procedure": ("Send the statements between BEGIN and COMMIT.", "procedures"),
    "publication": ("CREATE SINK and SUBSCRIBE send the changes of a table.", "publications"),
    "routine": (_COMPUTE, "functions of users"),
    "rule": (_REACT, "rules"),
    "server": ("CREATE CONNECTION describes another server, from which CREATE SOURCE reads.", "foreign servers"),
    "statistics": ("Omit it: queries are planned without statistics.", "statistics"),
    "subscription": (_SUBSCRIBE, "subscriptions"),
    "system": ("Use ALTER SYSTEM.", "such objects"),
    "tablespace": ("All data is in the data directory of the server (--data-dir).", "tablespaces"),
    "text": (_TEXT_SEARCH, "configurations of text search"),
    "transform": (_CAST, "transforms"),
    "trigger": (_REACT, "triggers"),
}
# Object kinds of CREATE, ALTER and DROP in PostgreSQL or Materialize that Tidewire lacks.
_UNSUPPORTED_KINDS = tuple(_HINTS)


T = TypeVar("T")


def parse_names(tokens: TokenReader, parse_name: Callable[[], T]) -> tuple[T, ...]:
    """A list of names of objects. PgError 54000 beyond NAMES_MAX."""
    names = tokens.comma_list(parse_name)
    if len(names) > NAMES_MAX:
        raise PgError(
            SqlState.PROGRAM_LIMIT_EXCEEDED,
            "too many objects in a statement",
            detail=f"A statement can name at most {NAMES_MAX} objects.",
            hint="Use several statements, in one transaction block if all must take effect at the same time.",
        )
    return names


def parse_temporary(tokens: TokenReader) -> bool:
    """[[LOCAL | GLOBAL] TEMPORARY]. Returns whether it is there."""
    if tokens.at("local", "global") and tokens.ahead().value in ("temp", "temporary"):
        tokens.advance()
    return tokens.take("temp") or tokens.take("temporary")


def parse_in_cluster(tokens: TokenReader) -> None:
    """Materialize's [IN CLUSTER name]. There is one cluster; 42704 for any other name."""
    if tokens.take("in"):
        if not tokens.take("cluster"):
            raise tokens.expected("CLUSTER")
        cluster = tokens.ident()
        if cluster.name != QUICKSTART.name:
            raise PgError(
                SqlState.UNDEFINED_OBJECT,
                f'unknown cluster "{cluster.name}"',
                hint=f"There is one cluster, {QUICKSTART.name}.",
                position=cluster.position,
            )


def unsupported_kind(tokens: TokenReader, verb: str, *kinds: str) -> PgError:
    """0A000 if the token is a kind that Tidewire lacks or one of `kinds`, which `verb` does not support; else 42601."""
    if tokens.at(*kinds, *_UNSUPPORTED_KINDS):
        kind = tokens.token.value
        if kind not in _HINTS:
            hint = "Drop it, and create it again."
        elif verb.startswith("CREATE"):
            hint = _HINTS[kind][0]
        else:
            hint = f"There are no {_HINTS[kind][1]}."
        return tokens.not_supported(f"{verb} {kind.upper()}", hint)
    return tokens.syntax_error()


def parse_object_kind(tokens: TokenReader, verb: str) -> ObjectKind:
    if tokens.take("materialized"):
        tokens.expect("view")
        return ObjectKind.MATERIALIZED_VIEW
    for kind in ObjectKind:
        if tokens.take(kind.value):
            return kind
    raise unsupported_kind(tokens, verb)


def parse_with_data(tokens: TokenReader) -> bool:
    """[WITH [NO] DATA]. Returns False for WITH NO DATA."""
    if not tokens.take("with"):
        return True
    without = tokens.take("no")
    tokens.expect("data")
    return not without
