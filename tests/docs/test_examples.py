"""Every example of the documentation is executed by a test, or says why it cannot be."""

from __future__ import annotations

import importlib
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from server.config import Config
from tests.docs.pages import PAGES, ROOT, examples, executed, executes, page_of, parsed

NAMES = sorted({"README.md", "CONTRIBUTING.md", *(str(page.relative_to(PAGES)) for page in PAGES.rglob("*.md"))})


def import_tests() -> None:
    """Imports the modules whose tests execute examples, so that `executed` is complete."""
    for path in (ROOT / "tests").rglob("test_*.py"):
        if "tests.docs.pages import" in path.read_text():
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


@pytest.mark.parametrize("name", [name for name in NAMES if any(parsed(name))])
def test_every_example_is_executed(name: str) -> None:
    import_tests()
    for example in parsed(name):
        tests = {(name, example.kind, section) for section in (None, example.section)} & executed.keys()
        place = f"{name}:{example.line}: {example.kind or 'a block without a kind'}"
        assert tests or example.not_executed, f"{place}: no test executes this example"
        assert example.kind, place


def test_tests_execute_examples_that_exist() -> None:
    import_tests()
    for name, kind, section in executed:
        assert examples(name, kind, section), (name, kind, section)


def test_a_block_without_a_test_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.docs.pages.PAGES", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("## S\n\n<!-- not executed: a drawing -->\n```text\nx\n```\n\ny\n\n```sql\nSELECT 1\n```\n")
    assert page_of("page.md") == page
    drawing, query = parsed("page.md")
    assert (drawing.kind, drawing.section, drawing.text, drawing.not_executed) == ("text", "S", "x\n", "a drawing")
    assert (query.line, query.kind, query.not_executed) == (10, "sql", None)
    assert examples("page.md", "text") == []
    with pytest.raises(AssertionError, match=r"page.md:10: sql: no test executes this example"):
        test_every_example_is_executed("page.md")


# -- commands that are not executed, because they take long or need other machines: their names and options exist ------


def dry_run(line: str) -> None:
    """Fails if make does not know a target."""
    command = line.partition("#")[0].strip()
    subprocess.run(
        ["bash", "-c", command.replace("make ", "make --dry-run ")], cwd=ROOT, check=True, capture_output=True
    )


@executes("performance.md", "sh")
@executes("maintenance-cost.md", "sh")
@pytest.mark.parametrize("name", ["performance.md", "maintenance-cost.md"])
def test_benchmarks_exist(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import shlex

    from tests.bench.__main__ import BENCHMARKS, arguments

    for block in examples(name, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:3] == ["python", "-m", "venv"]:  # of another system, whose Python the next line names
                continue
            if words[0] == "make":
                assert words[1] == "bench"
                words = shlex.split(words[2].removeprefix("ARGS=")) if words[2:] else []
            else:
                assert words[1:3] == ["-m", "tests.bench"]
                words = words[3:]
            monkeypatch.setattr("sys.argv", ["bench", *words])
            assert set(arguments().names) <= set(BENCHMARKS), line


@executes("CONTRIBUTING.md", "sh")
@executes("faults.md", "sh")
@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "faults.md"])
def test_targets_of_make_exist(name: str) -> None:
    for block in examples(name, "sh"):
        for line in block.splitlines():
            dry_run(line)


@executes("cluster.md", "toml", "sh")
def test_options_of_clusters_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make test-cluster` starts clusters. Here only the command lines and the file of --config are read."""
    seen: list[Config] = []
    monkeypatch.setattr("server.__main__.run", lambda config: seen.append(config))
    monkeypatch.setattr("server.__main__.configure_logs", lambda form: None)
    for block in examples("cluster.md", "sh"):
        for line in block.splitlines():
            if line.startswith("tidewire "):
                serve(line)
            elif line.startswith("pip install"):
                (extra,) = re.findall(r"tidewire\[(\w+)\]", line)
                assert extra in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
            else:
                import pyspark

                assert line.startswith("$SPARK_HOME/sbin/start-connect-server.sh ")
                assert (Path(pyspark.__file__).parent / "sbin" / "start-connect-server.sh").exists()
    (file,) = examples("cluster.md", "toml")
    (tmp_path / "tidewire.toml").write_text(file)
    serve(f"tidewire serve --config {tmp_path / 'tidewire.toml'}")
    assert [(each.spark_master, each.spark_remote) for each in seen] == [
        ("local-cluster[2,1,2048]", None),
        ("spark://spark.example:7077", None),
        ("spark://spark.example:7077", None),
        ("local[*]", "sc://spark.example:15002"),
        ("spark://spark.example:7077", None),
    ]
    assert str(seen[1].arrangement_directory) == "/mnt/shared/tidewire"
    assert seen[-1].spark_conf["spark.executor.memory"] == "8g"


def serve(line: str) -> Any:
    """Executes a command line of `tidewire` in this process."""
    import shlex

    from typer.testing import CliRunner

    from server.__main__ import app

    done = CliRunner().invoke(app, shlex.split(line)[1:])
    assert done.exit_code == 0, done.output
