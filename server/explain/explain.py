"""EXPLAIN: the plan of a statement, how its result is maintained, and statistics of an execution or a dataflow.

EXPLAIN                     a summary: inputs, columns, the plan, what computes it, the operators that maintain it
EXPLAIN RAW PLAN            the plan as a SELECT executes it
EXPLAIN OPTIMIZED PLAN      the plan of the maintained query, after the passes of `sql.rewrite`
EXPLAIN PHYSICAL PLAN       its operators, their arrangements and which dataflows share them
EXPLAIN SPARK PLAN          Spark's own EXPLAIN of the statement sent to it
EXPLAIN ANALYZE             executes the statement; for a materialized view or a subscription: its running dataflow
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from time import monotonic

import pyarrow as pa

from catalog.ids import ObjectId
from catalog.objects.catalog_object import Item
from catalog.objects.indexes import Index
from catalog.objects.kinds import with_article
from catalog.objects.relations import DerivedRelation
from protocol.pgwire.encode import RowEncoder
from protocol.pgwire.errors import PgError, SqlState
from server.authorization import privileges
from server.dataflow.runtime.dataflow import Dataflow
from server.dataflow.runtime.spark_rows import are_small, with_recursive_views
from server.dataflow.stream.encoding import encoded_chunks
from server.execution.arguments import execute_arguments
from server.execution.catalog_query.query import relations_of, run_catalog_query
from server.execution.catalog_query.values import values_of
from server.execution.create_table_as import create_table_as
from server.execution.names import find_item, find_relation
from server.execution.prepare import Types, plan_statement, prepare
from server.execution.select import input_rows, select
from server.execution.write import write
from server.explain.dataflow import Shown, maintenance, probing, progress
from server.explain.output import Section, explained_timestamp, explanation, ms_text
from server.explain.relation import explained
from server.explain.timestamp import explain_timestamp
from server.runtime.offload import offload
from server.runtime.trace import Step, recorded, step
from server.session_state.context import Context
from server.session_state.prepared import CatalogPlan, Plan, Prepared, SubscribePlan, ValuesPlan, WithWritesPlan
from server.session_state.results import Result
from server.session_state.sender import encode_table
from server.session_state.transaction import Mode
from server.sql.grammar import statements as s
from server.sql.grammar.statements.explain import Explained, ExplainFormat, ExplainStage, StoredQuery
from server.sql.index_lookups import too_wide
from server.sql.outline import Outline
from server.sql.plan import QueryPlan, bound, plan_query
from server.sql.rewrite import rewritten_or_not
from server.sql.stored_query import plan_stored, relation_query
from server.sql.temporal import is_maintainable
from server.sql.writes.plan import WritePlan

_MAINTAINED = (ExplainStage.OPTIMIZED, ExplainStage.PHYSICAL)
_STEPS = {
    "read": "Read",
    "take": "Return unchanged rows",
    "evaluate": "Evaluate in the server",
    "spark": "Run on Spark",
    "write": "Write",
    "encode": "Encode as text",
}


@dataclass(slots=True)
class _Subject:
    """What is explained: a bound query, a function that runs it (if it can be run) and its dataflow (if one runs)."""

    query: QueryPlan
    planning_ms: float
    run: Callable[[], Awaitable[Result]] | None = None
    flow: Dataflow | None = None
    index: Index | None = None


@dataclass(slots=True)
class _CatalogSubject:
    """A query over system catalogs that is explained."""

    plan: CatalogPlan
    parameters: tuple[object, ...]
    planning_ms: float


async def explain(
    context: Context, prepared: Prepared, parameters: tuple[object, ...], named: Callable[[str], Prepared]
) -> Result:
    """Executes an EXPLAIN. `named` returns a prepared statement. PgError 42501 if the role may not read the objects."""
    statement = prepared.statement
    assert isinstance(statement, s.Explain)
    if statement.stage is ExplainStage.TIMESTAMP:
        return explained_timestamp(
            statement, await _timestamp(context, statement.statement, as_json=statement.format is ExplainFormat.JSON)
        )
    called: Prepared | None = None
    if isinstance(about := statement.statement, s.Execute):
        called = named(about.name.name)
        parameters = await execute_arguments(context, about.name.name, about.arguments, called.parameters)
    subject = await offload(statement.text, _subject, context, statement, prepared.parameters, parameters, called)
    if isinstance(subject, ValuesPlan):
        inner = statement.statement if called is None else called.statement
        assert not isinstance(inner, StoredQuery)
        called = Prepared(inner, (), plan=subject.inner)
        parameters = (*parameters, *await values_of(context, subject.values, parameters))
        subject = await offload(statement.text, _subject, context, statement, prepared.parameters, parameters, called)
        assert not isinstance(subject, ValuesPlan)
    if isinstance(subject, _CatalogSubject):
        return explanation(statement, await _of_catalogs(context, statement, subject))
    return explanation(statement, await _sections(context, statement, subject))


# -- the subject ----------------------------------------------------------------------------------------------------


def _subject(
    context: Context,
    statement: s.Explain,
    types: Types,
    parameters: tuple[object, ...],
    called: Prepared | None,
) -> _Subject | _CatalogSubject | ValuesPlan:
    """`called`: the planned statement, if it is not `statement.statement`. `parameters` are its arguments.

    A `ValuesPlan` is returned. With the values, its inner plan is explained.
    """
    begun = monotonic()
    about = statement.statement
    if isinstance(about, StoredQuery):
        item, query = _stored(context, about)
        flow = context.coordinator.dataflows.running.get(item.id)
        return _Subject(query, _ms_since(begun), flow=flow, index=item if isinstance(item, Index) else None)
    inner: s.Statement | None = about
    if called is not None:
        plan, inner = called.plan, called.statement
    else:
        plan = _plan(context, about, statement.stage, types)
    if isinstance(plan, ValuesPlan):
        return plan
    if isinstance(plan, CatalogPlan) and statement.stage is None:
        return _CatalogSubject(plan, parameters, _ms_since(begun))
    if plan is None or isinstance(plan, CatalogPlan | WithWritesPlan):
        if isinstance(plan, CatalogPlan):
            what = f"EXPLAIN {(statement.stage or '').upper()} PLAN of a query over system catalogs"
        else:
            what = "EXPLAIN of a statement that has no plan"
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f"{what} is not supported",
            hint="Explain a query, an INSERT, an UPDATE, a DELETE or a MERGE over relations of users.",
        )
    if (isinstance(plan, WritePlan) or isinstance(inner, s.CreateTableAs)) and statement.stage in _MAINTAINED:
        message = f"EXPLAIN {statement.stage.upper()} PLAN of a write is not supported"
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, hint="It shows how a query is kept up to date.")
    planned = plan if isinstance(plan, QueryPlan) else plan.query
    if isinstance(plan, WritePlan):
        privileges.require_write(context.state, context.role, plan, type(inner).__name__.upper())
    else:
        privileges.require_query(context.state, context.role, planned)
    query = bound(planned, parameters)
    subject = _Subject(query, _ms_since(begun), flow=context.coordinator.queries.dataflow(query.fingerprint))
    match inner, plan:
        case s.Select(as_of=as_of), QueryPlan():
            subject.run = lambda: select(context, plan, as_of, parameters)
        case ((s.Insert() | s.Update() | s.Delete() | s.Merge()), WritePlan()):
            subject.run = lambda: write(context, plan, type(inner).__name__.upper(), parameters)
        case s.CreateTableAs(), QueryPlan():
            subject.run = lambda: create_table_as(context, inner, plan, parameters)
    return subject


def _ms_since(begun: float) -> float:
    return (monotonic() - begun) * 1e3


def _plan(context: Context, inner: s.Statement, stage: ExplainStage | None, types: Types) -> Plan | None:
    planning = context.plan_context()
    match inner:
        case s.Select(query=query) if stage in _MAINTAINED:
            return plan_query(query, planning, types, maintained=True)
        case s.Select() | s.Insert() | s.Update() | s.Delete() | s.Merge():
            return plan_statement(context, inner, types)
        case s.CreateView(query=query):
            return plan_query(query, planning)
        case s.CreateMaterializedView(query=query):
            return plan_query(query, planning, maintained=True)
        case s.CreateIndex(on=name):
            return plan_query(relation_query(find_relation(context, name)), planning)
        case _:
            return prepare(context, inner, types).plan


def _stored(context: Context, stored: StoredQuery) -> tuple[Item, QueryPlan]:
    """A view, materialized view or index, and its query. PgError 42809 if the name is of an object of another kind."""
    item = find_item(context, stored.name)
    if item.kind != stored.kind:
        message = f'"{item.name}" is not {with_article(stored.kind)}'
        raise PgError(SqlState.WRONG_OBJECT_TYPE, message, position=stored.name.position)
    relation = context.state.relation(item.part_of or item.id)
    reading = plan_query(relation_query(relation), context.plan_context())
    privileges.require_query(context.state, context.role, reading)
    return item, plan_stored(item.query, context.state) if isinstance(item, DerivedRelation) else reading


# -- the sections ---------------------------------------------------------------------------------------------------


async def _sections(context: Context, statement: s.Explain, subject: _Subject) -> list[Section]:
    query = subject.query
    if statement.analyze:
        sections = await _analyzed(context, statement, subject)
    else:
        match statement.stage:
            case None:
                sections = await _summary(context, subject, Shown(statements=statement.verbose))
            case ExplainStage.RAW:
                plan = explained(query.relation, _names(context), query.lookups)
                sections = [Section("Plan", plan=plan, headless=True)]
            case ExplainStage.OPTIMIZED:
                sizes = context.coordinator.reads.sizes(query.inputs)
                relation = await offload(query.stored_text, rewritten_or_not, query.relation, sizes)
                sections = [Section("Plan", plan=explained(relation, _names(context)), headless=True)]
            case ExplainStage.PHYSICAL:
                sections = [await _physical(context, subject, Shown(statements=statement.verbose, arrangements=True))]
            case ExplainStage.SPARK:
                sections = [Section("Spark Plan", body=await _spark_plan(context, query, statement), headless=True)]
            case stage:
                raise AssertionError(stage)
    if statement.summary and (subject.run is not None or not statement.analyze):
        sections.insert(len(sections) - statement.analyze, Section("Planning Time", ms=subject.planning_ms))
    return sections


def _names(context: Context) -> Callable[[ObjectId], str]:
    state = context.state
    return lambda id: ".".join(state.full_name(state.items[id]))


async def _summary(context: Context, subject: _Subject, shown: Shown) -> list[Section]:
    """The query's inputs and columns, its relational plan, what computes it, and the operators that maintain it."""
    plan, name_of = subject.query, _names(context)
    sections = _index(context, subject)
    sections += [
        Section("Reads", ", ".join(sorted(map(name_of, plan.inputs))) or "nothing"),
        Section("Gives", ", ".join(f"{f.name} {f.type.display}" for f in plan.columns)),
        Section("Plan", plan=explained(plan.relation, name_of, plan.lookups)),
    ]
    for index, numbers in too_wide(plan.relation, plan.scanned, context.state):
        asked, keys = (", ".join(chosen) for chosen in ((index.keys[number] for number in numbers), index.keys))
        text = f"{name_of(index.id)} is not used, its key ({keys}) has more than what is asked for ({asked})"
        sections.append(Section("Note", text))
    if (elsewhere := _without_spark(plan)) is not None:
        return [*sections, Section("Runs", elsewhere)]
    sql = plan.spark_sql(context.bindings())
    for recursion in plan.recursions(context.bindings()):
        iterations = f"{recursion.anchor}\n{recursion.step}"
        sections.append(Section("Runs", "on Spark, repeatedly", body=iterations, body_name="Spark SQL"))
    sections.append(Section("Runs", "on Spark", body=sql, body_name="Spark SQL"))
    if plan.inputs and is_maintainable(plan.relation):
        section = await maintenance(context.coordinator, plan, None, shown)
        sections += [section, *probing(context.coordinator)] if section.plan is not None else [section]
    return sections


