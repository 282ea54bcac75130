"""`.td` scripts on a real PostgreSQL: what passes, what fails, retries, variables, and the command line."""

from __future__ import annotations

import bz2
import gzip
import lzma
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import psycopg
import pytest

from testdrive import Options, run_file

pytestmark = pytest.mark.slow


SHORT_S = 1.0  # how long an expected failure is retried; on a busy machine, a statement can take a part of this


class Scripts:
    """Runs texts as `.td` files in a schema of their own, without a reset. Expected failures have short timeouts."""

    def __init__(self, url: str, directory: Path, schema: str) -> None:
        self.url = f"{url}?options=-csearch_path%3D{schema}"
        self.directory = directory

    def options(self, timeout_s: float, **variables: str) -> Options:
        return Options(self.url, variables, default_timeout_s=timeout_s, reset=False)

    def write(self, text: str) -> Path:
        path = self.directory / "script.td"
        path.write_text(text)
        return path

    def passes(self, text: str, **variables: str) -> None:
        failures = run_file(self.write(text), self.options(30, **variables))
        assert not failures, str(failures[0])

    def fails(self, text: str, line: int, *parts: str, **variables: str) -> str:
        [failure] = run_file(self.write(text), self.options(SHORT_S, **variables))
        assert failure.line == line, str(failure)
        for part in parts:
            assert part in failure.message
        return failure.message


@pytest.fixture
def scripts(postgres: str, tmp_path: Path) -> Scripts:
    schema = "testdrive_runner"
    with psycopg.connect(postgres, autocommit=True, options="-cclient_min_messages=warning") as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        connection.execute(f"CREATE SCHEMA {schema}")
    return Scripts(postgres, tmp_path, schema)


TABLE = "> CREATE TABLE t (a int, b text)\n> INSERT INTO t VALUES (1, 'one'), (2, 'two words'), (3, NULL)\n"


def test_rows_are_compared_in_any_order(scripts: Scripts) -> None:
    scripts.passes(TABLE + '> SELECT a, b FROM t ORDER BY a\n3 <null>\n2 "two words"\n1 one\n')


def test_column_names_are_compared_if_given(scripts: Scripts) -> None:
    scripts.passes(TABLE + '> SELECT a, b AS "B c" FROM t WHERE a = 1\na "B c"\n---\n1 one\n')
    scripts.fails("> SELECT 1 AS a\nb\n---\n1", 1, "-b\n", "+a\n")


@pytest.mark.parametrize(
    "rows", ["1 one", '1 one\n2 "two words"', '1 one\n2 "two words"\n3 <null>\n3 <null>', '1 one\n2 two\n3 ""', ""]
)
def test_wrong_rows_fail(scripts: Scripts, rows: str) -> None:
    scripts.fails(TABLE + f"> SELECT a, b FROM t\n{rows}\n", 3, "the answer differs")


def test_the_difference_is_shown_line_by_line(scripts: Scripts) -> None:
    message = scripts.fails(TABLE + "> SELECT a, b FROM t\n1 one\n2 two\n3 <null>", 3)
    assert message.splitlines()[4:] == [" 1 one", "-2 two", '+2 "two words"', " 3 <null>"]


def test_the_first_failure_ends_the_file(scripts: Scripts) -> None:
    scripts.fails(TABLE + "> SELECT 1\n2\n> DELETE FROM t\n", 3)
    scripts.passes("> SELECT count(*) FROM t\n3")


def test_a_hash_counts_rows(scripts: Scripts) -> None:
    # the MD5 of the concatenated values "1" "one" "2" "two words" "3" "<null>"
    hashed = "3 values hashing to ccd366dd5d8ee3eb9b9e39136094a2c4"
    query = TABLE + "> SELECT a, b FROM t\n"
    message = scripts.fails(query + "3 values hashing to 00000000000000000000000000000000", 3)
    assert message.splitlines()[-1] == f"+{hashed}"
    scripts.passes(f"> SELECT a, b FROM t\n{hashed}")


def test_text_queries(scripts: Scripts) -> None:
    text = "? SELECT E'one\\n\\n  three\\n'\n"
    scripts.passes(text + "one\n\n  three\n\n> SELECT 1\n1")
    scripts.fails(text + "one\n  three", 1, "+\n")
    scripts.fails("? SELECT 1, 2\n1", 1, "one row of one column")


