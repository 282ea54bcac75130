"""SET, SHOW and RESET: values, effects and errors, on a server without Spark and on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

from tests.fix_postgres import own_schema
from tests.fix_server import ServerThread


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


class Session:
    """A session that returns what a statement answers: its tag, rows and notices, or its error."""

    def __init__(self, dsn: str, stack: ExitStack, **options: Any) -> None:
        self.connection = stack.enter_context(psycopg.connect(dsn, autocommit=True, **options))
        self._notices: list[tuple[str | None, ...]] = []
        self.connection.add_notice_handler(
            lambda notice: self._notices.append((notice.severity, notice.sqlstate, notice.message_primary))
        )

    def ask(self, statement: str) -> tuple[object, ...]:
        self._notices.clear()
        try:
            cursor = self.connection.execute(statement.encode())
        except psycopg.Error as error:
            return error.sqlstate, error.diag.message_primary, error.diag.message_detail, error.diag.message_hint
        rows = cursor.fetchall() if cursor.description else None
        return cursor.statusmessage, rows, *self._notices

    def value(self, name: str) -> object:
        """The answer to SHOW, or the SQLSTATE of its error."""
        sqlstate_or_tag, rows, *_ = self.ask(f"SHOW {name}")
        return rows[0][0] if isinstance(rows, list) else sqlstate_or_tag


def compare(script: str, ours: Session, theirs: Session) -> None:
    """Both answer each line of the script alike."""
    for line in filter(None, map(str.strip, script.splitlines())):
        assert (line, ours.ask(line)) == (line, theirs.ask(line))


@pytest.fixture
def ours(stack: ExitStack, passing_server: ServerThread) -> Session:
    return Session(passing_server.dsn(), stack)


@pytest.fixture
def theirs(stack: ExitStack, postgres: str) -> Session:
    return Session(postgres, stack)


def test_transactions_are_shown_as_serializable(ours: Session) -> None:
    """`serializable` is a level that PostgreSQL's drivers know. Weaker levels are raised to it."""
    assert ours.value("transaction_isolation") == "serializable"
    assert ours.ask("SHOW TRANSACTION ISOLATION LEVEL")[1] == [("serializable",)]
    for level in ("READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"):
        ours.ask(f"BEGIN ISOLATION LEVEL {level}")
        assert ours.value("transaction_isolation") == "serializable"
        ours.ask("COMMIT")
    ours.ask("BEGIN ISOLATION LEVEL STRICT SERIALIZABLE")
    assert ours.value("transaction_isolation") == "strict serializable"
    ours.ask("COMMIT")
    assert ours.value("transaction_isolation") == "serializable"
    assert ours.ask("SET transaction_isolation = 'strict serializable'") == ("SET", None)
    assert ours.value("transaction_isolation") == "strict serializable"


def test_set_constraints(ours: Session, stack: ExitStack, postgres: str) -> None:
    """Django sends it after AddField(ForeignKey), and at the end of each TestCase."""
    with own_schema(postgres, "set_constraints"):
        theirs = Session(postgres, stack)
        theirs.ask("SET search_path = set_constraints, public")
        ours.ask("CREATE SCHEMA set_constraints")
        ours.ask("SET search_path = set_constraints, public; SET client_min_messages = warning")
        script = """
            CREATE TABLE p (a int PRIMARY KEY, b int UNIQUE, CONSTRAINT c CHECK (a > 0))
            CREATE TABLE f (a int REFERENCES p, b int CONSTRAINT d REFERENCES p DEFERRABLE INITIALLY DEFERRED)
            CREATE TABLE g (a int CONSTRAINT d REFERENCES p)
            CREATE DOMAIN positive int CONSTRAINT o CHECK (value > 0)
            SET CONSTRAINTS ALL DEFERRED
            SET CONSTRAINTS ALL IMMEDIATE
            SET CONSTRAINTS d IMMEDIATE
            DROP TABLE g
            BEGIN
            SET CONSTRAINTS ALL DEFERRED
            SET CONSTRAINTS ALL IMMEDIATE
            SET CONSTRAINTS d DEFERRED
            SET CONSTRAINTS d, set_constraints.d IMMEDIATE
            SET CONSTRAINTS p_pkey, p_b_key, c, o, f_a_fkey IMMEDIATE
            COMMIT
        """
        compare(script, ours, theirs)
        for names in ("nothing", "d, p_pkey", "p_b_key", "c", "o", "f_a_fkey", "set_constraints.nothing", "nothing.d"):
            compare(f"BEGIN\nSET CONSTRAINTS {names} DEFERRED\nROLLBACK", ours, theirs)
        compare(
            "CREATE TABLE g (a int CONSTRAINT d REFERENCES p)\nBEGIN\nSET CONSTRAINTS d DEFERRED\nROLLBACK",
            ours,
            theirs,
        )
        compare("SET CONSTRAINTS ALL\nSET CONSTRAINTS d, ALL DEFERRED\nSET CONSTRAINTS a.b.c.d DEFERRED", ours, theirs)
