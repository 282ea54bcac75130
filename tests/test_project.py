"""The Dockerfile, the constraints and the documentation name what exists. (`lint-imports` checks the imports.)"""

from __future__ import annotations

import ast
import importlib
import os
import pkgutil
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


PACKAGES = sorted(
    ".".join(path.parent.relative_to(ROOT).parts)
    for name in ("catalog", "protocol", "server", "testdrive", "tidewire")
    for path in (ROOT / name).rglob("__init__.py")
)
ONE_MODULE_PER_FAMILY = {"server.sql.functions", "server.sql.grammar.rules", "server.sql.grammar.statements"}
"""Packages whose docstrings do not list the modules, because their names are those of families of statements."""


@pytest.mark.parametrize("package", sorted({*PACKAGES} - ONE_MODULE_PER_FAMILY))
def test_docstrings_of_packages_name_all_modules(package: str) -> None:
    directory = ROOT.joinpath(*package.split("."))
    docstring = ast.get_docstring(ast.parse((directory / "__init__.py").read_text())) or ""
    modules = {path.stem for path in directory.glob("*.py")} - {"__init__", "__main__"}
    assert [name for name in sorted(modules) if not re.search(rf"\b{name}\b", docstring)] == []


OTHER_NAMES = {
    *("assert_never", "code", "keeps_frontier", "like_regex", "match", "object.__setattr__", "offset", "pgoutput"),
    *("position", "start", "text"),
}
"""Names in these docstrings that are not those of modules, functions or classes of the project."""


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_of_packages_name_what_exists(package: str) -> None:
    docstring = importlib.import_module(package).__doc__
    assert docstring
    for name in {*re.findall(r"`([a-z_]+(?:\.\w+)*)`", docstring)} - OTHER_NAMES:
        if not (ROOT.joinpath(*package.split(".")) / name).is_file():
            assert any(map(_exists, (f"{package}.{name}", f"server.{name}", name))), name


def _exists(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def dockerfile() -> list[str]:
    text = (ROOT / "Dockerfile").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines()


def test_dockerfile_is_sound() -> None:
    instructions = [line.split(None, 1) for line in dockerfile()]
    names = [name for name, _ in instructions]
    assert names[0] == "FROM"
    known = "FROM RUN WORKDIR COPY USER ENV VOLUME EXPOSE STOPSIGNAL HEALTHCHECK CMD"
    assert set(names) <= set(known.split())
    users = [value for name, value in instructions if name == "USER"]
    assert users, "the image runs as root"
    assert users[-1] != "root"
    assert names.index("USER") < names.index("CMD")
    assert "HEALTHCHECK" in names
    tag = instructions[0][1].rpartition(":")[2]
    assert tag not in ("", "latest"), "the base image is not pinned"


def test_dockerfile_copies_and_runs_what_exists() -> None:
    import tomllib

    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    copied: set[str] = set()
    for line in dockerfile():
        name, value = line.split(None, 1)
        if name == "COPY":
            *sources, _ = value.split()
            for source in sources:
                assert (ROOT / source).exists(), source
                copied.add(source)
        if name == "CMD":
            command = ast.literal_eval(value)[0]
            assert command in scripts
            assert scripts[command].split(".")[0] in copied
    assert {"server", "protocol", "catalog", "pyproject.toml"} <= copied


def test_constraints_pin_versions_and_name_no_registry() -> None:
    for line in (ROOT / ".ci" / "constraints.txt").read_text().splitlines():
        assert re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.+!-]+", line), line


def test_documents_link_to_what_exists() -> None:
    for document in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.relative_to(ROOT)}: {target}"


