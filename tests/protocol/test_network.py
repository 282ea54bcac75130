"""inet, cidr, macaddr and macaddr8: their texts, binary format and order compared with PostgreSQL."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from protocol.pgwire import network
from protocol.pgwire.errors import PgError
from protocol.pgwire.network import IPV4, Address, address_of, network_of, stored
from tests.examples import examples
from tests.protocol.columns import ADDRESSES

PARSERS: dict[str, Callable[[str], bytes]] = {
    "inet": network.parse_inet,
    "cidr": network.parse_cidr,
    "macaddr": network.parse_macaddr,
    "macaddr8": network.parse_macaddr8,
}
NO_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)  # of long lists, each example being a query
NETWORKS = ADDRESSES.map(network_of)


def pieces(separators: str, digits: str, longest: int, masks: str) -> st.SearchStrategy[str]:
    """Texts that are similar to addresses."""
    parts = st.lists(st.text(digits, max_size=longest), min_size=1, max_size=9)
    mask = st.just("") | st.text("0123456789", max_size=3).map("/".__add__) | st.sampled_from(masks.split("|"))
    return st.builds(lambda s, p, m: s.join(p) + m, st.sampled_from(separators.split(" ")), parts, mask)


NETWORK_TEXTS = st.one_of(
    pieces(".", "0123456789", 3, "/|/8 |/-1| "),
    pieces(": ::", "0123456789abcdefF", 4, "/|/08|/0|::|::/64|:1.2.3.4/100"),
    st.text("0123456789abcdefxX.:/ ", max_size=12),
    ADDRESSES.map(network.full_text),
    st.builds(lambda a, cut: network.host_text(a)[:cut], ADDRESSES, st.integers(0, 40)),
)
MAC_TEXTS = st.one_of(
    pieces(": - .", "0123456789abcdefA", 2, " | :|x"),
    pieces(": - .", "0123456789abcdef", 4, " | |"),
    st.text("0123456789aF", min_size=10, max_size=17),
    st.binary(min_size=6, max_size=8).map(lambda data: data.hex(":")),
    st.binary(min_size=6, max_size=8).map(lambda data: f" {data[:3].hex()}:{data[3:].hex()} "),
    st.text("0123456789aAfFxX+-:. ", max_size=20),
)
ODD_NETWORKS = """
1.2.3.4.|1.2.3.4./8|10|10/8|10/9|10/16|10.|10./8|10.1/16|010.1.1.1|256.1.1.1|1.2.3|1.2.3.4.5|1.2.3.4/|
1.2.3.4/33|0x0a|0x0a0/12|0X7f000001|0x0102030405|0x|224|224.1|225/8|128|192.1|240|1.2.3.4/0008|
1.2.3.4/00000000000000000000008|::|:|:::|::1|1::|1:2:3:4:5:6:7::|1:2:3:4:5:6:7:8|1:2:3:4:5:6:7:8::|
::2:3:4:5:6:7:8|1::3:4:5:6:7:8|::/0|::/00|::/129|12345::|::1.2.3.4|::ffff:1.2.3.4/120|1:2:3:4:5:6:1.2.3.4|
1:2:3:4:5:6:7:1.2.3.4|::1.2.3|::01.2.3.4|::1.2.3.256|::1.2.3.4:5|::1.2.3.4/|1::2::3|2001:DB8::1/32|
fe80::1%eth0|1.2.3.4:|::g|1:|:1|1::2:/64|1:2:3:4:5:6:7:8:/64|:/8|::.1|::1./9|::1..2| ::1|::1 |1.2.3.4 |::1/8/8
""".replace("\n", "").split("|")
ODD_MACS = """
08:00:2b:01:02:03|08-00-2b-01-02-03|08002b:010203|08002b-010203|0800.2b01.0203|0800-2b01-0203|08002b010203|
 8:0:2b:1:2:3 |08:00:2b:01:02:03:04:05|08002b0102030405|08002b:0102030405|0800.2b01.0203.0405|
