"""Roles with many privileges, memberships and default privileges: bounded lists, and no wait for others."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest
from psycopg import errors

from catalog.acls import ITEMS_MAX
from tests.attacks.clients import resident_bytes, watched
from tests.fix_server import ServerProcess, server_without_spark

pytestmark = pytest.mark.attacks

TABLES = 200


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server without Spark, and the role `mallory` with CREATEROLE."""
    server = server_without_spark(tmp_path)
    with psycopg.connect(server.dsn, autocommit=True) as boss:
        boss.execute("CREATE USER mallory CREATEROLE; CREATE SCHEMA s; GRANT USAGE, CREATE ON SCHEMA s TO mallory")
    yield server
    assert server.stop() == 0


@pytest.mark.long
def test_chains_of_grant_options(server: ServerProcess) -> None:
    """Each role of a chain grants to the next. The chain ends at the limit, and REVOKE CASCADE removes all of it."""
    with psycopg.connect(server.dsn, autocommit=True) as boss:
        boss.execute("CREATE TABLE t (a int)")
        names = [f"r{number}" for number in range(ITEMS_MAX)]
        boss.execute("; ".join(f"CREATE ROLE {name}" for name in names).encode())
        boss.execute("GRANT SELECT ON t TO r0 WITH GRANT OPTION; GRANT r0 TO mallory")
        with watched(server):
            grants = [
                f"SET ROLE {giver}; GRANT SELECT ON t TO {taker} WITH GRANT OPTION" for giver, taker in pairwise(names)
            ]
            with pytest.raises(errors.ProgramLimitExceeded):
                for grant in grants:
                    boss.execute(grant.encode())
            boss.execute(f"SET ROLE {names[-3]}".encode())
            with pytest.raises(errors.InvalidGrantOperation):
                boss.execute("GRANT SELECT ON t TO r0 WITH GRANT OPTION")
            boss.execute("RESET ROLE; REVOKE SELECT ON t FROM r0 CASCADE")
        assert boss.execute("SELECT cardinality(relacl) FROM pg_class WHERE relname = 't'").fetchone() == (1,)


