"""`.pt` scripts: the format, the printed messages, failures, and that all our scripts pass on a real PostgreSQL."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from testdrive import Options, run_file
from testdrive.pgtest import parse, printed
from testdrive.report import Failure, ParseError
from testdrive.wire import decode, encode

SCRIPTS = sorted((Path(__file__).parent.parent / "scripts" / "wire").glob("*.pt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_scripts_pass_on_postgres(postgres: str, path: Path) -> None:
    failures = run_file(path, Options(url=postgres, default_timeout_s=10))
    assert not failures, str(failures[0])


def test_every_script_opens_with_a_comment() -> None:
    assert len(SCRIPTS) >= 8
    assert all(path.read_text().startswith("# ") for path in SCRIPTS)


class Scripts:
    def __init__(self, url: str, directory: Path) -> None:
        self.url, self.path = url, directory / "script.pt"

    def run(self, text: str, timeout_s: float = 5) -> list[Failure]:
        self.path.write_text(text)
        return run_file(self.path, Options(url=self.url, default_timeout_s=timeout_s))

    def passes(self, text: str) -> None:
        failures = self.run(text)
        assert not failures, str(failures[0])


@pytest.fixture
def scripts(postgres: str, tmp_path: Path) -> Scripts:
    return Scripts(postgres, tmp_path)


SELECT = 'send\nQuery {"query": "SELECT 1 AS a"}\n----\n\n'
ANSWER = (
    'RowDescription {"fields":[{"name":"a"}]}\nDataRow {"fields":["1"]}\n'
    'CommandComplete {"tag":"SELECT 1"}\nReadyForQuery {"status":"I"}\n'
)
UNTIL = "until\nReadyForQuery\n----\n"
ERROR = 'send\nQuery {"query": "SELECT 1 / 0"}\n----\n\n'


def test_a_wrong_answer_fails(scripts: Scripts) -> None:
    scripts.passes(SELECT + UNTIL + ANSWER)
    for wrong in (ANSWER.replace('"1"', '"2"'), ANSWER[:20], ANSWER + "NoData\n", ""):
        [failure] = scripts.run("# comment\n" + SELECT + UNTIL + wrong)
        assert failure.line == 6
        assert failure.command == "until\nReadyForQuery"


def test_the_difference_is_shown(scripts: Scripts) -> None:
    [failure] = scripts.run(SELECT + UNTIL + ANSWER.replace('["1"]', '["2"]'))
    assert '-DataRow {"fields":["2"]}\n+DataRow {"fields":["1"]}\n CommandComplete' in failure.message


def test_send_prints_nothing(scripts: Scripts) -> None:
    [failure] = scripts.run("send\nSync\n----\nParseComplete\n")
    assert failure.line == 1


def test_until_waits_for_each_listed_type_in_turn(scripts: Scripts) -> None:
    rows = 'DataRow {"fields":["1"]}\nDataRow {"fields":["2"]}\n'
    scripts.passes(
        'send\nQuery {"query": "SELECT generate_series(1, 3) AS a"}\n----\n\n'
        f'until\nDataRow\nDataRow\n----\nRowDescription {{"fields":[{{"name":"a"}}]}}\n{rows}\n'
        'until ignore=DataRow ignore=(CommandComplete)\nReadyForQuery\n----\nReadyForQuery {"status":"I"}\n'
    )


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        ("", [("S", "ERROR"), ("C", "22012"), ("M", "division by zero")]),
        (" err_field_typs=C", [("C", "22012")]),
        (" no_error_fields", []),
    ],
)
def test_error_fields(scripts: Scripts, arguments: str, fields: list[tuple[str, str]]) -> None:
    shown = ",".join(f'{{"typ":"{typ}","value":"{value}"}}' for typ, value in fields)
    scripts.passes(ERROR + f'until{arguments}\nErrorResponse\n----\nErrorResponse {{"fields":[{shown}]}}\n')


def test_parameter_status_is_shown_only_if_it_is_listed(scripts: Scripts) -> None:
    text = 'send\nQuery {"query": "SET application_name = \'x\'"}\n----\n\n'
    tail = 'CommandComplete {"tag":"SET"}\nReadyForQuery {"status":"I"}\n'
    status = 'ParameterStatus {"name":"application_name","value":"x"}\n'
    scripts.passes(text + "until\nReadyForQuery\n----\n" + tail)
    order = "CommandComplete\nParameterStatus\nReadyForQuery"
    scripts.passes(text + f"until\n{order}\n----\n" + tail.replace("Ready", f"{status}Ready"))


def test_numbers_can_be_masked(scripts: Scripts) -> None:
    text = 'send\nQuery {"query": "COPY (SELECT 123, 45678, \'x1234y\') TO STDOUT"}\n----\n\n'
    row = (
        'CopyOut {"format":"text","column_formats":["text","text","text"]}\nCopyData "123\\t<number>\\tx<number>y\\n"\n'
    )
    scripts.passes(text + f"until mask_numbers=4\nCopyData\n----\n{row}")


def test_times_are_named_in_order_of_first_appearance(scripts: Scripts) -> None:
    values = "(VALUES (1700000000002), (1700000000001), (1700000000002), (17000000000001), (5)) AS v (a)"
    text = f'send\nQuery {{"query": "COPY (SELECT a, \'=\' || a FROM {values}) TO STDOUT"}}\n----\n\n'
    rows = "".join(f'CopyData "{a}\\t={a}\\n"\n' for a in ("<t1>", "<t2>", "<t1>", "17000000000001", "5"))
    columns = 'CopyOut {"format":"text","column_formats":["text","text"]}\n'
    text += "until times\nCopyDone\n----\n" + columns + rows + "CopyDone\n"
    text += (
        '\nsend conn=other\nQuery {"query": "SELECT 1700000000001"}\n----\n\nuntil times conn=other\nDataRow\n----\n'
    )
    scripts.passes(text + 'RowDescription {"fields":[{"name":"?column?"}]}\nDataRow {"fields":["<t2>"]}\n')


def test_a_running_query_is_cancelled(scripts: Scripts) -> None:
    query = "DO $$BEGIN RAISE NOTICE 'begun'; PERFORM pg_sleep(60); END$$"
    text = f'send\nQuery {{"query": "{query}"}}\n----\n\n'
    text += "until no_error_fields\nNoticeResponse\n----\n" + 'NoticeResponse {"fields":[]}\n'
    canceled = (
        'ErrorResponse {"fields":[{"typ":"S","value":"ERROR"},{"typ":"C","value":"57014"},'
        '{"typ":"M","value":"canceling statement due to user request"}]}\nReadyForQuery {"status":"I"}\n'
    )
    scripts.passes(text + "\ncancel\n----\n\nuntil\nReadyForQuery\n----\n" + canceled)


def test_a_missing_answer_times_out(scripts: Scripts) -> None:
    [failure] = scripts.run(SELECT + "until\nDataRow\nDataRow\n----\n", timeout_s=0.2)
    assert "within 0.2 s" in failure.message or "differs" in failure.message
    assert 'DataRow {"fields":["1"]}' in failure.message


def test_a_closed_connection_fails(scripts: Scripts) -> None:
    text = 'send\nQuery {"query": "SELECT pg_terminate_backend(pg_backend_pid())"}\n----\n\n'
    [failure] = scripts.run(text + UNTIL)
    assert "closed the connection" in failure.message
    assert '"57P01"' in failure.message


def test_a_refused_connection_fails(scripts: Scripts) -> None:
    [failure] = scripts.run("send cluster=quickstart\nSync\n----\n")  # PostgreSQL has no such parameter
    assert "refused the connection" in failure.message
    scripts.url = "postgres://nobody@127.0.0.1:1/x"
    [failure] = scripts.run("send\nSync\n----\n")
    assert "refused" in failure.message


@pytest.mark.parametrize(
    "line",
    ["Nothing", "Query", 'Query {"query": 1}', 'Query {"query": ""', 'Bind {"x": 1}', 'Describe {"variant": "X"}'],
)
def test_messages_that_cannot_be_encoded(scripts: Scripts, line: str) -> None:
    [failure] = scripts.run(f"send\n{line}\n----\n")
    assert failure.message.startswith("cannot send")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("\nsend\nSync\n", 2),
        ("receive\n----\n", 1),
        ("send ignore=X\n----\n", 1),
        ("until ignore=(X\n----\n\nuntil =\n----\n", 4),
        ("until mask_numbers=x\n----\n", 1),
        ("cancel\nSync\n----\n", 1),
        ("until\n----\n----\nx\n", 1),
    ],
)
def test_ill_formed_scripts_name_their_line(scripts: Scripts, text: str, line: int) -> None:
    with pytest.raises(ParseError) as error:
        parse(text)
    assert error.value.line == line
    [failure] = scripts.run(text)
    assert failure.line == line


def test_fenced_output_may_contain_blank_lines() -> None:
    text = "until\nX\n----\n----\na\n\nb\n----\n----\n\nuntil conn=c\nY\n----\nz"
    first, second = parse(text)
    assert first.expected == ("a", "", "b")
    assert (second.line, second.expected, second.arguments) == (11, ("z",), {"conn": ["c"]})
    assert text.encode()[first.output.start : first.output.end].decode() == "\n----\na\n\nb\n----\n----"


def test_rewriting_writes_the_answers_into_the_script(scripts: Scripts) -> None:
    right = "# é\n" + SELECT + UNTIL + ANSWER + "\n# tail\n" + ERROR + "until no_error_fields\nErrorResponse\n----\n"
    right += 'ErrorResponse {"fields":[]}\n'
    wrong = right.replace(ANSWER, "").replace('"fields":[]', "")
    scripts.path.write_text(wrong)
    assert run_file(scripts.path, Options(url=scripts.url, rewrite=True)) == []
    assert scripts.path.read_text() == right


@pytest.mark.parametrize(
    ("type_", "body", "line"),
    [
        (
            b"D",
            b"\0\3" + b"\0\0\0\2hi" + b"\xff\xff\xff\xff" + b"\0\0\0\1\xff",
            'DataRow {"fields":["hi","NULL","[255]"]}',
        ),
        (b"d", "é\n".encode(), 'CopyData "é\\n"'),
        (b"G", b"\1\0\2\0\1\0\1", 'CopyIn {"format":"binary","column_formats":["binary","binary"]}'),
        (b"t", b"\0\2" + struct.pack("!II", 25, 4_000_000_000), 'ParameterDescription {"parameters":[25,4000000000]}'),
        (b"3", b"", "UNKNOWN '3'"),
        (b"A", b"\0\0\0\1x\0y\0", "UNKNOWN 'A'"),
        (b"s", b"", "PortalSuspended"),
        (b"c", b"", "CopyDone"),
    ],
)
def test_messages_are_printed(type_: bytes, body: bytes, line: str) -> None:
    assert printed(decode(type_, body)) == line


def test_masks_keep_short_numbers() -> None:
    message = decode(b"d", b"12 1234")
    mask = lambda value: re.sub("[0-9]{3,}", "<number>", value)
    assert printed(message, shown_value=mask) == 'CopyData "12 <number>"'


def test_frontend_messages() -> None:
    assert encode("Sync", {}) == b"S\0\0\0\4"
    assert encode("Execute", {"portal": "p", "max_rows": 5}) == b"E\0\0\0\x0ap\0\0\0\0\5"
    assert encode("Parse", {"query": "é"}) == b"P\0\0\0\x0a\0" + "é".encode() + b"\0\0\0"
    assert encode("CopyData", {"data": "x\n"}) == b"d\0\0\0\6x\n"
    assert encode("CopyFail", {"data": "no"}) == b"f\0\0\0\7no\0"
    bound = encode("Bind", {"values": ["a", None], "result_formats": [1]})
    assert bound[5:] == b"\0\0" + b"\0\0" + b"\0\2" + b"\0\0\0\1a" + b"\xff\xff\xff\xff" + b"\0\1\0\1"
