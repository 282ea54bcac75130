"""Sources from files: each line or row once, over restarts at any point, while files grow and appear."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import glob
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from catalog.ids import ObjectId
from catalog.objects.columns import Column
from catalog.source_definition import Encoding, Envelope, Format, ForTables
from protocol.pgwire import copy_text
from protocol.pgwire.errors import PgError, SqlState
from server.ingest.files import file_format, file_source
from server.ingest.files.file_format import format_of
from server.ingest.files.file_source import FileSource
from server.ingest.source_definition import Output, SourceDefinition, Target
from server.ingest.source_kind import SourceContext
from server.ingest.upstream import Upstream, UpstreamError
from tests.examples import examples
from tests.polling import until

ID = ObjectId("u1")
TYPED = (Column("n", "int4"), Column("t", "text"))


def definition(path: object, encoding: Encoding, *columns: Column, **options: str) -> SourceDefinition:
    return SourceDefinition("file", {}, {"path": str(path), **options}, Format(encoding), columns=columns)


def upstream_of(source: SourceDefinition, output: Output) -> Upstream:
    context = SourceContext(ID, None, None)  # type: ignore[arg-type]
    return FileSource().upstream(source, [Target(ID, output)], context)


async def rows_of(source: SourceDefinition, state: dict[str, bytes], reads: int, bytes_max: int = 10**6) -> list[tuple]:
    """The rows of the next reads, each with an upstream of its own. `state` is changed to that after them."""
    (output,) = await FileSource().outputs(source)
    found: list[tuple] = []
    for _ in range(reads):
        upstream = upstream_of(source, output)
        await upstream.open(dict(state))
        try:
            changes = await upstream.read(bytes_max)
        finally:
            await upstream.close()
        state.update({key: value for key, value in changes.state.items() if value is not None})
        for table in changes.writes.get(ID, ()):
            found += zip(*(column.to_pylist() for column in table.columns), strict=True)
    return found


async def test_csv_is_read_in_pieces_and_as_it_grows(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text('1,one\n2,"two\nlines"\n3,\n4,incompl')
    source = definition(tmp_path / "*.csv", Encoding("csv"), *TYPED)
    state: dict[str, bytes] = {}
    assert await rows_of(source, state, 1) == [(1, "one"), (2, "two\nlines"), (3, None)]
    with file.open("a") as more:
        more.write("ete\n")
    assert await rows_of(source, state, 1) == [(4, "incomplete")]
    (tmp_path / "b.csv").write_text("5,five\n")
    assert await rows_of(source, state, 1) == [(5, "five")]


async def test_many_files_are_searched_once_and_committed_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched = 0

    def found(pattern: str) -> list[str]:
        nonlocal searched
        searched += 1
        return sorted(glob.glob(pattern))

    for number in range(30):
        (tmp_path / f"{number:02}.csv").write_text(f"{number},x\n")
    (tmp_path / "20.csv").write_text("bad\n")
    monkeypatch.setattr(file_source, "_found", found)
    monkeypatch.setattr(file_source, "FILES_MAX", 12)
    source = definition(tmp_path / "*.csv", Encoding("csv"), *TYPED)
    (output,) = await FileSource().outputs(source)
    upstream = upstream_of(source, output)
    await upstream.open({})
    searched = 0
    first, second = await upstream.read(10**6), await upstream.read(10**6)
    assert [len(first.state), len(second.state)] == [12, 8]  # those before the bad one
    assert [n for table in first.writes[ID] for n in table["c0"].to_pylist()] == list(range(12))
    for _ in range(2):
        with pytest.raises(PgError, match=r"20\.csv"):
            await upstream.read(10**6)
    assert searched == 1
    await upstream.close()


values = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=5)


@examples(50)
@given(st.lists(st.tuples(st.integers(-9, 9), values), min_size=1, max_size=8), st.integers(1, 12), st.data())
def test_every_record_is_read_once_from_pieces_of_any_size(
    tmp_path_factory: pytest.TempPathFactory, records: list[tuple[int, str]], size: int, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("files") / "a.csv"
    text = "n,t\n" + "".join(f'{n},"{t.replace(chr(34), chr(34) * 2)}"\n' for n, t in records)
    content = text.encode()
    format = format_of(definition(path, Encoding("csv", options={"header": "true"}), *TYPED))
    found: list[tuple[object, object]] = []
    position = 0
    written = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=3)))
    for end in (*written, len(content)):
        path.write_bytes(content[:end])
        while True:
            tables, after = format.read(path, position, size)
            for table in tables:
                found += zip(table["c0"].to_pylist(), table["c1"].to_pylist(), strict=True)
            if after == position:
                break
            position = after
    assert found == records
    assert position == len(content)


@pytest.mark.parametrize("ordinary", [0, 1_000, copy_text.ORDINARY_BYTES_MAX])
def test_a_piece_has_all_of_its_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ordinary: int) -> None:
    """However few of them the reader of CSV takes in one call."""
    monkeypatch.setattr(copy_text, "ORDINARY_BYTES_MAX", ordinary)
    count = 120_000
    path = tmp_path / "a.csv"
    path.write_text("".join(f"{n},{'text ' * 20 if n % 100 else 'x' * 3_000}\n" for n in range(count)))
    format = format_of(definition(path, Encoding("csv"), *TYPED))
    size = path.stat().st_size
    assert size > 2 * copy_text.ORDINARY_BYTES_MAX
    tables, position = format.read(path, 0, size)
    assert position == size
    assert pa.concat_tables(tables)["c0"].to_pylist() == list(range(count))


async def test_header_names_the_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('x;"y"\n1;2\n')
    source = definition(tmp_path / "a.csv", Encoding("csv", options={"header": "true", "delimited by": ";"}))
    (output,) = await FileSource().outputs(source)
    assert output.columns == (Column("x", "text"), Column("y", "text"))
    assert await rows_of(source, {}, 1) == [("1", "2")]


async def test_a_header_with_a_byte_order_mark_and_quoted_names(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'\xef\xbb\xbfx,"y, ""z"""\n1,2\n')
    source = definition(tmp_path / "a.csv", Encoding("csv", options={"header": "true"}))
    (output,) = await FileSource().outputs(source)
    assert output.columns == (Column("x", "text"), Column('y, "z"', "text"))
    assert await rows_of(source, {}, 1) == [("1", "2")]


