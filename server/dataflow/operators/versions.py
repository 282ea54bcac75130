"""The rows of touched keys before and after each version of a step.

A key is touched in version i if a change of version i has the key. With A_i the rows in version i, and A_i[k] those of
the key k:

    f(A_i)[k] - f(A_{i-1})[k] = 0    if k is not touched in version i

Therefore the cost of a step is proportional to its pairs of a version and a key that the version touches, and not to
the number of versions times the number of keys. Keys are compared by their hashes; rows of another key with the same
hash are the same before and after, so they cancel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from catalog import updates
from catalog.updates import DIFF, DIFF_FIELD
from protocol.columnar.gather import rows_at
from protocol.columnar.hashing import Hashes, are_among, distinct_hashes, key_codes
from server.dataflow.arrangements.run import ByKey, ByKeyAndOrder, ByOrder, cut, first_codes
from server.dataflow.operators.operator import VERSION_FIELD, Step, consolidated, names_of, sorting_of
from server.dataflow.plan.nodes import VERSION, TopK

PAIRS_PER_VERSION = 2_000  # of an entry and a version: computing so many at once costs less than a version by itself


@dataclass(frozen=True, slots=True)
class Touched:
    """The hashes of the keys that a version touches, ascending and distinct. None: all keys of the step."""

    version: int
    key_hashes: Hashes | None


def touched_keys(step: Step, keys: Sequence[tuple[int, ...]], inputs: Sequence[pa.Table]) -> list[Touched]:
    """The versions with changes of one of the inputs, with the keys that they touch, by version."""
    if len(step.times) == 1:
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
    step: Step,
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
            has_changed = are_among(key_codes(current, names_of(key)), key_hashes)
            old, rest = current.filter(pa.array(has_changed)), current.filter(pa.array(~has_changed))
        changed = changes if len(step.times) == 1 else changes.filter(pc.equal(changes[VERSION], version))
        new = pa.concat_tables([old, changed.drop_columns([VERSION])])
        if step.since is not None and changed.num_rows:
            new = updates.consolidate(new)
        if top_k is None:
            check_counts(new)
        else:
            new = new.filter(pc.greater(new[DIFF], 0))
        yield Changed(version, first_rows(old, key, top_k), first_rows(new, key, top_k))
        if rest is not None and number + 1 < len(touched):
            current = pa.concat_tables([rest, new])


def rows_by_version(
    before: pa.Table,
    changes: pa.Table,
    key: tuple[int, ...],
    touched: Sequence[Touched],
    step: Step,
    top_k: TopK | None,
    *,
    with_before: bool = True,
) -> pa.Table:
    """The rows of `changed_rows` of all versions: those before a version with the negative version as `v`.

    In hydration, and if not `with_before`, only those in the version. The last column is the multiplicity.
    """
    if len(step.times) > 1:
        pairs = _Pairs.of(before, changes, key, touched)
        if pairs.count <= PAIRS_PER_VERSION * len(touched):
            return pairs.rows(key, top_k, with_before=with_before)
    parts = []
    for one in changed_rows(before, changes, key, touched, step, top_k):
        if step.since is not None and with_before:
            parts.append(_with_version(one.before, -one.version))
        parts.append(_with_version(one.after, one.version))
    return pa.concat_tables(parts)


@dataclass(frozen=True, slots=True)
class _Touches:
    """Each pair of a key and a version that touches it, ascending by the key's hash, then by version."""

    hashes: Hashes
    versions: NDArray[np.int64]

    @classmethod
    def of(cls, touched: Sequence[Touched]) -> _Touches:
        """`touched`: ascending by version, each with its hashes."""
        found = [one.key_hashes for one in touched if one.key_hashes is not None]
        assert len(found) == len(touched)
        hashes = np.concatenate(found)
        versions = np.repeat([one.version for one in touched], list(map(len, found)))
        order = np.argsort(hashes, kind="stable")
        return cls(hashes[order], versions[order])

    def after(self, hashes: Hashes, versions: NDArray[np.int64]) -> NDArray[np.intp]:
        """For each pair of a hash and a version, the index of the first touch that is greater."""
        width = np.uint64(max(self.versions.max(initial=0), versions.max(initial=0)) + 1)
        own = self.hashes.astype(np.uint64) * width + self.versions.astype(np.uint64)
        return np.searchsorted(own, hashes.astype(np.uint64) * width + versions.astype(np.uint64), "right")


