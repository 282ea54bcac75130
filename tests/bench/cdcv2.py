"""CDCv2: messages to the history that they describe, and back, compared with sorting the same updates in Arrow.

The reader receives updates in calls of `--cdcv2-call` updates, repeated and reordered within a window, and a statement
whenever all updates of some times have been sent. The comparison has all updates at once: it sorts them by all columns
and drops each row that equals the one before. Both take the processor time of one thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from protocol.avro.encoder import EncodedColumn
from protocol.avro.schema import parse_schema
from protocol.cdcv2.avro_form import AvroDecoder, AvroEncoder, CdcSchema, schema_text
from protocol.cdcv2.decoded import Decoded
from protocol.cdcv2.json_form import JsonDecoder, JsonEncoder
from protocol.cdcv2.messages import DIFF, DIFF_FIELD, TIME, TIME_FIELD, Progress
from protocol.cdcv2.reader import Reader
from protocol.cdcv2.writer import Writer
from protocol.columnar.equality import equal_rows
from protocol.pgwire.types import parse_type
from tests.bench.servers import Servers, Table

SCHEMA = pa.schema([("c0", pa.int64()), ("c1", pa.string()), ("c2", pa.float64()), TIME_FIELD, DIFF_FIELD])
PER_TIME = 100  # updates at a time
WINDOWS = (1_000, 100_000)
DUPLICATIONS = (1, 2, 10)
COLUMNS, TYPES = ("id", "name", "amount"), ("int8", "text", "float8")
FORM_UPDATES = 500_000
FORMS = ("form", "writer and encoder", "decoder and reader", "bytes per update")
THREADS = ("form", "threads", "encoders", "ratio", "decoders", "ratio")
THREAD_UPDATES, TURNS = 50_000, 5  # updates of a part
HEADER = ("duplication", "window", "reader", "sort and dedup", "ratio", "open updates at most")


def add_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--cdcv2-updates", type=int, default=1_000_000, help="number of updates that are received")
    group.add_argument("--cdcv2-call", type=int, default=10_000, help="updates of a call of the reader")


def run(_: Servers, options: argparse.Namespace) -> list[Table]:
    rows = []
    for duplication in DUPLICATIONS:
        for window in WINDOWS:
            rows.append(_compared(options.cdcv2_updates, options.cdcv2_call, duplication, window))
    about = f"{options.cdcv2_updates:,} received updates of a bigint, a text and a double, {PER_TIME} at a time"
    return [
        Table("cdcv2", about, HEADER, rows),
        Table("cdcv2 forms", "The same updates, written and read back", FORMS, _forms(options.cdcv2_call)),
        Table("cdcv2 threads", "Updates per second that threads encode and decode", THREADS, _threads()),
    ]


def _compared(received: int, call: int, duplication: int, window: int) -> tuple[str, ...]:
    distinct = received // duplication
    numbers = _mangled(distinct, duplication, window)
    updates = _updates(numbers).combine_chunks()
    last = np.zeros(distinct, np.int64)  # where each update has arrived for the last time
    np.maximum.at(last, numbers, np.arange(len(numbers)))
    complete = np.maximum.accumulate(np.maximum.reduceat(last, np.arange(0, distinct, PER_TIME)))
    ends = range(call, received + call, call)
    statements = _statements(distinct, [int(np.searchsorted(complete, end)) for end in ends])
    ours, most = _seconds(lambda: _read(updates, statements, call, distinct))
    theirs, found = _seconds(lambda: _sorted(updates))
    assert found == distinct
    rates = (f"{received / seconds:,.0f}/s" for seconds in (ours, theirs))
    return f"{duplication} x", f"{window:,}", *rates, f"{ours / theirs:.2f}", f"{most:,}"


def _mangled(distinct: int, duplication: int, window: int) -> np.ndarray:
    """The numbers of updates, each repeated, in an order that differs by at most a window from theirs."""
    numbers = np.repeat(np.arange(distinct), duplication)
    places = np.arange(len(numbers)) + np.random.default_rng(1).integers(0, window, len(numbers))
    return numbers[np.argsort(places, kind="stable")]


def _updates(numbers: np.ndarray) -> pa.Table:
    text = pc.binary_join_element_wise("customer ", pa.array(numbers * 7_919 % 1_000_003).cast(pa.string()), "")
    columns = [pa.array(numbers), text, pa.array(numbers / 8), numbers // PER_TIME, np.ones(len(numbers), np.int64)]
    return pa.table(columns, SCHEMA)


def _read(updates: pa.Table, statements: Sequence[Progress | None], call: int, distinct: int) -> int:
    """Returns the largest number of open updates."""
    reader, most, returned = Reader(SCHEMA), 0, 0
    for start, statement in zip(range(0, updates.num_rows, call), statements, strict=True):
        batch = reader.receive(updates.slice(start, call), [] if statement is None else [statement])
        most = max(most, reader.open_updates)
        returned += 0 if batch is None else batch.updates.num_rows
    assert returned == distinct
    return most


def _statements(distinct: int, uppers: Sequence[int]) -> list[Progress | None]:
    writer = Writer()
    times = np.arange(distinct) // PER_TIME
    writer.add(pa.table([times, np.ones(distinct, np.int64)], pa.schema([TIME_FIELD, DIFF_FIELD])))
    return [writer.advance(upper) for upper in uppers]


def _sorted(updates: pa.Table) -> int:
    rows = updates.sort_by([(name, "ascending") for name in (TIME, "c0", "c1", "c2", DIFF)])
    first = np.ones(rows.num_rows, np.bool_)
    first[1:] = ~equal_rows(rows.slice(1), rows.slice(0, rows.num_rows - 1))
    found: int = rows.filter(pa.array(first)).num_rows
    return found


def _forms(call: int) -> list[tuple[str, ...]]:
    """Rates of a writer with its encoder, and of a decoder with its reader."""
    columns = [EncodedColumn(name, parse_type(type)) for name, type in zip(COLUMNS, TYPES, strict=True)]
    updates = _updates(np.arange(FORM_UPDATES))
    avro = AvroDecoder(CdcSchema.of(parse_schema(schema_text(columns))))
    found = []
    for name, encoder, decode in (
        ("Avro", AvroEncoder(columns), avro.decode),
        ("JSON", JsonEncoder(columns), JsonDecoder(columns).decode),
    ):
        calls: list[list[bytes]] = []
        written, _ = _seconds(lambda encoder=encoder, calls=calls: _write(encoder, updates, call, calls))  # type: ignore[misc]
        read, count = _seconds(lambda decode=decode, calls=calls: _read_back(decode, calls))  # type: ignore[misc]
        assert count == FORM_UPDATES
        size = sum(len(message) for messages in calls for message in messages) / FORM_UPDATES
        found.append((name, f"{FORM_UPDATES / written:,.0f}/s", f"{FORM_UPDATES / read:,.0f}/s", f"{size:.0f}"))
    return found


def _threads() -> list[tuple[str, ...]]:
    """Elapsed time of 1 and 2 threads, each the best of some turns, which alternate."""
    columns = [EncodedColumn(name, parse_type(type)) for name, type in zip(COLUMNS, TYPES, strict=True)]
    updates = _updates(np.arange(FORM_UPDATES))
    avro = AvroDecoder(CdcSchema.of(parse_schema(schema_text(columns))))
    parts = [updates.slice(start, THREAD_UPDATES) for start in range(0, FORM_UPDATES, THREAD_UPDATES)]
    found = []
    for name, encoder, decode in (
        ("Avro", AvroEncoder(columns), avro.decode),
        ("JSON", JsonEncoder(columns), JsonDecoder(columns).decode),
    ):
        encode = partial(_encoded, encoder)
        messages = [encode(part) for part in parts]
        best: dict[tuple[int, int], float] = {}
        for _ in range(TURNS):
            for threads in (1, 2):
                with ThreadPoolExecutor(threads) as pool:
                    for at, (work, given) in enumerate(((encode, parts), (decode, messages))):
                        begun = time.perf_counter()
                        list(pool.map(work, given))
                        rate = FORM_UPDATES / (time.perf_counter() - begun)
                        best[threads, at] = max(rate, best.get((threads, at), 0))
        for threads in (1, 2):
            pairs = ((best[threads, at], best[threads, at] / best[1, at]) for at in (0, 1))
            found.append(
                (name, str(threads), *(text for rate, ratio in pairs for text in (f"{rate:,.0f}/s", f"{ratio:.2f}")))
            )
    return found


def _encoded(encoder: AvroEncoder | JsonEncoder, part: pa.Table) -> pa.BinaryArray:
    return pa.array(list(encoder.updates(part)), pa.binary())


def _write(encoder: AvroEncoder | JsonEncoder, updates: pa.Table, call: int, calls: list[list[bytes]]) -> int:
    writer = Writer()
    for start in range(0, updates.num_rows, call):
        part = updates.slice(start, call)
        writer.add(part)
        statement = writer.advance((start + call) // PER_TIME)
        assert statement is not None
        calls.append([*encoder.updates(part), encoder.progress(statement)])
    return len(calls)


def _read_back(decode: Callable[[pa.BinaryArray], Decoded], calls: Sequence[list[bytes]]) -> int:
    reader, returned = Reader(SCHEMA), 0
    for messages in calls:
        found = decode(pa.array(messages, pa.binary()))
        batch = reader.receive(found.updates, found.statements)
        returned += 0 if batch is None else batch.updates.num_rows
    return returned


def _seconds(act: Callable[[], int]) -> tuple[float, int]:
    begun = time.process_time()
    found = act()
    return time.process_time() - begun, found