def test_memberships_are_limited(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """GRANT of 1,000 roles to 400 others stopped the event loop for 6 s, and each later change of roles for 2 s."""
    with psycopg.connect(server.dsn, autocommit=True) as boss:
        names = [f"r{number}" for number in range(1_000)]
        boss.execute("; ".join(f"CREATE ROLE {name}" for name in names).encode())
        granted, takers = ", ".join(names[:500]), ", ".join(names[500:])
        with psycopg.connect(server.dsn, user="mallory", autocommit=True) as mallory:
            boss.execute(f"GRANT {granted} TO mallory WITH ADMIN OPTION".encode())
            for change in ("GRANT {} TO {}", "REVOKE {} FROM {}"):
                with watched(server, 0.4), pytest.raises(errors.ProgramLimitExceeded, match="too many memberships in"):
                    mallory.execute(change.format(granted, takers).encode())
            with watched(server, 0.4):
                for first in range(0, 90, 10):
                    mallory.execute(f"GRANT {', '.join(names[first : first + 10])} TO {takers}".encode())
            with watched(server, 0.4), pytest.raises(errors.InsufficientPrivilege):
                mallory.execute(f"DROP ROLE {', '.join(names)}".encode())
        with watched(server, 0.4):
            boss.execute(f"DROP ROLE {', '.join(names)}".encode())


def test_privileges_are_limited(server: ServerProcess) -> None:
    """GRANT on 2,000 tables to 498 roles took 1 GB, and the commits of others waited for seconds."""
    names = [f"r{number}" for number in range(ITEMS_MAX - 2)]
    with psycopg.connect(server.dsn, autocommit=True) as boss:
        boss.execute("; ".join(f"CREATE ROLE {name}" for name in names).encode())
        boss.execute(
            f"BEGIN; {'; '.join(f'CREATE TABLE s.t{number} (a int)' for number in range(300))}; COMMIT".encode()
        )
        before = resident_bytes(server.process.pid)
        with watched(server), pytest.raises(errors.ProgramLimitExceeded, match="too many privileges in a statement"):
            boss.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA s TO {', '.join(names)}".encode())
        assert resident_bytes(server.process.pid) - before < 250 << 20
        boss.execute(f"GRANT ALL ON s.t0, s.t1 TO {', '.join(names)}".encode())


@pytest.mark.long
def test_chains_of_memberships(server: ServerProcess) -> None:
    with psycopg.connect(server.dsn, user="mallory", autocommit=True) as mallory:
        names = [f"r{number}" for number in range(1_000)]
        with watched(server):
            for name in names:
                mallory.execute(f"CREATE ROLE {name}".encode())
            for group, member in pairwise(names):
                mallory.execute(f"GRANT {group} TO {member} WITH ADMIN OPTION".encode())
            mallory.execute(f"GRANT {', '.join(names)} TO mallory WITH INHERIT TRUE".encode())
            with pytest.raises(errors.InvalidGrantOperation):
                mallory.execute(f"GRANT {names[-1]} TO {names[0]}".encode())
            mallory.execute(f"DROP ROLE {', '.join(names)}".encode())


@pytest.mark.long
def test_many_tables_and_grantees(server: ServerProcess) -> None:
    """A statement about all tables of a schema, all roles and many columns, by a role that is not the owner."""
    with psycopg.connect(server.dsn, autocommit=True) as boss:
        names = [f"r{number}" for number in range(ITEMS_MAX - 2)]
        boss.execute("; ".join(f"CREATE ROLE {name}" for name in names).encode())
        columns = ", ".join(f"c{number} int" for number in range(50))
        for number in range(TABLES):
            boss.execute(f"CREATE TABLE s.t{number} ({columns})".encode())
        everyone = ", ".join(names)
        with watched(server):
            boss.execute("GRANT ALL ON ALL TABLES IN SCHEMA s TO mallory WITH GRANT OPTION")
            with psycopg.connect(server.dsn, user="mallory", autocommit=True) as mallory:
                mallory.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA s TO {everyone} WITH GRANT OPTION".encode())
                mallory.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA s TO {everyone} WITH GRANT OPTION".encode())
                mallory.execute(f"REVOKE ALL ON ALL TABLES IN SCHEMA s FROM {everyone} CASCADE".encode())
                mallory.execute(f"ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO {everyone}".encode())
                mallory.execute("; ".join(f"CREATE TABLE s.own{number} (a int)" for number in range(100)).encode())
    assert resident_bytes(server.process.pid) < 1 << 30


@pytest.mark.long
@pytest.mark.parametrize("statement", ["REVOKE SELECT ON t FROM r0 CASCADE", "DROP OWNED BY r0"])
def test_chains_on_many_columns(server: ServerProcess, statement: str) -> None:
    """One grantee is revoked, and with it a chain of grants on each column."""
    with psycopg.connect(server.dsn, autocommit=True) as boss:
        names = [f"r{number}" for number in range(ITEMS_MAX - 2)]
        columns = [f"c{number}" for number in range(50)]
        boss.execute("; ".join(f"CREATE ROLE {name}" for name in names).encode())
        boss.execute(f"CREATE TABLE t ({', '.join(f'{column} int' for column in columns)})".encode())
        granted = f"GRANT SELECT ({', '.join(columns)}) ON t TO"
        boss.execute(f"{granted} r0 WITH GRANT OPTION".encode())
        for giver, taker in pairwise(names):
            boss.execute(f"SET ROLE {giver}; {granted} {taker} WITH GRANT OPTION".encode())
        boss.execute("RESET ROLE")
        with watched(server):
            boss.execute(statement.encode())
        attributes = "SELECT count(*) FROM pg_attribute WHERE attrelid = 't'::regclass AND attacl IS NOT NULL"
        assert boss.execute(attributes).fetchone() == (0,)
