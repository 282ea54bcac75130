"""GRANT and REVOKE on the collections of sources, which no client can write."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.fix_server import ServerThread


@pytest.fixture
def connection(passing_server: ServerThread) -> Iterator[psycopg.Connection]:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE SOURCE numbers FROM LOAD GENERATOR COUNTER (UP TO 1)")
        connection.execute("CREATE SOURCE auction FROM LOAD GENERATOR AUCTION (UP TO 1) FOR TABLES (bids)")
        connection.execute("CREATE TABLE users FROM SOURCE auction (REFERENCE users)")
        connection.execute("CREATE TABLE t (n int)")
        connection.execute("CREATE ROLE ann")
        yield connection


def privileges(connection: psycopg.Connection, relation: str) -> list[str]:
    """The privileges of the role ann on a relation."""
    wanted = ("SELECT", "INSERT", "UPDATE", "DELETE")
    query = f"SELECT {', '.join(f'has_table_privilege(%s, %s, {p!r})' for p in wanted)}"
    row = connection.execute(query, ("ann", relation) * len(wanted)).fetchone()  # type: ignore[arg-type]
    assert row is not None
    return [privilege for privilege, has in zip(wanted, row, strict=True) if has]


def test_privileges_to_write_are_refused(connection: psycopg.Connection) -> None:
    for relation, kind in (("numbers", "source"), ("bids", "subsource"), ("users", "source table")):
        for privilege in ("INSERT", "UPDATE", "DELETE", "SELECT, INSERT"):
            for statement in (f"GRANT {privilege} ON {relation} TO ann", f"REVOKE {privilege} ON {relation} FROM ann"):
                with pytest.raises(psycopg.errors.InvalidGrantOperation) as caught:
                    connection.execute(statement)  # type: ignore[arg-type]
                expected = f"invalid privilege type {privilege.split(', ')[-1]} for {kind}"
                assert caught.value.diag.message_primary == expected
        assert privileges(connection, relation) == []


def test_all_privileges_are_those_that_apply(connection: psycopg.Connection) -> None:
    connection.execute("GRANT ALL ON numbers, t TO ann")
    assert privileges(connection, "numbers") == ["SELECT"]
    assert privileges(connection, "t") == ["SELECT", "INSERT", "UPDATE", "DELETE"]
    connection.execute("REVOKE ALL ON numbers FROM ann")
    assert privileges(connection, "numbers") == []
    connection.execute("GRANT INSERT, SELECT ON ALL TABLES IN SCHEMA public TO ann")
    assert privileges(connection, "users") == ["SELECT"]
