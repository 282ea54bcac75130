"""The dashboard for Grafana uses metrics and labels that the server has."""

from __future__ import annotations

import json
import os
import re
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.fix_server import ServerThread
from tests.server.slow_engine import PassingEngine

DOCS = Path(__file__).parents[2] / "docs"
DASHBOARD = DOCS / "grafana.json"
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def panels() -> list[dict[str, Any]]:
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]


def expressions() -> list[str]:
    variables = json.loads(DASHBOARD.read_text())["templating"]["list"]
    queries = [variable["definition"] for variable in variables if variable["type"] == "query"]
    return queries + [target["expr"] for panel in panels() for target in panel["targets"]]


def metrics_of(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:tidewire|process)_\w+", expression))


def test_the_dashboard_is_complete() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    assert dashboard["schemaVersion"] >= 39
    datasource, instance = dashboard["templating"]["list"]
    assert (datasource["type"], datasource["query"]) == ("datasource", "prometheus")
    assert instance["datasource"] == DATASOURCE
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    for panel in panels():
        assert panel["title"]
        assert panel["targets"]
        assert all(source["datasource"] == DATASOURCE for source in (panel, *panel["targets"])), panel["title"]


def test_panels_do_not_overlap() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        at = panel["gridPos"]
        covered = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not covered & cells, panel["title"]
        assert all(x < 24 for x, _ in covered), panel["title"]
        cells |= covered


def test_expressions_are_well_formed() -> None:
    for expression in expressions():
        assert metrics_of(expression), expression
        without_strings = re.sub(r'"[^"]*"', "", expression)
        for opening, closing in ("()", "{}", "[]"):
            assert without_strings.count(opening) == without_strings.count(closing), expression
        counters = re.findall(r"(?:rate|increase)\((\w+)", expression)
        assert all(name.endswith(("_total", "_bucket", "_count")) for name in counters), expression
        assert all(name in counters for name in metrics_of(expression) if name.endswith("_total")), expression


def test_every_metric_exists(passing_server: ServerThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PassingEngine, "jvm_pid", os.getpid())  # for the memory of Spark
    with urllib.request.urlopen(f"http://127.0.0.1:{passing_server.http_port}/metrics", timeout=10) as answer:
        types = dict(re.findall(r"^# TYPE (\w+) (\w+)$", answer.read().decode(), re.MULTILINE))
    names = {name for name, kind in types.items() if kind != "histogram"}
    names |= {f"{name}_{part}" for name, kind in types.items() if kind == "histogram" for part in ("bucket", "count")}
    used = set().union(*map(metrics_of, expressions()))
    assert used - names == set()


def test_labels_are_those_of_the_documentation() -> None:
    documented: dict[str, set[str]] = {}
    for names, labels in re.findall(r"^\| (`(?:tidewire|process)_[^|]*) \| ([^|]*)\|", operations(), re.MULTILINE):
        for name in re.findall(r"`(\w+)`", names):
            documented[name] = set(re.findall(r"`(\w+)`", labels))
    for panel in panels():
        for target in panel["targets"]:
            expression = target["expr"]
            (metric,) = metrics_of(expression)
            known = documented.get(re.sub("_(bucket|count)$", "", metric), set()) | {"le", "instance"}
            used = {label for labels in re.findall(r"by \(([^)]*)\)", expression) for label in labels.split(", ")}
            used |= set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            assert used <= known, expression


def operations() -> str:
    return (DOCS / "operations.md").read_text()
