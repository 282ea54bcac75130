"""client_min_messages: which notices a session receives."""

from __future__ import annotations

import psycopg
import pytest


def notices(connection: psycopg.Connection, level: str) -> list[str | None]:
    found: list[str | None] = []

    def handler(diagnostic: psycopg.errors.Diagnostic) -> None:
        found.append(diagnostic.severity)

    connection.execute(f"SET client_min_messages = {level}".encode())
    connection.add_notice_handler(handler)
    connection.execute("DROP TABLE IF EXISTS nope")  # a notice
    connection.execute("COMMIT")  # a warning: there is no transaction
    connection.remove_notice_handler(handler)
    return found


@pytest.mark.parametrize(
    ("level", "severities"),
    [
        ("log", ["NOTICE", "WARNING"]),
        ("notice", ["NOTICE", "WARNING"]),
        ("warning", ["WARNING"]),
        ("error", []),
    ],
)
def test_notices_below_the_level_are_not_sent(dsn: str, postgres: str, level: str, severities: list[str]) -> None:
    for server in (dsn, postgres):
        with psycopg.connect(server, autocommit=True) as connection:
            assert notices(connection, level) == severities, server


def test_levels_are_those_of_postgresql(dsn: str, postgres: str) -> None:
    for server in (dsn, postgres):
        with psycopg.connect(server, autocommit=True) as connection:
            shown = []
            for level in ("DEBUG5", "debug", "info", "log"):
                connection.execute(f"SET client_min_messages = {level}".encode())
                shown.append(connection.execute("SHOW client_min_messages").fetchone())
            assert shown[0] == ("debug5",)
            assert shown[3] == ("log",)
            with pytest.raises(psycopg.errors.InvalidParameterValue):
                connection.execute("SET client_min_messages = loud")