@pytest.mark.parametrize("header", ["y,x", "x", "x,y,z", "X,y"])
@pytest.mark.parametrize("names", [{}, {"names": "x,y"}])
async def test_a_file_with_another_header_ends_the_source(tmp_path: Path, names: dict[str, str], header: str) -> None:
    """Its values would be in the wrong columns."""
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    source = definition(tmp_path / "*.csv", Encoding("csv", options={"header": "true", **names}))
    state: dict[str, bytes] = {}
    assert await rows_of(source, state, 1) == [("1", "2")]
    (tmp_path / "b.csv").write_text(f"{header}\n{header}\n")
    with pytest.raises(PgError, match=r"header of file .*/b\.csv. does not have the columns of the source") as caught:
        await rows_of(source, state, 1)
    assert caught.value.detail == f"The columns are x, y, and the header is {header.replace(',', ', ')}."


async def test_a_definition_with_another_header_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("X,y")
    source = definition(tmp_path / "*.csv", Encoding("csv", options={"header": "true", "names": "x,y"}))
    assert await FileSource().outputs(source)  # the header is not complete
    (tmp_path / "a.csv").write_text("X,y\n")
    with pytest.raises(PgError, match="does not have the columns of the source") as caught:
        await FileSource().outputs(source)
    assert caught.value.hint is not None
    assert "must quote names with capitals" in caught.value.hint


async def test_parquet_with_dictionaries(tmp_path: Path) -> None:
    """As pandas writes categories."""
    values = pa.array(["a", "b", None, "a"]).dictionary_encode()
    pq.write_table(pa.table({"v": values}), tmp_path / "a.parquet")
    source = definition(tmp_path / "*.parquet", Encoding("parquet"))
    (output,) = await FileSource().outputs(source)
    assert output.columns == (Column("v", "text"),)
    assert await rows_of(source, {}, 1) == [("a",), ("b",), (None,), ("a",)]


