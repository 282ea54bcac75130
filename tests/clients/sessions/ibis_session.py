"""A session with ibis: each step is a function, whose docstring is its title in docs/clients.md."""

import ibis
import psycopg
from steps import DATABASE, HOST, PORT, URL, USER, run


def connect():
    return ibis.postgres.connect(user=USER, host=HOST, port=int(PORT), database=DATABASE)


def tables():
    """`connect`, `list_tables`, `table`"""
    with psycopg.connect(URL) as connection:
        connection.execute("CREATE TABLE ib (k text, v int, at timestamp)")
        connection.execute("INSERT INTO ib VALUES ('a', 1, '2024-01-01'), ('a', 2, '2024-02-01'), ('b', 3, NULL)")
    backend = connect()
    assert "ib" in backend.list_tables()
    assert backend.table("ib").columns == ("k", "v", "at")


def expressions():
    """Expressions"""
    table = connect().table("ib")
    grouped = table.group_by("k").agg(total=table.v.sum(), n=table.count()).order_by("k").execute()
    assert grouped.to_dict("list") == {"k": ["a", "b"], "total": [3, 3], "n": [2, 1]}
    windowed = table.mutate(r=ibis.row_number().over(group_by="k", order_by="v")).filter(ibis._.r == 0).execute()
    assert len(windowed) == 2
    assert table.filter(table.at.year() == 2024).count().execute() == 2


def create():
    """`create_table`, `create_view`"""
    backend = connect()
    backend.create_table("ib_copy", backend.table("ib"))
    backend.create_view("ib_view", backend.table("ib").filter(ibis._.v > 1))
    assert backend.table("ib_view").count().execute() == 2


run(tables, expressions, create)
