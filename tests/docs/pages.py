"""The examples in the pages of the documentation.

An example is a fenced block. The word after its fence is its kind: `psql`, `sql`, `python`, `sh`, `json` and so on. A
test that executes the examples of a kind on a page says so with `executes`, and `test_examples.py` fails for an example
that no test executes. An example that cannot be executed has a comment in the line before its fence, with the reason:

    <!-- not executed: a drawing -->

A `psql` block is a session. Lines that begin with `=> ` or `-> ` are input, the others are output. All blocks of a page
are one psql session, so a later block sees the objects that an earlier one created.

    python -m tests.docs.pages DSN PAGE...      replaces the output in pages, with a running server
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.fix_postgres import binaries

ROOT = Path(__file__).parent.parent.parent
PAGES = ROOT / "docs"
_BLOCK = re.compile(r"^```psql\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = "~~~ next ~~~"
_REASON = re.compile(r"<!-- not executed: (.+) -->")
Test = TypeVar("Test", bound=Callable[..., object])


@dataclass(frozen=True)
class Example:
    page: str
    line: int
    """The line of the fence, from 1."""
    kind: str
    section: str
    """The heading of the second level above it, or ''."""
    text: str
    not_executed: str | None
    """Why no test executes it, or None."""


def page_of(name: str) -> Path:
    """The file of a page. README.md and CONTRIBUTING.md are those of the repository."""
    return (ROOT if name in ("README.md", "CONTRIBUTING.md") else PAGES) / name


def parsed(name: str) -> Iterator[Example]:
    """All fenced blocks of a page."""
    section = ""
    lines = page_of(name).read_text().splitlines(keepends=True)
    rest = iter(enumerate(lines, 1))
    for number, line in rest:
        if line.startswith("## "):
            section = line[3:].strip()
        elif line.lstrip().startswith("```"):
            reason = _REASON.fullmatch(lines[number - 2].strip())
            body = []
            for _, inner in rest:
                if inner.lstrip().startswith("```"):
                    break
                body.append(inner)
            kind = line.strip().removeprefix("```")
            yield Example(name, number, kind, section, "".join(body), reason[1] if reason else None)
        elif line.startswith("    ") and not lines[number - 2].strip():  # an indented block, which has no kind
            yield Example(name, number, "", section, line, None)


def examples(page: str, kind: str, section: str | None = None) -> list[str]:
    """The examples of a kind on a page, or in one of its sections, except those that cannot be executed."""
    found = [each for each in parsed(page) if each.kind == kind and section in (None, each.section)]
    return [each.text for each in found if each.not_executed is None]


executed: dict[tuple[str, str, str | None], str] = {}
"""The tests that execute examples, by page, kind and section; None for all sections."""


def executes(page: str, *kinds: str, section: str | None = None) -> Callable[[Test], Test]:
    """A decorator of a test that executes all examples of these kinds on a page, or in one of its sections."""

    def register(test: Test) -> Test:
        for kind in kinds:
            executed[page, kind, section] = test.__name__
        return test

    return register


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

    These are times, sizes, current timestamps, ids of objects, Spark's column ids, the name of the database, the
    width of plans that contain any of these, and notices about the progress of a statement that takes long.
    """
    page = re.sub(
        r"^NOTICE:  (hydrating .* done|.* waits to be hydrated|waiting for Spark).*\n", "", page, flags=re.MULTILINE
    )
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
