"""A session with psycopg3: each step is a function, whose docstring is its title in docs/clients.md."""

import psycopg
from psycopg.types import TypeInfo
from psycopg.types.composite import CompositeInfo
from psycopg.types.enum import EnumInfo, register_enum
from psycopg.types.json import Jsonb
from psycopg_pool import ConnectionPool
from steps import URL, run


def default_transactions():
    """Default transactions"""
    with psycopg.connect(URL) as connection:
        connection.execute("CREATE TABLE p3 (id int, name text)")
        connection.execute("INSERT INTO p3 VALUES (%s, %s)", (1, "one"))
        assert connection.execute("SELECT name FROM p3 WHERE id = %s", (1,)).fetchone() == ("one",)
    with psycopg.connect(URL) as connection:
        connection.execute("UPDATE p3 SET name = 'uno'")
        connection.rollback()
        assert connection.execute("SELECT * FROM p3").fetchall() == [(1, "one")]


def nested_transactions():
    """Nested `transaction()`"""
    with psycopg.connect(URL, autocommit=True) as connection, connection.transaction():
        connection.execute("INSERT INTO p3 VALUES (2, 'two')")
        try:
            with connection.transaction():
                connection.execute("INSERT INTO p3 VALUES (3, 'three')")
                raise ValueError
        except ValueError:
            pass
        assert connection.execute("SELECT id FROM p3 ORDER BY id").fetchall() == [(1,), (2,)]


def executemany():
    """`executemany`, with RETURNING"""
    with psycopg.connect(URL) as connection:
        cursor = connection.cursor()
        cursor.executemany("INSERT INTO p3 VALUES (%s, %s)", [(number, "n") for number in range(10, 30)])
        assert cursor.rowcount == 20
        cursor.executemany("INSERT INTO p3 VALUES (%s, 'r') RETURNING id", [(40,), (41,)], returning=True)
        assert cursor.fetchone() == (40,)


def pipeline():
    """Pipeline"""
    with psycopg.connect(URL) as connection, connection.pipeline():
        cursors = [connection.execute("SELECT %s::int + 1", (number,)) for number in range(20)]
        assert [cursor.fetchone()[0] for cursor in cursors] == [*range(1, 21)]


def server_cursors():
    """Server cursors, also scrollable and with hold"""
    with psycopg.connect(URL) as connection:
        with connection.cursor("plain") as cursor:
            cursor.execute("SELECT id FROM p3 ORDER BY id")
            assert len(list(cursor)) == 24
        with connection.cursor("held", scrollable=True, withhold=True) as cursor:
            cursor.execute("SELECT id FROM p3 ORDER BY id")
            connection.commit()
            assert len(cursor.fetchmany(10)) == 10
            cursor.scroll(-10)
            assert len(cursor.fetchall()) == 24


def copy():
    """COPY in both directions, text and binary"""
    with psycopg.connect(URL) as connection, connection.cursor() as cursor:
        with cursor.copy("COPY p3 (id, name) FROM STDIN") as rows:
            rows.write_row((100, "copied\t"))
        with cursor.copy("COPY (SELECT id, name FROM p3 WHERE id = 100) TO STDOUT (FORMAT binary)") as rows:
            rows.set_types(["int4", "text"])
            assert list(rows.rows()) == [(100, "copied\t")]


def notifies():
    """`notifies()`"""
    with psycopg.connect(URL, autocommit=True) as ours, psycopg.connect(URL, autocommit=True) as other:
        other.execute("LISTEN events")
        ours.execute("SELECT pg_notify('events', 'hello')")
        (notify,) = other.notifies(timeout=10, stop_after=1)
        assert (notify.channel, notify.payload) == ("events", "hello")


def pool():
    """Pool"""
    with ConnectionPool(URL, min_size=1, max_size=2, open=True, check=ConnectionPool.check_connection) as pool:
        for _ in range(4):
            with pool.connection() as connection:
                assert connection.execute("SELECT count(*) FROM p3").fetchone() == (25,)


def types():
    """Values of all types, text and binary"""
    query = """SELECT 1::int2, 2::int8, 1.5::float4, 2.5::float8, 12.34::numeric(10,2), 'x'::varchar, true,
        '\\x00ff'::bytea, date '2024-02-29', timestamp '2024-02-29 12:00', timestamptz '2024-02-29 12:00Z',
        interval '1 day 2 hours', '{"a": [1, null]}'::jsonb, '11111111-1111-1111-1111-111111111111'::uuid,
        ARRAY[1, NULL, 3], ARRAY['a', 'b,c']"""
    with psycopg.connect(URL) as connection:
        assert connection.execute(query).fetchone() == connection.execute(query, binary=True).fetchone()
        with connection.cursor(binary=True) as cursor:
            row = connection.execute(query).fetchone()
            cursor.execute("SELECT %s, %s, %s, %s, %s, %s", (*row[8:12], Jsonb(row[12]), row[13]))
            assert cursor.fetchone() == row[8:14]


def type_info():
    """`TypeInfo.fetch`"""
    with psycopg.connect(URL) as connection:
        info = TypeInfo.fetch(connection, "numeric")
        assert (info.oid, info.array_oid) == (1700, 1231)
        assert TypeInfo.fetch(connection, "no_such_type") is None
        assert CompositeInfo.fetch(connection, "no_such_type") is None


def keys():
    """SERIAL and ON CONFLICT"""
    with psycopg.connect(URL) as connection:
        connection.execute("CREATE TABLE p3_keys (id serial PRIMARY KEY, name text UNIQUE)")
        upsert = "INSERT INTO p3_keys (name) VALUES (%s) ON CONFLICT (name) DO NOTHING RETURNING id"
        assert connection.execute(upsert, ["a"]).fetchone() == (1,)
        assert connection.execute(upsert, ["a"]).fetchone() is None


def enums():
    """`EnumInfo.fetch` and `register_enum`"""
    with psycopg.connect(URL) as connection:
        connection.execute("CREATE TYPE p3_mood AS ENUM ('sad', 'ok'); CREATE TABLE p3_moods (m p3_mood, ms p3_mood[])")
        info = EnumInfo.fetch(connection, "p3_mood")
        register_enum(info, connection)
        mood = info.enum
        for template in ("INSERT INTO p3_moods VALUES (%t, %t)", "INSERT INTO p3_moods VALUES (%b, %b)"):
            connection.execute(template, (mood.ok, [mood.sad, None]))
        for binary in (False, True):
            found = connection.cursor(binary=binary).execute("SELECT * FROM p3_moods").fetchall()
            assert found == [(mood.ok, [mood.sad, None])] * 2, found


run(
    default_transactions,
    nested_transactions,
    executemany,
    pipeline,
    server_cursors,
    copy,
    notifies,
    pool,
    types,
    type_info,
    keys,
    enums,
)