@pytest.mark.parametrize(
    "match",
    [
        "contains:does not exist",
        'exact:relation "missing" does not exist',
        "regex:^relation .missing. does\nhint:",
    ],
)
def test_errors_match(scripts: Scripts, match: str) -> None:
    scripts.passes(f"! SELECT * FROM missing\n{match}")


@pytest.mark.parametrize(
    "match", ["contains:exists", "exact:does not exist", "regex:^does", "contains:missing\nhint:x"]
)
def test_another_error_fails(scripts: Scripts, match: str) -> None:
    scripts.fails(f"! SELECT * FROM missing\n{match}", 1, "another error, 42P01", '+exact:relation "missing"')


def test_details_and_hints_match(scripts: Scripts) -> None:
    raising = "! DO $$BEGIN RAISE 'no' USING DETAIL = 'The detail.', HINT = 'The hint.'; END$$\ncontains:no\n"
    scripts.passes(raising + "hint:hint\ndetail:The detail")
    scripts.fails(raising + "detail:another", 1, "-detail:another", "+detail:The detail.", "+hint:The hint.")


def test_an_invalid_regex_fails(scripts: Scripts) -> None:
    scripts.fails("! SELECT * FROM missing\nregex:(", 1, "not a regular expression")


def test_success_fails_if_an_error_is_expected(scripts: Scripts) -> None:
    scripts.fails("! SELECT 1\ncontains:x", 1, "succeeded")


def test_an_error_fails_if_rows_are_expected(scripts: Scripts) -> None:
    scripts.fails("> SELECT * FROM missing\n", 1, 'error 42P01: relation "missing" does not exist')


def test_copy_is_refused_as_a_query(scripts: Scripts) -> None:
    scripts.fails("> COPY (SELECT 1) TO STDOUT\n", 1, "psql-execute")


def test_statements_that_exceed_the_timeout(scripts: Scripts) -> None:
    scripts.passes("$ set-sql-timeout duration=50ms force\n! SELECT pg_sleep(60)\ntimeout\n> SELECT 1\n1")
    scripts.fails("> SELECT pg_sleep(60)\n", 1, "did not end within 1 s")
    scripts.fails("! SELECT 1\ntimeout", 1, "must still run")


def test_a_timeout_keeps_the_session(scripts: Scripts) -> None:
    scripts.passes(
        "> CREATE TEMPORARY TABLE mine (a int)\n$ set-sql-timeout duration=50ms force\n! SELECT pg_sleep(60)\ntimeout\n"
        "$ set-sql-timeout duration=default\n> SELECT * FROM mine\n"
    )


def test_a_query_is_retried_until_it_matches(scripts: Scripts) -> None:
    scripts.passes("> CREATE SEQUENCE s\n> SELECT nextval('s') >= 4\ntrue")
    scripts.passes("! SELECT 1 / (8 - nextval('s'))\ncontains:division by zero")


def test_a_query_is_retried_until_another_connection_commits(scripts: Scripts) -> None:
    def insert_after_three_tries() -> None:
        with psycopg.connect(scripts.url, autocommit=True) as connection:
            tries = 0
            while tries < 3:
                [tries] = connection.execute("SELECT last_value FROM tries").fetchone() or [0]
            connection.execute("INSERT INTO t VALUES (4, 'four')")

    scripts.passes(TABLE + "> CREATE SEQUENCE tries\n")
    other = threading.Thread(target=insert_after_three_tries)
    other.start()
    try:
        scripts.passes("> SELECT t.b, nextval('tries') > 3 FROM t WHERE a IN (1, 4)\none true\nfour true")
    finally:
        other.join()


@pytest.mark.parametrize(
    "text",
    [
        "> EXPLAIN SELECT 1\nplan",
        "> SET application_name = nextval('s')\n",
        "> CREATE TABLE u AS SELECT nextval('s') AS a\nwrong",
        "! ROLLBACK\ncontains:another",
        "! SELEKT\ncontains:another",
    ],
)
def test_some_statements_are_not_retried(scripts: Scripts, text: str) -> None:
    scripts.passes("> CREATE SEQUENCE s")
    assert run_file(scripts.write(text), scripts.options(300))  # a second try would exceed the time limit of the test


def test_fetch_is_retried_until_it_matches(scripts: Scripts) -> None:
    scripts.passes("> BEGIN\n> DECLARE c CURSOR FOR SELECT generate_series(1, 9)\n> FETCH 1 c\n4\n> FETCH 2 c\n5\n6")


