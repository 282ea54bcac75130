"""Functions that describe the connection, the query, the transaction and the server, compared with PostgreSQL."""

from __future__ import annotations

from typing import LiteralString

import psycopg
import pytest

from tests.fix_server import ServerThread

QUERIES: tuple[LiteralString, ...] = (
    "SELECT inet_client_addr() = '127.0.0.1', inet_server_addr() = '127.0.0.1', inet_client_port() > 1023",
    "SELECT inet_client_port() = client_port, host(client_addr) FROM pg_stat_activity WHERE pid = pg_backend_pid()",
    "SELECT inet_client_addr(), inet_server_addr(), inet_client_addr() << '127.0.0.0/8', family(inet_server_addr())",
    "SELECT client_addr, client_addr = inet_client_addr() FROM pg_stat_activity WHERE pid = pg_backend_pid()",
    "SELECT (SELECT client_addr FROM pg_stat_activity WHERE pid = pg_backend_pid()) FROM (VALUES (1), (2)) v",
    "SELECT inet_server_port() <> inet_client_port() FROM pg_namespace WHERE nspname = 'public'",
    "SELECT current_query()",
    "SELECT current_query() FROM pg_namespace WHERE nspname = 'public'",
    "SELECT 1; SELECT current_query()",
    "SELECT pg_conf_load_time() <= now(), pg_conf_load_time() > now() - interval '1 day'",
    "SELECT timeofday() ~ '^[A-Z][a-z]{2} [A-Z][a-z]{2} [0-9]{2} [0-9:]{8}[.][0-9]{6} [0-9]{4} UTC$'",
    "SELECT timeofday()::timestamptz - clock_timestamp() < interval '1 minute'",
    "SELECT txid_current_if_assigned(), txid_current() = txid_current(), txid_current() > 0",
    "SELECT pg_current_xact_id_if_assigned() IS NULL FROM pg_class WHERE relname = 'pg_class'",
    "SELECT txid_current() = pg_current_xact_id()::text::bigint FROM pg_class WHERE relname = 'pg_class'",
    "SELECT pg_current_wal_lsn()::text ~ '^[0-9A-F]+/[0-9A-F]+$'",
    "SELECT pg_wal_lsn_diff('1/0', '0/FF'), pg_wal_lsn_diff('FFFFFFFF/FFFFFFFF', '0/0'), pg_wal_lsn_diff(NULL, '0/0')",
    "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0') > 0",
    "SELECT CASE WHEN pg_is_in_recovery() THEN pg_is_wal_replay_paused() END",
    "SELECT pg_is_wal_replay_paused()",
    "SELECT makeaclitem(0, 0, 'SELECT, nothing', false)",
    "SELECT current_query(1)",
)


def answer(dsn: str, query: LiteralString) -> tuple[object, ...]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        try:
            cursor = connection.execute(query)
        except psycopg.Error as error:
            return error.sqlstate, error.diag.message_primary
        while cursor.nextset():
            pass
        return [column.name for column in cursor.description or ()], cursor.fetchall()


@pytest.mark.parametrize("query", QUERIES)
def test_answers_are_those_of_postgresql(passing_server: ServerThread, postgres: str, query: LiteralString) -> None:
    assert answer(passing_server.dsn(), query) == answer(postgres, query)


def test_a_transaction_has_one_number(passing_server: ServerThread, postgres: str) -> None:
    for dsn in (passing_server.dsn(), postgres):
        numbers = []
        with psycopg.connect(dsn, autocommit=True) as connection:
            for statements in (1, 2, 3):
                connection.execute("BEGIN")
                found = {connection.execute("SELECT txid_current()").fetchone() for _ in range(statements)}
                assert len(found) == 1
                numbers += found
                connection.execute("COMMIT")
            numbers += [connection.execute("SELECT txid_current()").fetchone() for _ in range(2)]
            numbers += [connection.execute("SELECT txid_current() FROM pg_class LIMIT 1").fetchone() for _ in range(2)]
        assert len(set(numbers)) == len(numbers) == 7
        assert sorted(numbers, key=lambda row: int(row[0])) == numbers


def test_a_write_assigns_a_number(passing_server: ServerThread, postgres: str) -> None:
    assigned = "SELECT pg_current_xact_id_if_assigned()"
    for dsn in (passing_server.dsn(), postgres):
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("CREATE TEMPORARY TABLE t (a int)")
            connection.execute("BEGIN")
            assert connection.execute(assigned).fetchone() == (None,)
            connection.execute("INSERT INTO t VALUES (1)")
            assert connection.execute(assigned).fetchone() != (None,)
            connection.execute("ROLLBACK")


def test_the_configuration_was_loaded_by_pg_reload_conf(passing_server: ServerThread) -> None:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as connection:
        before = connection.execute("SELECT pg_conf_load_time()").fetchone()
        connection.execute("SELECT pg_reload_conf()")
        passing_server.call(passing_server.app.access.reload())
        after = connection.execute("SELECT pg_conf_load_time()").fetchone()
        assert before is not None
        assert after is not None
        assert before < after
