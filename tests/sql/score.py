"""The score by section of PostgreSQL's manual: `python -m tests.sql.score [--missing]`.

    listed     functions and operators of a section that pg_proc and pg_operator list for our types (chapters.toml)
    supported  those that Tidewire resolves to a function that it computes, with PostgreSQL's result type
    tested     those that a statement of the suite uses whose answer equals PostgreSQL's
    score      tested / listed

A construct with a syntax of its own counts as one function. A statement's answer is assumed to equal PostgreSQL's
unless differences.toml lists it; test_sql.py verifies this.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from unittest import mock

import psycopg

from protocol.pgwire.enums import Enum
from protocol.pgwire.errors import PgError
from protocol.pgwire.types import BY_OID, INT4, SCALAR_TYPES, TEXT, PgType, array_of, enum_type
from server.sql import plan
from server.sql.bind.session import SESSION_FUNCTIONS
from server.sql.expressions import SessionValue, walk
from server.sql.functions.resolve import resolve_function, resolve_operator, resolve_set_array
from server.sql.functions.sets import SETS
from server.sql.functions.table import FUNCTIONS, OPERATORS, SET_ARRAYS, Function
from tests.fix_postgres import PostgresServer
from tests.sql import answers, manual, ours
from tests.sql.differences import known
from tests.sql.statements import Statement, chapters, shape

ENUM = enum_type(Enum("u1", 16385, 16386, "e", ("a", "b"), ("1", "2")))
_PSEUDO: dict[str, PgType] = {
    **dict.fromkeys(("anyelement", "anynonarray", "anycompatible", "anycompatiblenonarray"), INT4),
    **dict.fromkeys(("anyarray", "anycompatiblearray"), array_of(INT4)),
    "any": TEXT,
    "anyenum": ENUM,
    "name": TEXT,  # names of encodings and settings
}
_LISTED = """
    WITH known AS (SELECT oid FROM pg_type WHERE typname = ANY(%(types)s) AND typnamespace = 'pg_catalog'::regnamespace)
    SELECT false, proname, proargtypes::oid[], prorettype, provariadic, p.prokind, p.proretset
    FROM pg_proc p WHERE pronamespace = 'pg_catalog'::regnamespace
      AND proargtypes::oid[] <@ (SELECT array_agg(oid) FROM known)
    UNION ALL
    SELECT true, oprname, array_remove(ARRAY[oprleft, oprright], 0), oprresult, 0, 'f', false FROM pg_operator
    WHERE ARRAY[oprleft, oprright] <@ (SELECT array_agg(oid) || 0::oid FROM known)
    ORDER BY 1, 2, 3"""


@dataclass(frozen=True, slots=True)
class Signature:
    """A function or operator of PostgreSQL; `types` are the types of its arguments."""

    is_operator: bool
    name: str
    arguments: tuple[str, ...]
    types: tuple[PgType, ...]
    result: PgType | None  # None for a pseudo-type or a type that Tidewire lacks

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.arguments)})"


@dataclass(slots=True)
class Chapter:
    number: str
    title: str
    listed: list[Signature] = field(default_factory=list)
    syntax: dict[str, str] = field(default_factory=dict)
    supported: list[str] = field(default_factory=list)
    tested: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        return len(self.listed) + len(self.syntax)


def signatures(connection: psycopg.Connection) -> Iterator[Signature]:
    """PostgreSQL's functions and operators over types that Tidewire has."""
    names = [type.name for type in SCALAR_TYPES]
    types = [*names, *(f"_{name}" for name in names), *_PSEUDO]
    spelled: dict[int, str] = dict(connection.execute("SELECT oid, typname FROM pg_type").fetchall())
    for is_operator, name, oids, result, variadic, *_ in connection.execute(_LISTED, {"types": types}):
        arguments = [spelled[oid] for oid in oids]
        if is_operator and "name" in arguments:
            continue
        called = [_PSEUDO.get(spelled[oid]) or BY_OID[oid] for oid in oids]
        if variadic and called[-1].element is not None:
            called[-1] = called[-1].element
        yield Signature(is_operator, name, tuple(arguments), tuple(called), BY_OID.get(result))


def by_chapter(connection: psycopg.Connection) -> dict[str, Chapter]:
    """The signatures that chapters.toml assigns to the section."""
    found = {number: Chapter(number, title, syntax=manual.syntax(number)) for number, title in manual.titles().items()}
    for signature in signatures(connection):
        number = manual.chapter_of(signature.name, signature.arguments, is_operator=signature.is_operator)
        if number is not None and (signature.name, len(signature.types)) != ("+", 1):  # the parser removes it
            found[number].listed.append(signature)
    return found


