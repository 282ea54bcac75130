"""Statements through psql, as users write them, to a server of the tests."""

from __future__ import annotations

import subprocess

from tests.fix_postgres import binaries
from tests.fix_server import ServerThread


def psql(server: ServerThread, *commands: str) -> list[str]:
    """The lines that psql prints for the commands, one after the other in one session. AssertionError for an error."""
    arguments = [argument for command in commands for argument in ("-c", command)]
    done = subprocess.run(
        [binaries() / "psql", server.dsn(), "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def await_rows(server: ServerThread, relation: str, expected: list[str]) -> None:
    """Follows a relation until its rows are the expected ones."""
    fetch = "FETCH ALL changes"
    with subprocess.Popen(
        [binaries() / "psql", server.dsn(), "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as session:
        assert session.stdin is not None
        assert session.stdout is not None
        session.stdin.write(f"BEGIN; DECLARE changes CURSOR FOR SUBSCRIBE {relation};\n")
        rows: dict[str, int] = {}
        while sorted(rows) != sorted(expected):
            session.stdin.write(f"{fetch};\n\\echo done\n")
            session.stdin.flush()
            while (line := session.stdout.readline()) != "done\n":
                assert line, "psql ended"
                _, diff, row = line.rstrip("\n").split("|", 2)
                rows[row] = rows.get(row, 0) + int(diff)
                if not rows[row]:
                    del rows[row]
        session.stdin.write("COMMIT;\n")
        session.stdin.close()
