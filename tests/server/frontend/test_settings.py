"""SET, SHOW and RESET: values, effects and errors, on a server without Spark and on a real PostgreSQL."""

from __future__ import annotations

import select
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.metadata import version
from typing import Any

import psycopg
import pytest

from catalog.objects.clusters import QUICKSTART
from tests.fix_postgres import own_schema
from tests.fix_server import ServerThread


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


class Session:
    """A session that returns what a statement answers: its tag, rows and notices, or its error."""

    def __init__(self, dsn: str, stack: ExitStack, **options: Any) -> None:
        self.connection = stack.enter_context(psycopg.connect(dsn, autocommit=True, **options))
        self._notices: list[tuple[str | None, ...]] = []
        self.connection.add_notice_handler(
            lambda notice: self._notices.append((notice.severity, notice.sqlstate, notice.message_primary))
        )

    def ask(self, statement: str) -> tuple[object, ...]:
        self._notices.clear()
        try:
            cursor = self.connection.execute(statement.encode())
        except psycopg.Error as error:
            return error.sqlstate, error.diag.message_primary, error.diag.message_detail, error.diag.message_hint
        rows = cursor.fetchall() if cursor.description else None
        return cursor.statusmessage, rows, *self._notices

    def value(self, name: str) -> object:
        """The answer to SHOW, or the SQLSTATE of its error."""
        sqlstate_or_tag, rows, *_ = self.ask(f"SHOW {name}")
        return rows[0][0] if isinstance(rows, list) else sqlstate_or_tag


def compare(script: str, ours: Session, theirs: Session) -> None:
    """Both answer each line of the script alike."""
    for line in filter(None, map(str.strip, script.splitlines())):
        assert (line, ours.ask(line)) == (line, theirs.ask(line))


@pytest.fixture
def ours(stack: ExitStack, passing_server: ServerThread) -> Session:
    return Session(passing_server.dsn(), stack)


@pytest.fixture
def theirs(stack: ExitStack, postgres: str) -> Session:
    return Session(postgres, stack)


def test_transactions_are_shown_as_serializable(ours: Session) -> None:
    """`serializable` is a level that PostgreSQL's drivers know. Weaker levels are raised to it."""
    assert ours.value("transaction_isolation") == "serializable"
    assert ours.ask("SHOW TRANSACTION ISOLATION LEVEL")[1] == [("serializable",)]
    for level in ("READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"):
        ours.ask(f"BEGIN ISOLATION LEVEL {level}")
        assert ours.value("transaction_isolation") == "serializable"
        ours.ask("COMMIT")
    ours.ask("BEGIN ISOLATION LEVEL STRICT SERIALIZABLE")
    assert ours.value("transaction_isolation") == "strict serializable"
    ours.ask("COMMIT")
    assert ours.value("transaction_isolation") == "serializable"
    assert ours.ask("SET transaction_isolation = 'strict serializable'") == ("SET", None)
    assert ours.value("transaction_isolation") == "strict serializable"


def test_set_constraints(ours: Session, stack: ExitStack, postgres: str) -> None:
    """Django sends it after AddField(ForeignKey), and at the end of each TestCase."""
    with own_schema(postgres, "set_constraints"):
        theirs = Session(postgres, stack)
        theirs.ask("SET search_path = set_constraints, public")
        ours.ask("CREATE SCHEMA set_constraints")
        ours.ask("SET search_path = set_constraints, public; SET client_min_messages = warning")
        script = """
            CREATE TABLE p (a int PRIMARY KEY, b int UNIQUE, CONSTRAINT c CHECK (a > 0))
            CREATE TABLE f (a int REFERENCES p, b int CONSTRAINT d REFERENCES p DEFERRABLE INITIALLY DEFERRED)
            CREATE TABLE g (a int CONSTRAINT d REFERENCES p)
            CREATE DOMAIN positive int CONSTRAINT o CHECK (value > 0)
            SET CONSTRAINTS ALL DEFERRED
            SET CONSTRAINTS ALL IMMEDIATE
            SET CONSTRAINTS d IMMEDIATE
            DROP TABLE g
            BEGIN
            SET CONSTRAINTS ALL DEFERRED
            SET CONSTRAINTS ALL IMMEDIATE
            SET CONSTRAINTS d DEFERRED
            SET CONSTRAINTS d, set_constraints.d IMMEDIATE
            SET CONSTRAINTS p_pkey, p_b_key, c, o, f_a_fkey IMMEDIATE
            COMMIT
        """
        compare(script, ours, theirs)
        for names in ("nothing", "d, p_pkey", "p_b_key", "c", "o", "f_a_fkey", "set_constraints.nothing", "nothing.d"):
            compare(f"BEGIN\nSET CONSTRAINTS {names} DEFERRED\nROLLBACK", ours, theirs)
        compare(
            "CREATE TABLE g (a int CONSTRAINT d REFERENCES p)\nBEGIN\nSET CONSTRAINTS d DEFERRED\nROLLBACK",
            ours,
            theirs,
        )
        compare("SET CONSTRAINTS ALL\nSET CONSTRAINTS d, ALL DEFERRED\nSET CONSTRAINTS a.b.c.d DEFERRED", ours, theirs)


