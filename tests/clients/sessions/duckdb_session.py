"""A session with duckdb: each step is a function, whose docstring is its title in docs/clients.md."""

import duckdb
import psycopg
from steps import DATABASE, HOST, PORT, URL, USER, run

CONNECTION = duckdb.connect()


def attach():
    """`ATTACH` and queries"""
    with psycopg.connect(URL) as connection:
        connection.execute("CREATE TABLE dk (k int, v text)")
        connection.execute("INSERT INTO dk VALUES (1, 'a'), (2, 'b')")
    CONNECTION.execute("LOAD postgres")
    CONNECTION.execute(f"ATTACH 'host={HOST} port={PORT} user={USER} dbname={DATABASE}' AS pg (TYPE postgres)")
    assert CONNECTION.execute("SELECT * FROM pg.dk WHERE k > 1").fetchall() == [(2, "b")]


def writes():
    """INSERT and CREATE TABLE"""
    CONNECTION.execute("INSERT INTO pg.dk SELECT 3, 'c'")
    CONNECTION.execute("CREATE TABLE pg.dk_copy AS SELECT * FROM pg.dk")
    assert CONNECTION.execute("SELECT count(*) FROM pg.dk_copy").fetchone() == (3,)


CONNECTION.execute("INSTALL postgres")
run(attach, writes)
