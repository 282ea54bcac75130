"""The psql sessions in the pages of docs/: runs them again, and replaces the output by what psql prints.

    python -m tests.docs.pages DSN PAGE...      rewrites pages, with a running server

A session is a fenced block marked `psql`. Lines that begin with `=> ` or `-> ` are input, the others are output. All
blocks of a page are one psql session, so a later block sees the objects that an earlier one created.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.fix_postgres import binaries

PAGES = Path(__file__).parent.parent.parent / "docs"
_BLOCK = re.compile(r"^```psql\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = "~~~ next ~~~"


def statements(session: str) -> Iterator[str]:
    """The input, statement by statement, with the prompts."""
    typed = ""
    for line in session.splitlines(keepends=True):
        if line.startswith("=> "):
            if typed:
                yield typed
            typed = line
        elif line.startswith("-> "):
            typed += line
    if typed:
        yield typed


def replayed(page: str, dsn: str) -> str:
    """The page with the output that psql prints now."""
    typed = [list(statements(block[1])) for block in _BLOCK.finditer(page)]
    script = "\\pset pager off\n\\set QUIET off\n"
    for statement in (statement for block in typed for statement in block):
        script += "".join(line[3:] for line in statement.splitlines(keepends=True)) + f"\\echo {_MARK}\n"
    done = subprocess.run(
        [str(binaries() / "psql"), "-X", "-q", "-v", "ON_ERROR_STOP=0", dsn],
        input=script,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    outputs = iter(re.sub(r"^psql:<stdin>:\d+: ", "", done.stdout, flags=re.MULTILINE).split(_MARK + "\n"))
    blocks = iter(typed)

    def block(match: re.Match[str]) -> str:
        body = "".join(statement + next(outputs) for statement in next(blocks))
        return "```psql\n" + "".join(_narrow(line) + "\n" for line in body.splitlines()) + "```"

    return _BLOCK.sub(block, page)


def _narrow(line: str) -> str:
    """An output line. The header of a query plan, which is as wide as the plan's widest line, is shortened."""
    if line.strip() == "QUERY PLAN":
        return " QUERY PLAN"
    return "-" * 60 if len(line) > 120 and not line.strip("-") else line.rstrip()


def normalised(page: str) -> str:
    """The page without parts that differ between runs.

    These are times, sizes, current timestamps, ids of objects, Spark's column ids, the name of the database, and the
    width of plans that contain any of these.
    """
    page = re.sub(r"\b1[789]\d{11}\b", "<timestamp>", page)
    page = re.sub(r"<timestamp> \(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}\)", "<timestamp> (<clock>)", page)
    page = re.sub(r"\b(materialize|test_\d+)\.public\b", "<database>.public", page)
    page = re.sub(r"\b\d+\.\d{3} ms\b", "<ms>", page)
    page = re.sub(r"\b\d+ bytes\b", "<bytes>", page)
    page = re.sub(r"#\d+L?\b", "#<n>", page)
    page = re.sub(r"^( QUERY PLAN\n)-+$", r"\1---", page, flags=re.MULTILINE)
    return re.sub(r"\bu\d+\b", "u<id>", page)


def main() -> None:
    dsn, *pages = sys.argv[1:]
    for page in map(Path, pages):
        page.write_text(replayed(page.read_text(), dsn))


if __name__ == "__main__":
    main()
