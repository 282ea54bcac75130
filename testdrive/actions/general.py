"""The actions that need no other system than the server, the file system and the network."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from testdrive.actions.registered import Arguments, action, positive
from testdrive.client import with_database
from testdrive.escapes import unescaped
from testdrive.report import CommandFailed, Mismatch
from testdrive.script import Background, Script, seconds


@action("nop")
def nop(script: Script, arguments: Arguments, body: list[str]) -> None:
    """Does nothing."""


@action("check-consistency", "skip-consistency-checks", optional=None)
def consistency_checks(script: Script, arguments: Arguments, body: list[str]) -> None:
    """Does nothing: the checks concern Materialize's internals, which a client cannot observe."""


@action("set", optional=None, has_body=True)
def set_(script: Script, arguments: Arguments, body: list[str]) -> None:
    """`set k=v ...`, or `set name` with the value in the body: sets variables."""
    if body:
        if len(arguments) != 1 or any(arguments.values()):
            raise CommandFailed("set with lines below it takes the name of one variable and nothing else")
        arguments = dict.fromkeys(arguments, "\n".join(body))
    script.variables |= arguments


@action("set-arg-default", optional=None)
def set_arg_default(script: Script, arguments: Arguments, body: list[str]) -> None:
    """`k=v`: sets `arg.k` unless it is set."""
    script.variables = {f"arg.{name}": value for name, value in arguments.items()} | script.variables


@action("set-from-sql", required="var", has_body=True)
def set_from_sql(script: Script, arguments: Arguments, body: list[str]) -> None:
    script.variables[arguments["var"]] = _one_value(script, body)


@action("set-from-file", optional=None)
def set_from_file(script: Script, arguments: Arguments, body: list[str]) -> None:
    """`name=path`: sets a variable to the text of a file. Paths are relative to the temp-dir."""
    for name, path in arguments.items():
        try:
            script.variables[name] = (script.temp_dir / path).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CommandFailed(f"cannot read {path}: {error}") from error


@action("set-regex", required="match", optional="replacement")
def set_regex(script: Script, arguments: Arguments, body: list[str]) -> None:
    """Replaces matches in all later results. The replacement may contain $1, $2, ... for groups of the match."""
    replacement = arguments.get("replacement", "<regex_match>").replace("\\", r"\\")
    try:
        script.regex = re.compile(arguments["match"]), re.sub(r"\$(\d+)", r"\\g<\1>", replacement)
    except re.error as error:
        raise CommandFailed(f"not a regular expression: {error}") from error


@action("unset-regex")
def unset_regex(script: Script, arguments: Arguments, body: list[str]) -> None:
    script.regex = None


@action("set-sql-timeout", required="duration", optional="force")
def set_sql_timeout(script: Script, arguments: Arguments, body: list[str]) -> None:
    """Sets the timeout to a duration or to `default`. A duration below the default needs `force`."""
    default_s = script.options.default_timeout_s
    timeout_s = default_s if arguments["duration"] == "default" else _seconds(arguments["duration"])
    script.timeout_s = timeout_s if "force" in arguments else max(timeout_s, default_s)


@action("set-max-tries", required="max-tries")
def set_max_tries(script: Script, arguments: Arguments, body: list[str]) -> None:
    """Sets the maximum number of tries of a statement. Its timeout still applies."""
    script.max_tries = positive("max-tries", arguments["max-tries"])


@action("skip-if", has_body=True)
def skip_if(script: Script, arguments: Arguments, body: list[str]) -> None:
    """Runs a query for one boolean. If it is true, skips to `skip-end` or the end of the file."""
    value = _one_value(script, body)
    if value not in ("true", "false"):
        raise CommandFailed(f"skip-if needs a boolean, not {value}")
    script.skipping = value == "true"


@action("skip-end")
def skip_end(script: Script, arguments: Arguments, body: list[str]) -> None:
    script.skipping = False


@action("sleep", "sleep-is-probably-flaky-i-have-justified-my-need-with-a-comment", required="duration")
def sleep(script: Script, arguments: Arguments, body: list[str]) -> None:
    time.sleep(_seconds(arguments["duration"]))


@action("random-sleep", required="duration")
def random_sleep(script: Script, arguments: Arguments, body: list[str]) -> None:
    """Sleeps for a random time up to the duration."""
    time.sleep(random.uniform(0, _seconds(arguments["duration"])))


@action("postgres-connect", required="name url")
def postgres_connect(script: Script, arguments: Arguments, body: list[str]) -> None:
    name = arguments["name"]
    if name in script.clients:
        raise CommandFailed(f"there is already a connection {name}")
    script.clients[name] = script.connection(arguments["url"])
    script.clients[name].simple("SELECT 1", script.timeout_s)


