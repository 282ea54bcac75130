"""ENVELOPE UPSERT against a dict of the last message of each key."""

from __future__ import annotations

import json
import math
import struct
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.source_definition import Encoding, Envelope, Format
from server.ingest.kafka.layouts.layout import Schemas
from tests.examples import examples
from tests.kafka.outputs import ID, Message, OutputRun, run

JSON = Encoding("json")
UPSERT = Format(JSON, JSON, envelope=Envelope.UPSERT)
INLINE = Format(JSON, JSON, envelope=Envelope.UPSERT, inline_errors="error")
NO_SCHEMAS = Schemas(None, None)

KEYS = [b"1", b'"a"', b'{"x": 1}', b"[", b"]", None]
VALUES = [b"10", b'"v"', b"null", b"{", None]
PARTITION = {key: number % 3 for number, key in enumerate(KEYS)}


def modelled(messages: list[Message]) -> tuple[dict[Any, Any], set[Any]]:
    """The rows by key, and the identities of the live errors, one message after the other."""
    rows: dict[Any, Any] = {}
    errors: set[Any] = set()
    for message in messages:
        key = message.key
        rows.pop(key, None)
        errors.discard(key)
        if message.value is None:
            continue
        if key in (None, b"[", b"]") or message.value == b"{":
            errors.add(key)
        else:
            rows[key] = message.value
    return rows, errors


batches = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(VALUES)), min_size=1, max_size=8),
        st.sampled_from(["", "resume", "restart"]),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=6,
)


@examples(50)
@given(batches)
def test_the_output_is_the_last_value_of_each_key_at_every_commit(history: Any) -> None:
    async def check() -> None:
        with tempfile.TemporaryDirectory() as directory:
            async with OutputRun(Path(directory), UPSERT, NO_SCHEMAS, partitions=3) as output:
                seen: list[Message] = []
                for pairs, then, repeated in history:
                    batch = [Message(key, value, PARTITION[key]) for key, value in pairs]
                    batch = seen[len(seen) - min(repeated, len(seen)) :] + batch  # repetitions are messages like others
                    await output.apply(batch)
                    seen += batch
                    rows, errors = modelled(seen)
                    assert {row["key"]: row["data"] for row in await output.rows()} == {
                        key.decode(): value.decode() for key, value in rows.items()
                    }
                    assert len(output.errors) == len(errors)
                    error = await output.error()
                    assert error.message in output.errors if error is not None else not errors
                    if then == "resume":
                        output.envelope.close()
                        output.resume()
                    elif then == "restart":
                        await output.restart()

    run(check())


async def test_the_messages_of_errors(tmp_path: Path) -> None:
    async with OutputRun(tmp_path, UPSERT, NO_SCHEMAS) as output:
        await output.apply([Message(b"[", b"1"), Message(b"1", b"{"), Message(None, b"1")])
        key, null, value = output.errors
        assert key.startswith("Envelope error: Upsert: Key decode: Failed to decode JSON: ")
        assert key.endswith('(original text: [, original bytes: "5b")')
        assert null == (
            "Envelope error: Upsert: Null key: record with NULL key in UPSERT source; to retract this error, produce a "
            "record upstream with a NULL key and NULL value"
        )
        assert value.startswith("Envelope error: Upsert: Value error: Failed to decode JSON: ")
        assert value.endswith(", decoded key: (1)")
        error = await output.error()
        assert error is not None
        assert error.sqlstate == "22000"
        assert error.detail in [f'Topic "topic", partition 0, offset {n}.' for n in range(3)]
        assert error.hint is not None
        assert error.hint.startswith("To remove the error, produce a message with ")
        await output.apply([Message(b"[", None), Message(b"1", b"2"), Message(None, None)])
        assert await output.error() is None


async def test_inline_errors_are_rows(tmp_path: Path) -> None:
    async with OutputRun(tmp_path, INLINE, NO_SCHEMAS) as output:
        await output.apply([Message(b"1", b"10"), Message(b"2", b"{")])
        good, bad = sorted(await output.rows(), key=lambda row: str(row["key"]))
        assert good == {"key": "1", "error": None, "data": "10"}
        assert bad["data"] is None
        assert bad["error"].startswith("Failed to decode JSON: ")
        await output.apply([Message(b"2", b"20"), Message(b"1", b"}")])
        rows = {row["key"]: row["data"] for row in await output.rows()}
        assert rows == {"1": None, "2": "20"}
        assert output.errors == []


@pytest.mark.parametrize("count", [20_000])
async def test_many_keys_in_one_step(tmp_path: Path, count: int) -> None:
    async with OutputRun(tmp_path, UPSERT, NO_SCHEMAS) as output:
        await output.apply([Message(b"%d" % n, b"1") for n in range(count)])
        await output.apply([Message(b"%d" % n, b"2" if n % 2 else None) for n in range(count)])
        rows = await output.rows()
        assert sorted(int(json.loads(row["key"])) for row in rows) == list(range(1, count, 2))


async def test_spark_joins_the_keys(engine: Any, tmp_path: Path) -> None:
    async with OutputRun(tmp_path, UPSERT, NO_SCHEMAS, engine) as output:
        await output.apply([Message(b"1", b"10"), Message(b"2", b"20"), Message(b"3", b"30")])
        await output.restart()
        await output.apply([Message(b"1", b"11"), Message(b"2", None), Message(b"4", b"40")])
        assert {row["key"]: row["data"] for row in await output.rows()} == {"1": "11", "3": "30", "4": "40"}


async def test_no_history_is_held_between_steps(tmp_path: Path) -> None:
    async with OutputRun(tmp_path, UPSERT, NO_SCHEMAS) as output:
        for value in (b"1", b"2", b"{", b"3"):
            await output.apply([Message(b"1", value), Message(value, b"1")])
            assert ID not in output.coordinator.frontiers.holders_of
        assert [row["data"] for row in await output.rows() if row["key"] == "1"] == ["3"]


async def test_zero_and_negative_zero_are_one_key(engine: Any, tmp_path: Path) -> None:
    """As in GROUP BY; in one step and in several."""
    key = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": ["null", "double"]}]}
    value = {"type": "record", "name": "Value", "fields": [{"name": "v", "type": "int"}]}
    bare = Encoding("avro", schema="", options={"confluent wire format": "false"})
    format = Format(bare, bare, envelope=Envelope.UPSERT)

    def message(id: float | None, v: int) -> Message:
        return Message(b"\0" if id is None else b"\2" + struct.pack("<d", id), bytes([2 * v]))

    async with OutputRun(tmp_path, format, Schemas(json.dumps(key), json.dumps(value)), engine) as output:
        await output.apply([message(0.0, 1), message(-0.0, 2), message(math.nan, 3), message(None, 4)])
        assert sorted(row["v"] for row in await output.rows()) == [2, 3, 4]
        await output.apply([message(0.0, 5), message(math.nan, 6), message(None, 7), message(1.0, 8)])
        assert sorted(row["v"] for row in await output.rows()) == [5, 6, 7, 8]
        await output.apply([message(-0.0, 9)])
        assert sorted(row["v"] for row in await output.rows()) == [6, 7, 8, 9]