def _index(context: Context, subject: _Subject) -> list[Section]:
    index = subject.index
    if index is None:
        return []
    name_of = _names(context)
    return [Section("Index", f"{name_of(index.id)} on {name_of(index.on)} by ({', '.join(index.keys)})")]


def _without_spark(plan: QueryPlan) -> str | None:
    if plan.constant is not None:
        return "in the server, a constant"
    if plan.direct_scan is not None:
        keys = " with the given keys" if plan.direct_scan.keys else ""
        source = "index" if {*plan.lookups} | (plan.scanned - plan.inputs) else "log"
        return f"in the server, unchanged rows of the {source}{keys}"
    return None


async def _physical(context: Context, subject: _Subject, shown: Shown) -> Section:
    if not is_maintainable(subject.query.relation):
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            "the query cannot be kept up to date",
            detail="mz_now() is compared with columns of several queries, or is used outside a temporal filter.",
            hint="Rewrite the condition as mz_now() < expression, or with <=, =, >= or >, joined to others by AND.",
        )
    section = await maintenance(context.coordinator, subject.query, subject.flow, shown)
    return replace(section, headless=section.plan is not None)


async def _spark_plan(context: Context, plan: QueryPlan, statement: s.Explain) -> str:
    """Spark's EXPLAIN of the statement over the current rows of its inputs: Spark plans by their number."""
    if (elsewhere := _without_spark(plan)) is not None:
        return f"Spark is not asked: runs {elsewhere}"
    if plan.expanded is not None:
        plan = plan.expanded()
    views: dict[str, pa.Table] = {}
    time = context.coordinator.latest_time()
    if plan.inputs:
        await context.enter(Mode.READ, "EXPLAIN")
        time = context.read_times.hold(plan.inputs)
        views = {id: await input_rows(context, id, time) for id in plan.inputs}
    bindings = context.bindings(mz_now=time)
    views = dict(await with_recursive_views(plan, bindings, context.engine, views))
    sql = plan.spark_sql(bindings, small=are_small(views))
    explained = await context.engine.run(f"EXPLAIN {(statement.spark_mode or '').upper()} {sql}", views)
    return str(explained.column(0)[0].as_py()).rstrip()


