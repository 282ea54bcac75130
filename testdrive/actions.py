"""The `$` actions, one function each, under the name that a script calls it by.

`action` declares the arguments; `perform` refuses unknown and missing ones, replaces variables and calls the function
as `f(script, arguments, body)`. An action either does its work or raises CommandFailed.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

from testdrive.client import Client
from testdrive.parser import Action
from testdrive.report import CommandFailed, Mismatch
from testdrive.script import Script, seconds

Arguments = dict[str, str]
Function = Callable[[Script, Arguments, list[str]], None]


@dataclass(frozen=True, slots=True)
class Declared:
    """`optional` None: any further argument is taken."""

    function: Function
    required: frozenset[str]
    optional: frozenset[str] | None
    has_body: bool


ACTIONS: dict[str, Declared] = {}


def action(
    *names: str, required: str = "", optional: str | None = "", has_body: bool = False
) -> Callable[[Function], Function]:
    """Register a function under `names`; arguments are given as words in one string."""

    def register(function: Function) -> Function:
        others = None if optional is None else frozenset(optional.split())
        for name in names:
            ACTIONS[name] = Declared(function, frozenset(required.split()), others, has_body)
        return function

    return register


def perform(script: Script, command: Action) -> None:
    declared = ACTIONS.get(command.name)
    if declared is None:
        raise CommandFailed(f"there is no action {command.name}")
    given = command.arguments.keys()
    if missing := declared.required - given:
        raise CommandFailed(f"{command.name} needs the argument {', '.join(sorted(missing))}")
    if declared.optional is not None and (unknown := given - declared.required - declared.optional):
        raise CommandFailed(f"{command.name} has no argument {', '.join(sorted(unknown))}")
    if command.body and not declared.has_body:
        raise CommandFailed(f"{command.name} takes no lines below it")
    arguments = {name: script.substitute(value) for name, value in command.arguments.items()}
    declared.function(script, arguments, [script.substitute(line) for line in command.body])


@action("nop")
def nop(script: Script, arguments: Arguments, body: list[str]) -> None:
    """Nothing: a place to hang a comment or a version guard on."""


@action("set", optional=None, has_body=True)
def set_(script: Script, arguments: Arguments, body: list[str]) -> None:
    """`set k=v ...`, or `set name` with the value in the body."""
    if body:
        if len(arguments) != 1 or any(arguments.values()):
            raise CommandFailed("set with lines below it takes the name of one variable and nothing else")
        arguments = dict.fromkeys(arguments, "\n".join(body))
    script.variables |= arguments


@action("set-arg-default", optional=None)
def set_arg_default(script: Script, arguments: Arguments, body: list[str]) -> None:
    """`k=v`: sets arg.k where the command line did not."""
    script.variables = {f"arg.{name}": value for name, value in arguments.items()} | script.variables


@action("set-from-sql", required="var", has_body=True)
def set_from_sql(script: Script, arguments: Arguments, body: list[str]) -> None:
    script.variables[arguments["var"]] = _one_value(script, body)


@action("set-regex", required="match", optional="replacement")
def set_regex(script: Script, arguments: Arguments, body: list[str]) -> None:
    """The replacement may use $1, $2, ... for groups of the match."""
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
    """A duration, or `default`. Only with `force` it goes below the default."""
    default_s = script.options.default_timeout_s
    timeout_s = default_s if arguments["duration"] == "default" else _seconds(arguments["duration"])
    script.timeout_s = timeout_s if "force" in arguments else max(timeout_s, default_s)


@action("skip-if", has_body=True)
def skip_if(script: Script, arguments: Arguments, body: list[str]) -> None:
    """A query of one boolean: true skips to `skip-end` or the end of the file."""
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


@action("postgres-connect", required="name url")
def postgres_connect(script: Script, arguments: Arguments, body: list[str]) -> None:
    name = arguments["name"]
    if name in script.clients:
        raise CommandFailed(f"there is already a connection {name}")
    script.clients[name] = Client(arguments["url"])
    script.clients[name].simple("SELECT 1", script.timeout_s)


@action("postgres-execute", required="connection", has_body=True)
def postgres_execute(script: Script, arguments: Arguments, body: list[str]) -> None:
    """Each line of the body, with the lines below it that start with two spaces, goes out as one simple Query."""
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
    client = named or Client(connection)
    try:
        for query in queries:
            client.simple(query, script.timeout_s)
    finally:
        if named is None:
            client.close()


@action("psql-execute", required="command", has_body=True)
def psql_execute(script: Script, arguments: Arguments, body: list[str]) -> None:
    """psql's output, without its footer, its blank lines and blanks at line ends, must be the body."""
    options = ["--no-psqlrc", "--pset=footer=off", f"--command={arguments['command']}", script.options.url]
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
