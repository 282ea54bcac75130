"""FORMAT TEXT, BYTES, JSON and CSV with ENVELOPE NONE."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from catalog.source_definition import Encoding, Format
from server.ingest.kafka.layouts.layout import Schemas
from tests.kafka.outputs import Message, OutputRun

NO_SCHEMAS = Schemas(None, None)


@pytest.mark.parametrize(
    ("encoding", "messages", "expected", "errors"),
    [
        (Encoding("text"), [b"a", "ä".encode(), b"\xff", b"\0"], [{"text": "a"}, {"text": "ä"}], 2),
        (Encoding("bytes"), [b"a", b"\xff"], [{"data": b"a"}, {"data": b"\xff"}], 0),
        (Encoding("json"), [b'{"b":1, "a":2}', b"{", b"\xff"], [{"data": '{"a": 2, "b": 1}'}], 2),
        (
            Encoding("csv", options={"columns": "2"}),
            [b"a,b", b'"x,\n""y""",', b"a", b"a,b,c", b'"a', b"a,b\nc,d"],
            [{"column1": "a", "column2": "b"}, {"column1": 'x,\n"y"', "column2": ""}],
            4,
        ),
        (
            Encoding("csv", options={"columns": "2", "delimited by": ";"}),
            [b"a;b,c"],
            [{"column1": "a", "column2": "b,c"}],
            0,
        ),
    ],
)
async def test_messages_become_rows_or_errors(
    tmp_path: Path, encoding: Encoding, messages: list[bytes], expected: list[dict[str, Any]], errors: int
) -> None:
    async with OutputRun(tmp_path, Format(encoding), NO_SCHEMAS) as output:
        await output.apply([Message(None, message) for message in messages])
        assert await output.rows() == expected
        assert len(output.errors) == errors
        assert all(text.startswith("Decode error: ") for text in output.errors)
        await output.restart()
        assert len(output.errors) == errors


async def test_a_message_without_value(tmp_path: Path) -> None:
    async with OutputRun(tmp_path, Format(Encoding("text")), NO_SCHEMAS) as output:
        await output.apply([Message(None, None)])
        assert (await output.rows(), output.errors) == ([], [])
        await output.apply([Message(b"k", None)])
        assert (await output.rows(), output.errors) == ([], ["Envelope error: Flat: Value not present for message"])
