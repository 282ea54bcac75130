"""Runs the commands of a `.td` file in order. The first failure ends the file.

A statement whose answer does not match is retried after a pause, which starts at `initial_backoff_s` and grows by
`backoff_factor`, until the statement's timeout has passed since the first try or `max_tries` is reached. The same
timeout applies to each single try.

Statements that have a different effect when they are repeated are tried once (`_ONCE`), and so is every statement in a
failed transaction block, where only ROLLBACK can succeed. FETCH is retried and then returns the rows after those that
did not match.

Rows are compared as sorted lists, so a script never tests the order of rows within one statement.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from testdrive.actions import perform
from testdrive.client import Result, SqlError, StatementTimeout
from testdrive.parser import Action, Command, FailingQuery, Hashed, Query, Rows, TextQuery, escaped, parse, quoted
from testdrive.report import CommandFailed, Failure, Mismatch, ParseError, Span, decoded, rewritten
from testdrive.script import Options, Script

_FEATURE_NOT_SUPPORTED = "0A000"
_ONCE = re.compile(
    r"\s*(CREATE|DROP|DISCARD|SET|EXPLAIN|ALTER\s+(INDEX|SINK)|ALTER\s+.*\bRENAME)\b", re.IGNORECASE | re.DOTALL
)
_FETCH = re.compile(r"\s*FETCH\b", re.IGNORECASE)
_FAILING_ONCE = re.compile(r"\s*(COMMIT|ROLLBACK)\b", re.IGNORECASE)
_SYNTAX_ERROR, _UNDEFINED_FUNCTION = "42601", "42883"


def run_td(path: Path, options: Options) -> Failure | None:
    """Runs one file. Returns its failure, None if it passed.

    With `options.rewrite`, answers that differ are written into the file and are not failures.
    """
    source = path.read_bytes()
    answers: dict[Span, Sequence[str]] = {}
    failure = None
    with ExitStack() as stack:
        temp_dir = options.temp_dir or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="testdrive-")))
        try:
            commands = parse(decoded(source))
            script = stack.enter_context(closing(Script(options, temp_dir)))
            if options.reset:
                _reset(script)
        except ParseError as error:
            return Failure(path, error.line, "not well formed", str(error))
        except CommandFailed as error:
            return Failure(path, 1, "before the first command", str(error))
        runner = _Runner(script)
        for command in commands:
            try:
                runner.run(command)
            except CommandFailed as error:
                if not (options.rewrite and isinstance(error, Mismatch)):
                    failure = Failure(path, command.location.line, command.location.head, str(error))
                    break
                answers[command.location.body] = error.got
        for background in script.background:
            wrong = background.end()
            if wrong is not None and failure is None:
                failure = Failure(path, background.line, "in the background", str(wrong))
    if answers:
        path.write_bytes(rewritten(source, answers))
    return failure


def _reset(script: Script) -> None:
    """Drops all databases, creates an empty `materialize` and resets the system settings.

    SHOW DATABASES runs first, so nothing has been dropped if the server is of another kind and rejects it.
    """
    try:
        databases = script.client.query("SHOW DATABASES", script.timeout_s)
        try:
            script.client.query("ALTER SYSTEM RESET ALL", script.timeout_s)
        except SqlError as error:
            if error.sqlstate != _FEATURE_NOT_SUPPORTED:
                raise  # 0A000: the server has no system settings
        for name, *_ in databases.rows:
            identifier = '"' + name.replace('"', '""') + '"'
            script.client.query(f"DROP DATABASE {identifier} CASCADE", script.timeout_s)
        script.client.query("CREATE DATABASE materialize", script.timeout_s)
    except CommandFailed as error:
        raise CommandFailed(f"cannot reset the server (--no-reset leaves it as it is): {error}") from error


class _Runner:
    def __init__(self, script: Script) -> None:
        self.script = script
        self._version: int | None = None

    def run(self, command: Command) -> None:
        ends_skip = isinstance(command, Action) and command.name == "skip-end"
        if (self.script.skipping and not ends_skip) or not self._admitted(command):
            return
        self.script.line = command.location.line
        self.script.options.at_line(command.location.line)
        match command:
            case Action():
                perform(self.script, command)
            case Query(sql=sql, expected=expected):
                self._query(self.script.substitute(sql), expected)
            case TextQuery(sql=sql, expected=expected):
                self._text_query(self.script.substitute(sql), self.script.substitute("\n".join(expected)).split("\n"))
            case FailingQuery():
                self._failing(self.script.substitute(command.sql), command)

    def _admitted(self, command: Command) -> bool:
        """Returns whether the server's version satisfies the command's guard; False if the server has no version."""
        if command.location.guard is None:
            return True
        if self._version is None:
            try:
                result = self.script.client.query("SELECT mz_version_num()", self.script.timeout_s)
                self._version = int(result.rows[0][0])
            except SqlError as error:
                if error.sqlstate != _UNDEFINED_FUNCTION:
                    raise
                return False
        return command.location.guard.admits(self._version)

    def _query(self, sql: str, expected: Rows | Hashed) -> None:
        columns: tuple[str, ...] | None = None
        if isinstance(expected, Rows):
            substituted = [tuple(map(self.script.substitute, row)) for row in expected.rows]
            if expected.columns is not None:
                columns = tuple(map(self.script.substitute, expected.columns))
            wanted = _shown(columns, sorted(substituted))
        else:
            wanted = [f"{expected.count} values hashing to {expected.md5}"]

        def attempt() -> None:
            result = self._result(sql)
            named = result.columns if columns is not None else None
            got = [_hashed(result.rows)] if isinstance(expected, Hashed) else _shown(named, result.rows)
            if got != wanted:
                raise Mismatch(wanted, got)

        # With rewrite, the first answer of a FETCH is recorded: a retry would return later rows, finally none.
        reads_on = self.script.options.rewrite and _FETCH.match(sql)
        self._retry(attempt, once=bool(_ONCE.match(sql) or reads_on))

    def _text_query(self, sql: str, wanted: list[str]) -> None:
        def attempt() -> None:
            rows = self._result(sql).rows
            if len(rows) != 1 or len(rows[0]) != 1:
                raise CommandFailed(f"? needs one row of one column, not {_shown(None, rows)}")
            got = rows[0][0].rstrip().split("\n")
            if got != wanted:
                raise Mismatch(wanted, [escaped(line) for line in got])

        self._retry(attempt, once=bool(_ONCE.match(sql)))

    def _failing(self, sql: str, command: FailingQuery) -> None:
        quote: Callable[[str], str] = re.escape if command.how == "regex" else str
        wanted = self.script.substitute(command.text, quote)
        try:
            pattern = re.compile(wanted if command.how == "regex" else "")
        except re.error as error:
            raise CommandFailed(f"not a regular expression: {error}") from error
        more = {
            field: self.script.substitute(text)
            for field, text in (("detail", command.detail), ("hint", command.hint))
            if text is not None
        }
        expected = [f"{command.how}:{wanted}", *(f"{field}:{text}" for field, text in more.items())]

        def attempt() -> None:
            try:
                self.script.client.query(sql, self.script.timeout_s)
            except SqlError as error:
                got = {name: self.script.masked(getattr(error, name)) for name in ("message", "detail", "hint")}
                matches = {
                    "contains": wanted in got["message"],
                    "exact": wanted == got["message"],
                    "regex": pattern.search(got["message"]) is not None,
                }
                if matches[command.how] and all(text in got[field] for field, text in more.items()):
                    return
                shown = [f"exact:{got['message']}", *(f"{f}:{got[f]}" for f in ("detail", "hint") if got[f])]
                reason = f"another error, {error.sqlstate or 'no connection'}"
                raise Mismatch(expected, shown, reason, final=error.sqlstate == _SYNTAX_ERROR) from error
            raise CommandFailed("the statement succeeded, but must fail with\n" + "\n".join(expected))

        if command.how != "timeout":
            self._retry(attempt, once=bool(_ONCE.match(sql) or _FAILING_ONCE.match(sql)))
            return
        try:
            self.script.client.query(sql, self.script.timeout_s)
        except StatementTimeout:
            return
        raise CommandFailed(f"the statement ended, but must still run after {self.script.timeout_s:g} s")

    def _result(self, sql: str) -> Result:
        result = self.script.client.query(sql, self.script.timeout_s)
        rows = [tuple(map(self.script.masked, row)) for row in result.rows]
        return Result(result.columns, sorted(rows))

    def _retry(self, attempt: Callable[[], None], *, once: bool) -> None:
        options, script = self.script.options, self.script
        deadline, pause_s = time.monotonic() + script.timeout_s, options.initial_backoff_s
        for tries in itertools.count(1):
            try:
                attempt()
                return
            except CommandFailed as error:
                left_s = deadline - time.monotonic()
                last = once or error.final or left_s <= 0 or tries == script.max_tries
                if last or script.client.in_failed_transaction:
                    raise
            time.sleep(min(pause_s, left_s))
            pause_s *= options.backoff_factor


def _shown(columns: Sequence[str] | None, rows: Sequence[Sequence[str]]) -> list[str]:
    """Formats rows as in a script, one line each."""
    lines = [] if columns is None else [" ".join(map(quoted, columns)), "---"]
    return lines + [escaped(" ".join(map(quoted, row))) for row in rows]


def _hashed(rows: Sequence[Sequence[str]]) -> str:
    """Formats the number of rows and the md5 of their concatenated values. `rows` are sorted."""
    digest = hashlib.md5("".join(value for row in rows for value in row).encode(), usedforsecurity=False)
    return f"{len(rows)} values hashing to {digest.hexdigest()}"