async def test_columns_of_parquet_are_found_by_name(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1], "y": [2]}), tmp_path / "a.parquet")
    source = definition(tmp_path / "*.parquet", Encoding("parquet"))
    state: dict[str, bytes] = {}
    assert await rows_of(source, state, 1) == [(1, 2)]
    pq.write_table(pa.table({"z": [0], "y": [4], "x": [3]}), tmp_path / "b.parquet")
    assert await rows_of(source, state, 1) == [(3, 4)]
    pq.write_table(pa.table({"y": ["t"], "x": [5]}), tmp_path / "c.parquet")
    with pytest.raises(PgError, match='cannot convert "t" to int8'):
        await rows_of(source, state, 1)
    pq.write_table(pa.table({"x": [5]}), tmp_path / "c.parquet")
    with pytest.raises(PgError, match=r'c\.parquet" has no column "y"'):
        await rows_of(source, state, 1)


@pytest.mark.parametrize("type", ["json", "jsonb", "text"])
@pytest.mark.long
async def test_empty_lines_between_values_of_json_are_no_rows(tmp_path: Path, type: str) -> None:
    """They count as lines in errors, and remain rows of FORMAT TEXT."""
    path = tmp_path / "a.json"
    path.write_text("\n{}\n\n\nnull\n\n")
    source, state = definition(path, Encoding("json"), Column("data", type, nullable=False)), {}
    assert await rows_of(source, state, 1) == [("{}",), ("null",)]
    with path.open("a") as more:
        more.write("\n\n")
    assert await rows_of(source, state, 1) == []
    with path.open("a") as more:
        more.write('\n"a"\n')
    assert await rows_of(source, state, 1) == [('"a"',)]
    assert await rows_of(definition(path, Encoding("text")), {}, 1) == [
        (line,) for line in ("", "{}", "", "", "null", "", "", "", "", '"a"')
    ]
    if type != "text":
        path.write_text("{}\n\n{\n")
        with pytest.raises(PgError, match="line 3, column data"):
            await rows_of(source, {}, 1)
    path.write_bytes(b"{}\r\n\r\n[]\r\n")
    assert await rows_of(source, {}, 1) == [("{}",), ("[]",)]


async def test_lines_of_json_and_text(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"b": 1, "a": "x,y\\"\\n"}\n[]\n')
    source = definition(tmp_path / "a.json", Encoding("json"))
    assert await rows_of(source, {}, 1) == [('{"a": "x,y\\"\\n", "b": 1}',), ("[]",)]
    (tmp_path / "a.txt").write_text('a,"b"\\n\n\nc\n')
    assert await rows_of(definition(tmp_path / "a.txt", Encoding("text")), {}, 1) == [('a,"b"\\n',), ("",), ("c",)]


@pytest.mark.long
async def test_parquet_is_read_in_pieces(tmp_path: Path) -> None:
    numbers = list(range(1_000))
    table = pa.table({"n": pa.array(numbers, pa.int32()), "d": [datetime.date(2020, 1, 1)] * 1_000, "t": ["x"] * 1_000})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=300)
    source = definition(tmp_path / "*.parquet", Encoding("parquet"))
    (output,) = await FileSource().outputs(source)
    assert [column.type for column in output.columns] == ["int4", "date", "text"]
    state: dict[str, bytes] = {}
    found: list[tuple] = []
    while len(found) < 1_000:
        found += await rows_of(source, state, 1, bytes_max=1)
    assert [row[0] for row in found] == numbers
    chosen = definition(tmp_path / "*.parquet", Encoding("parquet"), Column("n", "int8"))
    assert await rows_of(chosen, {}, 1) == [(n,) for n in numbers]