def test_rewriting_keeps_the_first_answer_of_a_fetch(scripts: Scripts) -> None:
    path = scripts.write("> BEGIN\n> DECLARE c CURSOR FOR SELECT generate_series(1, 9)\n> FETCH 2 c\n7\n")
    assert run_file(path, replace(scripts.options(300), rewrite=True)) == []
    assert path.read_text().endswith("> FETCH 2 c\n1\n2\n")


def test_a_failed_transaction_block_is_not_retried(scripts: Scripts) -> None:
    [failure] = run_file(scripts.write("> BEGIN\n> SELECT * FROM missing\n"), scripts.options(300))
    assert "42P01" in failure.message


def test_variables_are_replaced_when_a_command_runs(scripts: Scripts) -> None:
    scripts.passes(
        """
$ set-arg-default a=ignored b=two
$ set name=t1 c=${arg.a}-${arg.b}
$ set lines
one
\\  two ${c}
$ set-from-sql var=d
SELECT '${name}'::text || 'd'
> SELECT '${arg.a}', '${c}', '${d}', '${testdrive.seed}' <> ''
${arg.a} one-two t1d true
? SELECT '${lines}'
one
  two one-two
! SELECT '${c}.'::int
regex:"${c}\\."
""",
        a="one",
    )
    scripts.fails("> SELECT '${nothing}'\n", 1, "variable ${nothing} is not set")


def test_variables_in_a_regex_are_literal(scripts: Scripts) -> None:
    scripts.fails("! SELECT 'abc'::int\nregex:${arg.x}", 1, x="a.c")
    scripts.passes("! SELECT 'abc'::int\nregex:a.c")


def test_set_regex_replaces_parts_that_differ_between_runs(scripts: Scripts) -> None:
    scripts.passes(
        r"""
$ set-regex match=\d{4}-\d\d-\d\d replacement=<date>
> SELECT current_date::text || '!'
<date>!
! SELECT (current_date || 'x')::date
contains:"<date>x"
$ set-regex match="(\w+)@(\w+)" replacement="$2 at $1"
> SELECT 'a@b'
"b at a"
$ set-regex match=o+
> SELECT 'foo'
f<regex_match>
$ unset-regex
> SELECT 'foo'
foo
"""
    )


def test_a_timeout_below_the_default_needs_force(scripts: Scripts) -> None:
    scripts.fails("$ set-sql-timeout duration=10ms\n> SELECT pg_sleep(60)\n", 2, "within 1 s")
    scripts.fails("$ set-sql-timeout duration=10ms force\n> SELECT pg_sleep(60)\n", 2, "within 0.01 s")
    scripts.fails(
        "$ set-sql-timeout duration=1m\n$ set-sql-timeout duration=default\n> SELECT pg_sleep(60)\n", 3, "within 1 s"
    )


def test_skipping(scripts: Scripts) -> None:
    skip = "$ skip-if\nSELECT {}\n> SELECT 1\n2\n"
    scripts.passes(skip.format("true"))
    scripts.passes(skip.format("1 = 1") + "$ skip-end\n> SELECT 1\n1")
    scripts.fails(skip.format("true") + "$ skip-end\n> SELECT 1\n3", 6)
    scripts.fails(skip.format("false"), 3)
    scripts.fails(skip.format("1"), 1, "needs a boolean")


def test_version_guards_need_a_server_with_a_version(scripts: Scripts) -> None:
    scripts.passes(">[version>=100] SELECT 1\n2\n$[version<100] no-such-action")
    scripts.passes("> CREATE FUNCTION mz_version_num() RETURNS int LANGUAGE sql AS 'SELECT 2601700'")
    scripts.passes(">[version<2601700] SELECT 1\n2\n>[2601700<=version] SELECT 1\n1")
    scripts.fails(">[version=2601700] SELECT 1\n2", 1)


def test_other_connections(scripts: Scripts) -> None:
    scripts.passes(
        """
$ postgres-connect name=other url=${testdrive.url}
$ postgres-execute connection=other
BEGIN
CREATE TABLE
  t (a int)
INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)
! SELECT * FROM t
contains:does not exist
$ postgres-execute connection=other
COMMIT
$ postgres-execute connection=${testdrive.url}
INSERT INTO t VALUES (3)
> SELECT a FROM t
1
2
3
"""
    )
    scripts.fails("$ postgres-execute connection=${testdrive.url}\nSELECT 1\nSELEKT", 1, "42601")
    scripts.fails("$ postgres-execute connection=nobody\nSELECT 1", 1, "no connection nobody")


