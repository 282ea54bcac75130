"""CREATE DATABASE with options, DROP DATABASE WITH (FORCE) and CREATE SCHEMA AUTHORIZATION, as in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

from tests.fix_server import ServerThread

SCRIPT = """
    CREATE ROLE tw_owner
    CREATE DATABASE tw_a WITH ENCODING 'UTF8'
    CREATE DATABASE tw_b ENCODING = 'utf-8' TEMPLATE = template0 LC_COLLATE = 'C' LC_CTYPE 'C'
    CREATE DATABASE tw_c LOCALE 'C' LOCALE_PROVIDER libc STRATEGY wal_log ALLOW_CONNECTIONS true IS_TEMPLATE false
    CREATE DATABASE tw_d OWNER tw_owner CONNECTION LIMIT = -1 TABLESPACE pg_default
    CREATE DATABASE tw_e OWNER DEFAULT ENCODING DEFAULT TEMPLATE DEFAULT
    SELECT datname, pg_get_userbyid(datdba) FROM pg_database WHERE datname = 'tw_d'
    CREATE DATABASE tw_x WITH (ENCODING 'UTF8')
    CREATE DATABASE tw_x OWNER tw_nobody
    CREATE DATABASE tw_x ENCODING 'nope'
    CREATE DATABASE tw_x TEMPLATE tw_nothing
    CREATE DATABASE tw_x TABLESPACE tw_nothing
    CREATE DATABASE tw_x foo bar
    CREATE DATABASE tw_x ENCODING 'UTF8' ENCODING 'UTF8'
    CREATE DATABASE tw_x CONNECTION LIMIT -5
    CREATE DATABASE tw_x STRATEGY fast
    CREATE DATABASE tw_x IS_TEMPLATE perhaps
    DROP DATABASE tw_a WITH (FORCE)
    DROP DATABASE tw_b (FORCE, FORCE)
    DROP DATABASE tw_c WITH (nope)
    DROP DATABASE IF EXISTS tw_a WITH (FORCE)
    DROP DATABASE tw_c
    DROP DATABASE tw_d
    DROP DATABASE tw_e
    CREATE SCHEMA AUTHORIZATION tw_owner
    CREATE SCHEMA tw_s AUTHORIZATION tw_owner
    CREATE SCHEMA AUTHORIZATION tw_owner
    CREATE SCHEMA IF NOT EXISTS tw_s AUTHORIZATION CURRENT_USER
    CREATE SCHEMA tw_t AUTHORIZATION tw_nobody
    CREATE SCHEMA tw_t AUTHORIZATION
    SELECT nspname, pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname LIKE 'tw_%' ORDER BY 1
    DROP SCHEMA tw_owner
    DROP SCHEMA tw_s
    DROP ROLE tw_owner
"""


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def ask(connection: psycopg.Connection[Any], statement: str) -> tuple[object, ...]:
    try:
        cursor = connection.execute(statement.encode())
    except psycopg.Error as error:
        return error.sqlstate, error.diag.message_primary
    return cursor.statusmessage, cursor.fetchall() if cursor.description else None


def connect(dsn: str, stack: ExitStack) -> psycopg.Connection[Any]:
    return stack.enter_context(psycopg.connect(dsn, autocommit=True))


def test_as_in_postgresql(stack: ExitStack, passing_server: ServerThread, postgres: str) -> None:
    ours, theirs = connect(passing_server.dsn(), stack), connect(postgres, stack)
    for line in filter(None, map(str.strip, SCRIPT.splitlines())):
        assert (line, ask(ours, line)) == (line, ask(theirs, line))


def test_what_is_not_true_of_a_database_is_refused(stack: ExitStack, passing_server: ServerThread) -> None:
    ours = connect(passing_server.dsn(), stack)
    for option, sqlstate in (
        ("ENCODING 'LATIN1'", "22023"),
        ("LC_COLLATE 'de_DE.UTF-8'", "42809"),
        ("LC_CTYPE 'de_DE.UTF-8'", "42809"),
        ("CONNECTION LIMIT 5", "0A000"),
        ("LOCALE_PROVIDER icu", "0A000"),
        ("TEMPLATE materialize", "0A000"),
        ("ALLOW_CONNECTIONS false", "0A000"),
        ("IS_TEMPLATE true", "0A000"),
        ("OID 20000", "0A000"),
        (f"CONNECTION LIMIT {'9' * 30}", "22023"),
    ):
        assert ask(ours, f"CREATE DATABASE d {option}")[0] == sqlstate


def test_a_database_is_dropped_with_its_contents_if_nobody_uses_it(
    stack: ExitStack, passing_server: ServerThread
) -> None:
    """The messages are PostgreSQL's, which also waits for five seconds before it refuses."""
    maker = connect(passing_server.dsn(), stack)
    maker.execute("CREATE DATABASE full_of_tables")
    with psycopg.connect(passing_server.dsn("full_of_tables"), autocommit=True) as inside:
        inside.execute("CREATE TABLE t (a serial PRIMARY KEY); CREATE VIEW v AS SELECT a FROM t")
        assert ask(inside, "DROP DATABASE full_of_tables") == ("55006", "cannot drop the currently open database")
        with pytest.raises(psycopg.errors.ObjectInUse, match="is being accessed by other users") as caught:
            maker.execute("DROP DATABASE full_of_tables")
        assert caught.value.diag.message_detail == "There is 1 other session using the database."
    assert ask(maker, "DROP DATABASE full_of_tables") == ("DROP DATABASE", None)  # waits for the session's end


def test_restrict_and_users_in_other_databases(stack: ExitStack, passing_server: ServerThread) -> None:
    ours = connect(passing_server.dsn(), stack)
    ours.execute("CREATE DATABASE d; CREATE TABLE d.public.t (a int)")
    assert ask(ours, "DROP DATABASE d RESTRICT")[0] == "2BP01"
    ours.execute("CREATE VIEW of_d AS SELECT a FROM d.public.t")
    assert ask(ours, "DROP DATABASE d")[0] == "2BP01"
    assert ask(ours, "DROP DATABASE d CASCADE") == ("DROP DATABASE", None)
    assert ask(ours, "SELECT * FROM of_d")[0] == "42P01"


def test_force_ends_sessions(stack: ExitStack, passing_server: ServerThread) -> None:
    ours = connect(passing_server.dsn(), stack)
    ours.execute("CREATE DATABASE d")
    ours.execute("CREATE ROLE creator CREATEDB LOGIN")
    other = connect(passing_server.dsn("d"), stack)
    stays = connect(passing_server.dsn(), stack)
    ours.execute("ALTER DATABASE d OWNER TO creator; SET ROLE creator")
    assert ask(ours, "DROP DATABASE d WITH (FORCE) CASCADE")[0] == "42501"  # the other session is a superuser's
    ours.execute("RESET ROLE")
    assert ask(ours, "DROP DATABASE d WITH (FORCE) CASCADE") == ("DROP DATABASE", None)
    with pytest.raises(psycopg.errors.AdminShutdown):
        other.execute("SELECT 1")
    assert ask(stays, "SELECT 1") == ("SELECT 1", [(1,)])