@action("postgres-execute", required="connection", optional="background", has_body=True)
def postgres_execute(script: Script, arguments: Arguments, body: list[str]) -> None:
    """Sends each line of the body, with the following lines that start with two spaces, as one simple Query.

    With `background` the script does not wait. A query that has failed by the end of the file fails the file.
    """
    queries: list[str] = []
    for line in body:
        if queries and line.startswith("  "):
            queries[-1] += f"\n{line[2:]}"
        else:
            queries.append(line)
    connection = arguments["connection"]
    named = script.clients.get(connection)
    if named is None and not connection.startswith(("postgres://", "postgresql://")):
        raise CommandFailed(f"there is no connection {connection}: open it with $ postgres-connect")
    client = named or script.connection(connection)
    if arguments.get("background", "false") != "false":
        if named is not None:
            raise CommandFailed("queries in the background need a URL, not the name of a connection")
        script.background.append(Background(script.line, client, queries, script.timeout_s))
        return
    try:
        for query in queries:
            client.simple(query, script.timeout_s)
    finally:
        if named is None:
            client.close()


@action("psql-execute", required="command", has_body=True)
def psql_execute(script: Script, arguments: Arguments, body: list[str]) -> None:
    """Runs psql. Its output without footer, blank lines and trailing spaces must equal the body."""
    options = [
        "--no-psqlrc",
        "--pset=footer=off",
        f"--command={arguments['command']}",
        with_database(script.options.url),
    ]
    try:
        ended = subprocess.run(["psql", *options], capture_output=True, text=True, timeout=script.timeout_s)
    except FileNotFoundError:
        raise CommandFailed("psql is not on the PATH") from None
    except subprocess.TimeoutExpired:
        raise CommandFailed(f"psql did not end within {script.timeout_s:g} s") from None
    if ended.returncode:
        raise CommandFailed(f"psql ended with code {ended.returncode}: {ended.stderr.strip()}")
    got = [script.masked(line.rstrip()) for line in ended.stdout.splitlines() if line.strip()]
    expected = [line.rstrip() for line in body]
    if got != expected:
        raise Mismatch(expected, got)


@action("http-request", required="method url", optional="content-type accept-additional-status-codes", has_body=True)
def http_request(script: Script, arguments: Arguments, body: list[str]) -> None:
    """Sends the body. The response's status must be 200 to 299 or one of the additional codes (comma-separated)."""
    additional = arguments.get("accept-additional-status-codes", "").split(",")
    headers = {"Content-Type": arguments["content-type"]} if "content-type" in arguments else {}
    data = "\n".join(body).encode() if body else None
    try:
        if not re.match("https?://", arguments["url"]):
            raise ValueError("the URL begins neither with http:// nor with https://")
        request = urllib.request.Request(arguments["url"], data, headers, method=arguments["method"])
        with urllib.request.urlopen(request, timeout=script.timeout_s) as response:
            response.read()
    except urllib.error.HTTPError as error:
        with error:
            text = error.read().decode(errors="replace")
        if str(error.code) not in map(str.strip, additional):
            raise CommandFailed(f"{error.code} {error.reason}:\n{text}") from error
    except (OSError, ValueError) as error:
        raise CommandFailed(f"cannot send the request: {error}") from error


_COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}


@action("file-append", required="path", optional="compression header trailing-newline repeat", has_body=True)
def file_append(script: Script, arguments: Arguments, body: list[str]) -> None:
    """Appends the header, then `repeat` times the lines, to a file in the temp-dir. Escapes: `testdrive.escapes`."""
    path = _file(script, arguments["path"])
    compression = arguments.get("compression", "none")
    if compression not in _COMPRESSORS:
        raise CommandFailed(f"compression is one of {', '.join(_COMPRESSORS)}, not {compression}")
    newline = arguments.get("trailing-newline", "true")
    if newline not in ("true", "false"):
        raise CommandFailed(f"trailing-newline is true or false, not {newline}")
    lines = [unescaped(line) for line in body] * positive("repeat", arguments.get("repeat", "1"))
    header = [arguments["header"].encode()] if "header" in arguments else []
    data = b"\n".join([*header, *lines]) + (b"\n" if newline == "true" else b"")
    try:
        with path.open("ab") as file:
            file.write(_COMPRESSORS[compression](data))
    except OSError as error:
        raise CommandFailed(f"cannot write {path}: {error}") from error


@action("file-delete", required="path")
def file_delete(script: Script, arguments: Arguments, body: list[str]) -> None:
    path = _file(script, arguments["path"])
    try:
        path.unlink()
    except OSError as error:
        raise CommandFailed(f"cannot delete {path}: {error}") from error


def _file(script: Script, name: str) -> Path:
    if name in ("", ".", "..") or "/" in name:
        raise CommandFailed(f"a file's path is a name in the temp-dir, not {name!r}")
    return script.temp_dir / name


def _one_value(script: Script, body: list[str]) -> str:
    result = script.client.query("\n".join(body), script.timeout_s)
    if len(result.rows) != 1 or len(result.columns) != 1:
        raise CommandFailed(f"needs one row of one column, not {len(result.rows)} of {len(result.columns)}")
    return result.rows[0][0]


def _seconds(duration: str) -> float:
    try:
        return seconds(duration)
    except ValueError as error:
        raise CommandFailed(str(error)) from error