def test_psql(scripts: Scripts) -> None:
    scripts.passes(
        TABLE
        + '$ psql-execute command="SELECT a, b FROM t WHERE a < 3 ORDER BY a"\n'
        + "\\ a |     b\n---+-----------\n 1 | one\n 2 | two words\n"
    )
    scripts.passes('$ psql-execute command="COPY (SELECT 1, NULL) TO STDOUT"\n1\t\\N\n')
    patient = "$ set-sql-timeout duration=30s\n"
    scripts.fails(patient + '$ psql-execute command="COPY (SELECT 1) TO STDOUT"\n2\n', 2, "-2\n+1")
    scripts.fails(patient + '$ psql-execute command="SELEKT"\n', 2, "psql ended with code 1", "syntax error")
    slow = '$ set-sql-timeout duration=50ms force\n$ psql-execute command="SELECT pg_sleep(60)"\n'
    scripts.fails(slow, 2, "psql did not end within 0.05 s")


def test_queries_in_the_background(scripts: Scripts) -> None:
    start = "$ postgres-execute connection=${testdrive.url} background=true\n"
    scripts.passes("> CREATE TABLE t (a int)\n" + start + "INSERT INTO t VALUES (1)\n> SELECT a FROM t\n1")
    scripts.passes(start + "SELECT pg_sleep(60)\n> SELECT 1\n1")  # it ends with the file
    failing = "> SELECT 1\n1\n" + start + "INSERT INTO t VALUES (2)\nSELEKT\n> SELECT max(a) FROM t\n2\n"
    scripts.fails(failing + "$ sleep duration=100ms", 3, "42601")
    scripts.fails(
        "$ postgres-connect name=n url=${testdrive.url}\n$ postgres-execute connection=n background=true\nSELECT 1",
        2,
        "need a URL",
    )


def test_files(scripts: Scripts) -> None:
    scripts.passes(
        r"""
$ file-append path=a header="x,y" repeat=2
1,\xc3\xa9
\#2,\\
$ file-append path=a trailing-newline=false
end
$ set-from-file content=a
> SELECT '${content}'
"x,y\n1,é\n#2,\\\n1,é\n#2,\\\nend"
$ file-delete path=a
$ file-append path=a
new
$ set-from-file content=a
> SELECT '${content}'
"new\n"
"""
    )


@pytest.mark.parametrize(("compression", "read"), [("gzip", gzip.open), ("bzip2", bz2.open), ("xz", lzma.open)])
def test_compressed_files(scripts: Scripts, tmp_path: Path, compression: str, read: Any) -> None:
    append = f"$ file-append path=packed compression={compression}\n"
    path = scripts.write(append + "one\n" + append + "two\n")
    assert not run_file(path, replace(scripts.options(1), temp_dir=tmp_path))
    with read(tmp_path / "packed") as file:
        assert file.read() == b"one\ntwo\n"


