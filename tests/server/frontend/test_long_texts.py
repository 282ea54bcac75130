"""Planning a long text does not delay other sessions."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg import errors
from sqlglot import exp

from server.dataflow.plan import maintenance_strategy
from server.sql import plan
from server.sql.grammar import trees as trees_module
from server.sql.grammar.parse import parse_query
from server.sql.writes import planner
from tests.fix_server import ServerThread
from tests.polling import HANG_S

pytestmark = pytest.mark.slow

LIST = ", ".join(map(str, range(5_000)))


class Gate:
    """Blocks planning while it is shut, in any thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached = threading.Event()
        self._opened = threading.Event()
        self._opened.set()
        for module in (plan, planner):
            self._stops(monkeypatch, module, "finished_plan")
        self._stops(monkeypatch, maintenance_strategy, "rewritten_or_not")

    def _stops(self, monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> None:
        original = getattr(module, name)

        def stopping(*args: Any) -> Any:
            self.reached.set()
            assert self._opened.wait(HANG_S), "nobody else is answered while this is planned"
            return original(*args)

        monkeypatch.setattr(module, name, stopping)

    def shut(self) -> None:
        self.reached.clear()
        self._opened.clear()

    def open(self) -> None:
        self._opened.set()


@pytest.mark.parametrize("prepare", [False, True])
@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT k FROM t WHERE k IN ({LIST})",
        f"INSERT INTO t SELECT k FROM t WHERE k IN ({LIST})",
        f"EXPLAIN SELECT k FROM t WHERE k IN ({LIST})",
        f"DECLARE s CURSOR FOR SUBSCRIBE (SELECT k FROM t WHERE k + 1 IN ({LIST}))",
    ],
    ids=["select", "insert", "explain", "subscribe"],
)
def test_other_sessions_are_answered_while_a_long_text_is_planned(
    passing_server: ServerThread, monkeypatch: pytest.MonkeyPatch, sql: str, prepare: bool
) -> None:
    with (
        psycopg.connect(passing_server.dsn(), autocommit=True) as one,
        psycopg.connect(passing_server.dsn(), autocommit=True) as other,
    ):
        one.execute("CREATE TABLE t (k int)")
        one.execute("INSERT INTO t VALUES (3)")
        other.execute("SELECT * FROM t")
        gate = Gate(monkeypatch)

        def run() -> None:
            with one.transaction():
                one.execute(sql.encode(), prepare=prepare)
                if sql.startswith("DECLARE"):
                    one.execute("FETCH 1 s")

        gate.shut()
        with ThreadPoolExecutor(1) as thread:
            running = thread.submit(run)
            assert gate.reached.wait(HANG_S)
            assert other.execute("SELECT * FROM t").fetchall() == [(3,)]  # this text is planned already
            gate.open()
            running.result(HANG_S)


def test_other_sessions_are_answered_while_a_long_cursor_is_declared(
    passing_server: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(passing_server.dsn()) as one, psycopg.connect(passing_server.dsn(), autocommit=True) as other:
        declare = f"DECLARE c CURSOR FOR SELECT 1 AS k FROM (VALUES ({'), ('.join(map(str, range(5_000)))})) v"
        gate = Gate(monkeypatch)
        gate.shut()
        with ThreadPoolExecutor(1) as thread:
            running = thread.submit(lambda: one.execute(declare.encode()))
            assert gate.reached.wait(HANG_S)
            assert other.execute("SHOW application_name").fetchone() == ("",)
            gate.open()
            running.result(HANG_S)


def test_errors_of_a_long_text_are_reported_and_the_session_continues(passing_server: ServerThread) -> None:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as one:
        for prepare in (False, True):
            with pytest.raises(errors.UndefinedTable) as refusal:
                one.execute(f"SELECT k FROM missing WHERE k IN ({LIST})".encode(), prepare=prepare)
            assert refusal.value.diag.statement_position == "15"
            assert one.execute("SELECT 1", prepare=prepare).fetchone() == (1,)


def test_a_plain_literal_is_parsed_as_any_other_expression(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fast path for items of literal lists gives the same trees as sqlglot's parser."""

    def trees() -> list[tuple[exp.Expr, list[object]]]:
        items = ("1", "'a'", "1.5", ".5", "-1", "1 + 1", "(1)", "1::int8", "NULL", "E'\\n'", "$$x$$", "x", "1e3")
        texts = ("SELECT 1 WHERE 1 IN ({0}, {0})", "SELECT ARRAY[{0}, {0}], {0}", "SELECT f({0}, {0})", "VALUES ({0})")
        found = [parse_query(text.format(item)).tree for item in items for text in texts]
        return [(tree, [node.meta for node in tree.walk()]) for tree in found]

    quick = trees()
    monkeypatch.setattr(trees_module._Parser, "_parse_plain_literal", lambda self: None)
    assert trees() == quick


@pytest.mark.parametrize("prepare", [False, True])
@pytest.mark.long
def test_the_syntax_tree_of_a_long_text_is_freed_without_garbage_collection(
    passing_server: ServerThread, prepare: bool
) -> None:
    """The reference counts free its syntax tree. The cycle collector may not run before gigabytes are allocated."""
    few = 1_000
    gc.collect()
    gc.disable()
    gc.freeze()  # `gc.get_objects` then omits the objects that exist now
    try:
        with psycopg.connect(passing_server.dsn(), autocommit=True) as one:
            for _ in range(3):
                one.execute(f"VALUES ({'), ('.join(map(str, range(5_000)))})".encode(), prepare=False)
                if prepare:
                    cursor = one.execute(f"VALUES ({'), ('.join(map(str, range(5_000)))})".encode(), [], prepare=False)
                    assert cursor.rowcount == 5_000
            one.execute("SELECT 1")
            for _ in range(100):  # other threads may free it later
                if _literals() < few:
                    break
                one.execute("SELECT 1")
            assert _literals() < few
    finally:
        gc.unfreeze()
        gc.enable()


def _literals() -> int:
    return sum(type(found) is exp.Literal for found in gc.get_objects())