async def _of_catalogs(context: Context, statement: s.Explain, subject: _CatalogSubject) -> list[Section]:
    """A query that the catalog engine executes: its relations and columns. The engine's own plan is not shown."""
    plan = subject.plan
    names = {".".join(context.state.full_name(item)) for item in relations_of(context, plan.tree) if item is not None}
    sections = [
        Section("Reads", ", ".join(sorted(names)) or "nothing"),
        Section("Gives", ", ".join(f"{f.name} {f.type.display}" for f in plan.columns)),
    ]
    figures: dict[str, object] = {}
    annotation = ""
    begun = monotonic()
    if statement.analyze:
        result = await run_catalog_query(context, plan, subject.parameters)
        assert result.rows is not None
        figures["Actual Rows"] = rows = (await result.rows.take(None)).num_rows
        annotation = f": {rows} row{'s' if rows != 1 else ''}"
    ms = _ms_since(begun)
    sections.append(Section("Plan", plan=Outline("Catalog Query", annotation=annotation, figures=figures)))
    sections.append(Section("Runs", "in the catalog engine"))
    if statement.summary:
        sections.append(Section("Planning Time", ms=subject.planning_ms))
        if statement.analyze:
            sections.append(Section("Execution Time", ms=ms))
    return sections


# -- ANALYZE --------------------------------------------------------------------------------------------------------