@dataclass(frozen=True, slots=True)
class _Pairs:
    """All pairs of an entry, which is an old row or a change, and a touch of the entry's key.

    With e the entries, each with the version `v` from which on it applies (0 for old rows) and its `diff`:

        multiplicity of a row in version i = Σ diff(e) over its entries with v(e) <= i;  before i: with v(e) < i

    A group is the rows of a key on one side of a touch: number 2t before the touch with index t, 2t + 1 after it.
    `first_touch`, `touch_counts`: of each entry, the index of its key's first touch, and how many touches follow it.
    """

    entries: pa.Table
    entry_hashes: Hashes
    entry_versions: NDArray[np.int64]
    touches: _Touches
    first_touch: NDArray[np.intp]
    touch_counts: NDArray[np.intp]

    @classmethod
    def of(cls, before: pa.Table, changes: pa.Table, key: tuple[int, ...], touched: Sequence[Touched]) -> _Pairs:
        touches = _Touches.of(touched)
        entries = pa.concat_tables([before, changes.drop_columns([VERSION])])
        hashes = key_codes(entries, names_of(key))
        versions = np.concatenate([np.zeros(before.num_rows, np.int64), changes[VERSION].to_numpy()])
        first = np.searchsorted(touches.hashes, hashes, "left")
        counts = np.searchsorted(touches.hashes, hashes, "right") - first
        return cls(entries, hashes, versions, touches, first, counts)

    @property
    def count(self) -> int:
        return int(self.touch_counts.sum())

    def rows(self, key: tuple[int, ...], top_k: TopK | None, *, with_before: bool) -> pa.Table:
        """As `rows_by_version`."""
        entry, group, counts = self._summed(*self._grouped(with_before=with_before))
        if top_k is None and len(counts) and counts.min() < 0:
            raise updates.NegativeCount("of an operator's input")
        exist = counts > 0
        entry, group, counts = entry[exist], group[exist], counts[exist]
        rows = rows_at(updates.rows_of(self.entries), entry)
        if top_k is not None:
            sorting = sorting_of(top_k, key)
            assert not isinstance(sorting, ByKey)
            codes = (sorting.order if isinstance(sorting, ByKeyAndOrder) else sorting).codes(rows)
            is_first = codes <= self._last_codes(codes, group, counts, top_k.count)[group]
            is_first |= are_among(self.entry_hashes[entry], self._shared_hashes(key))  # all rows: more is harmless
            rows, group, counts = rows.filter(pa.array(is_first)), group[is_first], counts[is_first]
        versions = self.touches.versions[group // 2] * np.where(group % 2 == 1, 1, -1)
        return rows.append_column(VERSION_FIELD, pa.array(versions)).append_column(DIFF_FIELD, pa.array(counts))

    def _grouped(self, *, with_before: bool) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Each entry with each group to which it belongs: the indices of the entries, and the groups' numbers."""
        counts = self.touch_counts
        entry = np.repeat(np.arange(len(counts)), counts)
        number = np.arange(len(entry)) - np.repeat(np.cumsum(counts) - counts, counts)  # 0, 1, ... within an entry
        touch = np.repeat(self.first_touch, counts) + number
        age = self.touches.versions[touch] - self.entry_versions[entry]
        before = np.flatnonzero(age > 0) if with_before else np.empty(0, np.intp)
        after = np.flatnonzero(age >= 0)
        return (
            np.concatenate([entry[before], entry[after]]),
            np.concatenate([2 * touch[before], 2 * touch[after] + 1]),
        )

    def _summed(
        self, entry: NDArray[np.intp], group: NDArray[np.intp]
    ) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.int64]]:
        """For each distinct row of each group: an entry with this row, the group, and the row's multiplicity there."""
        row = pa.array(updates.row_numbers(updates.rows_of(self.entries))).dictionary_encode().indices.to_numpy()
        codes = row[entry].astype(np.int64) * (2 * len(self.touches.versions)) + group
        order = np.argsort(codes, kind="stable")
        starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
        diffs = self.entries[DIFF].to_numpy()[entry[order]]
        counts = np.add.reduceat(diffs, starts) if len(starts) else diffs
        return entry[order][starts], group[order][starts], counts

    def _last_codes(
        self, codes: NDArray[np.uint64], group: NDArray[np.intp], counts: NDArray[np.int64], limit: int
    ) -> NDArray[np.uint64]:
        """For each group, the order code of its row number `limit`; the greatest code if it has fewer rows."""
        order = np.lexsort((codes, group))
        starts = np.flatnonzero(np.diff(group[order], prepend=-1))
        so_far = np.cumsum(counts[order])
        lengths = np.diff(np.append(starts, len(order)))
        so_far -= np.repeat(so_far[starts] - counts[order][starts], lengths)
        is_enough = np.flatnonzero(so_far >= limit)
        last = np.full(2 * len(self.touches.versions), np.iinfo(np.uint64).max, np.uint64)
        np.minimum.at(last, group[order][is_enough], codes[order][is_enough])
        return last

    def _shared_hashes(self, key: tuple[int, ...]) -> Hashes:
        """The hashes that several keys of the entries share: a group of such a hash mixes the rows of these keys."""
        keys = updates.row_numbers(self.entries.select(names_of(key))) if key else np.zeros(len(self.entries), np.int64)
        order = np.argsort(self.entry_hashes, kind="stable")
        hashes, keys = self.entry_hashes[order], keys[order]
        return distinct_hashes(hashes[1:][(hashes[1:] == hashes[:-1]) & (keys[1:] != keys[:-1])])


