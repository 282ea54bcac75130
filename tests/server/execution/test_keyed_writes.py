"""UPDATE and DELETE of rows with given keys: their results are PostgreSQL's, and concurrent ones are serializable.

Each statement is executed with several values, because the first executions of a text take another path in Spark than
the later ones.
"""

from __future__ import annotations

import datetime
import threading
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from server.sql.rowwise import RowwisePlan
from tests.fix_postgres import own_schema
from tests.fix_server import ServerThread

COLUMNS = """(
    id bigint, small smallint, n int DEFAULT 7, r real, f double precision, d numeric(10,2), big numeric(30,10),
    c char(5), v varchar(4), t text, b boolean, day date, at timestamp, tz timestamptz, u uuid, raw bytea)"""
ROWS = """
    (1, 1, 10, 1.5, 1.5, 1.50, 1.5, 'ab', 'ab', 'Ab', true, '2020-01-01', '2020-01-01 10:00', '2020-01-01 10:00+00',
     '00000000-0000-0000-0000-000000000001', '\\x01'),
    (2, 2, 20, 'NaN', 'NaN', -2.25, 2, 'b', 'b ', 'b', false, '2020-01-02', '2020-01-02 10:00', '2020-01-02 10:00+00',
     '00000000-0000-0000-0000-000000000002', '\\x0203'),
    (3, 3, NULL, '-0', '-0', 0, 0, '', '', '', NULL, NULL, NULL, NULL, NULL, NULL),
    (4, 4, 40, 'Infinity', '-Infinity', 99999999.99, 3.0000000001, 'abcde', 'abcd', 'long text', true, '2020-01-04',
     '2020-01-04', '2020-01-04', '00000000-0000-0000-0000-000000000004', ''),
    (5, NULL, 50, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
    (NULL, 6, 60, 6, 6, 6, 6, '6', '6', '6', true, '2020-01-06', '2020-01-06', '2020-01-06', NULL, '\\x06'),
    (7, 7, 70, 7, 7, 7, 7, '7', '7', '7', true, '2020-01-07', '2020-01-07', '2020-01-07', NULL, '\\x07'),
    (7, 7, 70, 7, 7, 7, 7, '7', '7', '7', true, '2020-01-07', '2020-01-07', '2020-01-07', NULL, '\\x07'),
    (7, 8, 80, 8, 8, 8, 8, '8', '8', '8', false, '2020-01-08', '2020-01-08', '2020-01-08', NULL, '\\x08')"""

