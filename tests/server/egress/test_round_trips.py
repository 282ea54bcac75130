"""Sources read the rows that sinks write: values of all types, in JSON and in Avro, and changes of the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.types.string import TextLoader

from catalog.objects.columns import Column
from protocol.avro.encoder import EncodedColumn
from protocol.cdcv2.avro_form import AvroEncoder, schema_text
from protocol.cdcv2.json_form import JsonDecoder, JsonEncoder
from protocol.cdcv2.messages import DIFF_FIELD, TIME_FIELD
from protocol.pgwire.text_columns import DEFAULT_STYLE, plain_column, text_column
from server.egress.file.changes_file import Container
from server.ingest.files.avro_files import AvroMessages
from tests.examples import examples
from tests.polling import until
from tests.protocol.columns import batches
from tests.server.egress.test_replication import Row, Server


@st.composite
def updates(draw: st.DrawFn) -> tuple[list[EncodedColumn], pa.Table]:
    types, _, batch = draw(batches())
    columns = [EncodedColumn(f"f{i}", type) for i, type in enumerate(types)]
    arrays = [plain_column(array, type) for array, type in zip(batch.columns, types, strict=True)]
    times, diffs = pa.array(range(batch.num_rows), pa.int64()), pa.array([1] * batch.num_rows, pa.int64())
    fields = [pa.field(f"c{i}", type.arrow) for i, type in enumerate(types)]
    return columns, pa.table([*arrays, times, diffs], pa.schema([*fields, TIME_FIELD, DIFF_FIELD]))


def texts(columns: list[EncodedColumn], rows: pa.Table) -> list[list[str | None]]:
    """The values as texts."""
    if not rows.num_rows:
        return []
    return [
        text_column(column.type, DEFAULT_STYLE)(values.combine_chunks()).to_pylist()
        for column, values in zip(columns, rows.columns, strict=False)
    ]


@given(updates())
@examples(150)
def test_all_types_in_json(example: tuple[list[EncodedColumn], pa.Table]) -> None:
    columns, rows = example
    messages = list(JsonEncoder(columns).updates(rows))
    found = JsonDecoder(columns).decode(pa.array(messages, pa.binary()))
    assert not found.failed.any()
    assert texts(columns, found.updates) == texts(columns, rows)


@given(updates())
@examples(100)
def test_all_types_in_avro(example: tuple[list[EncodedColumn], pa.Table]) -> None:
    columns, rows = example
    with TemporaryDirectory() as directory:
        path = Path(directory) / "a.avro"
        file = Container(path, schema_text(columns))
        file.open(is_new=True)
        file.append(AvroEncoder(columns).updates(rows))
        file.close()
        given_columns = [Column(column.name, str(column.type)) for column in columns]
        source = AvroMessages(given_columns, None)
        source.resume(given_columns, None)
        tables, _ = source.read(path, 0, 1 << 20)
        messages = pa.concat_arrays([pa.array([], pa.binary()), *(c for t in tables for c in t.column(0).chunks)])
        found = source.decode(messages)
    assert not found.failed.any()
    assert texts(columns, found.updates) == texts(columns, rows)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "data")
    for type in (114, 3802, 1186, 1007):  # json, jsonb, interval, int4[]
        server.connection.adapters.register_loader(type, TextLoader)
    yield server
    server.stop()


def rows_of(server: Server, relation: str) -> Counter[Row]:
    return Counter(server.execute(f"SELECT k, v FROM {relation}"))


def status(server: Server, view: str) -> tuple[str, str | None]:
    ((status, error),) = server.execute(f"SELECT status, error FROM mz_internal.{view}")
    return status, error


def copied(server: Server, path: Path, format: str, envelope: str, type: str) -> None:
    """Creates a table t (k, v), a sink into a file, and a source r that reads it."""
    server.execute(f"CREATE TABLE t (k int NOT NULL, v {type})")
    server.execute(
        f"CREATE SINK s FROM t INTO FILE '{path}' {format} ENVELOPE {envelope} WITH (PROGRESS INTERVAL '20ms')"
    )
    until(path.exists)
    source = f"CREATE SOURCE r (k int NOT NULL, v {type}) FROM FILE '{path}' (POLL INTERVAL '10ms')"
    server.execute(f"{source} {format.removeprefix('KEY (k) ')} ENVELOPE {envelope}")


@pytest.mark.parametrize("format", ["JSON", "AVRO"])
@pytest.mark.parametrize(
    ("type", "values"),
    [
        ("jsonb", ["null", None, '{"a": 1}', '"null"', '{"tidewire.json": "null"}']),
        ("json", ["null", None, " null ", '{"a":1}', '{"a" : 1}', '{"a":\n1}', '{"a":1,"a":2}']),
        ("interval", ["1 mon 2 days 00:00:03", None]),
        ("int[]", ["{1,NULL}", "{}", None]),
    ],
)
def test_a_history_has_the_rows_of_the_table(
    server: Server, tmp_path: Path, format: str, type: str, values: list[str | None]
) -> None:
    copied(server, tmp_path / "changes", f"FORMAT {format}", "MATERIALIZE", type)
    for value in values:
        literal = "NULL" if value is None else f"'{value}'"
        server.execute(f"INSERT INTO t VALUES (1, {literal})")
    expected = Counter((1, value) for value in values)
    assert rows_of(server, "t") == expected
    until(lambda: rows_of(server, "r") == expected)
    server.execute("DELETE FROM t")
    until(lambda: not rows_of(server, "r"))


@pytest.mark.parametrize("type", ["json", "jsonb"])
@pytest.mark.parametrize(("key", "envelope"), [("KEY (k) ", "UPSERT"), ("KEY (k) ", "DEBEZIUM"), ("", "DEBEZIUM")])
def test_changes_of_rows_have_the_values_of_json(
    server: Server, tmp_path: Path, key: str, envelope: str, type: str
) -> None:
    copied(server, tmp_path / "changes", f"{key}FORMAT JSON", envelope, type)
    server.execute("""INSERT INTO t VALUES (1, 'null'), (2, NULL), (3, '{"a": 1}')""")
    expected = Counter([(1, "null"), (2, None), (3, '{"a": 1}')])
    until(lambda: rows_of(server, "r") == expected)
    server.execute("DELETE FROM t WHERE k = 1; DELETE FROM t WHERE k = 3")
    until(lambda: rows_of(server, "r") == Counter([(2, None)]))


@pytest.mark.parametrize(
    ("alter", "change"),
    [
        ("DROP COLUMN v", 'column "v" was dropped or renamed'),
        ("RENAME COLUMN v TO w", 'column "v" was dropped or renamed'),
    ],
)
@pytest.mark.parametrize(
    ("format", "envelope"), [("JSON", "MATERIALIZE"), ("AVRO", "MATERIALIZE"), ("JSON", "DEBEZIUM")]
)
def test_a_sink_writes_no_rows_of_other_columns(
    server: Server, tmp_path: Path, format: str, envelope: str, alter: str, change: str
) -> None:
    copied(server, tmp_path / "changes", f"FORMAT {format}", envelope, "text")
    server.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    rows = Counter([(1, "a"), (2, "b")])
    until(lambda: rows_of(server, "r") == rows)
    server.execute(f"ALTER TABLE t {alter}")
    server.execute("DELETE FROM t WHERE k = 1")
    error = f'the columns of "t" are not those that sink "s" began with: {change}'
    until(lambda: status(server, "mz_sink_statuses") == ("stalled", error))
    server.restart()
    until(lambda: status(server, "mz_sink_statuses") == ("stalled", error))
    assert rows_of(server, "r") == rows
    assert status(server, "mz_source_statuses") == ("running", None)


def test_a_sink_continues_after_a_column_is_added(server: Server, tmp_path: Path) -> None:
    copied(server, tmp_path / "changes", "FORMAT JSON", "MATERIALIZE", "text")
    server.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    until(lambda: rows_of(server, "r") == Counter([(1, "a"), (2, "b")]))
    server.execute("ALTER TABLE t ADD COLUMN w int DEFAULT 7")
    server.execute("DELETE FROM t WHERE k = 1; INSERT INTO t VALUES (3, 'c', 8)")
    until(lambda: rows_of(server, "r") == Counter([(2, "b"), (3, "c")]))
    server.execute("ALTER TABLE t DROP COLUMN w")
    until(lambda: status(server, "mz_sink_statuses")[0] == "stalled")


def test_a_sink_of_rows_by_key_continues_after_columns_change(server: Server, tmp_path: Path) -> None:
    copied(server, tmp_path / "changes", "KEY (k) FORMAT JSON", "UPSERT", "text")
    server.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    server.execute("ALTER TABLE t DROP COLUMN v")
    server.execute("DELETE FROM t WHERE k = 1")
    until(lambda: [k for k, _ in rows_of(server, "r")] == [2])


@pytest.mark.parametrize("format", ["JSON", "AVRO"])
def test_columns_of_sources_have_no_user_defined_types(server: Server, tmp_path: Path, format: str) -> None:
    server.execute("CREATE TYPE mood AS ENUM ('sad', 'ok')")
    server.execute("CREATE DOMAIN positive AS int CHECK (VALUE > 0)")
    source = f"FROM FILE '{tmp_path}/*' FORMAT {format} ENVELOPE MATERIALIZE"
    for type in ("mood", "mood[]", "positive"):
        with pytest.raises(psycopg.errors.FeatureNotSupported, match='column "m" of a source cannot have') as caught:
            server.execute(f"CREATE SOURCE r (k int, m {type}) {source}")
        assert caught.value.diag.message_hint == "Use a built-in type, and cast the column in a view."
    with pytest.raises(psycopg.errors.UndefinedObject, match='type "moods" does not exist'):
        server.execute(f"CREATE SOURCE r (k int, m moods) {source}")
