"""A session with pg8000: each step is a function, whose docstring is its title in docs/clients.md."""

import datetime

import pg8000.dbapi
import pg8000.native
from steps import DATABASE, HOST, PORT, USER, run


def connect():
    return pg8000.dbapi.connect(USER, host=HOST, port=int(PORT), database=DATABASE)


def dbapi():
    """DB-API: default transactions, parameters, `executemany`"""
    connection = connect()
    cursor = connection.cursor()
    cursor.execute("CREATE TABLE p8 (id int, name text, at timestamptz, amount numeric(8,2))")
    cursor.executemany("INSERT INTO p8 (id, name) VALUES (%s, %s)", [(1, "one"), (2, None)])
    cursor.execute("INSERT INTO p8 (id, at) VALUES (%s, %s)", (3, datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)))
    connection.commit()
    cursor.execute("DELETE FROM p8")
    connection.rollback()
    cursor.execute("SELECT id, name FROM p8 ORDER BY id")
    assert [tuple(row) for row in cursor.fetchall()] == [(1, "one"), (2, None), (3, None)]
    connection.close()


def native():
    """Native interface, prepared statements"""
    connection = pg8000.native.Connection(USER, host=HOST, port=int(PORT), database=DATABASE)
    statement = connection.prepare("SELECT name FROM p8 WHERE id = :id")
    assert statement.run(id=1) == [["one"]]
    assert connection.run("SELECT cast(:a AS int[])", a=[1, 2]) == [[[1, 2]]]
    connection.close()


def notifications():
    """LISTEN"""
    connection = pg8000.native.Connection(USER, host=HOST, port=int(PORT), database=DATABASE)
    connection.run("LISTEN p8")
    connection.run("NOTIFY p8, 'own'")
    connection.run("SELECT 1")
    assert [payload for _, channel, payload in connection.notifications] == ["own"]
    connection.close()


run(dbapi, native, notifications)