08-00:2b:01:02:03|08:00:2b:01:02|08:00:2b:01:02:03x|08:00:2b:01:02:100|08:00:2b:01:02:0x3|08:00:2b:01:02:-1|
08:00:2b:01:02:+3|08: 00:2b:01:02:03|08:00:2b:01:02:03:|08:00:2b:01:02:03 :|08:00:2b:01:02:03 04:05|
08002b01020304|08002b0102030|0x:00:2b:01:02:03|08:00:2b:01:02:100000003|08:00:2b:01:02:ffffffffffffffffff|
8:00:2b:01:02:03:04:05|08:00:2b:01:02:03:04:05:|08 00:2b:01:02:03|08:0:2b:01:02:03:04:05|+8+0+2+b+1+2|
g8:00:2b:01:02:03||   |08:00:2b:01:02:03\v|08--00:2b:01:02:03
""".replace("\n", "").split("|")


@pytest.fixture(scope="module")
def server(postgres: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres, autocommit=True) as connection:
        yield connection


def ours(type: str, text: str) -> tuple[str | None, ...]:
    try:
        value = PARSERS[type](text)
    except PgError as error:
        return str(error.sqlstate), error.message, error.detail
    return (shown(type, value), None, None)


def shown(type: str, value: bytes) -> str:
    if type.startswith("mac"):
        return network.mac_text(value)
    return network.inet_text(address_of(value)) if type == "inet" else network.full_text(address_of(value))


def theirs(server: psycopg.Connection[Any], type: str, texts: list[str]) -> list[tuple[str | None, ...]]:
    query = f"""
        SELECT coalesce(e.sql_error_code, format('%%s', CASE WHEN pg_input_is_valid(t, '{type}') THEN t::{type} END)),
               e.message, e.detail
        FROM unnest(%s::text[]) WITH ORDINALITY AS u (t, n), pg_input_error_info(t, '{type}') AS e ORDER BY n
    """
    return server.execute(query.encode(), (texts,)).fetchall()


@pytest.mark.parametrize(("type", "texts"), [("inet", ODD_NETWORKS), ("cidr", ODD_NETWORKS)])
def test_odd_networks_are_read_as_by_postgresql(server: psycopg.Connection[Any], type: str, texts: list[str]) -> None:
    assert [ours(type, text) for text in texts] == theirs(server, type, texts)


@pytest.mark.parametrize("type", ["macaddr", "macaddr8"])
def test_odd_hardware_addresses_are_read_as_by_postgresql(server: psycopg.Connection[Any], type: str) -> None:
    assert [ours(type, text) for text in ODD_MACS] == theirs(server, type, ODD_MACS)


@pytest.mark.parametrize("type", ["inet", "cidr"])
@settings(phases=NO_SHRINKING)
@given(texts=st.lists(NETWORK_TEXTS, min_size=20, max_size=20))
def test_networks_are_read_as_by_postgresql(server: psycopg.Connection[Any], type: str, texts: list[str]) -> None:
    assert [ours(type, text) for text in texts] == theirs(server, type, texts)


@pytest.mark.parametrize("type", ["macaddr", "macaddr8"])
@settings(phases=NO_SHRINKING)
@given(texts=st.lists(MAC_TEXTS, min_size=20, max_size=20))
def test_hardware_addresses_are_read_as_by_postgresql(
    server: psycopg.Connection[Any], type: str, texts: list[str]
) -> None:
    assert [ours(type, text) for text in texts] == theirs(server, type, texts)


@given(addresses=st.lists(ADDRESSES, min_size=2, max_size=40))
def test_the_bytes_have_the_order_of_postgresql(server: psycopg.Connection[Any], addresses: list[Address]) -> None:
    texts = [network.full_text(address) for address in addresses]
    query = "SELECT t FROM unnest(%s::text[]) WITH ORDINALITY AS u (t, n) ORDER BY t::inet, n"
    expected = [text for (text,) in server.execute(query, (texts,)).fetchall()]
    assert [network.full_text(address) for address in sorted(addresses, key=stored)] == expected


@given(networks=st.lists(NETWORKS, min_size=40, max_size=40))
def test_networks_are_abbreviated_as_by_postgresql(server: psycopg.Connection[Any], networks: list[Address]) -> None:
    texts = [network.full_text(address) for address in networks]
    query = "SELECT abbrev(t::cidr) FROM unnest(%s::text[]) WITH ORDINALITY AS u (t, n) ORDER BY n"
    expected = [text for (text,) in server.execute(query, (texts,)).fetchall()]
    assert [network.abbreviated_network(address) for address in networks] == expected


@given(value=ADDRESSES, other=ADDRESSES)
def test_networks_are_those_of_ipaddress(value: Address, other: Address) -> None:
    """Python's module prints some addresses in another form, but agrees on their numbers."""
    theirs = ipaddress.ip_interface(network.full_text(value))
    assert theirs.version == (4 if value.family == IPV4 else 6)
    assert (int(theirs.ip), theirs.network.prefixlen) == (value.number, value.bits)
    assert (int(theirs.network.network_address), int(theirs.network.broadcast_address)) == (
        value.network,
        value.broadcast,
    )
    assert int(theirs.hostmask) == value.host_mask
    given = ipaddress.ip_interface(network.full_text(other)).network
    is_part = theirs.version == given.version and given.subnet_of(theirs.network)  # type: ignore[arg-type]
    assert value.contains(other) == is_part
    assert address_of(stored(value)) == value
    assert network.parse_inet(theirs.with_prefixlen) == stored(value)