@pytest.fixture
def web() -> Iterator[tuple[str, list[tuple[str, str, str, bytes]]]]:
    """The address of a web server and the requests that it received. It answers with the status that the path names."""
    requests: list[tuple[str, str, str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            requests.append((self.command, self.path, self.headers.get("Content-Type", ""), body))
            self.send_response(int(self.path[1:]))
            self.end_headers()
            self.wfile.write(b"the answer")

        do_GET = do_POST = do_DELETE = handle_any

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", requests
    server.shutdown()
    thread.join()
    server.server_close()


def test_http_requests(scripts: Scripts, web: tuple[str, list[tuple[str, str, str, bytes]]]) -> None:
    url, requests = web
    request = f"$ http-request method=POST url={url}"
    scripts.passes(f'$ set x=1\n{request}/200 content-type=application/json\n{{"a": ${{x}},\n"b": 2}}')
    scripts.passes(f"{request}/429 accept-additional-status-codes=404,429\n$ http-request method=DELETE url={url}/204")
    assert requests == [
        ("POST", "/200", "application/json", b'{"a": 1,\n"b": 2}'),
        ("POST", "/429", "", b""),
        ("DELETE", "/204", "", b""),
    ]
    scripts.fails(f"{request}/500 accept-additional-status-codes=404", 1, "500", "the answer")


def test_the_number_of_tries_is_bounded(scripts: Scripts) -> None:
    count = "> SELECT nextval('s') > 99\ntrue"
    scripts.passes("> CREATE SEQUENCE s")
    path = scripts.write(f"$ set-max-tries max-tries=3\n{count}")
    assert run_file(path, scripts.options(300))
    assert run_file(scripts.write(count), replace(scripts.options(300), max_tries=2))
    scripts.passes("> SELECT nextval('s')\n6")


def test_unknown_variables_are_kept(scripts: Scripts) -> None:
    scripts.passes("> SELECT '${kafka-ingest.iteration}'\n\\${kafka-ingest.iteration}")


def test_consistency_checks_have_no_effect(scripts: Scripts) -> None:
    scripts.passes('$ skip-consistency-checks reason="none here"\n$ check-consistency\n')


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ("no-such-action", "no action no-such-action"),
        ("sleep", "needs the argument duration"),
        ("sleep duration=1x", "not a duration"),
        ("nop x=1", "nop has no argument x"),
        ("nop\nbody", "takes no lines"),
        ("set a b\nbody", "name of one variable"),
        ("set-regex match=(", "not a regular expression"),
        ("set-from-sql var=x\nSELECT generate_series(1, 2)", "one row of one column"),
        ("set-from-file x=missing", "cannot read missing"),
        ("set-max-tries max-tries=0", "a number from 1"),
        ("random-sleep duration=soon", "not a duration"),
        ("file-append path=../x", "a name in the temp-dir"),
        ("file-append path=x compression=brotli", "compression is one of none, gzip, bzip2, xz"),
        ("file-append path=x trailing-newline=maybe", "true or false"),
        ("file-append path=x repeat=many", "a number from 1"),
        ("file-delete path=missing", "cannot delete"),
        ("http-request method=GET url=file:///x", "begins neither"),
        ("http-request method=GET url=http://127.0.0.1:1/x", "refused"),
    ],
)
def test_misused_actions(scripts: Scripts, action: str, reason: str) -> None:
    scripts.fails(f"$ {action}", 1, reason)


def test_sleep_and_nop(scripts: Scripts) -> None:
    scripts.passes(
        "$ nop\n$ random-sleep duration=1ms\n$ sleep duration=1ms\n"
        "$ sleep-is-probably-flaky-i-have-justified-my-need-with-a-comment duration=1ms\n"
    )


def test_malformed_and_unreadable_scripts_fail(scripts: Scripts) -> None:
    scripts.fails("> SELECT 1\n1\n! SELECT 2\n", 3, "contains:")
    path = scripts.directory / "latin.td"
    path.write_bytes(b"> SELECT 1\n1\n> SELECT '\xe9'\n")
    [failure] = run_file(path, scripts.options(1))
    assert failure.line == 3


def test_a_reset_refuses_other_servers(scripts: Scripts) -> None:
    scripts.passes(TABLE)
    [failure] = run_file(scripts.write(""), Options(url=scripts.url, default_timeout_s=0.2))
    assert "--no-reset" in failure.message
    scripts.passes("> SELECT count(*) FROM t\n3")


def test_rewriting_writes_the_answers_into_the_script(scripts: Scripts) -> None:
    right = (
        TABLE
        + '# rows\n> SELECT a, b FROM t\na b\n---\n1 one\n2 "two words"\n3 <null>\n\n# text\n'
        + "? SELECT E'#x\\n\\ny'\n\\#x\n\ny\n\n"
        + '! SELECT * FROM é\nexact:relation "é" does not exist\n\n'
        + '$ set-sql-timeout duration=30s\n$ psql-execute command="COPY (SELECT 7) TO STDOUT"\n7\n'
    )
    wrong = right.replace("1 one\n", "").replace("\\#x\n\n", "").replace('exact:relation "é"', "contains:another")
    wrong = wrong.replace("\n7", "\n8\n9")
    path = scripts.write(wrong)
    assert run_file(path, replace(scripts.options(0.2), rewrite=True)) == []
    assert path.read_text() == right


def test_an_unreachable_server_is_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "script.td"
    path.write_text("> SELECT 1\n1")
    options = Options(url="postgres://nobody@127.0.0.1:1/x", default_timeout_s=0.05, reset=False)
    [failure] = run_file(path, options)
    assert "refused" in failure.message
    [failure] = run_file(path, Options(url="nonsense", reset=False))
    assert "cannot read the URL" in failure.message