async def _analyzed(context: Context, statement: s.Explain, subject: _Subject) -> list[Section]:
    if subject.run is None:
        return await _of_dataflow(context, statement, subject)
    begun = monotonic()
    with recorded() as steps:
        result = await subject.run()
        rows = 0
        if result.rows is not None:
            fields, table = result.rows.fields, await result.rows.take(None)
            encoder = RowEncoder([f.type for f in fields], [0] * len(fields), context.settings.output_style)
            with step("encode") as encoding:
                encode = encode_table(encoder.encode)
                encoding.bytes = sum([len(chunk) async for chunk in encoded_chunks(table, encode)])
                encoding.rows = rows = table.num_rows
    ms = (monotonic() - begun) * 1e3
    actual: dict[str, object] = {"Actual Rows": rows}
    if not statement.no_timing:
        actual["Actual Total Time"] = round(ms, 3)
    plan = explained(subject.query.relation, _names(context), subject.query.lookups)
    sections = [
        Section("Plan", plan=replace(plan, figures={**plan.figures, **actual})),
        Section("Steps", items=[_shown(context, it, timing=not statement.no_timing) for it in steps]),
    ]
    if statement.summary:
        sections.append(Section("Execution Time", ms=ms))
    return sections


def _shown(context: Context, it: Step, *, timing: bool) -> Outline:
    title = _STEPS[it.what] + (f" {_names(context)(ObjectId(it.of))}" if it.of else "")
    figures: dict[str, object] = {"Actual Rows": it.rows}
    text = f": {it.rows} row{'s' if it.rows != 1 else ''}"
    if it.bytes is not None:
        figures["Bytes"] = it.bytes
        text += f", {it.bytes} bytes"
    if timing:
        figures["Actual Total Time"] = round(it.seconds * 1e3, 3)
        text += f", {ms_text(it.seconds * 1e3)}"
        if it.parts:
            text += ": " + ", ".join(f"{name} {ms_text(seconds * 1e3)}" for name, seconds in it.parts.items())
            figures |= {f"{name.title()} Time": round(seconds * 1e3, 3) for name, seconds in it.parts.items()}
    return Outline(title, annotation=text, figures=figures)


