"""EXPLAIN output about dataflows: about a running one, or about the one that a query would have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from catalog.ids import ObjectId
from server.coordinator.coordinator import Coordinator
from server.dataflow.arrangements.arrangement import Arrangement
from server.dataflow.arrangements.file_arrangement import SERVER_BYTES_MAX
from server.dataflow.operators.operator import Operator
from server.dataflow.operators.statistics import Work
from server.dataflow.plan.description import Notes, arrangements_of, explained_delta, numbered
from server.dataflow.plan.maintenance_strategy import maintenance_strategy
from server.dataflow.plan.nodes import Node, Statement
from server.dataflow.runtime.dataflow import Dataflow
from server.dataflow.runtime.incremental import IncrementalComputation
from server.explain.output import Section, ms_text
from server.introspection.dataflow_tables import names
from server.runtime.offload import offload
from server.sql.plan import QueryPlan


@dataclass(slots=True)
class Shown:
    """What to show in addition to the plan. `work`: per-operator counters; `times`: also durations."""

    statements: bool = False
    arrangements: bool = False
    work: bool = False
    times: bool = True


async def maintenance(coordinator: Coordinator, plan: QueryPlan, flow: Dataflow | None, shown: Shown) -> Section:
    """The operators that maintain a query's result, with their arrangements and counters if its dataflow runs."""
    name = "Kept up to date"
    name_of = names(coordinator)
    computation = flow.computation if flow is not None else None
    if isinstance(computation, IncrementalComputation):
        root, operators = computation.root, {operator.node: operator for operator in computation.operators}
    else:
        if plan.expanded is not None:  # a dataflow reads the inputs of an indexed view, not its index
            plan = plan.expanded()
        found = await offload(plan.stored_text, maintenance_strategy, plan, coordinator.reads.sizes(plan.inputs))
        if found.root is None:
            how = "recomputed when an input changes" if found.is_possible else "not possible"
            return Section(name, f"{how}, because there is no rule for {found.lacking}")
        root, operators = found.root, {}
    notes = _Notes(root, operators, _Arranged.of(coordinator), flow, name_of, shown)
    return Section(name, plan=explained_delta(root, name_of, notes.of))


def probing(coordinator: Coordinator) -> list[Section]:
    """Where arrangements are probed. Empty if always in the server process."""
    match coordinator.arrangements.probing:
        case "executors":
            return [Section("Arrangements", "in files, probed by Spark's executors")]
        case "auto":
            limit = f"from {SERVER_BYTES_MAX >> 20} MiB on in files, probed by Spark's executors"
            return [Section("Arrangements", f"in the server; {limit}")]
    return []


def progress(coordinator: Coordinator, flow: Dataflow, *, times: bool) -> Iterator[Section]:
    """A dataflow's identity, its hydration, the durations of its steps and its error."""
    hydration, steps = flow.computation.hydration, flow.steps
    yield Section("Dataflow", _title(coordinator, flow))
    took = f", {ms_text(hydration.seconds * 1e3)}" if times and hydration.seconds is not None else ""
    at = f" as of {hydration.as_of}" if hydration.as_of is not None else ""
    yield Section(
        "Hydration",
        f"{hydration.state.value}{at}: {hydration.rows_read} of {hydration.rows_there} rows read, "
        f"{hydration.operators_done} of {hydration.operators} operators done{took}",
    )
    text = str(steps.count)
    if times and steps.count:
        seconds = {"last": steps.last_s, "mean": steps.total_s / steps.count, "most": steps.max_s}
        text += "".join(f", {name} {ms_text(second * 1e3)}" for name, second in seconds.items())
    yield Section("Steps", text)
    if flow.error is not None:
        yield Section("Error", flow.error.message)


def _title(coordinator: Coordinator, flow: Dataflow) -> str:
    if flow.item is not None:
        return f"{flow.id}, of {names(coordinator)(flow.item.id)}"
    return f"{flow.id}, of a subscribed query"