def test_names_of_schemas_in_the_search_path(ours: Session, theirs: Session) -> None:
    """SET quotes names. Tools read the path, and set it again."""
    script = """
        CREATE SCHEMA "Mixed Case"
        CREATE TABLE "Mixed Case".here AS SELECT 1 AS a
        SET search_path = "Mixed Case", public
        SHOW search_path
        SELECT a, current_schema::text FROM here
        SET search_path = 'Mixed Case'
        SELECT a, current_setting('search_path') FROM here
        SET SCHEMA 'Mixed Case'
        SELECT a FROM here
        SET search_path = Mixed
        SHOW search_path
        SET search_path = 'Mixed Case, public'
        SHOW search_path
        SELECT a FROM here
        SELECT set_config('search_path', ' "Mixed Case" ,PUBLIC', false), current_schemas(false)::text[]
        SELECT a FROM here
        SET search_path = public, "select", "x""y,z", "$user"
        SHOW search_path
        SELECT set_config('search_path', current_setting('search_path'), false), current_schemas(false)::text[]
        SET search_path = ''
        SHOW search_path
        SELECT a FROM here
        SET search_path = public
        DROP TABLE "Mixed Case".here
        DROP SCHEMA "Mixed Case"
    """
    compare(script, ours, theirs)


def test_time_zones_as_offsets(ours: Session, theirs: Session) -> None:
    """Sequelize sends INTERVAL '+00:00' HOUR TO MINUTE. A number is the hours east of UTC, unlike in a POSIX zone."""
    script = """
        set time zone interval '+00:00' hour to minute
        show timezone
        set time zone interval '-05:30' hour to minute
        show timezone
        select '2026-01-01 00:00+00'::timestamptz::text
        set time zone interval '5' hour
        show timezone
        set time zone interval '90' hour to minute
        show timezone
        set time zone interval '-00:00:30'
        show timezone
        set time zone interval '1 day'
        set time zone interval '1 month'
        set time zone interval 'x'
        set time zone interval '5' day
        set time zone interval '5' hour to second
        set timezone to interval '1 hour'
        set timezone = 'interval ''2:00'''
        show timezone
        set timezone = 'interval x'
        set time zone 5
        select '2026-01-01 00:00+00'::timestamptz::text
        show timezone
        set time zone -5.5
        show timezone
        set timezone = '1e1'
        show timezone
        set timezone = '200'
        set timezone = 'nan'
        set time zone 0
        show timezone
    """
    compare(script, ours, theirs)