async def _of_dataflow(context: Context, statement: s.Explain, subject: _Subject) -> list[Section]:
    if subject.flow is None:
        raise PgError(
            SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE,
            "no dataflow of this query runs",
            detail="A query has a dataflow while a client is subscribed to it. A whole relation or an index has none.",
            hint="Use EXPLAIN PHYSICAL PLAN to show how the query would be maintained.",
        )
    timing = not statement.no_timing
    shown = Shown(statements=statement.verbose, arrangements=True, work=True, times=timing)
    coordinator = context.coordinator
    kept = await maintenance(coordinator, subject.query, subject.flow, shown)
    return [*progress(coordinator, subject.flow, times=timing), kept]


# -- TIMESTAMP ------------------------------------------------------------------------------------------------------


async def _timestamp(context: Context, inner: Explained, *, as_json: bool) -> str:
    match inner:
        case s.Select(as_of=as_of):
            plan = await offload(inner.text, plan_statement, context, inner)
            assert isinstance(plan, QueryPlan)
        case s.Subscribe(as_of=as_of):
            subscription = (await offload(inner.text, prepare, context, inner)).plan
            assert isinstance(subscription, SubscribePlan)
            plan = subscription.query
        case _:
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "EXPLAIN TIMESTAMP is for SELECT and SUBSCRIBE",
                hint="Write EXPLAIN TIMESTAMP FOR SELECT ...",
            )
    privileges.require_query(context.state, context.role, plan)
    return await explain_timestamp(context, plan, as_of, as_json=as_json)