def row_of(signature: Signature) -> Function | None:
    """The row of the function table with which Tidewire computes it."""
    try:
        if signature.is_operator:
            resolved = resolve_operator(signature.name, signature.types)
        elif signature.name in SETS:
            resolved = resolve_set_array(SETS[signature.name].arrays[-1], signature.types)
        else:
            resolved = resolve_function(signature.name, signature.types)
    except PgError:
        return None
    if resolved is None or (resolved.function.spark is None and resolved.function.python is None):
        return None
    same = signature.result is None or signature.name in SETS or resolved.result.name == signature.result.name
    return resolved.function if same else None


# -- what the suite uses --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Usage:
    """The functions used by statements whose answers equal PostgreSQL's."""

    rows: frozenset[Function]
    session: frozenset[str]
    texts: tuple[str, ...]
    statements: int
    shapes: int


@cache
def usage() -> Usage:
    rows: set[Function] = set()
    session: set[str] = set()
    texts = []
    shapes = set()
    count = 0
    for statement, expected in (pair for chapter in chapters() for pair in answers.read(chapter)):
        count += 1
        shapes.add(shape(statement.sql))
        if known(statement) is None or expected.sqlstate is not None:  # PostgreSQL may refuse what has a row here
            used = _used(statement)
            if used is not None:
                rows |= used[0]
                session |= used[1]
                texts.append(" ".join(statement.sql.lower().split()))
    return Usage(frozenset(rows), frozenset(session), tuple(texts), count, len(shapes))


def _used(statement: Statement) -> tuple[set[Function], set[str]] | None:
    """The table's rows and the session functions in a statement's plan; None if it cannot be planned."""
    try:
        with ExitStack() as stack:
            for rewrite in ("sums_split", "spreads_from_sums"):  # they replace functions
                stack.enter_context(mock.patch.object(plan, rewrite, lambda relation: relation))
            nodes = list(walk(ours.plan(statement).relation))
    except PgError:
        return None
    functions = {function for node in nodes if isinstance(function := getattr(node, "function", None), Function)}
    return functions, {node.name for node in nodes if isinstance(node, SessionValue)}


def untested_rows() -> list[str]:
    """The rows of the function table that Tidewire computes and no statement of the suite uses."""
    used = usage().rows
    return [
        f"{'operator' if table is OPERATORS else 'function'} {row}"
        for table in (FUNCTIONS, OPERATORS, SET_ARRAYS)
        for rows in table.values()
        for row in rows
        if row not in used and (row.spark is not None or row.python is not None) and _can_be_called(row)
    ]


def _can_be_called(row: Function) -> bool:
    return " " not in row.name


def scored(connection: psycopg.Connection) -> list[Chapter]:
    found = usage()
    result = by_chapter(connection)
    for chapter in result.values():
        for signature in chapter.listed:
            row = row_of(signature)
            of_session = signature.name in SESSION_FUNCTIONS and row is None
            if row is not None or of_session:
                chapter.supported.append(str(signature))
            if row in found.rows or (of_session and signature.name in found.session):
                chapter.tested.append(str(signature))
        forms = forms_used(chapter.number)
        chapter.supported += forms
        chapter.tested += forms
    return list(result.values())


def forms_used(number: str) -> list[str]:
    """The section's constructs with a syntax of their own that statements use."""
    patterns = manual.syntax(number).items()
    return [name for name, pattern in patterns if any(re.search(pattern, text) for text in usage().texts)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.sql.score", description=__doc__)
    parser.add_argument("--missing", action="store_true", help="list what is not supported, and what is not tested")
    arguments = parser.parse_args()
    server = PostgresServer()
    try:
        with psycopg.connect(server.dsn) as connection:
            result = scored(connection)
    finally:
        server.stop()
    print(f"{'chapter':38}{'listed':>8}{'supported':>11}{'tested':>8}{'score':>8}")
    for chapter in result:
        _print(f"{chapter.number} {chapter.title}", chapter.count, len(chapter.supported), len(chapter.tested))
    counts = ([chapter.count, len(chapter.supported), len(chapter.tested)] for chapter in result)
    _print("all", *map(sum, zip(*counts, strict=True)))
    print(f"{usage().statements} statements, {usage().shapes} that differ in more than literals")
    if arguments.missing:
        for chapter in result:
            names = [*map(str, chapter.listed), *chapter.syntax]
            print(f"{chapter.number} not supported: {'; '.join(n for n in names if n not in chapter.supported)}")
            print(f"{chapter.number} not tested: {'; '.join(n for n in chapter.supported if n not in chapter.tested)}")
        print("rows that no statement uses: " + "; ".join(untested_rows()))


def _print(name: str, listed: int, supported: int, tested: int) -> None:
    print(f"{name:38}{listed:8}{supported:11}{tested:8}{tested / listed:8.1%}")


if __name__ == "__main__":
    main()