def test_values_of_settings(ours: Session, theirs: Session) -> None:
    """Drivers, ORMs and the scripts of pg_dump set these. Most have no effect, but the values are checked and shown."""
    script = """
        set synchronous_commit = 'nope'
        set synchronous_commit = 'TRUE'
        show synchronous_commit
        set synchronous_commit = no
        show synchronous_commit
        set work_mem = '64'
        set work_mem = '63kB'
        show work_mem
        set work_mem = '1024'
        show work_mem
        set work_mem = '1.5GB'
        show work_mem
        set work_mem = '1 XB'
        set work_mem = 'abc'
        set work_mem = '3TB'
        set work_mem = '-5'
        set work_mem = '100000B'
        show work_mem
        set work_mem = 0x100
        show maintenance_work_mem
        set maintenance_work_mem = '100'
        set check_function_bodies = 'nope'
        set check_function_bodies = tr
        show check_function_bodies
        set check_function_bodies = o
        show default_tablespace
        set default_tablespace = 'nope'
        set default_table_access_method = 'nope'
        set default_table_access_method = ''
        set default_with_oids = on
        set default_with_oids = false
        show default_with_oids
        set xmloption = 'nope'
        set xml option document
        show xmloption
        set xml option nope
        set row_security = off
        set session_replication_role = replica
        show session_replication_role
        set session_replication_role = 'nope'
        show idle_session_timeout
        set idle_session_timeout = '-1'
        set idle_session_timeout = 'abc'
        set idle_session_timeout = '3000000s'
        set idle_session_timeout = '1500.4 ms'
        show idle_session_timeout
        set idle_session_timeout = '5 foo'
        set idle_session_timeout = 0
        set lock_timeout = '1us'
        show lock_timeout
        SET TRANSACTION_READ_ONLY = 'maybe'
    """
    compare(script, ours, theirs)


def test_settings_of_the_planner(ours: Session, theirs: Session) -> None:
    """Applications that direct PostgreSQL's planner set these. They have no effect, but are checked and shown."""
    script = """
        set enable_seqscan = off
        show enable_seqscan
        set enable_nestloop = 'nope'
        reset enable_seqscan
        show enable_seqscan
        set random_page_cost = 1.1
        show random_page_cost
        set random_page_cost to '1e3'
        show random_page_cost
        set random_page_cost = '-1'
        set random_page_cost = 'x'
        set random_page_cost = '1.5kB'
        set seq_page_cost = '  0.25 '
        show seq_page_cost
        set cpu_tuple_cost = 123456789
        show cpu_tuple_cost
        set cpu_operator_cost = default
        show cpu_operator_cost
        set join_collapse_limit = 1
        show join_collapse_limit
        set join_collapse_limit = 0
        set max_parallel_workers_per_gather = 0
        show max_parallel_workers_per_gather
        set max_parallel_workers_per_gather = 1025
        set plan_cache_mode = 'force_custom_plan'
        show plan_cache_mode
        set plan_cache_mode = 'nope'
        set geqo = off
        set default_statistics_target = 1000
        show default_statistics_target
        set enable_nothing = on
        select current_setting('enable_hashjoin'), set_config('enable_hashjoin', 'f', false)
        show enable_hashjoin
        show parallel_setup_cost
    """
    compare(script, ours, theirs)


def test_transaction_modes(ours: Session, theirs: Session) -> None:
    """default_transaction_read_only, transaction_read_only and their like, and SET LOCAL with SET in a block."""
    script = """
        begin
        set default_transaction_read_only = on
        show transaction_read_only
        commit
        show transaction_read_only
        set transaction_read_only=off
        show transaction_read_only
        create table nothing (a int)
        begin
        show transaction_read_only
        set transaction_read_only = off
        show transaction_read_only
        set transaction_read_only = on
        set transaction_read_only = off
        select 1
        set transaction read only
        set transaction read write
        rollback
        begin
        set transaction read only
        select 1
        set transaction read write
        rollback
        begin read write
        savepoint a
        set transaction read only
        rollback to a
        show transaction_read_only
        rollback
        begin
        savepoint a
        set transaction read write
        rollback
        show default_transaction_read_only
        set session characteristics as transaction read write, deferrable
        show default_transaction_read_only
        show default_transaction_deferrable
        set transaction_deferrable = on
        begin
        show transaction_deferrable
        select 1
        set transaction_deferrable = off
        rollback
        begin
        set transaction not deferrable
        show transaction_deferrable
        savepoint q
        set transaction deferrable
        rollback
        show transaction_deferrable
        begin read only
        commit and chain
        show transaction_read_only
        reset transaction_read_only
        rollback
        set transaction_read_only = default
        begin
        set local default_transaction_read_only = on
        rollback
        show default_transaction_read_only
        reset all
        set session characteristics as transaction read only
        show transaction_read_only
        begin read write
        create temp table zz (a int)
        rollback
        discard all
        show transaction_read_only
        begin
        set local application_name = 'a'
        set client_min_messages = warning
        set application_name = 'b'
        set local application_name = 'c'
        savepoint x
        set client_min_messages = error
        rollback to x
        commit
        show client_min_messages
        show application_name
        begin
        set local application_name to default
        show application_name
        commit
        show application_name
    """
    compare(script, ours, theirs)


