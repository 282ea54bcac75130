"""PRIMARY KEY and UNIQUE: what PostgreSQL rejects is rejected, in its words, and never two commits with one key."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import errors

from tests.examples import examples
from tests.fix_postgres import own_schema
from tests.fix_server import ServerThread, server_without_spark
from tests.polling import HANG_S
from tests.server.slow_engine import PassingEngine

Connection = psycopg.Connection[Any]

TABLES = """
    CREATE TABLE k (id int PRIMARY KEY, a text UNIQUE, b numeric(6,2), c float8, UNIQUE (b, c), d char(3));
    CREATE UNIQUE INDEX i ON k (d) NULLS NOT DISTINCT;
    CREATE TABLE l (a bytea UNIQUE, at timestamptz, u uuid, CONSTRAINT "At" UNIQUE (at, u))
"""
IDS = st.integers(0, 5)
TEXTS = st.sampled_from(("'a'", "'b'", "'b '", "''", "'a,b'", "NULL", "NULL"))
NUMBERS = st.sampled_from(("1", "1.0", "1.001", "0", "-0.0", "NULL"))
FLOATS = st.sampled_from(("0", "'-0'::float8", "'NaN'", "1.5", "NULL"))
CHARS = st.sampled_from(("'x'", "'x '", "'y'", "'z'", "NULL"))
ROWS = st.builds("({}, {}, {}, {}, {})".format, IDS, TEXTS, NUMBERS, FLOATS, CHARS)
OTHERS = st.builds(
    "({}, {}, {})".format,
    st.sampled_from((r"'\x00'", r"'\x0000'", "''", "NULL")),
    st.sampled_from(("'2020-01-01 00:00+00'", "'2020-01-01 02:00+02'", "NULL")),
    st.sampled_from(("'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "'a0eebc999c0b4ef8bb6d6bb9bd380a11'")),
)
STATEMENTS = st.one_of(
    st.builds("INSERT INTO k VALUES {}".format, ROWS),
    st.lists(ROWS, min_size=2, max_size=9).map(lambda rows: f"INSERT INTO k VALUES {', '.join(rows)}"),
    st.builds("INSERT INTO k (id) VALUES ({}) RETURNING id".format, IDS),
    st.builds("INSERT INTO k (id, a) SELECT id + {}, a || 'x' FROM k WHERE id < 3".format, IDS),
    st.builds("UPDATE k SET id = {} WHERE id = {}".format, IDS, IDS),
    st.builds("UPDATE k SET a = {}, c = {} WHERE id = {} RETURNING a".format, TEXTS, FLOATS, IDS),
    st.builds("UPDATE k SET b = {} WHERE c > 0".format, NUMBERS),
    st.builds("UPDATE k SET d = {} WHERE id = {}".format, CHARS, IDS),
    st.builds("DELETE FROM k WHERE id IN ({}, {})".format, IDS, IDS),
    st.builds("INSERT INTO l VALUES {}".format, OTHERS),
    st.just("TRUNCATE k"),
)
BLOCKS = st.one_of(
    st.lists(STATEMENTS, min_size=1, max_size=4),
    st.lists(
        st.one_of(STATEMENTS, STATEMENTS, st.sampled_from(("SAVEPOINT x", "ROLLBACK TO x"))), min_size=1, max_size=8
    ).map(lambda found: ["BEGIN", "SAVEPOINT x", *found, "COMMIT"]),
)


def outcome(connection: Connection, statement: str, parameters: tuple[object, ...] | None = None) -> object:
    """The rows, sorted, and the tag of a statement, or its error."""
    try:
        cursor = connection.execute(statement.encode(), parameters)
    except psycopg.Error as error:
        found = error.diag
        if not isinstance(error, errors.UniqueViolation):
            return error.sqlstate
        return error.sqlstate, found.message_primary, found.message_detail, found.constraint_name, found.table_name
    return cursor.statusmessage, sorted(map(repr, cursor.fetchall())) if cursor.description else None


def outcomes(
    ours: Connection, theirs: Connection, definitions: Sequence[str], blocks: list[list[str]], query: str
) -> Iterator[tuple[str, object, object]]:
    """Executes blocks and after each of them the query, on new tables. Yields each statement with both outcomes."""
    for connection in (theirs, ours):
        connection.execute("ROLLBACK")  # after a failed example
        for definition in definitions:
            connection.execute(definition.encode())
    for statement in (statement for block in blocks for statement in (*block, query)):
        yield statement, outcome(ours, statement), outcome(theirs, statement)


@pytest.fixture(scope="module")
def theirs(postgres: str) -> Iterator[Connection]:
    with own_schema(postgres, "keys") as connection:
        yield connection


def test_duplicates_are_those_of_postgresql(theirs: Connection, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as ours:

        @examples(12)
        @given(st.lists(BLOCKS, min_size=1, max_size=5))
        def compare(blocks: list[list[str]]) -> None:
            definitions = ("DROP TABLE IF EXISTS k; DROP TABLE IF EXISTS l", TABLES)
            for statement, found, expected in outcomes(ours, theirs, definitions, blocks, "SELECT * FROM k"):
                assert found == expected, statement

        compare()


def test_definitions_are_those_of_postgresql(theirs: Connection, passing_server: ServerThread) -> None:
    script = """
        CREATE TABLE t (a int UNIQUE, b int PRIMARY KEY, c text CONSTRAINT cc UNIQUE, UNIQUE (a), UNIQUE (c, a))
        INSERT INTO t VALUES (1, 1, 'x'), (NULL, 2, 'x ')
        CREATE TABLE t_a_key1 (a int)
        ALTER TABLE t ADD UNIQUE (a)
        ALTER TABLE t ADD PRIMARY KEY (a)
        ALTER TABLE t ADD CONSTRAINT cc UNIQUE (a)
        ALTER TABLE t DROP CONSTRAINT t_pkey
        ALTER TABLE t DROP CONSTRAINT t_pkey
        ALTER TABLE t DROP CONSTRAINT IF EXISTS t_pkey
        ALTER TABLE t ADD PRIMARY KEY (a)
        INSERT INTO t VALUES (1, 1, 'y')
        INSERT INTO t VALUES (3, 1, 'y')
        ALTER TABLE t ADD PRIMARY KEY (b, b)
        ALTER TABLE t ADD PRIMARY KEY (nothing)
        ALTER TABLE t ADD UNIQUE (b)
        ALTER TABLE t ADD UNIQUE NULLS NOT DISTINCT (b, c)
        CREATE UNIQUE INDEX ON t (b)
        CREATE UNIQUE INDEX named ON t (a, b)
        CREATE UNIQUE INDEX named ON t (a, b)
        INSERT INTO t VALUES (NULL, 1, 'z')
        DROP INDEX named
        CREATE TABLE j (j json UNIQUE)
        CREATE TABLE two (a int PRIMARY KEY, b int PRIMARY KEY)
        CREATE TABLE two (a int, PRIMARY KEY (b))
        BEGIN
        CREATE TABLE n (a int, b int)
        INSERT INTO n VALUES (1, 1), (1, 2)
        SAVEPOINT s
        ALTER TABLE n ADD UNIQUE (a)
        ROLLBACK TO s
        ALTER TABLE n ADD UNIQUE (b)
        INSERT INTO n VALUES (3, 3)
        SAVEPOINT s
        INSERT INTO n VALUES (3, 3)
        ROLLBACK TO s
        INSERT INTO n VALUES (3, 4)
        COMMIT
        INSERT INTO n VALUES (3, 4)
        CREATE TABLE copied (LIKE t INCLUDING INDEXES)
        SELECT conname, contype, conkey FROM pg_constraint WHERE conrelid IN ('t'::regclass, 'n'::regclass)
        SELECT relname, indisunique, indisprimary, indnullsnotdistinct, indnatts FROM pg_index \
            JOIN pg_class ON indexrelid = pg_class.oid WHERE indrelid IN ('t'::regclass, 'n'::regclass)
        SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'copied'::regclass
        SELECT constraint_name, constraint_type, enforced, nulls_distinct FROM information_schema.table_constraints \
            WHERE table_name IN ('t', 'n') AND constraint_type <> 'CHECK'
    """.replace("\\\n", "")
    theirs.execute("DROP TABLE IF EXISTS t, n, j, two, copied, t_a_key1 CASCADE")
    with psycopg.connect(passing_server.dsn(), autocommit=True) as ours:
        for statement in filter(None, map(str.strip, script.splitlines())):
            assert outcome(ours, statement) == outcome(theirs, statement), statement


def test_a_key_that_is_not_enforced_accepts_duplicates(passing_server: ServerThread) -> None:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as ours:
        ours.execute("CREATE TABLE t (a int PRIMARY KEY NOT ENFORCED, i interval UNIQUE NOT ENFORCED)")
        ours.execute("INSERT INTO t VALUES (1), (1)")
        with pytest.raises(errors.FeatureNotSupported, match='column "i" of type interval'):
            ours.execute("ALTER TABLE t ADD UNIQUE (i)")
        (text,) = ours.execute("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE contype = 'p'").fetchone()  # type: ignore[misc]
        assert text == "PRIMARY KEY (a) NOT ENFORCED"


@pytest.mark.parametrize("way", ["simple", "prepared", "block", "copy", "rows"])
def test_of_concurrent_commits_of_one_key_one_succeeds(passing_server: ServerThread, way: str) -> None:
    clients, keys = 6, 60
    with psycopg.connect(passing_server.dsn(), autocommit=True) as admin:
        admin.execute("CREATE TABLE t (id bigint PRIMARY KEY, client int)")

    def insert(connection: Connection, client: int, key: int) -> None:
        match way:
            case "simple":
                connection.execute(f"INSERT INTO t VALUES ({key}, {client})".encode())
            case "prepared":
                connection.execute("INSERT INTO t VALUES (%s, %s)", (key, client), prepare=True)
            case "block":
                with connection.transaction():
                    connection.execute("INSERT INTO t VALUES (%s, %s)", (key, client))
            case "copy":
                with connection.cursor().copy("COPY t FROM STDIN") as copy:
                    copy.write(f"{key}\t{client}\n")
            case "rows":
                rows = ", ".join(f"({key + 1_000 * part}, {client})" for part in range(9))
                connection.execute(f"INSERT INTO t VALUES {rows}".encode())

    won: Counter[int] = Counter()
    details: defaultdict[int, set[str]] = defaultdict(set)
    unexpected: list[BaseException] = []

    def run(client: int) -> None:
        try:
            with psycopg.connect(passing_server.dsn(), autocommit=True) as connection:
                for key in range(keys):
                    try:
                        insert(connection, client, key)
                        won[key] += 1
                    except errors.UniqueViolation as error:
                        details[key].add(str(error.diag.message_detail))
        except BaseException as error:
            unexpected.append(error)

    threads = [threading.Thread(target=run, args=(client,)) for client in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not unexpected
    assert won == dict.fromkeys(range(keys), 1)
    assert details == {key: {f"Key (id)=({key}) already exists."} for key in range(keys)}
    with psycopg.connect(passing_server.dsn(), autocommit=True) as admin:
        found = admin.execute("SELECT id FROM t").fetchall()
        assert len(found) == len(set(found)) == keys * (9 if way == "rows" else 1)


def test_large_changes_are_compared_with_concurrent_ones(passing_server: ServerThread) -> None:
    """More rows than are compared on the event loop, and more concurrent commits than an index remembers."""
    with (
        psycopg.connect(passing_server.dsn(), autocommit=True) as ours,
        psycopg.connect(passing_server.dsn(), autocommit=True) as other,
    ):
        ours.execute("CREATE TABLE t (id int PRIMARY KEY, a text UNIQUE)")

        def copy(start: int, end: int) -> None:
            with ours.cursor().copy("COPY t FROM STDIN") as copy:
                copy.write("".join(f"{key}\tvalue {key}\n" for key in range(start, end)))

        copy(0, 20_000)
        with pytest.raises(errors.UniqueViolation, match=r"Key \(id\)=\(19999\) already exists"):
            copy(19_999, 40_000)
        for conflicts, commits in ((True, 1), (True, 300), (False, 300)):
            ours.execute("BEGIN")
            copy(20_000, 40_000)
            for number in range(commits):
                key = 39_000 if conflicts and number == 0 else 50_000 + number
                other.execute("INSERT INTO t VALUES (%s)", (key,), prepare=True)
            if conflicts:
                with pytest.raises(errors.UniqueViolation, match=r"Key \(id\)=\(39000\) already exists"):
                    ours.execute("COMMIT")
                ours.execute("ROLLBACK")
                other.execute("TRUNCATE t")
                copy(0, 20_000)
            else:
                ours.execute("COMMIT")
        with pytest.raises(errors.UniqueViolation, match=r"Key \(a\)=\(value 39000\) already exists"):
            other.execute("INSERT INTO t VALUES (-1, 'value 39000')")


def test_keys_are_known_after_a_restart(tmp_path: Path) -> None:
    engine = PassingEngine()
    server = ServerThread(tmp_path, engine)
    try:
        with psycopg.connect(server.dsn(), autocommit=True) as ours:
            ours.execute("CREATE TABLE t (id int PRIMARY KEY, a text UNIQUE); CREATE UNIQUE INDEX pair ON t (a, id)")
            ours.execute("INSERT INTO t VALUES (1, 'a'), (2, NULL), (3, NULL); TRUNCATE t")
            ours.execute("INSERT INTO t VALUES (1, 'a'), (2, NULL), (3, NULL)")
    finally:
        server.stop()
    server = ServerThread(tmp_path, engine)
    try:
        clients = [psycopg.connect(server.dsn(), autocommit=True) for _ in range(3)]
        failed: list[str] = []

        def insert(connection: Connection) -> None:
            with connection, pytest.raises(errors.UniqueViolation) as caught:
                connection.execute("INSERT INTO t VALUES (4, 'a')")
            failed.append(str(caught.value.diag.message_detail))

        threads = [threading.Thread(target=insert, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == ["Key (a)=(a) already exists."] * 3
        with psycopg.connect(server.dsn(), autocommit=True) as ours:
            ours.execute("INSERT INTO t VALUES (4, 'b')")
    finally:
        server.stop()


@pytest.mark.crash
@pytest.mark.parametrize("commits", [5, pytest.param(200, marks=pytest.mark.long)])
def test_keys_are_checked_after_a_kill(tmp_path: Path, commits: int) -> None:
    """A killed server has the acknowledged keys, each once, and rejects them afterwards."""
    acknowledged: set[int] = set()
    tried = 0
    for _ in range(3):
        server = server_without_spark(tmp_path)
        enough = threading.Event()
        begin = tried

        def write(dsn: str, own: set[int], first: int, enough: threading.Event) -> None:
            key = first
            try:
                with psycopg.connect(dsn, autocommit=True) as connection:
                    while True:
                        try:
                            connection.execute("INSERT INTO t VALUES (%s)", (key,), prepare=True)
                            own.add(key)
                        except errors.UniqueViolation:
                            pass  # another client has inserted it
                        key += 1
                        if key - first > commits:
                            enough.set()
            except psycopg.OperationalError:
                pass  # the server was killed

        with psycopg.connect(server.dsn, autocommit=True) as admin:
            admin.execute("CREATE TABLE IF NOT EXISTS t (id int PRIMARY KEY)")
            for key in acknowledged:
                with pytest.raises(errors.UniqueViolation):
                    admin.execute("INSERT INTO t VALUES (%s)", (key,))
            stored = [key for (key,) in admin.execute("SELECT * FROM t").fetchall()]
            assert len(stored) == len(set(stored))
            assert acknowledged <= set(stored)
        owns: list[set[int]] = [set() for _ in range(4)]
        threads = [threading.Thread(target=write, args=(server.dsn, own, begin, enough)) for own in owns]
        for thread in threads:
            thread.start()
        assert enough.wait(HANG_S)
        server.kill()
        for thread in threads:
            thread.join()
        assert sum(map(len, owns)) == len(set().union(*owns)), "two clients have inserted one key"
        acknowledged |= set().union(*owns)
        tried = max(acknowledged) + 10