async def test_a_row_group_is_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can only be read from its beginning, so that opening it for each read would take quadratic time.

    The format is called in this process instead of a worker.
    """
    monkeypatch.setattr(file_format, "BATCH_ROWS", 10)
    opened = []

    class Counted(pq.ParquetFile):  # type: ignore[misc]
        def __init__(self, path: Path, **options: Any) -> None:
            opened.append(path.name)
            super().__init__(path, **options)

    monkeypatch.setattr(pq, "ParquetFile", Counted)
    pq.write_table(pa.table({"n": range(500)}), tmp_path / "a.parquet")
    format = format_of(definition(tmp_path / "a.parquet", Encoding("parquet"), Column("n", "int8")))
    found: list[int] = []
    end = 123
    while end < 500:
        tables, end = format.read(tmp_path / "a.parquet", end, 1)
        found += [n for table in tables for n in table.column(0).to_pylist()]
    assert found == list(range(123, 500))
    assert opened == ["a.parquet"]


async def test_a_worker_reads_parquet_until_everything_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "x" * 1_000_000
    for name, first in (("a.parquet", 0), ("b.parquet", 20)):
        table = pa.table({"n": range(first, first + 20), "t": [f"{n}{text}" for n in range(first, first + 20)]})
        pq.write_table(table, tmp_path / name)
    source = definition(tmp_path / "*.parquet", Encoding("parquet"), *TYPED)
    (output,) = await FileSource().outputs(source)
    upstream = upstream_of(source, output)
    await upstream.open({str(tmp_path / "a.parquet"): b"3"})
    found: list[int] = []
    reads, workers = 0, set()
    while len(found) < 37:
        changes = await upstream.read(1)
        found += [n for table in changes.writes[ID] for n in table.column(0).to_pylist()]
        assert changes.writes[ID][0].column(1)[0].as_py() == f"{changes.writes[ID][0].column(0)[0]}{text}"
        reads += 1
        workers |= reading()
    assert found == list(range(3, 40))
    assert reads > 4
    assert len(workers) == 1
    waiting = asyncio.create_task(upstream.read(1))
    await asyncio.to_thread(until, lambda: not reading())
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await upstream.close()


def reading() -> set[int]:
    """The processes that read files for this one."""
    found = set()
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it ends
            if child.name() == "reader_service":
                found.add(child.pid)
    return found


@pytest.mark.parametrize(
    ("encoding", "columns", "state", "message"),
    [
        (Encoding("csv"), (), SqlState.SYNTAX_ERROR, "FORMAT CSV needs the columns"),
        (Encoding("protobuf"), (), SqlState.FEATURE_NOT_SUPPORTED, "FORMAT PROTOBUF of a source from a file"),
        (Encoding("json"), TYPED, SqlState.FEATURE_NOT_SUPPORTED, "FORMAT JSON has one column, of type jsonb"),
        (Encoding("csv", options={"delimited by": "ab"}), TYPED, SqlState.INVALID_PARAMETER_VALUE, "CSV delimiter"),
    ],
)
async def test_invalid_definitions_are_refused(
    tmp_path: Path, encoding: Encoding, columns: tuple[Column, ...], state: SqlState, message: str
) -> None:
    (tmp_path / "a").write_text("x\n")
    with pytest.raises(PgError, match=message) as caught:
        await FileSource().outputs(definition(tmp_path / "a", encoding, *columns))
    assert caught.value.sqlstate is state


async def test_invalid_paths_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PgError, match="relative path not allowed"):
        await FileSource().outputs(definition("a.csv", Encoding("csv"), *TYPED))
    with pytest.raises(PgError, match="No such file or directory"):
        await FileSource().outputs(definition(tmp_path / "missing.csv", Encoding("csv"), *TYPED))
    assert await FileSource().outputs(definition(tmp_path / "*.csv", Encoding("csv"), *TYPED))
    (tmp_path / "a.parquet").write_text("no parquet")
    with pytest.raises(PgError, match="could not read file"):
        await FileSource().outputs(definition(tmp_path / "a.parquet", Encoding("parquet")))
    upsert = SourceDefinition("file", {}, {"path": "/x"}, Format(Encoding("text"), envelope=Envelope.UPSERT))
    with pytest.raises(PgError, match="ENVELOPE UPSERT of a source from a file requires FORMAT JSON and the columns"):
        await FileSource().outputs(upsert)
    tables = SourceDefinition("file", {}, {"path": "/x"}, Format(Encoding("text")), ForTables(all=True))
    with pytest.raises(PgError, match="a source from a file has one output"):
        await FileSource().outputs(tables)


async def test_bad_data_and_a_truncated_file_end_the_source(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("1,x\n")
    source = definition(file, Encoding("csv"), *TYPED)
    state: dict[str, bytes] = {}
    await rows_of(source, state, 1)
    file.write_text("1")
    with pytest.raises(PgError, match="was truncated") as caught:
        await rows_of(source, state, 1)
    assert caught.value.sqlstate is SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE
    file.write_text("x,x\n")
    with pytest.raises(PgError, match='invalid input syntax for type integer: "x"'):
        await rows_of(source, {}, 1)


@pytest.mark.parametrize(
    ("content", "place", "message"),
    [
        ("1,a\nx,b\n", "line 5, column n", 'invalid input syntax for type integer: "x"'),
        ("1,a\n2,b,c\n", "line 5", "extra data after last expected column"),
        ("1\n", "line 4", 'missing data for column "t"'),
        ('1,"a\nb"\n2,\n3,c\n', "line 6", 'null value in column "t" violates not-null constraint'),
        ("1,a\n\\.\n", "line 5", "end-of-copy marker found in data"),
    ],
)
async def test_an_error_names_the_file_and_the_line(tmp_path: Path, content: str, place: str, message: str) -> None:
    """Also if the source has read the lines before it already."""
    path = tmp_path / "a.csv"
    path.write_text('n,t\n1,"a\nb"\n')
    source = definition(path, Encoding("csv", options={"header": ""}), TYPED[0], Column("t", "text", nullable=False))
    state: dict[str, bytes] = {}
    assert await rows_of(source, state, 1) == [(1, "a\nb")]
    with path.open("a") as file:
        file.write(content)
    for positions in (state, {}):
        with pytest.raises(PgError) as caught:
            await rows_of(source, positions, 1)
        assert caught.value.message == f'file "{path}", {place}: {message}'


async def test_an_error_names_the_line_of_json_and_of_text(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for name, line, place in (("json", b"{", "line 2, column data"), ("text", b"\xff", "line 2")):
        path.write_bytes(b"{}\n" + line + b"\n")
        with pytest.raises(PgError) as caught:
            await rows_of(definition(path, Encoding(name)), {}, 1)
        assert caught.value.message.startswith(f'file "{path}", {place}: invalid ')


async def test_an_error_names_the_row_of_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    numbers = pa.array([*range(100), 1 << 40, None, *range(100)])
    pq.write_table(pa.table({"n": numbers, "t": numbers.cast("string")}), path, row_group_size=60)
    for column, reason in (
        (Column("n", "int4"), f'row 101, column n: cannot convert "{1 << 40}" to int4'),
        (Column("n", "int8", nullable=False), 'row 102: null value in column "n" violates not-null constraint'),
        (Column("t", "int4"), f'row 101, column t: cannot convert "{1 << 40}" to int4'),
    ):
        with pytest.raises(PgError) as caught:
            await rows_of(definition(path, Encoding("parquet"), column), {}, 5)
        assert caught.value.message == f'file "{path}", {reason}'
    with pytest.raises(PgError, match=r'column "n" of file .* has type int64, which is not date'):
        await rows_of(definition(path, Encoding("parquet"), Column("n", "date")), {}, 1)


async def test_an_unreadable_parquet_file_is_read_again_later(tmp_path: Path) -> None:
    source = definition(tmp_path / "*.parquet", Encoding("parquet"), Column("n", "int8"))
    (tmp_path / "a.parquet").write_text("not yet")
    with pytest.raises(UpstreamError, match=r"could not read file .*a\.parquet"):
        await rows_of(source, {}, 1)


# -- ENVELOPE MATERIALIZE ---------------------------------------------------------------------------------------------


def changes_of(path: object, *columns: Column) -> SourceDefinition:
    format = Format(Encoding("json"), envelope=Envelope.MATERIALIZE)
    return SourceDefinition("file", {}, {"path": str(path), "stall timeout": "0s"}, format, columns=columns)


SOON = {"stall timeout": "0s", "poll interval": "10ms"}


def update(n: int, time: int, diff: int) -> str:
    return f'{{"array": [{{"data": {{"n": {n}, "t": "x"}}, "time": {time}, "diff": {diff}}}]}}\n'


def progress(lower: int, upper: int, **counts: int) -> str:
    listed = ", ".join(f'{{"time": {time[1:]}, "count": {count}}}' for time, count in counts.items())
    return f'{{"com.materialize.cdc.progress": {{"lower": [{lower}], "upper": [{upper}], "counts": [{listed}]}}}}\n'


async def changes_after(source: SourceDefinition, state: dict[str, bytes], reads: int) -> list[tuple]:
    """The changes of the next reads of one upstream. `state` is changed to that after them."""
    (output,) = await FileSource().outputs(source)
    upstream = upstream_of(source, output)
    await upstream.open(dict(state))
    found: list[tuple] = []
    for _ in range(reads):
        changes = await upstream.read(10**6)
        state.update({key: value for key, value in changes.state.items() if value is not None})
        for table in changes.writes.get(ID, ()):
            found += zip(*(column.to_pylist() for column in table.columns), strict=True)
    await upstream.close()
    return found


async def test_changes_are_read_when_their_times_are_closed(tmp_path: Path) -> None:
    source = changes_of(tmp_path / "*.json", *TYPED)
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    first.write_text(update(1, 4, 1) + update(2, 4, 1) + update(1, 6, -1) + progress(0, 5, t4=2))
    state: dict[str, bytes] = {}
    assert await changes_after(source, state, 1) == [(1, "x", 1), (2, "x", 1)]
    assert state == {"frontier": b"5", f"file:{first}": b"0"}  # the update at time 6 is needed again
    with second.open("w") as file:
        file.write(update(1, 4, 1) + progress(5, 9, t6=1, t7=1))
    assert await changes_after(source, state, 2) == [(1, "x", -1)]
    with first.open("a") as file:
        file.write("no message\n" + update(3, 7, 2)[:-5])
    assert await changes_after(source, state, 1) == []
    with first.open("a") as file:
        file.write(update(3, 7, 2)[-5:])
    assert await changes_after(source, state, 2) == [(3, "x", 2)]
    assert state == {
        "frontier": b"9",
        f"file:{first}": b"%d" % first.stat().st_size,
        f"file:{second}": b"%d" % second.stat().st_size,
    }


async def test_the_status_of_changes_names_what_is_missing(tmp_path: Path) -> None:
    source = changes_of(tmp_path / "a.json", *TYPED)
    (tmp_path / "a.json").write_text("junk\n\n" + update(1, 3, 1) + progress(0, 4, t3=3))
    (output,) = await FileSource().outputs(source)
    context = SourceContext(ID, None, None)  # type: ignore[arg-type]
    upstream = FileSource().upstream(source, [Target(ID, output)], context)
    await upstream.open({})
    changes = await upstream.read(10**6)
    assert (changes.writes, changes.state["frontier"]) == ({}, b"3")
    status = context.statistics.histories[ID]()
    assert (status.frontier, status.open_updates, status.missing_updates, status.invalid_messages) == (3, 1, 2, 2)
    assert status.stall is not None
    assert "incomplete at time 3: 1 of 3 updates have arrived" in status.stall.message
    await upstream.close()


async def test_the_status_of_changes_names_a_truncated_line(tmp_path: Path) -> None:
    path, whole = tmp_path / "a.json", update(1, 3, 1)
    path.write_text(whole + progress(0, 4, t3=1)[:-9])
    source = replace(changes_of(tmp_path / "*.json", *TYPED), options={"path": f"{tmp_path}/*.json", **SOON})
    (output,) = await FileSource().outputs(source)
    context = SourceContext(ID, None, None)  # type: ignore[arg-type]
    upstream = FileSource().upstream(source, [Target(ID, output)], context)
    await upstream.open({})
    await upstream.read(10**6)
    reading = asyncio.create_task(upstream.read(10**6))

    async def until_hint_is(expected: str) -> None:
        await asyncio.to_thread(
            until, lambda: getattr(context.statistics.histories[ID]().stall, "hint", "") == expected
        )

    again = "Write the missing messages again: repetitions are ignored."
    size = path.stat().st_size - len(whole)
    rest = f'File "{path}" ends with an incomplete line of {size} bytes at byte {len(whole)}'
    await until_hint_is(f"{again} {rest}.")
    (tmp_path / "b.json").write_text("{")
    await until_hint_is(f"{again} {rest}, and 1 other file does.")
    (tmp_path / "b.json").unlink()
    await until_hint_is(f"{again} {rest}.")
    with path.open("a") as file:
        file.write(progress(0, 4, t3=1)[-9:])
    assert (await reading).state["frontier"] == b"4"
    assert context.statistics.histories[ID]().stall is None
    await upstream.close()


@pytest.mark.parametrize(
    ("encoding", "envelope", "whole", "rest", "end"),
    [
        ("csv", Envelope.NONE, "1,a\n", "2,b", "an incomplete line of 3 bytes at byte 4"),
        ("text", Envelope.NONE, "", "b", "an incomplete line of 1 byte at byte 0"),
        ("json", Envelope.UPSERT, '{"frontier":[1]}\n', "{}\n", "3 bytes without a frontier at byte 17"),
    ],
)
async def test_a_file_that_ends_within_a_line_stalls_its_source(
    tmp_path: Path, encoding: str, envelope: Envelope, whole: str, rest: str, end: str
) -> None:
    path = tmp_path / "a"
    path.write_text(whole + rest)
    columns = TYPED if encoding != "text" else (Column("text", "text"),)
    options = {"path": str(path), "poll interval": "10ms", "stall timeout": "100ms"}
    source = SourceDefinition("file", {}, options, Format(Encoding(encoding), envelope=envelope), columns=columns)
    (output,) = await FileSource().outputs(source)
    context = SourceContext(ID, None, None)  # type: ignore[arg-type]
    upstream = FileSource().upstream(source, [Target(ID, output)], context)
    await upstream.open({})
    if whole:
        await upstream.read(10**6)
    stall = context.statistics.stalls[ID]
    with capture_logs() as logs:
        reading = asyncio.create_task(upstream.read(10**6))
        assert stall() is None
        await asyncio.to_thread(until, lambda: stall() is not None and logs)
        await asyncio.sleep(0.1)  # it is not logged again
    error = stall()
    assert error is not None
    assert error.message == f'file "{path}" ends with {end}'
    assert error.hint
    assert [entry["error"] for entry in logs] == [error.message]
    path.unlink()
    await asyncio.to_thread(until, lambda: stall() is None)
    reading.cancel()
    await upstream.close()


async def test_progress_whose_upper_is_before_its_lower_is_counted_and_logged(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(update(1, 3, 1) + progress(10, 3) + progress(3, 3) + progress(0, 4, t3=1))
    source = changes_of(path, *TYPED)
    (output,) = await FileSource().outputs(source)
    context = SourceContext(ID, None, None)  # type: ignore[arg-type]
    upstream = FileSource().upstream(source, [Target(ID, output)], context)
    await upstream.open({})
    with capture_logs() as logs:
        assert (await upstream.read(10**6)).state["frontier"] == b"4"
    await upstream.close()
    place = f'file "{path}" after byte 0, message 2'
    reason = "progress has the upper [3], which is before its lower [10]"
    assert [(entry["event"], entry["first"], entry["error"]) for entry in logs] == [("invalid messages", place, reason)]
    assert context.statistics.invalid_messages == 1
    assert context.statistics.last_invalid_message == f"{place}: {reason}"


async def test_changes_need_the_columns_of_the_data(tmp_path: Path) -> None:
    with pytest.raises(PgError, match="requires FORMAT AVRO, or FORMAT JSON and the columns"):
        await FileSource().outputs(changes_of(tmp_path / "*.json"))
