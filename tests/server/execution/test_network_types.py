"""inet, cidr, macaddr and macaddr8 over the wire: transfer, keys, maintained views, subscriptions, catalogs."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.pgwire.network import IPV4, IPV6, Address, full_text, network_of
from tests.examples import examples
from tests.fix_postgres import own_schema
from tests.fix_server import Connect, ServerThread
from tests.protocol.columns import ADDRESSES
from tests.server.execution.test_write import done

Connection = psycopg.Connection[Any]

TABLE = "CREATE TABLE t (k int4 PRIMARY KEY, a inet, n cidr, m macaddr, e macaddr8, aa inet[])"
ROWS = (
    (1, "10.0.0.1", "10.0.0.0/8", "08:00:2b:01:02:03", "08:00:2b:01:02:03:04:05", "{10.0.0.1,::1,NULL}"),
    (2, "10.0.0.1/8", "::/0", "ff:ff:ff:ff:ff:ff", "08:00:2b:ff:fe:01:02:03", "{}"),
    (3, "2001:db8::1/64", "2001:db8::/32", "00:00:00:00:00:00", "00:00:00:00:00:00:00:00", None),
    (4, None, None, None, None, None),
)
STATEMENTS = (
    TABLE,
    "INSERT INTO t (k, a) VALUES (1, '10.0.0.256')",
    "INSERT INTO t (k, n) VALUES (1, '10.0.0.1/8')",
    "INSERT INTO t (k, m) VALUES (1, '08:00:2b:01:02:100')",
    "INSERT INTO t (k, a) VALUES (1, 'x'::text)",
    "INSERT INTO t (k, a) VALUES (1, '08:00:2b:01:02:03'::macaddr)",
    "INSERT INTO t VALUES (1, '10.1.2.3/8', '10.1.2.3/8'::inet, '08002b010203', '08002b010203', '{::1}')",
    "SELECT * FROM t",
    "SELECT * FROM t WHERE a = '10.1.2.3/8'",
    "SELECT * FROM t WHERE n = '10.0.0.0/8'",
    "SELECT * FROM t WHERE m = '08-00-2b-01-02-03'",
    "SELECT * FROM t WHERE a = 'nothing'",
    "UPDATE t SET a = n, n = '10/8' WHERE k = 1",
    "SELECT * FROM t",
    "ALTER TABLE t ADD COLUMN d inet DEFAULT '127.0.0.1'",
    "ALTER TABLE t ADD CHECK (d <> '0.0.0.0')",
    "UPDATE t SET d = '0.0.0.0' WHERE k = 1",
    "SELECT d FROM t",
    "CREATE TABLE networks (n cidr PRIMARY KEY)",
    "CREATE TABLE hosts (a inet PRIMARY KEY, m macaddr UNIQUE, n cidr)",
    "INSERT INTO networks VALUES ('10/8'), ('::/0')",
    "INSERT INTO networks VALUES ('10.0.0.0/8')",
    "INSERT INTO hosts VALUES ('10.0.0.1', '08002b010203', '10/8'), ('::1', NULL, NULL)",
    "INSERT INTO hosts VALUES ('10.0.0.1/32', NULL, NULL)",
    "INSERT INTO hosts VALUES ('10.0.0.1/8', NULL, NULL)",
    "INSERT INTO hosts VALUES ('10.0.0.2', '08:00:2b:01:02:03', NULL)",
    "INSERT INTO hosts VALUES ('10.0.0.1', '0800.2b01.0204') ON CONFLICT (a) DO UPDATE SET m = excluded.m",
    "SELECT m FROM hosts WHERE a = '10.0.0.1'",
    "DELETE FROM hosts WHERE a = '::1'",
    "DELETE FROM networks WHERE n = '10/8'",
    "SELECT * FROM hosts",
    "PREPARE p (inet) AS SELECT m FROM hosts WHERE a = $1",
    "EXECUTE p ('10.0.0.1')",
    "EXECUTE p ('y')",
    "PREPARE q AS SELECT m FROM hosts WHERE a = $1",
    "EXECUTE q ('10.0.0.1')",
    "CREATE VIEW v AS SELECT m FROM hosts WHERE a = '10.0.0.1'",
    "SELECT * FROM v",
    "DROP TABLE t",
)
"""Statements that do in Tidewire what they do in PostgreSQL."""
CATALOGS = (
    """SELECT a.attname, t.typname, format_type(a.atttypid, a.atttypmod), a.attlen, t.typcategory, t.typispreferred
       FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
       WHERE a.attrelid = 't'::regclass AND attnum > 0 ORDER BY attnum""",
    """SELECT column_name, data_type, udt_name, udt_schema FROM information_schema.columns
       WHERE table_name = 't' ORDER BY ordinal_position""",
    "SELECT 'inet'::regtype::text, 'cidr[]'::regtype::text, to_regtype('macaddr8')::text",
)


@pytest.fixture
def theirs(postgres: str) -> Iterator[Connection]:
    with own_schema(postgres, "networks") as connection:
        yield connection


@pytest.fixture
def passing(passing_server: ServerThread) -> Iterator[Connection]:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as connection:
        yield connection


def filled(connection: Connection) -> None:
    connection.execute(TABLE.encode())
    with connection.cursor() as cursor:
        cursor.executemany("INSERT INTO t VALUES (%s, %s, %s, %s, %s, %s)", ROWS)


def test_catalogs_are_those_of_postgresql(theirs: Connection, passing: Connection) -> None:
    for connection in (theirs, passing):
        connection.execute(TABLE.encode())
    for query in CATALOGS:
        assert passing.execute(query.encode()).fetchall() == theirs.execute(query.encode()).fetchall()


@pytest.mark.parametrize("options", ["", "(FORMAT csv)", "(FORMAT csv, FORCE_QUOTE *)", "(FORMAT binary)"])
def test_copy_transfers_the_bytes_of_postgresql(theirs: Connection, passing: Connection, options: str) -> None:
    filled(theirs)
    with theirs.cursor().copy(f"COPY (SELECT * FROM t ORDER BY k) TO STDOUT {options}".encode()) as copy:
        expected = b"".join(bytes(data) for data in copy)
    passing.execute(TABLE.encode())
    given = options.replace(", FORCE_QUOTE *", "")
    with passing.cursor().copy(f"COPY t FROM STDIN {given}".encode()) as copy:
        copy.write(expected)
    with passing.cursor().copy(f"COPY t TO STDOUT {options}".encode()) as copy:
        assert b"".join(bytes(data) for data in copy) == expected


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1\tx\n", 'invalid input syntax for type inet: "x"'),
        ("1\t\\N\t10.0.0.1/8\n", 'invalid cidr value: "10.0.0.1/8"'),
        ("1\t\\N\t\\N\t1\n", 'invalid input syntax for type macaddr: "1"'),
    ],
)
def test_copy_names_the_column_of_an_invalid_value(
    theirs: Connection, passing: Connection, line: str, message: str
) -> None:
    found = []
    for connection in (theirs, passing):
        connection.execute(TABLE.encode())
        columns = ("k", "a", "n", "m")[: line.count("\t") + 1]
        with (
            pytest.raises(psycopg.errors.InvalidTextRepresentation, match="invalid") as refused,
            connection.cursor().copy(f"COPY t ({', '.join(columns)}) FROM STDIN".encode()) as copy,
        ):
            copy.write(line)
        diagnostics = refused.value.diag
        assert diagnostics.message_primary == message
        found.append((diagnostics.message_detail, diagnostics.context))
    assert found[0] == found[1]


# -- with Spark -----------------------------------------------------------------------------------------------------


def test_statements_are_as_in_postgresql(theirs: Connection, connect: Connect) -> None:
    ours = connect()
    for statement in STATEMENTS:
        assert done(ours, statement) == done(theirs, statement), statement


@pytest.mark.parametrize("binary", [False, True])
def test_parameters_and_results_have_the_types_of_python(connect: Connect, binary: bool) -> None:
    ours = connect()
    ours.execute(TABLE.encode())
    row = (
        1,
        IPv4Interface("10.0.0.1/8"),
        IPv6Network("2001:db8::/32"),
        "08:00:2b:01:02:03",
        None,
        [IPv6Address("::1")],
    )
    format = "b" if binary else "t"
    cursor = ours.cursor(binary=binary)
    query = f"INSERT INTO t VALUES (%{format}, %{format}, %{format}, %s, %s, %{format}) RETURNING *"
    assert cursor.execute(query.encode(), row).fetchone()[:3] == row[:3]  # type: ignore[index]
    query = f"SELECT a, n, aa FROM t WHERE a = %{format} AND n = %{format}"
    found = cursor.execute(query.encode(), (row[1], row[2])).fetchall()
    assert found == [(row[1], row[2], row[5])]
    assert cursor.execute(
        "SELECT %b::inet, %b::cidr", (IPv4Address("1.2.3.4"), IPv4Network("10.0.0.0/8"))
    ).fetchall() == [(IPv4Address("1.2.3.4"), IPv4Network("10.0.0.0/8"))]


def test_results_of_spark_are_sent_in_both_formats(theirs: Connection, connect: Connect) -> None:
    ours = connect()
    query = "SELECT max(a), count(*), n, m, max(aa), min(e::text) FROM t GROUP BY n, m ORDER BY n, m"
    for connection in (theirs, ours):
        filled(connection)
    for binary in (False, True):
        expected = theirs.cursor(binary=binary).execute(query).fetchall()
        assert ours.cursor(binary=binary).execute(query).fetchall() == expected


def test_subscriptions_have_values_as_texts(connect: Connect) -> None:
    ours = connect()
    filled(ours)
    ours.execute("CREATE MATERIALIZED VIEW hosts AS SELECT n, count(*) AS hosts, max(a) AS last FROM t GROUP BY n")
    with connect().cursor() as cursor:
        stream = cursor.stream("SUBSCRIBE hosts ENVELOPE UPSERT (KEY (n))")
        found = {next(stream)[2:] for _ in range(4)}
        assert found == {
            (IPv4Network("10.0.0.0/8"), 1, IPv4Address("10.0.0.1")),
            (IPv6Network("::/0"), 1, IPv4Interface("10.0.0.1/8")),
            (IPv6Network("2001:db8::/32"), 1, IPv6Interface("2001:db8::1/64")),
            (None, 1, None),
        }
        ours.execute("INSERT INTO t (k, a, n) VALUES (9, '10.0.0.2', '10/8')")
        assert next(stream)[1:] == ("upsert", IPv4Network("10.0.0.0/8"), 2, IPv4Address("10.0.0.2"))
        ours.execute("DELETE FROM t WHERE n = '::/0'")
        assert next(stream)[1:] == ("delete", IPv6Network("::/0"), None, None)
        stream.close()


@pytest.mark.long
def test_maintained_views_have_the_rows_of_postgresql(theirs: Connection, connect: Connect) -> None:
    ours = connect()
    views = {
        "by_network": "SELECT n, count(*) AS c, min(a) AS low, max(a) AS high FROM t GROUP BY n",
        "pairs": "SELECT x.k, y.k AS other, x.m FROM t x JOIN t y ON x.a = y.n OR x.m = y.m",
        "places": "SELECT DISTINCT a, n FROM t WHERE a > n OR n IS NULL",
        "firsts": "SELECT DISTINCT ON (n) n, a FROM t ORDER BY n, a DESC",
        "parts": "SELECT x.k, y.k AS other, masklen(x.a) AS bits FROM t x JOIN t y ON x.a << y.n",
        "inside": "SELECT k, a, host(a) AS h FROM t WHERE a <<= '10.0.0.0/8' OR '::/1' >> a",
        "texts": "SELECT k, a::text AS s, to_jsonb(n) AS j FROM t",
    }
    values = st.tuples(
        st.integers(0, 5),
        ADDRESSES.map(full_text) | st.sampled_from(["10.0.0.1", "10.0.0.0/8", "::1"]),
        ADDRESSES.map(network_of).map(full_text) | st.sampled_from(["10.0.0.0/8", "::/0"]),
        st.sampled_from(["08:00:2b:01:02:03", "ff:ff:ff:ff:ff:ff"]),
    )

    @examples(8)
    @given(st.lists(values, min_size=1, max_size=8))
    def compare(rows: list[tuple[int, str, str, str]]) -> None:
        for connection, kind in ((theirs, "VIEW"), (ours, "MATERIALIZED VIEW")):
            connection.execute("DROP TABLE IF EXISTS t CASCADE; CREATE TABLE t (k int, a inet, n cidr, m macaddr)")
            for name, query in views.items():
                connection.execute(f"CREATE {kind} {name} AS {query}".encode())
        for row in rows:
            for connection in (theirs, ours):
                connection.execute("DELETE FROM t WHERE k = %s AND a < %s", row[:2])
                connection.execute("INSERT INTO t VALUES (%s, %s, %s, %s)", row)
            for name in views:
                assert done(ours, f"SELECT * FROM {name}") == done(theirs, f"SELECT * FROM {name}"), name

    compare()


NEAR = st.builds(  # networks that often contain each other
    lambda address, bits: address._replace(bits=min(bits, address.size)),
    st.sampled_from([
        *(Address(IPV4, number, 32) for number in (0, 0x0A000001, 0x0A0000FF, 0x0AFFFFFF, 0x8A000001, 0xFFFFFFFF)),
        *(Address(IPV6, number, 128) for number in (0, 1, 0x0A000001, 1 << 127, (1 << 128) - 1, 0xFFFF << 32)),
    ]),
    st.integers(0, 33) | st.integers(0, 128),
)  # fmt: skip


@pytest.mark.long
def test_networks_contain_what_they_contain_in_postgresql(theirs: Connection, connect: Connect) -> None:
    """Both forms in Spark: with a column as the containing network, and with a constant."""
    ours = connect()
    for connection in (theirs, ours):
        connection.execute("CREATE TABLE t (k int, a inet)")

    @examples(6)
    @given(st.lists(NEAR | ADDRESSES, min_size=10, max_size=24), NEAR)
    def compare(addresses: list[Address], constant: Address) -> None:
        for connection in (theirs, ours):
            connection.execute("DELETE FROM t")
            with connection.cursor() as cursor:
                cursor.executemany("INSERT INTO t VALUES (%s, %s)", [*enumerate(map(full_text, addresses))])
        symbols, other = ("<<", "<<=", ">>", ">>=", "&&"), f"'{full_text(constant)}'"
        columns = ", ".join(f"x.a {s} y.a, x.a {s} {other}, {other} {s} y.a" for s in symbols)
        query = f"SELECT x.k, y.k, {columns} FROM t x, t y ORDER BY 1, 2"
        assert ours.execute(query.encode()).fetchall() == theirs.execute(query.encode()).fetchall()

    compare()