def test_levels_are_checked(ours: Session) -> None:
    for name in ("transaction_isolation", "default_transaction_isolation"):
        levels = "serializable, repeatable read, read committed, read uncommitted, strict serializable"
        message = f'invalid value for parameter "{name}": "snapshot"'
        assert ours.ask(f"SET {name} = 'snapshot'") == ("22023", message, None, f"Available values: {levels}.")
    ours.ask("SET default_transaction_isolation = 'strict serializable'")
    assert ours.value("transaction_isolation") == "strict serializable"
    ours.ask("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED")
    assert ours.value("transaction_isolation") == ours.value("default_transaction_isolation") == "serializable"


def test_read_only_sessions(stack: ExitStack, passing_server: ServerThread) -> None:
    """Also by the startup packet and by ALTER SYSTEM. libpq asks for it with target_session_attrs."""
    refused = ("25006", "cannot execute CREATE TABLE in a read-only transaction", None, None)
    dsn = passing_server.dsn()
    reader = Session(dsn, stack, options="-c default_transaction_read_only=on", target_session_attrs="read-only")
    assert reader.connection.info.parameter_status("default_transaction_read_only") == "on"
    assert reader.ask("CREATE TABLE t (a int)") == refused
    reader.ask("SET default_transaction_read_only = off")
    assert reader.connection.info.parameter_status("default_transaction_read_only") == "off"
    assert reader.ask("CREATE TABLE t (a int)") == ("CREATE TABLE", None)
    assert reader.ask("INSERT INTO t VALUES (1)") == ("INSERT 0 1", None)
    reader.ask("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
    assert reader.ask("INSERT INTO t VALUES (1)")[0] == "25006"
    reader.ask("RESET default_transaction_read_only")  # to the value of the startup packet
    assert reader.ask("INSERT INTO t VALUES (1)")[0] == "25006"
    writer = Session(dsn, stack, target_session_attrs="read-write")
    writer.ask("ALTER SYSTEM SET default_transaction_read_only = on")
    with pytest.raises(psycopg.OperationalError, match="session is read-only"):
        psycopg.connect(dsn, target_session_attrs="read-write")
    assert writer.ask("INSERT INTO t VALUES (1)") == ("INSERT 0 1", None)
    writer.ask("ALTER SYSTEM RESET default_transaction_read_only")
    assert writer.ask("ALTER SYSTEM SET transaction_read_only = on")[0] == "55P02"
    with pytest.raises(psycopg.OperationalError, match="transaction_read_only"):
        psycopg.connect(dsn, options="-c transaction_read_only=on")


def test_idle_session_timeout(ours: Session) -> None:
    ours.ask("SET idle_session_timeout = '100ms'")
    assert select.select([ours.connection], [], [], 10)[0]
    with pytest.raises(psycopg.errors.IdleSessionTimeout, match="terminating connection due to idle-session timeout"):
        ours.connection.execute("SELECT 1")


def test_custom_settings(ours: Session, theirs: Session) -> None:
    """Names with a dot, as applications use them for the current user or tenant."""
    script = """
        SET app.name = 'x'
        SHOW app.name
        SHOW App.Name
        SET app.name = 1, 'b c', d
        SHOW app.name
        SELECT current_setting('app.name'), current_setting('APP.NAME', true), current_setting('app.no', true)
        SELECT current_setting('app.no')
        SELECT current_setting('app.no', false)
        SELECT current_setting('nodot', true)
        SELECT current_setting('app.no', null)
        SELECT current_setting(null, true)
        SELECT current_setting('work_mem', true)
        SHOW app.no
        RESET app.name
        SHOW app.name
        RESET app.no
        SHOW app.no
        SET app.other TO DEFAULT
        SHOW app.other
        SET "app-x".y = 1
        SET app."y-z" = 1
        SET a.b.c = 'd'
        SHOW a.b.c
        SELECT set_config('a.', 'x', false)
        SELECT set_config('.a', 'x', false)
        SELECT set_config('a..b', 'x', false)
        SELECT set_config('a.1b', 'x', false)
        SELECT set_config('a.b$', 'x', false)
        SELECT current_setting('a.b$')
        SELECT set_config('a.b c', 'x', false)
        SELECT set_config('nodot', 'x', false)
        SELECT set_config('a.ü', 'x', false)
        SELECT current_setting('a.ü')
        SELECT set_config('a.n', null, false)
        SELECT current_setting('a.n')
        SELECT set_config(null, 'x', false)
        SELECT set_config('a.n', 'x', null)
        SELECT set_config('work_mem', null, false)
        BEGIN
        SET app.tx = 'a'
        SET LOCAL app.loc = 'b'
        SHOW app.loc
        COMMIT
        SHOW app.tx
        SHOW app.loc
        SELECT current_setting('app.loc')
        BEGIN
        SET app.rb = '1'
        ROLLBACK
        SHOW app.rb
        BEGIN
        SAVEPOINT s
        SET app.rb = '1'
        ROLLBACK TO s
        SHOW app.rb
        ROLLBACK
        BEGIN
        SELECT set_config('app.tx', 'local', true)
        SELECT current_setting('app.tx') || '!' FROM pg_class LIMIT 1
        SELECT current_setting('app.none', true) IS NULL FROM pg_class LIMIT 1
        COMMIT
        SHOW app.tx
        SELECT set_config('app.tx', 'nowhere', true)
        SHOW app.tx
        SELECT name FROM pg_settings WHERE name LIKE 'app.%'
        RESET ALL
        SHOW app.tx
        SELECT current_setting('app.tx') = ''
        DISCARD ALL
        SHOW app.tx
        SET app.name = -5
        SHOW app.name
        SHOW nodot
        SHOW "a b".c
    """
    compare(script, ours, theirs)


def test_custom_settings_belong_to_a_session(ours: Session, stack: ExitStack, passing_server: ServerThread) -> None:
    """Answers and plans with current_setting() are not shared, and no maintained query calls it."""
    other = Session(passing_server.dsn(), stack, options="-c app.tenant=other")
    ours.ask("SET app.tenant = 'ours'")
    ours.ask("CREATE TABLE t (a text)")
    insert = "INSERT INTO t VALUES (current_setting('app.tenant')) RETURNING a"
    for query in ("SELECT current_setting('app.tenant')", "SELECT current_setting('app.tenant', true)", insert):
        for _ in range(3):
            assert ours.ask(query)[1] == [("ours",)]
            assert other.ask(query)[1] == [("other",)]
    other.ask("SET app.tenant = 'changed'")
    assert other.ask("SELECT current_setting('app.tenant', true)")[1] == [("changed",)]
    other.ask("RESET app.tenant")
    assert other.value("app.tenant") == "other"
    for query in ("current_setting('app.tenant')", "current_setting('app.tenant', true)"):
        for statement in (
            "CREATE MATERIALIZED VIEW v AS SELECT a FROM t WHERE a =",
            "SUBSCRIBE (SELECT a FROM t WHERE a =",
        ):
            closing = ")" if statement.startswith("SUBSCRIBE") else ""
            refused = ours.ask(f"{statement} {query}{closing}")
            assert refused[:2] == ("0A000", "cannot materialize call to current_setting()")
    assert ours.ask("ALTER SYSTEM SET app.tenant = 'x'")[0] == "42704"


def test_custom_settings_are_bounded(ours: Session) -> None:
    for number in range(128):
        assert ours.ask(f"SET app.s{number} = ''") == ("SET", None)
    assert ours.ask("SET app.more = ''")[:2] == ("54000", "a session can have at most 128 custom settings")
    assert ours.ask("RESET app.more")[0] == "54000"
    assert ours.ask(f"SET app.s0 = '{'x' * 60_000}'") == ("SET", None)
    too_long = ("53200", "the custom settings of a session can have at most 65536 characters")
    assert ours.ask(f"SET app.s1 = '{'x' * 6_000}'")[:2] == too_long
    assert ours.value("app.s1") == ""
    ours.ask("RESET app.s0")
    assert ours.ask(f"SET app.s1 = '{'x' * 6_000}'") == ("SET", None)


def test_interval_styles(ours: Session, theirs: Session) -> None:
    """Rails sets iso_8601 when it connects."""
    values = (
        "1 year 2 mons 3 days 04:05:06.789",
        "-1 mon 3 days -00:00:01",
        "0",
        "-1 days",
        "1 sec",
        "-0.5 sec",
        "-1 sec",
    )
    for style in ("iso_8601", "postgres_verbose", "sql_standard", "POSTGRES"):
        compare(f"SET intervalstyle = '{style}'\nSHOW intervalstyle", ours, theirs)
        assert ours.connection.info.parameter_status("IntervalStyle") == style.lower()
        for value in values:
            query = f"SELECT interval '{value}'"
            answers = []
            for session in (ours, theirs):
                result = session.connection.pgconn.exec_(query.encode())
                answers.append(result.get_value(0, 0))
            assert answers[0] == answers[1]


DATES = ("2020-12-31", "0044-03-15 BC", "10000-01-02")
INSTANTS = ("2020-07-01 12:30:45.5+00", "1890-01-01 00:00+00", "0044-03-15 12:00+00 BC", "2100-07-01 00:00+00")


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Sydney"])
@pytest.mark.parametrize("style", ["SQL, DMY", "SQL, MDY", "Postgres, DMY", "Postgres, YMD", "German", "ISO, YMD"])
def test_date_styles(ours: Session, theirs: Session, style: str, zone: str) -> None:
    for session in (ours, theirs):
        session.ask(f"SET timezone = '{zone}'")
        session.ask("SET datestyle = 'ISO, MDY'")
    values = [f"date '{text}'" for text in DATES]
    values += [f"timestamp with time zone '{text}'" for text in INSTANTS]
    values += ["timestamp '1999-01-08 04:05:06.789'", "timestamp '0044-03-15 01:00 BC'"]
    values += ["ARRAY[date '2020-12-31', NULL]"]
    compare(f"SET datestyle = '{style}'", ours, theirs)
    compare("SHOW datestyle", ours, theirs)
    found = [session.connection.info.parameter_status("DateStyle") for session in (ours, theirs)]
    assert found[0] == found[1]
    for value in values:  # literals in ISO form mean the same in all orders
        answers = [
            session.connection.pgconn.exec_(f"SELECT {value}".encode()).get_value(0, 0) for session in (ours, theirs)
        ]
        assert answers[0] == answers[1], value


def test_parts_of_the_date_style_are_kept(ours: Session, theirs: Session) -> None:
    script = """
        SET datestyle = 'SQL'
        SHOW datestyle
        SET datestyle = 'DMY'
        SHOW datestyle
        SET datestyle = iso
        SHOW datestyle
        SET datestyle TO postgres, us
        SHOW datestyle
        SET datestyle = 'german'
        SHOW datestyle
        SET datestyle = 'german, ymd'
        SHOW datestyle
        SET datestyle = 'European'
        SHOW datestyle
        SET datestyle = 'nonsense'
        SET datestyle = 'iso, sql'
        SET datestyle = 'iso, dmy, mdy'
        SET datestyle = 'default'
        SHOW datestyle
        RESET datestyle
        SHOW datestyle
    """
    compare(script, ours, theirs)


@pytest.mark.parametrize("order", ["MDY", "DMY", "YMD"])
def test_dates_are_read_in_the_order_of_the_style(ours: Session, theirs: Session, order: str) -> None:
    texts = ("1/2/3", "01-02-2003", "31/12/2020", "12/31/2020", "2020-1-2", "20/1/2", "1 Feb 3", "Feb 1 3", "3-Feb-1",
             "99-Jan-08", "08-Jan-99", "January 8, 1999", "19990108", "990108", "1.2.2003 10:00", "32/1/1")  # fmt: skip
    for session in (ours, theirs):
        session.ask("SET datestyle = 'ISO'")
        session.ask("DROP TABLE IF EXISTS styled")
        session.ask("CREATE TABLE styled (d date, t timestamp)")
    compare(f"SET datestyle = '{order}'", ours, theirs)
    for text in texts:
        compare(f"SELECT date '{text}', timestamp '{text}', ARRAY['{text}']::date[]", ours, theirs)
        compare(f"INSERT INTO styled VALUES ('{text}', '{text}')", ours, theirs)
        outcomes: list[object] = []
        for session in (ours, theirs):
            try:
                outcomes.append(session.connection.execute("SELECT %s::date", (text,)).fetchall())
                with session.connection.cursor().copy("COPY styled (d) FROM STDIN") as copy:
                    copy.write(f"{text}\n")
            except psycopg.Error as error:
                outcomes.append(error.sqlstate)
        assert outcomes[: len(outcomes) // 2] == outcomes[len(outcomes) // 2 :], text
    rows = [session.connection.execute("SELECT d, t FROM styled").fetchall() for session in (ours, theirs)]
    assert sorted(map(str, rows[0])) == sorted(map(str, rows[1]))
    theirs.ask("DROP TABLE styled")
    if order != "MDY":
        assert ours.ask("SELECT x::date FROM (VALUES ('1/2/3')) AS v (x)")[0] == "0A000"
        assert ours.ask("CREATE MATERIALIZED VIEW m AS SELECT date '1/2/3' AS d")[0] == "0A000"
        assert ours.ask("CREATE MATERIALIZED VIEW m AS SELECT date '2001-02-03' AS d, count(*) FROM styled")[0] == (
            "CREATE MATERIALIZED VIEW"
        )


def test_a_leading_minus_of_sql_standard_applies_to_all_fields(ours: Session, theirs: Session) -> None:
    compare("SET intervalstyle = sql_standard", ours, theirs)
    for text in ("-1 2:03:04", "-1 +2:03:04", "-1-2", "-1-2 3 4:05:06", "1-2", "-1 day ago", "- 5 hours", "3 -4:05:06"):
        answers = [session.connection.pgconn.exec_(f"SELECT interval '{text}'".encode()) for session in (ours, theirs)]
        assert answers[0].status == answers[1].status
        assert answers[0].get_value(0, 0) == answers[1].get_value(0, 0), text


def test_show_subscriptions(ours: Session, stack: ExitStack, passing_server: ServerThread) -> None:
    """Its columns and rows are those of mz_internal.mz_subscriptions."""
    ours.ask("CREATE TABLE t (a int)")
    columns = ["id", "session_id", "cluster_id", "created_at", "referenced_object_ids"]
    cursor = ours.connection.execute("SHOW SUBSCRIPTIONS")
    assert [column.name for column in cursor.description or ()] == columns
    assert cursor.fetchall() == []
    subscriber = Session(passing_server.dsn(), stack)
    for statement in ("BEGIN", "DECLARE c CURSOR FOR SUBSCRIBE t", "FETCH 1 FROM c WITH (timeout = '0s')"):
        subscriber.ask(statement)
    tag, rows, *_ = ours.ask("SHOW SUBSCRIPTIONS")
    assert tag == "SELECT 1"
    assert isinstance(rows, list)
    [(id, _, cluster, created, referenced)] = rows
    assert (bool(id), cluster, len(referenced)) == (True, QUICKSTART.id, 1)
    assert created is not None
    for rest in ("LIKE 'a'", "FROM public"):
        assert ours.ask(f"SHOW SUBSCRIPTIONS {rest}")[0] == "42601"
    subscriber.ask("ROLLBACK")
    assert ours.ask("SHOW SUBSCRIPTIONS") == ("SELECT 0", [])


def test_versions(ours: Session) -> None:
    """version() names PostgreSQL's version and mz_version() that of Tidewire."""
    tidewire = version("tidewire")
    assert ours.ask("SELECT mz_version()")[1] == [(f"v{tidewire} (Tidewire)",)]
    assert ours.ask("SELECT version()")[1] == [(f"PostgreSQL {ours.value('server_version')} (Tidewire)",)]
