"""GROUP BY a primary key in stored queries, which remain valid without the key."""

from __future__ import annotations

import psycopg
import pytest


def test_a_view_grouped_by_a_primary_key_does_not_need_the_key(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute('CREATE TABLE users (id int PRIMARY KEY, name text, "Age" int)')
        connection.execute("CREATE TABLE orders (user_id int, amount int)")
        connection.execute("INSERT INTO users VALUES (1, 'Ann', 30), (2, 'Ann', 40)")
        connection.execute("INSERT INTO orders VALUES (1, 10), (1, 20)")
        query = 'SELECT u.name, "Age", count(o.*) FROM users u LEFT JOIN orders o ON user_id = id GROUP BY u.id'
        connection.execute(f"CREATE VIEW counted AS {query}".encode())
        connection.execute(f"CREATE MATERIALIZED VIEW kept AS {query.replace('u.id', '(id)')}".encode())
        connection.execute("CREATE VIEW numbered AS SELECT users.id, name FROM users GROUP BY 1")
        text = connection.execute("SELECT pg_get_viewdef('counted'::regclass)").fetchone()
        assert text is not None
        assert text[0].rstrip(";").endswith('GROUP BY u.id, u.name, u."Age"')
        connection.execute("ALTER TABLE users DROP CONSTRAINT users_pkey")
        connection.execute("INSERT INTO users VALUES (1, 'Bob', 50)")
        expected = [("Ann", 30, 2), ("Ann", 40, 0), ("Bob", 50, 2)]
        for view in ("counted", "kept"):
            assert connection.execute(f'SELECT * FROM {view} ORDER BY name, "Age"'.encode()).fetchall() == expected
        assert connection.execute("SELECT * FROM numbered ORDER BY id, name").fetchall() == [
            (1, "Ann"),
            (1, "Bob"),
            (2, "Ann"),
        ]
        with pytest.raises(
            psycopg.errors.GroupingError, match=r'column "users\.name" must appear in the GROUP BY clause'
        ):
            connection.execute("SELECT name FROM users GROUP BY id")


def test_a_key_that_is_not_enforced_determines_nothing(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE users (id int, name text, PRIMARY KEY (id) NOT ENFORCED)")
        with pytest.raises(psycopg.errors.GroupingError):
            connection.execute("SELECT name FROM users GROUP BY id")