def test_a_url_without_a_database_means_materialize(postgres: str, tmp_path: Path) -> None:
    server = postgres.rpartition("/")[0]  # without a database, libpq would use the user's name
    with psycopg.connect(postgres, autocommit=True) as connection:
        if connection.execute("SELECT 1 FROM pg_database WHERE datname = 'materialize'").fetchone() is None:
            connection.execute("CREATE DATABASE materialize")
    script, wire = tmp_path / "script.td", tmp_path / "script.pt"
    script.write_text(
        "> SELECT current_database()\nmaterialize\n\n"
        f"$ postgres-connect name=other url={server}\n\n"
        "$ postgres-execute connection=other\nSELECT 1 / (current_database() = 'materialize')::int\n\n"
        '$ psql-execute command="COPY (SELECT current_database()) TO STDOUT"\nmaterialize\n'
    )
    wire.write_text(
        'send\nQuery {"query": "SELECT current_database() AS d"}\n----\n\n'
        "until ignore=RowDescription\nReadyForQuery\n----\n"
        'DataRow {"fields":["materialize"]}\nCommandComplete {"tag":"SELECT 1"}\nReadyForQuery {"status":"I"}\n'
    )
    for path in (script, wire):
        assert run_file(path, Options(url=server, default_timeout_s=1, reset=False)) == []


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "testdrive", *arguments], capture_output=True, text=True, timeout=60)


def test_the_command(scripts: Scripts, tmp_path: Path) -> None:
    good, bad, wire = tmp_path / "good.td", tmp_path / "bad.td", tmp_path / "wire.pt"
    good.write_text("> SELECT '${arg.x}', ${testdrive.seed}, '${testdrive.temp-dir}'\n1 7 /somewhere\n")
    bad.write_text("\n> SELECT 1\n2\n")
    wire.write_text('send\nQuery {"query": ""}\n----\n\nuntil\nReadyForQuery\n----\nEmptyQueryResponse\n')
    options = ["--url", scripts.url, "--no-reset", "--default-timeout", "500ms", "--var", "x=1", "--seed", "7"]
    options += ["--temp-dir", "/somewhere"]

    passed = command(*options, good)
    assert (passed.returncode, passed.stderr) == (0, "")
    assert f"ok   {good}" in passed.stdout

    failed = command(*options, bad, good, wire)
    assert failed.returncode == 1
    assert f"FAIL {bad}" in failed.stdout
    assert f"ok   {good}" in failed.stdout
    assert f"{bad}:2: > SELECT 1\nthe answer differs:\n" in failed.stderr
    assert '+ReadyForQuery {"status":"I"}' in failed.stderr

    stopped = command(*options, "--max-errors", "1", bad, good)
    assert stopped.returncode == 1
    assert "good.td" not in stopped.stdout

    assert command(*options, "--rewrite", "--default-max-tries", "1", wire, bad).returncode == 0
    assert bad.read_text() == "\n> SELECT 1\n1\n"
    assert command(*options, wire).returncode == 0


def test_the_command_reports_a_file_that_runs_for_long(scripts: Scripts, tmp_path: Path) -> None:
    slow, wire = tmp_path / "slow.td", tmp_path / "wire.pt"
    slow.write_text('> SELECT 1\n1\n\n> SELECT pg_sleep(0.5)::text\n""\n')
    wire.write_text(
        'send\nQuery {"query": "SELECT pg_sleep(0.5)"}\n----\n\nuntil ignore=RowDescription\nReadyForQuery\n----\n'
    )
    printed = command("--url", scripts.url, "--no-reset", "--still-running", "100ms", slow, wire).stdout.splitlines()
    assert any(line.startswith(f"...  {slow}:4 is still running (") for line in printed)
    assert any(line.startswith(f"...  {wire}:5 is still running (") for line in printed)
    assert printed.index(next(line for line in printed if str(slow) in line)) < printed.index(
        next(line for line in printed if line.startswith(f"ok   {slow}"))
    )
    quick = command("--url", scripts.url, "--no-reset", "--still-running", "1h", slow).stdout
    assert "still running" not in quick


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["missing.td"], "no file missing.td"),
        (["README.md"], "neither in .td nor in .pt"),
        (["--var", "x", "a.td"], "not NAME=VALUE"),
        (["--default-timeout", "30", "a.td"], "not a duration"),
        (["--still-running", "0s", "a.td"], "greater than zero"),
        (["--default-max-tries", "0", "a.td"], "not a number from 1"),
        ([], "FILE"),
    ],
)
def test_the_command_refuses_unreadable_files(arguments: list[str], reason: str) -> None:
    refused = command(*arguments)
    assert refused.returncode == 2
    assert reason in refused.stderr
