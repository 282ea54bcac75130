"""Domains with hundreds of constraints, in tables with hundreds of columns. Each column has those of its domain."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import errors

from server.execution.ddl.columns import CHECKS_MAX
from server.execution.user_types import DOMAIN_CHARS_MAX, DOMAIN_CHECKS_MAX
from tests.attacks.clients import watched
from tests.fix_server import ServerProcess

pytestmark = pytest.mark.attacks

PAUSE_MAX_S = 0.25
COLUMNS = 1_500


@pytest.fixture
def connection(own_server: ServerProcess) -> Any:
    with psycopg.connect(own_server.dsn, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA domains; SET search_path = domains")
        yield connection
        connection.execute("DROP SCHEMA domains CASCADE")


def create_domain(connection: psycopg.Connection[Any], name: str, checks: int, condition: str = "value > {}") -> None:
    text = " ".join(f"CHECK ({condition.format(-number)})" for number in range(checks))
    connection.execute(f"CREATE DOMAIN {name} AS int {text}".encode())


def columns(domain: str, number: int) -> str:
    return ", ".join(f"c{n} {domain}" for n in range(number))


def test_constraints_of_domains_are_limited(own_server: ServerProcess, connection: psycopg.Connection[Any]) -> None:
    create_domain(connection, "many", CHECKS_MAX)
    create_domain(connection, "long", 1, f"value > {{}} OR value::text <> '{'x' * (DOMAIN_CHARS_MAX // 2)}'")
    fit = DOMAIN_CHECKS_MAX // CHECKS_MAX
    refused = pytest.raises(errors.ProgramLimitExceeded, match="have too many constraints")
    with watched(own_server, PAUSE_MAX_S):
        for domain, number in (("many", COLUMNS), ("many", fit + 1), ("long", 2)):
            with refused:
                connection.execute(f"CREATE TABLE t ({columns(domain, number)})".encode())
        connection.execute(f"CREATE TABLE t ({columns('many', fit)})".encode())
        for domain in ("many", "long"):
            with refused:
                connection.execute(f"ALTER TABLE t ADD COLUMN another {domain}".encode())
        connection.execute("ALTER TABLE t ADD COLUMN another int")
        connection.execute("ALTER DOMAIN many DROP CONSTRAINT many_check")
        connection.execute("ALTER DOMAIN many ADD CHECK (value > 0)")
        connection.execute("ALTER DOMAIN many RENAME TO most")
        with refused:
            connection.execute(f"ALTER DOMAIN most SET DEFAULT length('{'x' * (DOMAIN_CHARS_MAX // 2)}')".encode())
    connection.execute("CREATE DOMAIN few AS int")
    connection.execute(f"CREATE TABLE wide ({columns('few', COLUMNS)})".encode())
    with refused:
        for number in range(CHECKS_MAX):
            connection.execute(f"ALTER DOMAIN few ADD CHECK (value > {-number})".encode())
    assert number == DOMAIN_CHECKS_MAX // COLUMNS


def test_columns_of_domains_delay_no_other_session(
    own_server: ServerProcess, connection: psycopg.Connection[Any]
) -> None:
    """COPY and ALTER DOMAIN planned the conditions of all columns at once, and not in a thread."""
    create_domain(connection, "positive", DOMAIN_CHECKS_MAX // COLUMNS)
    row = ["1"] * COLUMNS
    with watched(own_server, PAUSE_MAX_S):
        connection.execute(f"CREATE TABLE copied ({columns('positive', COLUMNS)})".encode())
        with connection.cursor().copy("COPY copied FROM STDIN") as copy:
            copy.write("\t".join(row) + "\n")
        connection.execute("ALTER DOMAIN positive DROP CONSTRAINT positive_check")
        connection.execute("ALTER DOMAIN positive ADD CHECK (value > 0)")
        with pytest.raises(errors.CheckViolation), connection.cursor().copy("COPY copied FROM STDIN") as copy:
            copy.write("\t".join([*row[1:], "-5000"]) + "\n")


def test_a_long_alteration_of_a_domain_is_cancelled(
    own_server: ServerProcess, connection: psycopg.Connection[Any]
) -> None:
    connection.execute("CREATE DOMAIN free AS int")
    connection.execute(f"CREATE TABLE altered ({columns('free', COLUMNS)})".encode())
    connection.execute(f"INSERT INTO altered VALUES ({', '.join(['1'] * COLUMNS)})".encode())
    connection.execute("SET statement_timeout = '100ms'")
    with watched(own_server, PAUSE_MAX_S), pytest.raises(errors.QueryCanceled):
        connection.execute("ALTER DOMAIN free ADD CHECK (value > 0)")
