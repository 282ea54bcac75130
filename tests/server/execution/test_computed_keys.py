"""Unique indexes with expressions and conditions reject what PostgreSQL rejects, also of concurrent commits."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import errors

from tests.examples import examples
from tests.fix_postgres import own_schema
from tests.fix_server import ServerThread
from tests.server.execution.test_insert_on_conflict import in_threads, kind
from tests.server.execution.test_keys import outcome, outcomes
from tests.server.slow_engine import PassingEngine

Connection = psycopg.Connection[Any]

TABLES = """
    CREATE TABLE p (id int, email text, active bool, amount numeric(6,2), gone date);
    CREATE UNIQUE INDEX by_email ON p (lower(email));
    CREATE UNIQUE INDEX current ON p (id) WHERE gone IS NULL;
    CREATE UNIQUE INDEX sums ON p ((id + amount), (email || 'x')) NULLS NOT DISTINCT WHERE active AND amount > 1
"""
IDS = st.integers(0, 4)
EMAILS = st.sampled_from(("'a@b'", "'A@b'", "'c'", "'C'", "'D'", "'e'", "NULL", "NULL"))
FLAGS = st.sampled_from(("true", "false", "NULL"))
AMOUNTS = st.sampled_from(("1", "2", "2.50", "3", "NULL"))
DATES = st.sampled_from(("NULL", "'2020-01-01'", "'2020-01-02'"))
ROWS = st.builds("({}, {}, {}, {}, {})".format, IDS, EMAILS, FLAGS, AMOUNTS, DATES)
CLAUSES = st.sampled_from(
    (
        "DO NOTHING",
        "(lower(email)) DO NOTHING",
        "(lower(email)) DO UPDATE SET id = excluded.id",
        "(lower(email)) DO UPDATE SET amount = p.amount + 1, gone = NULL WHERE p.id < excluded.id RETURNING id, amount",
        "(id) WHERE gone IS NULL DO UPDATE SET email = excluded.email RETURNING email",
        "(id) WHERE gone IS NULL AND active DO UPDATE SET gone = '2021-01-01'",
        "((email || 'x'), (id + amount)) WHERE amount > 1 AND active DO NOTHING",
    )
)
STATEMENTS = st.one_of(
    st.builds("INSERT INTO p VALUES {}".format, ROWS),
    st.lists(ROWS, min_size=2, max_size=5).map(lambda rows: f"INSERT INTO p VALUES {', '.join(rows)}"),
    st.builds("INSERT INTO p SELECT id + {}, email || 'x', active, amount, gone FROM p WHERE id < 3".format, IDS),
    st.builds("UPDATE p SET email = {} WHERE id = {} RETURNING email".format, EMAILS, IDS),
    st.builds("UPDATE p SET gone = {} WHERE id = {}".format, DATES, IDS),
    st.builds("UPDATE p SET active = {}, amount = {} WHERE email IS NOT NULL".format, FLAGS, AMOUNTS),
    st.builds("DELETE FROM p WHERE id = {}".format, IDS),
    st.builds("INSERT INTO p VALUES {} ON CONFLICT {}".format, ROWS, CLAUSES),
    st.builds("INSERT INTO p VALUES {}, {} ON CONFLICT {}".format, ROWS, ROWS, CLAUSES),
)
BLOCKS = st.one_of(
    st.lists(STATEMENTS, min_size=1, max_size=5),
    st.lists(st.one_of(STATEMENTS, STATEMENTS, st.sampled_from(("SAVEPOINT x", "ROLLBACK TO x"))), max_size=7).map(
        lambda found: ["BEGIN", "SAVEPOINT x", *found, "COMMIT"]
    ),
)


@pytest.fixture(scope="module")
def theirs(postgres: str) -> Iterator[Connection]:
    with own_schema(postgres, "computed_keys") as connection:
        yield connection


def test_duplicates_are_those_of_postgresql(theirs: Connection, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as ours:

        @examples(12)
        @given(st.lists(BLOCKS, min_size=1, max_size=5))
        def compare(blocks: list[list[str]]) -> None:
            definitions = ("DROP TABLE IF EXISTS p", TABLES)
            for statement, found, expected in outcomes(ours, theirs, definitions, blocks, "SELECT * FROM p"):
                if "CONFLICT" in statement:
                    found, expected = kind(found), kind(expected)
                if expected in ("duplicate", kind(found)) != found and "UPDATE" in statement:
                    return  # a duplicate that a later row of the statement has removed
                assert found == expected, statement

        compare()


def test_statements_and_catalogs_are_those_of_postgresql(theirs: Connection, dsn: str) -> None:
    script = r"""
        CREATE TABLE t (id int, email text, active bool, at timestamptz, j jsonb, "Odd name" int)
        CREATE UNIQUE INDEX ON t (lower(email))
        CREATE UNIQUE INDEX ON t (id) WHERE active
        CREATE UNIQUE INDEX ON t (id, (id + 1)) WHERE (id > 1 AND email IS NOT NULL)
        CREATE UNIQUE INDEX odd ON t ("Odd name" DESC) WHERE "Odd name" > 3
        CREATE INDEX ON t (email) WHERE (active)
        CREATE UNIQUE INDEX bad ON t (id) WHERE id
        CREATE UNIQUE INDEX bad ON t (id) WHERE nothing > 1
        CREATE UNIQUE INDEX bad ON t (id) WHERE id = (SELECT 1)
        CREATE UNIQUE INDEX bad ON t (id) WHERE sum(id) > 1
        CREATE UNIQUE INDEX bad ON t (id) WHERE at > now()
        CREATE UNIQUE INDEX bad ON t ((at::date))
        CREATE UNIQUE INDEX bad ON t (date_trunc('day', at))
        INSERT INTO t VALUES (1, 'A', true), (1, 'b', false), (2, NULL, NULL), (2, 'c', NULL)
        INSERT INTO t VALUES (3, 'a', true)
        INSERT INTO t VALUES (1, 'd', true)
        INSERT INTO t VALUES (2, 'e', NULL)
        UPDATE t SET active = true WHERE id = 1
        UPDATE t SET email = upper(email)
        CREATE UNIQUE INDEX refused ON t (id)
        CREATE UNIQUE INDEX refused ON t ((id % 2)) WHERE active IS NULL
        INSERT INTO t VALUES (9, 'A') ON CONFLICT (email) DO NOTHING
        INSERT INTO t VALUES (9, 'A') ON CONFLICT (upper(email)) DO NOTHING
        INSERT INTO t VALUES (9, 'A') ON CONFLICT (lower(email)) DO UPDATE SET id = 9 RETURNING id, email
        INSERT INTO t VALUES (9, 'A') ON CONFLICT (lower(email) DESC) DO NOTHING
        INSERT INTO t VALUES (9, 'A') ON CONFLICT (lower(nothing)) DO NOTHING
        INSERT INTO t VALUES (2, 'f', true) ON CONFLICT (id) DO NOTHING
        INSERT INTO t VALUES (2, 'f', true) ON CONFLICT (id) WHERE active DO NOTHING
        INSERT INTO t VALUES (2, 'g', true) ON CONFLICT (id) WHERE active DO UPDATE SET email = 'h'
        INSERT INTO t VALUES (2, 'g', true) ON CONFLICT (id) WHERE NOT active DO NOTHING
        INSERT INTO t VALUES (9, 'A') ON CONFLICT (lower(email)) WHERE id > 100 DO NOTHING
        SELECT id, email, active FROM t
        SELECT indexname, replace(indexdef, current_schema, 'public') FROM pg_indexes \
            WHERE tablename = 't' AND indexname <> 't_id_expr_idx'
        SELECT indexrelid::regclass::text, indisunique, indnatts, indnkeyatts, pg_get_expr(indpred, indrelid), \
            pg_get_indexdef(indexrelid, 1, true) FROM pg_index WHERE indrelid = 't'::regclass AND indnatts = 1
        SELECT attname FROM pg_attribute WHERE attrelid = 't_lower_idx'::regclass
        ALTER TABLE t RENAME COLUMN active TO is_active
        INSERT INTO t VALUES (2, 'i', true)
        SELECT pg_get_expr(indpred, indrelid) FROM pg_index WHERE indexrelid = 't_id_idx'::regclass
        ALTER TABLE t ALTER COLUMN id TYPE bigint
        INSERT INTO t VALUES (2, 'i', true)
        CREATE TABLE u (a int UNIQUE)
        ALTER TABLE t DROP COLUMN is_active
        SELECT indexname FROM pg_indexes WHERE tablename = 't'
        BEGIN
        CREATE TABLE n (a text, b int)
        INSERT INTO n VALUES ('x', 1), ('X', 2)
        SAVEPOINT s
        CREATE UNIQUE INDEX ON n (lower(a))
        ROLLBACK TO s
        CREATE UNIQUE INDEX ON n (lower(a)) WHERE b > 1
        INSERT INTO n VALUES ('y', 3)
        SAVEPOINT s
        INSERT INTO n VALUES ('Y', 3)
        ROLLBACK TO s
        COMMIT
        INSERT INTO n VALUES ('x', 3)
    """.replace("\\\n", "")
    theirs.execute("ROLLBACK")  # what the comparison of examples may have left open
    theirs.execute("DROP TABLE IF EXISTS t, n, u CASCADE")
    with psycopg.connect(dsn, autocommit=True) as ours:
        for statement in filter(None, map(str.strip, script.splitlines())):
            assert outcome(ours, statement) == outcome(theirs, statement), statement


@pytest.mark.parametrize(
    ("clause", "values"),
    [
        ("(owner) WHERE kind = %s", [("open",), ("closed",), (None,), ("a",)]),
        ("(owner) WHERE kind = %s::varchar AND n > %s", [("open", 1), ("a", 3)]),
        ("(owner) WHERE n > %s AND kind = %s", [(3, "a"), (1, "open")]),
        ("(coalesce(owner, %s))", [("none",), ("some",)]),
        ("(owner) WHERE day >= %s AND amount = %s AND kind IN ('x', %s)", [("2024-01-01", "1.50", "y")]),
        ("(n) WHERE kind = %s", [("open",)]),
    ],
)
def test_parameters_decide_which_key_of_on_conflict(
    theirs: Connection, dsn: str, clause: str, values: list[tuple[object, ...]]
) -> None:
    """Drivers send the values of conditions as parameters: SQLAlchemy does for `index_where=t.c.kind == "open"`."""
    script = """
        DROP TABLE IF EXISTS o;
        CREATE TABLE o (owner text, kind varchar(10), n int, day date, amount numeric(6, 2), at int);
        CREATE UNIQUE INDEX ON o (owner) WHERE kind = 'open';
        CREATE UNIQUE INDEX ON o (owner) WHERE n > 3 AND kind = 'a';
        CREATE UNIQUE INDEX ON o ((coalesce(owner, 'none')));
        CREATE UNIQUE INDEX ON o (owner) WHERE day >= '2024-01-01' AND amount = 1.50 AND kind IN ('x', 'y')
    """
    with psycopg.connect(dsn, autocommit=True) as ours:
        for connection in (ours, theirs):
            for statement in script.split(";"):
                connection.execute(statement.encode())
        insert = f"INSERT INTO o VALUES (NULL, 'open', 4, '2024-01-01', 1.5, %s) ON CONFLICT {clause} "
        for action in ("DO NOTHING", "DO UPDATE SET at = excluded.at + 1 RETURNING at"):
            for given in values * 2:
                found, expected = (
                    outcome(connection, insert + action, (len(values), *given)) for connection in (ours, theirs)
                )
                assert kind(found) == kind(expected), (action, given)
        rows = "SELECT * FROM o ORDER BY at"
        assert ours.execute(rows.encode()).fetchall() == theirs.execute(rows.encode()).fetchall()


@pytest.mark.parametrize("way", ["simple", "block", "rows", "update", "conflict"])
@pytest.mark.long
def test_of_concurrent_commits_of_one_key_one_succeeds(dsn: str, way: str) -> None:
    clients, keys = 4, 12
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute("CREATE TABLE t (id int, email text, active bool)")
        admin.execute("CREATE UNIQUE INDEX e ON t (lower(email)) WHERE active")
        if way == "update":
            rows = ", ".join(f"({100 * c + k}, 'key{k}', false)" for c in range(clients) for k in range(keys))
            admin.execute(f"INSERT INTO t VALUES {rows}".encode())
    won: Counter[int] = Counter()
    details: set[str | None] = set()
    counted = threading.Lock()

    def run(connection: Connection, client: int) -> None:
        for key in range(keys):
            email = f"Key{key}" if client % 2 else f"kEY{key}"
            try:
                match way:
                    case "simple":
                        connection.execute("INSERT INTO t VALUES (%s, %s, true)", (client, email))
                    case "block":
                        with connection.transaction():
                            connection.execute("INSERT INTO t VALUES (%s, %s, true)", (client, email))
                    case "rows":
                        connection.execute(f"INSERT INTO t SELECT {client}, '{email}', true WHERE 1 = 1".encode())
                    case "update":
                        connection.execute("UPDATE t SET active = true WHERE id = %s", (100 * client + key,))
                    case "conflict":
                        connection.execute(
                            "INSERT INTO t VALUES (1, %s, true) ON CONFLICT (lower(email)) WHERE active "
                            "DO UPDATE SET id = t.id + 1",
                            (email,),
                        )
                with counted:
                    won[key] += 1
            except errors.UniqueViolation as error:
                with counted:
                    details.add(error.diag.message_detail)

    in_threads(dsn, clients, run)
    with psycopg.connect(dsn, autocommit=True) as admin:
        found = admin.execute("SELECT lower(email), sum(id), count(*) FROM t WHERE active GROUP BY 1").fetchall()
    if way == "conflict":  # no increment is lost
        assert sorted(found) == sorted((f"key{key}", clients, 1) for key in range(keys))
        return
    assert won == dict.fromkeys(range(keys), 1)
    assert details == {f"Key (lower(email))=(key{key}) already exists." for key in range(keys)}
    assert sorted(name for name, _, count in found if count == 1) == sorted(f"key{key}" for key in range(keys))


def test_many_rows_are_compared(dsn: str) -> None:
    """More rows than are computed on the event loop."""
    with psycopg.connect(dsn, autocommit=True) as ours:
        ours.execute("CREATE TABLE t (id int, a text)")
        ours.execute("CREATE UNIQUE INDEX i ON t (upper(a)) WHERE id % 2 = 0")

        def copy(start: int, end: int) -> None:
            with ours.cursor().copy("COPY t FROM STDIN") as copy:
                copy.write("".join(f"{key}\tvalue {key // 2 * 2}\n" for key in range(start, end)))

        copy(0, 30_000)
        with pytest.raises(errors.UniqueViolation, match=r"Key \(upper\(a\)\)=\(VALUE 29998\) already exists"):
            copy(29_998, 60_000)
        copy(30_000, 60_000)
        ours.execute("INSERT INTO t VALUES (1, 'value 0')")
        with pytest.raises(errors.UniqueViolation, match=r"Key \(upper\(a\)\)=\(VALUE 40000\) already exists"):
            ours.execute("INSERT INTO t VALUES (2, 'Value 40000')")


def test_keys_are_known_after_a_restart(tmp_path: Path) -> None:
    engine = PassingEngine()
    for restarted in (False, True):
        server = ServerThread(tmp_path, engine)
        try:
            with psycopg.connect(server.dsn(), autocommit=True) as ours:
                if not restarted:
                    ours.execute("CREATE TABLE t (id int, a text, b bool)")
                    ours.execute("CREATE UNIQUE INDEX pair ON t (lower(a), id) WHERE b")
                    ours.execute("INSERT INTO t VALUES (1, 'a', true), (1, 'b', false)")
                else:
                    with pytest.raises(errors.UniqueViolation) as caught:
                        ours.execute("INSERT INTO t VALUES (1, 'A', true)")
                    assert caught.value.diag.message_detail == "Key (lower(a), id)=(a, 1) already exists."
                    ours.execute("INSERT INTO t VALUES (1, 'B', true), (1, 'a', false), (2, 'a', true)")
        finally:
            server.stop()


def test_values_are_for_roles_that_may_read_them(passing_server: ServerThread) -> None:
    """As in PostgreSQL, an expression needs SELECT on the table, and a column under a condition on the column."""
    with psycopg.connect(passing_server.dsn(), autocommit=True) as admin:
        admin.execute("CREATE TABLE t (a text, b int, c bool)")
        admin.execute("CREATE UNIQUE INDEX e ON t (lower(a)); CREATE UNIQUE INDEX p ON t (b) WHERE c")
        admin.execute("INSERT INTO t VALUES ('x', 1, true)")
        admin.execute("CREATE ROLE writer; GRANT INSERT ON t TO writer; GRANT SELECT (a, b) ON t TO writer")
        admin.execute("SET ROLE writer")
        for values, detail in (("'X', 2, true", None), ("'y', 1, true", "Key (b)=(1) already exists.")):
            with pytest.raises(errors.UniqueViolation) as caught:
                admin.execute(f"INSERT INTO t VALUES ({values})".encode())
            assert caught.value.diag.message_detail == detail
