"""Messages about transactions and relations, and the messages of the replication protocol."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.pgoutput import BadMessage
from protocol.pgoutput.messages import Begin, Commit, Relation, RelationColumn, ReplicaIdentity, Truncate, parse
from protocol.pgoutput.stream import (
    LSN_MAX,
    Keepalive,
    format_lsn,
    parse_keepalives,
    parse_lsn,
    status_update,
    timeline_end,
    wal_end,
)
from tests.protocol.pgoutput.plain import relation_message

LSN = st.integers(0, 2**64 - 1)
NAMES = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=8)
COLUMNS = st.builds(RelationColumn, NAMES, st.integers(0, 2**32 - 1), st.integers(-1, 2**31 - 1), st.booleans())
RELATIONS = st.builds(
    Relation,
    st.integers(0, 2**32 - 1),
    NAMES,
    NAMES,
    st.sampled_from(ReplicaIdentity),
    st.lists(COLUMNS, max_size=4).map(tuple),
)


@given(RELATIONS)
def test_a_relation_is_read_as_it_was_written(relation: Relation) -> None:
    assert parse(relation_message(relation)) == relation


def test_transactions_and_truncates() -> None:
    assert parse(b"B" + struct.pack(">QqI", 1 << 40, 5, 7)) == Begin(1 << 40, 5, 7)
    assert parse(b"C" + struct.pack(">BQQq", 0, 1 << 40, (1 << 40) + 9, 5)) == Commit(1 << 40, (1 << 40) + 9, 5)
    assert parse(b"T" + struct.pack(">IBII", 2, 1, 16_384, 16_390)) == Truncate((16_384, 16_390))


@pytest.mark.parametrize("kind", [b"I", b"U", b"D", b"Y", b"O", b"M"])
def test_messages_without_meaning_here_are_ignored(kind: bytes) -> None:
    assert parse(kind + b"anything") is None


@pytest.mark.parametrize("data", [b"", b"X", b"B", b"C\0", b"R\0\0\0\1name", b"T\0\0\0\2\0\0", b"R\0\0\0\1a\0b\0?\0\0"])
def test_a_malformed_message_is_refused(data: bytes) -> None:
    with pytest.raises(BadMessage):
        parse(data)


@given(RELATIONS, st.data())
def test_a_relation_that_ends_early_is_refused(relation: Relation, choice: st.DataObject) -> None:
    message = relation_message(relation)
    with pytest.raises(BadMessage):
        parse(message[: choice.draw(st.integers(0, len(message) - 1))])


@given(LSN)
def test_log_sequence_numbers(lsn: int) -> None:
    assert parse_lsn(format_lsn(lsn)) == lsn


@pytest.mark.parametrize("text", ["", "1", "1/", "/1", "G/1", "1/123456789", "1/2\n"])
def test_other_texts_are_no_log_sequence_numbers(text: str) -> None:
    with pytest.raises(BadMessage):
        parse_lsn(text)


def test_the_ends_of_timelines() -> None:
    history = "1\t0/A000000\tno recovery target specified\n\n11\t1/0\tbefore 2000-01-01 00:00:00+00\n"
    ends = {timeline: timeline_end(history, timeline) for timeline in (1, 11, 12)}
    assert ends == {1: 0xA000000, 11: 1 << 32, 12: None}


def test_the_replication_protocol() -> None:
    assert format_lsn(0x16_B374_D848) == "16/B374D848"
    assert wal_end(b"w" + struct.pack(">QQQ", 8, 9, 0)) == 9
    assert status_update(5, 946_684_800_000_001) == b"r" + struct.pack(">QQQQB", 5, 5, 5, 1, 0)
    for malformed in (b"w", b"w" + struct.pack(">QQQ", 8, LSN_MAX + 1, 0)):
        with pytest.raises(BadMessage):
            wal_end(malformed)


@given(st.lists(st.tuples(st.integers(0, LSN_MAX), st.booleans()), min_size=1, max_size=5))
def test_keepalives(said: list[tuple[int, bool]]) -> None:
    data = b"?" + b"".join(b"k" + struct.pack(">QQB", lsn, 7, asks) for lsn, asks in said)
    starts = np.arange(1, len(data), 18)
    found = parse_keepalives(np.frombuffer(data, np.uint8), starts, starts + 18)
    assert found == Keepalive(max(lsn for lsn, _ in said), any(asks for _, asks in said))
    with pytest.raises(BadMessage):
        parse_keepalives(np.frombuffer(data, np.uint8), starts, starts + 17)