@examples(200)
@given(values=st.lists(st.none() | ADDRESSES, min_size=1, max_size=30), start=st.integers(0, 3))
def test_columns_have_the_texts_of_their_values(values: list[Address | None], start: int) -> None:
    column = pa.array([value and stored(value) for value in (*values, *values)], pa.binary())[start:]
    scalars = column.to_pylist()
    assert network.inet_texts(column).to_pylist() == [v and network.inet_text(address_of(v)) for v in scalars]
    assert network.cidr_texts(column).to_pylist() == [v and network.full_text(address_of(v)) for v in scalars]
    for is_cidr in (False, True):
        expected = [v and network.sent(v, is_cidr=is_cidr) for v in scalars]
        assert network.sent_column(column, is_cidr=is_cidr).to_pylist() == expected


@examples(200)
@given(values=st.lists(st.none() | ADDRESSES, min_size=1, max_size=30), start=st.integers(0, 3))
def test_columns_of_texts_are_parsed_as_their_values(values: list[Address | None], start: int) -> None:
    v4 = [value if value is None or value.family == IPV4 else None for value in (*values, *values)]
    texts = pa.array([v and network.inet_text(v) for v in v4], pa.string())[start:]
    assert network.parsed_column(texts, is_cidr=False).to_pylist() == [v and stored(v) for v in v4[start:]]
    networks = [v and network_of(v) for v in v4]
    texts = pa.array([v and network.full_text(v) for v in networks], pa.string())[start:]
    assert network.parsed_column(texts, is_cidr=True).to_pylist() == [v and stored(v) for v in networks[start:]]


@pytest.mark.parametrize(
    ("text", "is_cidr"),
    [("::1", False), ("1.2.3", False), ("1.2.3.256", False), ("1.2.3.4/33", False), ("1.2.3.4", True),
     ("1.2.3.4/8", True), ("1.2.3.4 ", False), ("1.2.3.4\n", False)],
)  # fmt: skip
def test_columns_of_other_texts_are_left_to_the_parser(text: str, is_cidr: bool) -> None:
    assert network.parsed_column(pa.array(["10.0.0.0/8", text, None]), is_cidr=is_cidr) is None


@given(values=st.lists(st.none() | st.binary(min_size=6, max_size=6), min_size=1, max_size=9))
def test_columns_of_hardware_addresses(values: list[bytes | None]) -> None:
    column = pa.array([None, *values], pa.binary())[1:]
    assert network.mac_texts(column).to_pylist() == [value and network.mac_text(value) for value in values]


@given(value=ADDRESSES, is_cidr=st.booleans())
def test_binary_values_are_received_as_sent(value: Address, is_cidr: bool) -> None:
    value = network_of(value) if is_cidr else value
    sent = network.sent(stored(value), is_cidr=is_cidr)
    assert network.received(sent, is_cidr=is_cidr) == stored(value)


@pytest.mark.parametrize(
    ("data", "sqlstate", "message"),
    [
        (b"\x02\x20\x00", "08P01", "no data left in message"),
        (b"\x02\x20\x00\x04\x01\x02\x03", "08P01", "no data left in message"),
        (b"\x02\x20\x00\x04\x01\x02\x03\x04\x05", "22P03", "incorrect binary data format"),
        (b"\x04\x20\x00\x04\x01\x02\x03\x04", "22P03", 'invalid address family in external "cidr" value'),
        (b"\x02\x21\x00\x04\x01\x02\x03\x04", "22P03", 'invalid bits in external "cidr" value'),
        (b"\x02\x20\x00\x10\x01\x02\x03\x04", "22P03", 'invalid length in external "cidr" value'),
        (b"\x02\x08\x00\x04\x01\x02\x03\x04", "22P03", 'invalid external "cidr" value'),
    ],
)
def test_invalid_binary_values(server: psycopg.Connection[Any], data: bytes, sqlstate: str, message: str) -> None:
    with pytest.raises(PgError) as ours:
        network.received(data, is_cidr=True)
    assert (ours.value.sqlstate, ours.value.message) == (sqlstate, message)
    with pytest.raises(psycopg.Error) as theirs, server.cursor(binary=True) as cursor:
        cursor.execute("CREATE TEMP TABLE IF NOT EXISTS received (c cidr)")
        with cursor.copy("COPY received FROM STDIN WITH (FORMAT binary)") as copy:
            header = b"PGCOPY\n\xff\r\n\0" + bytes(8)
            copy.write(header + b"\0\1" + len(data).to_bytes(4) + data + b"\xff\xff")
    assert (theirs.value.sqlstate, theirs.value.diag.message_primary) == (sqlstate, message)
    assert theirs.value.diag.message_detail == ours.value.detail
