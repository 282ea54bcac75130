"""Damaged messages of CDCv2 to its decoders and its reader."""

from __future__ import annotations

import json
from collections import Counter
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from protocol.avro.encoder import EncodedColumn
from protocol.avro.schema import SchemaError, parse_schema
from protocol.cdcv2.avro_form import AvroDecoder, AvroEncoder, CdcSchema, schema_text
from protocol.cdcv2.decoded import Decoded
from protocol.cdcv2.json_form import JsonDecoder, JsonEncoder
from protocol.cdcv2.messages import END
from protocol.cdcv2.orders import Total
from protocol.cdcv2.partial_reader import PartialReader, Statement, Update
from protocol.cdcv2.reader import Reader
from protocol.pgwire.types import parse_type
from tests.fuzz.limits import limited
from tests.fuzz.mutations import damaged, damaged_avro, damaged_json, portion, seeded
from tests.protocol.cdcv2.histories import cut, random_updates
from tests.protocol.cdcv2.test_readers import progress, table

pytestmark = pytest.mark.fuzz

COLUMNS = [EncodedColumn("name", parse_type("text"), True)]
AVRO_SCHEMA = schema_text(COLUMNS)
TIMES = 10
DECODERS: dict[str, AvroDecoder | JsonDecoder] = {
    "avro": AvroDecoder(CdcSchema.of(parse_schema(AVRO_SCHEMA))),
    "json": JsonDecoder(COLUMNS),
}
CALL = 4  # messages
BYTES_MAX = 1 << 20


def history(random: Random, form: str) -> tuple[list[bytes], list[bytes]]:
    """The messages of a random history: updates and progress statements."""
    encoder = AvroEncoder(COLUMNS) if form == "avro" else JsonEncoder(COLUMNS)
    updates = random_updates(random, range(TIMES), random.randrange(1, 25))
    rows = sorted(updates)
    size = random.choice((1, 3, 20))
    parts = [table(*rows[at : at + size]) for at in range(0, len(rows), size)]
    statements = [
        progress(each) for _ in range(random.randint(1, 2)) for each in cut(random, Total(), updates, range(TIMES))
    ]
    return [message for part in parts for message in encoder.updates(part)], [encoder.progress(s) for s in statements]


def broken(message: bytes, form: str, random: Random) -> bytes:
    if form == "avro":
        return damaged_avro(message, random)
    if random.random() < 0.4:
        return damaged(message, random)
    return json.dumps(damaged_json(json.loads(message), random)).encode()


def decoded(messages: list[bytes], form: str) -> Decoded:
    return DECODERS[form].decode(pa.array(messages, pa.binary()))


def contents(found: Decoded) -> tuple[list[object], list[object]]:
    """The updates and statements without their order, which means nothing."""
    updates = sorted(found.updates.to_pylist(), key=repr)
    return updates, sorted(statement.identity() for statement in found.statements)


def plain_messages(found: Decoded) -> tuple[list[Update[object, int]], list[Statement[int]]]:
    """The messages as `PartialReader` takes them."""
    updates = [((row["c0"], row["diff"]), row["time"], row["diff"]) for row in found.updates.to_pylist()]
    statements = [
        Statement(
            tuple(time for time in (each.lower,) if time != END),
            tuple(time for time in (each.upper,) if time != END),
            dict(zip(each.times.tolist(), each.counts.tolist(), strict=True)),
        )
        for each in found.statements
    ]
    return updates, statements


def frontier_of(messages: list[bytes], form: str) -> int:
    """The frontier of the reader after these messages. The plain reader, which receives the same, has the same one."""
    reader = Reader(DECODERS[form].schema)
    plain: PartialReader[object, int] = PartialReader(Total(), 0)
    for at in range(0, len(messages), CALL):
        found = decoded(messages[at : at + CALL], form)
        assert all(found.reason(row) for row in np.flatnonzero(found.failed).tolist())
        batch = reader.receive(found.updates, found.statements, at)
        closed = plain.receive(*plain_messages(found))
        if batch is not None:
            batch.updates.validate(full=True)
        assert (0 if batch is None else batch.updates.num_rows) == (0 if closed is None else len(closed[0]))
        assert reader.frontier == min(plain.frontier, default=END)
        assert reader.waiting().missing >= 0
        assert reader.nbytes < BYTES_MAX
    return reader.frontier


@pytest.mark.parametrize("form", ["avro", "json"])
def test_damaged_messages(form: str) -> None:
    """A damaged message fails, or is valid by itself. Without statements that are valid but changed, the frontier is
    never beyond that of the undamaged messages."""
    random = seeded("cdcv2", form)
    seen: Counter[str] = Counter()
    with limited(seconds_max=2) as limits:
        while limits.inputs < portion(1_000):
            updates, statements = history(random, form)
            changed = [broken(m, form, random) if random.random() < 0.15 else m for m in (*updates, *statements)]
            order = random.sample(range(len(changed)), len(changed))
            undamaged = [*updates, *statements]
            with limits.of((undamaged, changed)):
                together = decoded(changed, form)
                invalid = {at for at in range(len(changed)) if decoded([changed[at]], form).failed[0]}
                assert set(np.flatnonzero(together.failed).tolist()) == invalid
                valid = [message for at, message in enumerate(changed) if at not in invalid]
                assert contents(together) == contents(decoded(valid, form))
                frontier = frontier_of([changed[at] for at in order], form)
                intact = frontier_of(undamaged, form)
                said = {statement.identity() for statement in together.statements}
                true = {statement.identity() for statement in decoded(statements, form).statements}
                if said <= true:
                    assert frontier <= intact
                    seen["true statements"] += 1
                seen["failed"] += len(invalid)
                seen["valid but changed"] += sum(a != b for a, b in zip(undamaged, changed, strict=True)) - len(invalid)
                seen["behind"] += frontier < intact
    print(seen)
    if limits.inputs >= 100:
        assert all(
            seen[each] > limits.inputs / 20 for each in ("true statements", "failed", "valid but changed", "behind")
        )


def test_damaged_schemas() -> None:
    """They are refused with SchemaError, or decode messages."""
    random = seeded("cdcv2 schemas")
    reader = CdcSchema.of(parse_schema(AVRO_SCHEMA))
    seen: Counter[str] = Counter()
    with limited(seconds_max=2) as limits:
        for _ in range(portion(3_000)):
            schema = json.dumps(damaged_json(json.loads(AVRO_SCHEMA), random, ["int", "string", ["null", "long"]]))
            updates, statements = history(random, "avro")
            given = pa.array([*updates[:2], damaged_avro(updates[0], random), *statements[:1]], pa.binary())
            with limits.of((schema, given)):
                try:
                    writer = CdcSchema.of(parse_schema(schema))
                    decoders = [AvroDecoder(writer), AvroDecoder(writer, reader)]
                except SchemaError:
                    seen["refused"] += 1
                    continue
                for decoder in decoders:
                    found = decoder.decode(given)
                    assert all(found.reason(row) for row in np.flatnonzero(found.failed).tolist())
                seen["accepted"] += 1
    print(seen)