DAY = datetime.date(2020, 1, 1)
AT = datetime.datetime(2020, 1, 1, 10)
# Each with the parameters of its executions, in order, on the same table.
STATEMENTS: list[tuple[str, list[tuple[Any, ...]]]] = [
    ("UPDATE k SET n = n + 1 WHERE id = %s", [(1,), (1,), (2,), (3,), (99,), (None,), (7,), (1,)]),
    ("UPDATE k SET n = n + %s WHERE id = %s RETURNING id, n", [(1, 1), (2, 2), (-3, 7), (None, 4), (2**31 - 1, 1)]),
    ("UPDATE k SET f = f * %s, r = %s WHERE id = %s RETURNING *",
     [(2.5, 0.1, 1), (float("nan"), 1.5, 2), (0, -0.0, 4)]),
    ("UPDATE k SET d = d + %s WHERE id = %s", [(Decimal("1.005"), 1), (Decimal("-1"), 2), (Decimal("0.01"), 4)]),
    ("UPDATE k SET d = %s WHERE id = %s RETURNING d", [(Decimal("123456789.1"), 1), (Decimal("12.345"), 1), (None, 2)]),
    ("UPDATE k SET big = big * %s WHERE id = %s RETURNING big", [(Decimal("1.5"), 1), (Decimal("100"), 2), (2, 4)]),
    ("UPDATE k SET c = %s WHERE id = %s RETURNING c || '|'", [("x", 1), ("abcdef", 2), ("", 4), ("abcde   ", 7)]),
    ("UPDATE k SET v = %s, t = t || %s WHERE id = %s",
     [("ab", "+", 1), ("abcde", "+", 1), ("a    ", "", 2), ("", "", 4)]),
    ("UPDATE k SET t = %s::text || id WHERE c = %s RETURNING t",
     [("x", "x"), ("y", "x    "), ("z", ""), ("q", "nope")]),
    ("UPDATE k SET n = 1 WHERE v = %s RETURNING id", [("ab",), ("b ",), ("b",), ("",)]),
    ("UPDATE k SET n = 2 WHERE t = %s RETURNING id", [("ab",), ("Ab+",), ("",), ("b",)]),
    ("UPDATE k SET n = 3 WHERE f = %s RETURNING id", [(float("nan"),), (0.0,), (float("-inf"),), (3.75,)]),
    ("UPDATE k SET n = 4 WHERE r = %s::real RETURNING id", [(float("nan"),), (0.0,), (0.1,), (1e300,)]),
    ("UPDATE k SET n = 5 WHERE d = %s RETURNING id", [(Decimal("0"),), (Decimal("0.00"),), (Decimal("1.001"),), (7,)]),
    ("UPDATE k SET n = 6 WHERE small = %s::bigint RETURNING id", [(1,), (2**40,), (7,)]),
    ("UPDATE k SET n = 7 WHERE id = %s::numeric RETURNING id", [(Decimal("1.0"),), (Decimal("1.5"),), (7,)]),
    ("UPDATE k SET n = 8 WHERE id = %s::float8 RETURNING id", [(2.0,), (2.5,), (float("nan"),)]),
    ("UPDATE k SET b = NOT b, day = %s WHERE day = %s", [(DAY, DAY), (None, DAY), (DAY, DAY)]),
    ("UPDATE k SET at = at + interval '1 day' WHERE at = %s RETURNING at", [(AT,), (AT,)]),
    ("UPDATE k SET u = %s::uuid WHERE u = %s::uuid",
     [("00000000-0000-0000-0000-00000000000A", "00000000-0000-0000-0000-000000000001")]),
    ("UPDATE k SET raw = raw || %s WHERE raw = %s RETURNING raw",
     [(b"\x00", b"\x01"), (b"", b""), (b"z", b"\x02\x03")]),
    ("UPDATE k SET n = DEFAULT, t = DEFAULT WHERE id = %s RETURNING n, t", [(1,), (7,)]),
    ("UPDATE k SET n = CASE WHEN n > %s THEN n ELSE %s END WHERE id = %s", [(5, 0, 1), (100, 3, 7), (1, 1, 2)]),
    ("UPDATE k SET n = coalesce(n, %s) WHERE id IN (%s, %s, 3)", [(5, 1, 2), (6, 3, 3), (7, 99, 98)]),
    ("UPDATE k SET n = n * 2 WHERE id = ANY (%s::int[]) AND n > %s",
     [([1, 2, 3], 0), ([], 0), ([7, None], 1), ([7], 1)]),
    ("UPDATE k SET n = 100 / %s WHERE id = %s RETURNING n", [(3, 1), (0, 1), (3, 99), (7, 2)]),
    ("UPDATE k SET n = length(t) + %s WHERE id = %s AND t LIKE %s", [(1, 4, "long%"), (2, 4, "%x"), (3, 4, "l_ng%")]),
    ("UPDATE k SET id = %s WHERE id = %s", [(8, 4), (4, 8), (None, 5), (5, None)]),
    ("UPDATE k SET tz = %s::timestamptz WHERE id = %s AND tz < now()", [("2021-01-01", 1), ("2022-01-01", 2)]),
    ("UPDATE k SET n = 9 WHERE id = 1 OR id = %s RETURNING id", [(2,), (7,)]),
    ("UPDATE k SET n = 9 WHERE id = %s AND id = %s RETURNING id", [(2, 2), (7, 2)]),
    ("UPDATE k SET n = q.n FROM (VALUES (1, 5), (2, 6)) AS q(id, n) WHERE k.id = q.id AND k.id = %s",
     [(1,), (2,), (3,)]),
    ("SELECT n + %s, t || %s FROM k WHERE id = %s", [(1, "a", 1), (2, "b", 7), (3, "c", 99), (4, "", 1)]),
    ("SELECT count(*), sum(n) FROM k WHERE id = %s", [(1,), (7,), (99,)]),
    ("DELETE FROM k WHERE id = %s RETURNING id, t", [(1,), (1,), (99,), (None,)]),
    ("DELETE FROM k WHERE id = ANY (%s::int[])", [([2, 3, 3],), ([],)]),
    ("DELETE FROM k WHERE id = %s AND small = %s", [(7, 8), (7, 8), (7, 7)]),
]  # fmt: skip


