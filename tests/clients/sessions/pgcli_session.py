"""A session with pgcli: each step is a function, whose docstring is its title in docs/clients.md."""

import os
import sys
from pathlib import Path

import pexpect
from steps import URL, run

PGCLI = str(Path(sys.executable).parent / "pgcli")
ENVIRONMENT = {**os.environ, "TERM": "dumb", "PAGER": "cat", "PGCLI_NO_UPDATE": "1", "LC_ALL": "C.UTF-8"}


def session(*lines):
    """The output of a session that sends these lines."""
    child = pexpect.spawn(
        PGCLI, ["--less-chatty", "--prompt", "READY> ", URL], env=ENVIRONMENT, timeout=30, encoding="utf-8"
    )
    child.setwinsize(50, 250)
    output = []
    child.expect("READY> ")
    for line in lines:
        child.send(line + "\r")
        child.expect("Time: |CREATE|INSERT|SELECT|You are|rror")
        child.expect("READY> ")
        output.append(child.before)
    child.sendeof()
    child.close()
    return "".join(output)


def statements():
    """Statements and completion's metadata"""
    session("create table pc (id int primary key, name text);", "insert into pc values (1, 'a');", "select * from pc;")


def completion():
    """Completion: tables, columns, functions, types, keys"""
    from pgcli.completion_refresher import CompletionRefresher
    from pgcli.pgcompleter import PGCompleter
    from pgcli.pgexecute import PGExecute

    executor = PGExecute(dsn=URL)
    completer = PGCompleter()
    for refresh in CompletionRefresher.refreshers.values():
        refresh(completer, executor)
    assert "pc" in completer.dbmetadata["tables"]["public"]
    assert list(completer.dbmetadata["tables"]["public"]["pc"]) == ["id", "name"]


def special():
    """`\\d`, `\\dt`, `\\dv`, `\\di`, `\\df`, `\\dn`, `\\du`, `\\l`, `\\dT`, `\\ds`"""
    from pgcli.pgexecute import PGExecute
    from pgspecial.main import PGSpecial

    executor, special = PGExecute(dsn=URL), PGSpecial()
    for command in (r"\d", r"\d pc", r"\d+ pc", r"\dt", r"\dv", r"\di", r"\df", r"\dn", r"\du", r"\l", r"\dT", r"\ds"):
        for _, rows, _, status, _, success, _ in executor.run(command, special):
            assert success, (command, status)
            list(rows or ())


run(statements, completion, special)
