"""The rows of touched keys before and after each version of a step.

A key is touched in version i if a change of version i has the key. With A_i the rows in version i, and A_i[k] those of
the key k:

    f(A_i)[k] - f(A_{i-1})[k] = 0    if k is not touched in version i

Therefore the cost of a step is proportional to its pairs of a version and a key that the version touches, and not to
the number of versions times the number of keys. Keys are compared by their hashes; rows of another key with the same
hash are the same before and after, so they cancel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog import updates
from catalog.updates import DIFF
from protocol.columnar.hashing import Hashes, distinct_hashes, key_codes
from server.dataflow.arrangements.run import ByKeyAndOrder, ByOrder, cut, first_codes
from server.dataflow.operators.operator import VERSION_FIELD, Tick, consolidated, names_of, sorting_of
from server.dataflow.plan.nodes import VERSION, TopK


@dataclass(frozen=True, slots=True)
class Touched:
    """The hashes of the keys that a version touches, ascending and distinct. None: all keys of the step."""

    version: int
    key_hashes: Hashes | None


def touched_keys(tick: Tick, keys: Sequence[tuple[int, ...]], inputs: Sequence[pa.Table]) -> list[Touched]:
    """The versions with changes of one of the inputs, with the keys that they touch, by version."""
    if len(tick.times) == 1:
        return [Touched(1, None)]
    versions = np.concatenate([changes[VERSION].to_numpy() for changes in inputs])
    hashes = np.concatenate([key_codes(changes, names_of(key)) for changes, key in zip(inputs, keys, strict=True)])
    return [Touched(version, distinct_hashes(hashes[versions == version])) for version in np.unique(versions).tolist()]


@dataclass(frozen=True, slots=True)
class Changed:
    """The rows of the keys that a version touches, in the version before it and in it, with their multiplicities."""

    version: int
    before: pa.Table
    after: pa.Table


def changed_rows(
    before: pa.Table,
    changes: pa.Table,
    key: tuple[int, ...],
    touched: Sequence[Touched],
    tick: Tick,
    top_k: TopK | None,
) -> Iterator[Changed]:
    """Yields for each version the rows of the keys that it touches. In hydration `before` of the first is empty.

    `before`: the rows of the step's keys in version 0. With `top_k`, only the first rows of each key are returned. Rows
    removed from beyond the rows in `before` are not known: their negative multiplicities are dropped.
    NegativeCount if a multiplicity is negative otherwise.
    """
    if top_k is None:
        check_counts(before)
    current = before
    for number, (version, key_hashes) in enumerate((t.version, t.key_hashes) for t in touched):
        old, rest = current, None
        if key_hashes is not None:
            has_changed = np.isin(key_codes(current, names_of(key)), key_hashes)
            old, rest = current.filter(pa.array(has_changed)), current.filter(pa.array(~has_changed))
        changed = changes if len(tick.times) == 1 else changes.filter(pc.equal(changes[VERSION], version))
        new = pa.concat_tables([old, changed.drop_columns([VERSION])])
        if tick.since is not None and changed.num_rows:
            new = updates.consolidate(new)
        if top_k is None:
            check_counts(new)
        else:
            new = new.filter(pc.greater(new[DIFF], 0))
        yield Changed(version, first_rows(old, key, top_k), first_rows(new, key, top_k))
        if rest is not None and number + 1 < len(touched):
            current = pa.concat_tables([rest, new])


def first_rows(rows: pa.Table, key: tuple[int, ...], top_k: TopK | None) -> pa.Table:
    """The rows, consolidated, that are among the first of their key, and ties with the last of them."""
    if top_k is None or rows.num_rows <= top_k.count:
        return rows
    sorting = sorting_of(top_k, key)
    if isinstance(sorting, ByOrder):
        return rows.filter(pa.array(first_codes(sorting.key_hashes(rows), rows[DIFF].to_numpy(), top_k.count)))
    assert isinstance(sorting, ByKeyAndOrder)
    key_hashes = distinct_hashes(sorting.key_hashes(rows))
    return cut(sorting, rows, key_hashes, np.full(len(key_hashes), top_k.count, np.int64))


def check_counts(rows: pa.Table) -> None:
    """NegativeCount if a multiplicity is negative."""
    if rows.num_rows and pc.min(rows[DIFF]).as_py() < 0:
        raise updates.NegativeCount("of an operator's input")


def with_version(rows: pa.Table, version: int) -> pa.Table:
    """`rows` with a column `v`, which is `version` in all of them."""
    return rows.append_column(VERSION_FIELD, pa.array(np.full(rows.num_rows, version)))


def by_version(changed: Iterable[Changed], tick: Tick, rows_of: Callable[[pa.Table], pa.Table]) -> pa.Table:
    """The rows before each version, with the negative version as `v`, and in it. In hydration only those in it.

    `rows_of` turns rows with multiplicities into the rows to return.
    """
    parts = []
    for one in changed:
        if tick.since is not None:
            parts.append(with_version(rows_of(one.before), -one.version))
        parts.append(with_version(rows_of(one.after), one.version))
    return pa.concat_tables(parts)


def signed_differences(found: pa.Table, tick: Tick, schema: pa.Schema) -> pa.Table:
    """The changes that follow from result rows with a signed version: -v before the version v, v after it."""
    versions = found[VERSION].to_numpy()
    rows = found.drop_columns([VERSION])
    columns = [*rows.columns, pa.array(np.abs(versions)), pa.array(np.sign(versions))]
    return consolidated(pa.table(columns, schema=schema), tick)
