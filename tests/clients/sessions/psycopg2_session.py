"""A session with psycopg2: each step is a function, whose docstring is its title in docs/clients.md."""

import select

import psycopg2
import psycopg2.extras
from steps import URL, run


def default_transactions():
    """Default transactions"""
    with psycopg2.connect(URL) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE p2 (id int, name text, at timestamptz DEFAULT now())")
        cursor.execute("INSERT INTO p2 (id, name) VALUES (%s, %s)", (1, "it's"))
        cursor.execute("SELECT id, name FROM p2")
        assert cursor.fetchall() == [(1, "it's")]


def fast_inserts():
    """`execute_values`, `execute_batch`"""
    with psycopg2.connect(URL) as connection, connection.cursor() as cursor:
        values = [(number, f"n{number}") for number in range(500)]
        rows = psycopg2.extras.execute_values(
            cursor, "INSERT INTO p2 (id, name) VALUES %s RETURNING id", values, fetch=True
        )
        assert len(rows) == 500
        psycopg2.extras.execute_batch(cursor, "UPDATE p2 SET name = %s WHERE id = %s", [("x", 1), ("y", 2)])


def named_cursors():
    """Named cursors, also scrollable and with hold"""
    with psycopg2.connect(URL) as connection:
        with connection.cursor("c", scrollable=True) as cursor:
            cursor.execute("SELECT id FROM p2 ORDER BY id")
            cursor.scroll(10)
            assert len(cursor.fetchmany(5)) == 5
        cursor = connection.cursor("held", withhold=True)
        cursor.execute("SELECT id FROM p2")
        connection.commit()
        assert len(cursor.fetchall()) == 501
        cursor.close()


def dict_cursor():
    """`RealDictCursor`, JSON, arrays, UUIDs"""
    psycopg2.extras.register_uuid()
    with psycopg2.connect(URL, cursor_factory=psycopg2.extras.RealDictCursor) as connection:
        with connection.cursor() as cursor:
            cursor.execute("SELECT %s::jsonb AS j, %s AS a", (psycopg2.extras.Json({"k": 1}), [1, 2]))
            assert dict(cursor.fetchone()) == {"j": {"k": 1}, "a": [1, 2]}


def notifications():
    """LISTEN with `poll`"""
    listener, sender = psycopg2.connect(URL), psycopg2.connect(URL)
    listener.autocommit = sender.autocommit = True
    listener.cursor().execute("LISTEN p2")
    sender.cursor().execute("NOTIFY p2, 'hi'")
    assert select.select([listener], [], [], 10)[0]
    listener.poll()
    assert [notify.payload for notify in listener.notifies] == ["hi"]


def errors():
    """Errors with their class"""
    with psycopg2.connect(URL) as connection, connection.cursor() as cursor:
        try:
            cursor.execute("SELECT * FROM nowhere")
        except psycopg2.errors.UndefinedTable as error:
            code = error.pgcode
        assert code == "42P01"


def isolation():
    """Isolation levels"""
    connection = psycopg2.connect(URL)
    for level in ("SERIALIZABLE", "REPEATABLE READ", "READ COMMITTED"):
        connection.set_session(isolation_level=level, readonly=True)
        with connection, connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM p2")
    connection.set_session(isolation_level="DEFAULT", readonly=True, deferrable=True, autocommit=True)
    with connection.cursor() as cursor:
        try:
            cursor.execute("DELETE FROM p2")
        except psycopg2.errors.ReadOnlySqlTransaction:
            connection.set_session(readonly=False)
        cursor.execute("DELETE FROM p2 WHERE false")
    connection.close()


run(default_transactions, fast_inserts, named_cursors, dict_cursor, notifications, errors, isolation)
