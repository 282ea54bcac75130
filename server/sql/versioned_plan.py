"""Evaluates an operator for several versions of its inputs in one statement.

Input and output rows have a version column. The output rows of a version are the operator's result for the input rows
of that version alone: groups, partitions, distinct rows and joins never combine rows of different versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from catalog.ids import ObjectId
from protocol.pgwire.types import BOOL, INT8
from server.sql.columns import NewColumns
from server.sql.conditions import all_of, parts
from server.sql.decorrelate.limits import numbered_limit
from server.sql.expressions import Call, Column, ColumnRef, Expression, SortKey
from server.sql.functions import syntax
from server.sql.functions.table import OPERATORS
from server.sql.relations import (
    Aggregate,
    Distinct,
    DistinctOn,
    Filter,
    Join,
    JoinKind,
    Limit,
    Project,
    Relation,
    Scan,
    SetOperation,
    Sort,
    Unnest,
    Window,
    joined,
    only,
)

_EQUAL = next(f for f in OPERATORS["="] if f.arguments == (INT8, INT8))


def equal(left: Column, right: Column) -> Expression:
    """The condition that two bigint columns are equal."""
    return Call(_EQUAL, (ColumnRef(left), ColumnRef(right)), BOOL, False)


def carried(node: Relation, base: Relation, over: Relation, more: tuple[Column, ...]) -> Relation:
    """A chain of Filter, Project and Unnest over `base`, moved to the relation `over`, with its columns `more` kept."""
    if node is base:
        return over
    match node:
        case Filter(input=input):
            return replace(node, input=carried(input, base, over, more))
        case Project(input=input, columns=columns, expressions=expressions):
            below = carried(input, base, over, more)
            return Project(below, (*columns, *more), (*expressions, *map(ColumnRef, more)))
        case Unnest(input=input, columns=columns):
            below = carried(input, base, over, more)
            return replace(node, input=below, columns=(*below.columns, *columns[len(input.columns) :]))
    raise AssertionError(node)


def versioned(node: Relation, versions: Mapping[ObjectId, Column], new: NewColumns) -> tuple[Relation, Column]:
    """The node over scans that have a version column (`versions`), and the version column in its own output."""
    match node:
        case Scan(id=id):
            return node, versions[id]
        case Filter(input=input):
            below, version = versioned(input, versions, new)
            return replace(node, input=below), version
        case Project(input=input, columns=columns, expressions=expressions):
            below, version = versioned(input, versions, new)
            return Project(below, (*columns, version), (*expressions, ColumnRef(version))), version
        case Unnest(input=input, columns=columns):
            below, version = versioned(input, versions, new)
            return replace(node, input=below, columns=(*below.columns, *columns[len(input.columns) :])), version
        case Join():
            return _join(node, versions, new)
        case Aggregate(input=input, keys=keys, columns=columns):
            below, version = versioned(input, versions, new)
            own = new.column("", ColumnRef(version))
            width = len(keys)
            grouped = (*columns[:width], own, *columns[width:])
            return replace(node, input=below, keys=(*keys, ColumnRef(version)), columns=grouped), own
        case Window(input=input, calls=calls, columns=columns):
            below, version = versioned(input, versions, new)
            apart = tuple(replace(call, partition=(*call.partition, ColumnRef(version))) for call in calls)
            return Window(below, apart, (*below.columns, *columns[len(input.columns) :])), version
        case Distinct(input=input):
            below, version = versioned(input, versions, new)
            return Distinct(only(below, (*_own(input, versions), version))), version
        case DistinctOn(input=input, keys=keys, order=order):
            below, version = versioned(input, versions, new)
            first = SortKey(ColumnRef(version), False, False)
            return DistinctOn(below, (ColumnRef(version), *keys), (first, *order)), version
        case SetOperation(left=left, right=right, columns=columns):
            sides = []
            for side in (left, right):
                below, version = versioned(side, versions, new)
                sides.append(only(below, (*_own(side, versions), version)))
            own = new.column("", ColumnRef(version))
            return replace(node, left=sides[0], right=sides[1], columns=(*columns, own)), own
        case Limit(input=Project(input=Sort()) as project):
            return versioned(replace(project, input=replace(node, input=project.input)), versions, new)
        case Limit(input=Sort(input=input) as sort):
            below, version = versioned(input, versions, new)
            limited = replace(node, input=replace(sort, input=below))
            return numbered_limit(limited, new, (version,)), version
        case Sort(input=input):
            return versioned(input, versions, new)
    raise AssertionError(node)


def _own(node: Relation, versions: Mapping[ObjectId, Column]) -> list[Column]:
    """A node's columns without the version columns of scans."""
    return [c for c in node.columns if all(c.id != version.id for version in versions.values())]


def _join(node: Join, versions: Mapping[ObjectId, Column], new: NewColumns) -> tuple[Relation, Column]:
    left, left_version = versioned(node.left, versions, new)
    right, right_version = versioned(node.right, versions, new)
    kind = JoinKind.INNER if node.kind is JoinKind.CROSS else node.kind
    condition = all_of([equal(left_version, right_version), *parts(node.condition)])
    whole = joined(kind, left, right, condition)
    if kind is not JoinKind.FULL:
        return whole, right_version if kind is JoinKind.RIGHT else left_version
    either = Call(syntax.COALESCE, (ColumnRef(left_version), ColumnRef(right_version)), INT8, False)
    version = new.column("", either)
    known = {c.id: c for c in whole.columns}
    columns = tuple(known[c.id] for c in node.columns)
    return Project(whole, (*columns, version), (*map(ColumnRef, columns), either)), version