def first_rows(rows: pa.Table, key: tuple[int, ...], top_k: TopK | None) -> pa.Table:
    """The rows, consolidated, that are among the first of their key, and ties with the last of them."""
    if top_k is None or rows.num_rows <= top_k.count:
        return rows
    sorting = sorting_of(top_k, key)
    if isinstance(sorting, ByOrder):
        return rows.filter(pa.array(first_codes(sorting.codes(rows), rows[DIFF].to_numpy(), top_k.count)))
    assert isinstance(sorting, ByKeyAndOrder)
    key_hashes = distinct_hashes(sorting.codes(rows))
    return cut(sorting, rows, key_hashes, np.full(len(key_hashes), top_k.count, np.int64))


def check_counts(rows: pa.Table) -> None:
    """NegativeCount if a multiplicity is negative."""
    if rows.num_rows and pc.min(rows[DIFF]).as_py() < 0:
        raise updates.NegativeCount("of an operator's input")


def _with_version(changes: pa.Table, version: int) -> pa.Table:
    return changes.add_column(
        changes.num_columns - 1, VERSION_FIELD, pa.array(np.full(changes.num_rows, version, np.int64))
    )


def replacements(
    found: pa.Table, old: pa.Table, key: tuple[int, ...], touched: Sequence[Touched], step: Step, schema: pa.Schema
) -> pa.Table:
    """The changes that follow from the results in each version, and the `old` ones of the step's keys, with `diff`.

    Results in a version replace those in the last version that touches the key, or the old ones.
    """
    rows, versions = found.drop_columns([VERSION]), found[VERSION].to_numpy()
    ended, ends, old_ends = rows.slice(0, 0), versions[:0], np.ones(len(old), np.int64)
    if len(step.times) > 1:
        touches = _Touches.of(touched)
        hashes = key_codes(rows, names_of(key))
        end = touches.after(hashes, versions)
        has_end = end < len(touches.hashes)
        has_end[has_end] = touches.hashes[end[has_end]] == hashes[has_end]
        ended, ends = rows.filter(pa.array(has_end)), touches.versions[end[has_end]]
        old_ends = touches.versions[np.searchsorted(touches.hashes, key_codes(old, names_of(key)))]
    every = pa.concat_tables([rows, ended, updates.rows_of(old)])
    diffs = np.concatenate([np.ones(len(rows), np.int64), np.full(len(ended), -1, np.int64), -old[DIFF].to_numpy()])
    columns = [*every.columns, pa.array(np.concatenate([versions, ends, old_ends])), pa.array(diffs)]
    return consolidated(pa.table(columns, schema=schema), step)


def signed_differences(found: pa.Table, step: Step, schema: pa.Schema) -> pa.Table:
    """The changes that follow from result rows with a signed version: -v before the version v, v after it."""
    versions = found[VERSION].to_numpy()
    rows = found.drop_columns([VERSION])
    columns = [*rows.columns, pa.array(np.abs(versions)), pa.array(np.sign(versions))]
    return consolidated(pa.table(columns, schema=schema), step)