@pytest.fixture(scope="module")
def theirs(postgres: str) -> Iterator[psycopg.Connection[Any]]:
    with own_schema(postgres, "keyed") as connection:
        yield connection


def filled(connection: psycopg.Connection[Any]) -> None:
    connection.execute("DROP TABLE IF EXISTS k")
    connection.execute(f"CREATE TABLE k {COLUMNS}".encode())
    connection.execute(f"INSERT INTO k VALUES {ROWS}".encode())


def done(connection: psycopg.Connection[Any], sql: str, parameters: tuple[Any, ...] = ()) -> tuple[str | None, Any]:
    """Returns the command tag and the rows, or the SQLSTATE of the error."""
    try:
        cursor = connection.execute(sql.encode(), parameters, prepare=False)
    except psycopg.Error as error:
        return error.sqlstate, None
    rows = sorted(map(repr, cursor.fetchall())) if cursor.description else None
    return cursor.statusmessage, rows


@pytest.mark.sql
@pytest.mark.parametrize("plain", [pytest.param(False, id="columns"), pytest.param(True, id="literals")])
def test_results_are_those_of_postgresql(
    theirs: psycopg.Connection[Any], dsn: str, plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`plain`: with constants in the text of the statement, as for many rows."""
    if plain:
        monkeypatch.setattr(RowwisePlan, "statement", lambda *_: None)
    with psycopg.connect(dsn, autocommit=True) as ours:
        filled(ours)
        filled(theirs)
        for sql, executions in STATEMENTS:
            for parameters in executions:
                assert done(ours, sql, parameters) == done(theirs, sql, parameters), (sql, parameters)
            contents = "SELECT * FROM k"
            assert done(ours, contents) == done(theirs, contents), sql


def test_literals_in_the_text_are_computed_as_parameters(theirs: psycopg.Connection[Any], dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as ours:
        filled(ours)
        filled(theirs)
        for key in (1, 2, 7, 7, 99):
            for sql in (
                f"UPDATE k SET n = n + {key}, d = d * 1.{key}, t = 'it''s ' || t || '{key}' WHERE id = {key}",
                f"UPDATE k SET f = {key}.5e{key}, day = '2020-02-0{key % 9}' WHERE id IN ({key}, 5) AND n <> {key}000",
                f"UPDATE k SET c = '{key}', b = true, at = NULL WHERE small = {key} RETURNING c, b, at",
            ):
                assert done(ours, sql) == done(theirs, sql), sql
                assert done(ours, "SELECT * FROM k") == done(theirs, "SELECT * FROM k"), sql


def in_threads(works: list[Any]) -> None:
    """Runs the functions at the same time. Raises the first error."""
    errors: list[BaseException] = []

    def caught(work: Any) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=caught, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


CLIENTS = 8
INCREMENTS = 30


@pytest.mark.parametrize("simple", [False, True], ids=["extended", "simple"])
def test_concurrent_increments_of_few_rows_are_not_lost(dsn: str, simple: bool) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE counters (id int, other int, n int)")
        connection.execute("INSERT INTO counters SELECT i, i, 0 FROM generate_series(0, 3) AS s(i)")

    def increment(client: int) -> None:
        cursor = psycopg.ClientCursor if simple else psycopg.Cursor
        with psycopg.connect(dsn, autocommit=True, cursor_factory=cursor) as connection:
            for number in range(INCREMENTS):
                key = (client + number) % 4
                if number % 10 == 7:  # a statement that locks the whole table
                    done = connection.execute("UPDATE counters SET n = n + 1 WHERE id + 0 = %s", (key,))
                elif number % 10 == 3:  # one that locks keys of another column
                    done = connection.execute("UPDATE counters SET n = n + 1 WHERE other = %s", (key,))
                else:
                    done = connection.execute("UPDATE counters SET n = n + 1 WHERE id = %s", (key,))
                assert done.rowcount == 1

    in_threads([lambda client=client: increment(client) for client in range(CLIENTS)])
    with psycopg.connect(dsn) as connection:
        (total,) = connection.execute("SELECT sum(n) FROM counters").fetchone() or (None,)
    assert total == CLIENTS * INCREMENTS


def test_rows_that_get_another_key_are_moved_once(dsn: str) -> None:
    """Clients move all rows between two keys, add rows, and delete rows that they have moved to a key of their own."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE moving (id int, label int)")
    deleted: list[int] = []

    def move(client: int) -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            for number in range(10):
                connection.execute("INSERT INTO moving VALUES (%s, %s)", (number % 2, client * 100 + number))
                connection.execute("UPDATE moving SET id = %s WHERE id = %s", ((number + 1) % 2, number % 2))
                connection.execute("UPDATE moving SET id = %s WHERE id = %s", (10 + client, client % 2))
                rows = connection.execute("DELETE FROM moving WHERE id = %s RETURNING label", (10 + client,)).fetchall()
                deleted.extend(label for (label,) in rows)

    in_threads([lambda client=client: move(client) for client in range(4)])
    with psycopg.connect(dsn) as connection:
        left = [label for (label,) in connection.execute("SELECT label FROM moving")]
    assert sorted(deleted + left) == sorted(client * 100 + number for client in range(4) for number in range(10))


