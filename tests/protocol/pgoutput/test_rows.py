"""The decoder by columns finds what was written row by row, and never reads past a message."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.pgoutput import BadMessage, BadText
from protocol.pgoutput.rows import RowMessages, Tuples, decode, relations_of
from tests.examples import examples
from tests.protocol.pgoutput.plain import Change, Row, Unchanged, Value, written

VALUES = st.one_of(
    st.text(st.characters(exclude_categories=("Cs",)), max_size=6), st.none(), st.just(Unchanged.UNCHANGED)
)
WIDTHS = st.integers(0, 4)


def rows(width: int) -> st.SearchStrategy[Row]:
    return st.tuples(*[VALUES] * width)


@st.composite
def changes(draw: st.DrawFn, width: int) -> Change:
    kind = draw(st.sampled_from(("I", "U", "D")))
    before = st.tuples(st.sampled_from(("K", "O")), rows(width))
    if kind == "U":
        before = st.none() | before  # type: ignore[assignment]
    return Change(
        kind,  # type: ignore[arg-type]
        draw(st.integers(0, 2**32 - 1)),
        None if kind == "I" else draw(before),
        None if kind == "D" else draw(rows(width)),
    )


def histories(width: int) -> st.SearchStrategy[tuple[int, list[Change]]]:
    return st.tuples(st.just(width), st.lists(changes(width), max_size=12))


HISTORIES = WIDTHS.flatmap(histories)


def laid_out(messages: list[bytes], gap: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The messages with `gap` before each, and where they start and end."""
    data, starts, ends = gap, [], []
    for message in messages:
        starts.append(len(data))
        data += message
        ends.append(len(data))
        data += gap
    return np.frombuffer(data, np.uint8), np.array(starts, np.int64), np.array(ends, np.int64)


def plain(tuples: Tuples) -> dict[int, Row]:
    """The row of each message that has one."""
    columns: list[list[Value]] = []
    for texts, unchanged in zip(tuples.columns, tuples.unchanged, strict=True):
        column: list[Value] = texts.to_pylist()
        if unchanged is not None:
            column = [Unchanged.UNCHANGED if is_un else v for v, is_un in zip(column, unchanged, strict=True)]
        columns.append(column)
    rows = list(zip(*columns, strict=True)) if columns else [()] * len(tuples.messages)
    return dict(zip(tuples.messages.tolist(), rows, strict=True))


def as_changes(messages: RowMessages, relations: list[int]) -> list[Change]:
    new, keys, old = plain(messages.new), plain(messages.keys), plain(messages.old)
    found = []
    for number, (kind, relation) in enumerate(zip(messages.kinds.tolist(), relations, strict=True)):
        before = ("K", keys[number]) if number in keys else ("O", old[number]) if number in old else None
        found.append(Change(chr(kind), relation, before, new.get(number)))  # type: ignore[arg-type]
    return found


@given(HISTORIES, st.binary(max_size=3))
def test_messages_are_decoded_as_they_were_written(history: tuple[int, list[Change]], gap: bytes) -> None:
    width, changes = history
    data, starts, ends = laid_out([written(change) for change in changes], gap)
    decoded = decode(data, starts, ends, width)
    assert as_changes(decoded, relations_of(data, starts).tolist()) == changes


@given(HISTORIES, st.data())
@examples(300)
def test_a_damaged_message_is_refused_or_decoded_but_not_read_beyond_its_end(
    history: tuple[int, list[Change]], choice: st.DataObject
) -> None:
    width, changes = history
    messages = [written(change) for change in changes]
    if not messages:
        return
    number = choice.draw(st.integers(0, len(messages) - 1))
    message = bytearray(messages[number])
    if choice.draw(st.booleans()):
        del message[choice.draw(st.integers(0, len(message) - 1)) :]
    else:
        message[choice.draw(st.integers(0, len(message) - 1))] = choice.draw(st.integers(0, 255))
    messages[number] = bytes(message)
    data, starts, ends = laid_out(messages, b"")
    try:
        decoded = decode(data, starts, ends, width)
    except (BadMessage, BadText):
        return
    again = as_changes(decoded, relations_of(data, starts).tolist())
    others = [change for index, change in enumerate(again) if index != number]
    assert others == [change for index, change in enumerate(changes) if index != number]


@pytest.mark.parametrize("cut", range(1, 16))
def test_a_message_that_ends_early_is_refused(cut: int) -> None:
    message = written(Change("U", 7, ("O", ("1", None)), ("2", "x")))[:-cut]
    data, starts, ends = laid_out([message], b"")
    with pytest.raises(BadMessage):
        decode(data, starts, ends, 2)


def test_a_tuple_of_another_width_is_refused() -> None:
    data, starts, ends = laid_out([written(Change("I", 7, None, ("1", "2")))], b"")
    with pytest.raises(BadMessage, match="does not have 3 columns"):
        decode(data, starts, ends, 3)


def test_a_text_that_is_not_utf_8_is_refused() -> None:
    message = written(Change("I", 7, None, ("ab",))).replace(b"ab", b"\xff\xfe")
    data, starts, ends = laid_out([message], b"")
    with pytest.raises(BadText, match="UTF-8"):
        decode(data, starts, ends, 1)


def test_a_delete_without_an_old_row_is_refused() -> None:
    message = written(replace(Change("I", 7, None, ("1",)), kind="D"))
    data, starts, ends = laid_out([message], b"")
    with pytest.raises(BadMessage):
        decode(data, starts, ends, 1)