@dataclass(slots=True)
class _Arranged:
    """Arrangements of all running dataflows. `named`: those of collections, by name; `users`: the users of each."""

    named: dict[object, Arrangement] = field(default_factory=dict)
    users: dict[Arrangement, list[str]] = field(default_factory=dict)

    @staticmethod
    def of(coordinator: Coordinator) -> _Arranged:
        found = _Arranged()
        name_of = names(coordinator)
        for id, flow in coordinator.dataflows.running.items():
            if not isinstance(flow.computation, IncrementalComputation):
                continue
            user = name_of(flow.item.id) if flow.item is not None else id
            for operator in flow.computation.operators:
                for own, (_, arrangement) in zip(arrangements_of(operator.node), operator.arrangements, strict=False):
                    if own.name is not None:
                        found.named[own.name] = arrangement
                    users = found.users.setdefault(arrangement, [])
                    if user not in users:
                        users.append(user)
        return found


class _Notes:
    """The notes on each node: counters, arrangements and statements, as `Shown` selects."""

    def __init__(
        self,
        root: Node,
        operators: Mapping[Node, Operator],
        arranged: _Arranged,
        flow: Dataflow | None,
        name_of: Callable[[ObjectId], str],
        shown: Shown,
    ) -> None:
        self._numbers = {node: number for number, node in numbered(root)}
        self._operators = operators
        self._arranged = arranged
        self._shown = shown
        self._self = ""
        if flow is not None:
            self._self = name_of(flow.item.id) if flow.item is not None else flow.id

    def of(self, node: Node) -> Notes:
        lines: list[str] = []
        figures: dict[str, object] = {}
        operator = self._operators.get(node)
        if self._shown.work and operator is not None:
            self._work(operator, lines, figures)
        if self._shown.arrangements:
            self._arrangements(node, operator, lines, figures)
        if self._shown.statements and isinstance(statement := getattr(node, "sql", None), Statement):
            lines.append(f"statement: {statement.small}")
            figures["Statement"] = statement.small
        return Notes(tuple(lines), figures)

    def _work(self, operator: Operator, lines: list[str], figures: dict[str, object]) -> None:
        record = operator.record
        records = [("hydration", "Hydration", record.hydration)]
        if record.steps:
            records += [("last step", "Last Step", record.last), (f"all {record.steps}", "All Steps", record.total)]
        for name, title, work in records:
            if work is None:
                continue
            figures[title] = self._figures(work)
            if name != "all 1":
                lines.append(f"{name}: {self._text(work)}")
        figures["Steps"] = record.steps

    def _text(self, work: Work) -> str:
        text = f"rows {work.rows_in} in, {work.rows_out} out"
        if self._shown.times:
            text += f", {ms_text(work.seconds * 1e3)}"
        if work.statements:
            text += f", {work.statements} Spark statement{'s' if work.statements != 1 else ''}"
            if self._shown.times:
                text += f" of {ms_text(work.spark_s * 1e3)}"
        return text

    def _figures(self, work: Work) -> dict[str, object]:
        figures: dict[str, object] = {"Rows In": work.rows_in, "Rows Out": work.rows_out, "Statements": work.statements}
        if self._shown.times:
            figures |= {"Time": round(work.seconds * 1e3, 3), "Spark Time": round(work.spark_s * 1e3, 3)}
        return figures

    def _arrangements(
        self, node: Node, operator: Operator | None, lines: list[str], figures: dict[str, object]
    ) -> None:
        arrangements: list[dict[str, object]] = []
        current: Sequence[tuple[str, Arrangement]] = operator.arrangements if operator is not None else ()
        for number, own in enumerate(arrangements_of(node)):
            title = own.described(self._numbers)
            figure: dict[str, object] = {"Arrangement": title}
            arrangement = current[number][1] if number < len(current) else self._arranged.named.get(own.name)
            if arrangement is not None:
                others = [user for user in self._arranged.users.get(arrangement, ()) if user != self._self]
                title += f": {arrangement.rows} rows, {arrangement.bytes} bytes"
                title += ", probed by executors" if arrangement.probed_by == "executors" else ""
                title += f", shared with {', '.join(others)}" if others else ""
                figure |= {"Rows": arrangement.rows, "Bytes": arrangement.bytes, "Shared With": others}
                figure["Probed By"] = arrangement.probed_by
            lines.append(title)
            arrangements.append(figure)
        if arrangements:
            figures["Arrangements"] = arrangements