def test_dockerfile_copies_every_package() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {name.removesuffix("*") for name in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    copied = {word for line in dockerfile() if line.startswith("COPY ") for word in line.split()[1:-1]}
    assert packages - copied == set()


def test_documentation_lists_every_page_once() -> None:
    docs = ROOT / "docs"
    listed = re.findall(r"^- \[([\w.-]+\.md)\]", (docs / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(page.name for page in docs.glob("*.md") if page.name != "README.md")


def test_decisions_are_numbered_without_gaps_and_listed() -> None:
    decisions = ROOT / "docs" / "decisions"
    pages = sorted(page.name for page in decisions.glob("*.md") if page.name != "README.md")
    titles = [(decisions / page).read_text().splitlines()[0] for page in pages]
    numbers = [f"{number:03}" for number in range(1, len(pages) + 1)]
    assert [page[:4] for page in pages] == [f"{number}-" for number in numbers]
    index = re.findall(r"^- \[(\d+)\]\(([\w.-]+)\) (.*)$", (decisions / "README.md").read_text(), re.MULTILINE)
    assert index == [(title[2:5], page, title[7:]) for title, page in zip(titles, pages, strict=True)]
    assert [title[2:5] for title in titles] == numbers


def test_links_to_decisions_name_their_number() -> None:
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")):
        for named, linked in re.findall(r"\[[Dd]ecision\s+(\d+)\]\([^)]*?(\d+)-", page.read_text()):
            assert named == linked, f"{page.relative_to(ROOT)}: decision {named}"


def test_lines_of_prose_have_at_most_130_characters() -> None:
    """Tables, headings, index entries of decisions, code, and what is generated may be longer."""
    pages = {page for page in (ROOT / "docs").rglob("*.md") if page.name != "functions.md"}
    for page in sorted({*ROOT.glob("*.md"), *pages}):
        text = re.sub(r"^```.*?^```$|<!-- figures.*?<!-- end of figures -->", "", page.read_text(), flags=re.M | re.S)
        for line in text.splitlines():
            is_index = page.parent.name == "decisions" and line.startswith("- [0")
            assert len(line) <= 130 or line.startswith(("|", "#")) or is_index, f"{page.relative_to(ROOT)}: {line}"


@pytest.mark.parametrize("name", ["run", "nightly"])
def test_make_accepts_the_commands_of_ci(name: str) -> None:
    script = re.sub(r"\bbegin \w+ (?=make )", "", (ROOT / ".ci" / name).read_text())
    commands = re.findall(r"^ *((?:\w+=\S+ )*make [^\n]*)", script, re.MULTILINE)
    assert len(commands) > 13
    for command in commands:
        dry_run = subprocess.run(
            ["bash", "-c", command], cwd=ROOT, env={**os.environ, "MAKEFLAGS": "n"}, capture_output=True, text=True
        )
        assert dry_run.returncode == 0, (command, dry_run.stderr)
        for expression in re.findall(r"-[km] (\S*) or ", dry_run.stdout):
            assert expression.startswith(("'", '"')), (command, dry_run.stdout)


def test_the_nightly_run_has_all_tests() -> None:
    nightly = (ROOT / ".ci" / "nightly").read_text()
    targets = re.findall(r"^(test[\w-]*):(?! \w+ \S?=)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {"test", "test-long", "test-sql"} <= set(targets)
    for target in {*targets} - {"test-fast"}:
        assert re.search(rf"^make {target}\b(?!-)", nightly, re.MULTILINE), target


@pytest.mark.parametrize("name", ["guarantees.md", "security.md"])
def test_the_tests_in_the_tables_of_the_documentation_exist(name: str) -> None:
    """A file without a directory is the first one of this name in the page. A test is in the last file before it."""
    page = (ROOT / "docs" / name).read_text()
    tables = re.findall(r"^\|.*\| tests? \|\n\|[-|]+\|\n((?:\|.*\n)+)", page, re.MULTILINE)
    assert tables
    files: dict[str, Path] = {}
    file: Path | None = None
    for row in "".join(tables).splitlines():
        _, tests = row.strip("|").rsplit("|", 1)
        names = re.findall(r"`([^`]+)`", tests)
        assert names or "the same" in tests, row
        for name in names:
            if name.endswith(".py"):
                file = files.setdefault(name, ROOT / name)
                files.setdefault(file.name, file)
                assert file.is_file(), name
            else:
                assert file is not None
                assert re.search(rf"^ *(async )?def {name}\(", file.read_text(), re.MULTILINE), f"{file.name}: {name}"
    rows = [line for line in page.splitlines() if re.search(r"^\|.*`test_\w+", line)]
    assert set(rows) <= set("".join(tables).splitlines()), "rows without a header"


def test_documented_psql_commands_name_the_server() -> None:
    """Without it psql looks for PostgreSQL's own port."""
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for line in page.read_text().splitlines():
            assert not re.match(r"psql -c ", line), f"{page.name}: {line}"


@pytest.mark.parametrize("package", ["catalog", "protocol", "server", "testdrive", "tidewire"])
def test_regular_expressions_repeat_no_group_possessively(package: str) -> None:
    """Before Python 3.11.5 `re` matches `(?:...)*+` wrongly if the group has choices. `(?>(?:...)*)` is equivalent."""
    for path in (ROOT / package).rglob("*.py"):
        constants = [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
        for text in constants:
            pattern = text.decode("latin-1") if isinstance(text, bytes) else text
            if isinstance(pattern, str):
                assert not re.search(r"\)(?:[*+?]|\{[^}]*\})\+(?![*+?/ ])", pattern.replace("\\)", "")), (path, pattern)
