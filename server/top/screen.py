"""Two readings of a server as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from server.top.reading import Reading, Row

_NONE = "-"
_WELL = ("running", "hydrated", "ok")


def screen(server: str, before: Reading | None, now: Reading) -> Group:
    """`before`: an earlier reading, from which the rates per second are computed; None if there is none."""
    tables = (_objects(before, now), _holds(now), _sources_and_sinks(before, now), _sessions(now))
    return Group(_title(server, now), *(part for table in tables if table is not None for part in ("", table)))


def _title(server: str, now: Reading) -> RenderableType:
    rows = now.tables
    counts = ", ".join(f"{len(rows[name])} {name}" for name in ("sessions", "subscriptions", "dataflows"))
    text = Text.assemble((server, "bold"), f"  {counts}")
    if now.hidden:
        text.append(f"\nNot shown, because only superusers can read them: {', '.join(now.hidden)}", "yellow")
    return text


def _objects(before: Reading | None, now: Reading) -> Table | None:
    """Collections with their frontiers, and the dataflows that maintain them."""
    table = _table("object", "type", ">behind", ">history", ">waiting", ">steps/s", ">mean step", ">memory", "state")
    frontiers = {row["object_id"]: row for row in now.tables["frontiers"]}
    latest = max((int(row["write_frontier"]) for row in frontiers.values()), default=0)
    lags, arrangements = now.by("lags", "dataflow_id"), now.by("arrangements", "dataflow_id")
    dataflows, hydrations = now.by("dataflows", "object_id"), now.by("hydrations", "dataflow_id")
    for id, frontier in sorted(frontiers.items(), key=lambda item: now.name(item[0])):
        found = now.first("objects", "id", id)
        if found is None or found["type"] == "system-table":
            continue
        since, upper = int(frontier["read_frontier"]), int(frontier["write_frontier"])
        cells = [now.name(id), found["type"], _duration_ms(latest - upper), _duration_ms(upper - since)]
        rows = [*_dataflow_cells(before, now, dataflows.get(id, []), lags, arrangements, hydrations)]
        _add(table, *cells, *(rows[0] if rows else [_NONE, _NONE, _NONE, _NONE, ""]))
    for dataflow in dataflows.get(None, []):
        behind = _duration_ms(max(latest - int(dataflow["write_frontier"]), 0))
        (cells,) = _dataflow_cells(before, now, [dataflow], lags, arrangements, hydrations)
        _add(table, "(subscribed query)", "dataflow", behind, _NONE, *cells)
    return table if table.row_count else None


def _dataflow_cells(
    before: Reading | None,
    now: Reading,
    dataflows: list[Row],
    lags: dict[Any, list[Row]],
    arrangements: dict[Any, list[Row]],
    hydrations: dict[Any, list[Row]],
) -> Iterator[list[str | Text]]:
    for dataflow in dataflows:
        id = dataflow["id"]
        waiting = sum(row.get("commits") or 0 for row in lags.get(id, []))
        memory = sum(row["memory_bytes"] for row in arrangements.get(id, []))
        mean = dataflow["mean_step_ms"]
        hydration = next(iter(hydrations.get(id, [])), None)
        state = "" if hydration is None else str(hydration["state"])
        if hydration is not None and state == "running":
            state += f" {hydration['operators_done']}/{hydration['operators']}"
        yield [
            f"{waiting:,} commits" if waiting else _NONE,
            _rate(before, now, "dataflows", id, "steps"),
            _NONE if mean is None else _duration_ms(mean),
            _size(memory),
            _state(str(dataflow.get("error") or state)),
        ]


def _holds(now: Reading) -> Table | None:
    table = _table("hold", "on", ">behind", ">at most", "state")
    frontiers = {row["object_id"]: int(row["write_frontier"]) for row in now.tables["frontiers"]}
    on = now.by("held", "hold_id")
    for row in sorted(now.tables["holds"], key=lambda row: str(row["name"])):
        held = [str(object["on_id"]) for object in on.get(row["id"], [])]
        upper = min((frontiers[id] for id in held if id in frontiers), default=int(row["at"]))
        most = row["max_lag"]
        names = ", ".join(now.name(id) for id in held)
        lag, limit = _duration_ms(upper - int(row["at"])), _duration_ms(most.total_seconds() * 1_000)
        _add(table, str(row["name"]), names, lag, limit, _state(str(row["status"])))
    return table if table.row_count else None


def _sources_and_sinks(before: Reading | None, now: Reading) -> Table | None:
    table = _table("source or sink", "type", ">updates/s", ">bytes/s", "state")
    for kind, updates, received in (
        ("source", "updates_committed", "bytes_received"),
        ("sink", "updates_written", "bytes_written"),
    ):
        for row in sorted(now.tables[f"{kind}s"], key=lambda row: str(row["name"])):
            counts = f"{kind}_counts"
            rates = [_rate(before, now, counts, row["id"], column) for column in (updates, received)]
            state = f"{row['status']}: {row['error']}" if row.get("error") else str(row["status"])
            _add(table, str(row["name"]), f"{row['type']} {kind}", *rates, _state(state))
    return table if table.row_count else None


def _sessions(now: Reading) -> Table | None:
    table = _table(">session", "user", "application", "client", "state", "subscribed to", "statement")
    subscriptions = now.by("subscriptions", "session_id")
    ids = {row["connection_id"]: row["id"] for row in now.tables["sessions"]}
    for row in sorted(now.tables["activity"], key=lambda row: int(row["pid"])):
        objects = [id for found in subscriptions.get(ids.get(row["pid"]), []) for id in found["referenced_object_ids"]]
        names = ", ".join(sorted({now.name(id) for id in objects}))
        shown = (row["usename"], row["application_name"], row["client_addr"], row["state"], names, row["query"])
        _add(table, str(row["pid"]), *(" ".join(str(cell).split()) if cell else _NONE for cell in shown))
    return table if table.row_count else None


def _table(*headings: str) -> Table:
    """A table with these columns; `>` aligns a column to the right."""
    table = Table(box=None, pad_edge=False, header_style="bold cyan", padding=(0, 2, 0, 0))
    for heading in headings:
        is_right = heading.startswith(">")
        table.add_column(heading.removeprefix(">"), justify="right" if is_right else "left", no_wrap=True)
    return table


def _add(table: Table, *cells: str | Text) -> None:
    """Adds a row. Texts of users, such as names, have neither markup nor control characters of the terminal."""
    table.add_row(*(_plain(cell) if isinstance(cell, str) else cell for cell in cells))


def _plain(text: str) -> Text:
    return Text("".join(c if c.isprintable() else "\ufffd" for c in text))


def _rate(before: Reading | None, now: Reading, table: str, id: str, column: str) -> str:
    """The increase of a counter per second since the earlier reading."""
    new = now.first(table, "id", id)
    old = before.first(table, "id", id) if before is not None else None
    if before is None or new is None or old is None:
        return _NONE
    return f"{max(new[column] - old[column], 0) / (now.taken_s - before.taken_s):,.0f}"


def _state(state: str) -> Text:
    text = _plain(state)
    text.stylize("green" if state in _WELL else "yellow" if state.startswith(("running", "starting")) else "red")
    return text


def _duration_ms(ms: float) -> str:
    """A duration of so many milliseconds, in the unit in which it is readable."""
    if ms < 1_000:
        return f"{ms:.0f} ms"
    if ms < 60_000:
        return f"{ms / 1_000:.1f} s"
    return f"{ms / 60_000:,.0f} min" if ms < 7_200_000 else f"{ms / 3_600_000:,.1f} h"


def _size(size: float) -> str:
    """A number of bytes, in the unit in which it is readable."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1_024:
            return f"{size:,.0f} {unit}"
        size /= 1_024
    return f"{size:,.1f} GiB"