def test_a_block_that_read_a_key_fails_if_the_key_was_written_meanwhile(dsn: str) -> None:
    """A block that holds a lock waits for no other one. The second to commit fails, unless the keys differ."""
    with psycopg.connect(dsn) as first, psycopg.connect(dsn) as second:
        for name in ("a", "b"):
            first.execute(f"CREATE TABLE {name} (id int, n int)".encode())
            first.commit()
            first.execute(f"INSERT INTO {name} VALUES (1, 0), (2, 0)".encode())
            first.commit()

        def both(key: int) -> None:
            """The second block adds a row with this key to the table of which the first has read key 1."""
            first.execute("UPDATE a SET n = n + 1 WHERE id = 1")
            second.execute("UPDATE b SET n = n + 1 WHERE id = 1")
            second.execute("INSERT INTO a VALUES (%s, 5)", (key,))
            second.commit()
            first.commit()

        both(2)
        with pytest.raises(psycopg.errors.SerializationFailure):
            both(1)


def test_an_error_of_one_statement_does_not_affect_others_that_are_computed_with_it(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE parts (id int, n int)")
        connection.execute("INSERT INTO parts SELECT i, 0 FROM generate_series(0, 7) AS s(i)")

    def divide(client: int) -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            for _ in range(10):
                divide = ("UPDATE parts SET n = n + 8 / %s WHERE id = %s", (client % 4, client))
                if client % 4:
                    connection.execute(*divide)
                else:
                    with pytest.raises(psycopg.errors.DivisionByZero):
                        connection.execute(*divide)

    in_threads([lambda client=client: divide(client) for client in range(8)])
    with psycopg.connect(dsn) as connection:
        rows = connection.execute("SELECT id, n FROM parts ORDER BY id").fetchall()
    assert rows == [(client, 10 * (8 // (client % 4)) if client % 4 else 0) for client in range(8)]


def test_a_cancelled_statement_releases_its_keys(dsn: str, server: ServerThread) -> None:
    with psycopg.connect(dsn) as holder, psycopg.connect(dsn, autocommit=True) as waiter:
        holder.execute("CREATE TABLE held (id int, n int)")
        holder.commit()
        holder.execute("INSERT INTO held VALUES (1, 0)")
        holder.commit()
        holder.execute("UPDATE held SET n = 1 WHERE id = 1")
        waiter.execute("SET statement_timeout = '200ms'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            waiter.execute("UPDATE held SET n = 2 WHERE id = 1")
        holder.commit()
        waiter.execute("RESET statement_timeout")
        waiter.execute("UPDATE held SET n = n + 2 WHERE id = 1")
        assert waiter.execute("SELECT n FROM held").fetchall() == [(3,)]
    assert not server.app.coordinator.locks._locks
