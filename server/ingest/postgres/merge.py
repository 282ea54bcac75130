"""Changes of a collection from the changes of its table: pure functions over columns.

With REPLICA IDENTITY FULL, PostgreSQL sends the old rows (`changes_of_rows`). Otherwise it sends at most their keys,
and the old rows are those of the collection (`changes_of_keys`). Then the changes of one or more transactions are

    - the rows of the keys that occur  + the last row of each of these keys

because a key is unique at the end of each transaction: what a transaction did in between does not show.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from catalog import updates
from protocol.pgoutput.messages import INSERT
from protocol.pgoutput.rows import Mask, Positions
from server.ingest.postgres.typed_rows import Rows, TypedRows

_NONE = -1


class UnknownRow(Exception):
    """PostgreSQL changed a row that the collection does not have."""


def changes_of_rows(rows: TypedRows) -> pa.Table:
    """The changes of INSERT, and of UPDATE and DELETE with old rows. Not consolidated; rows if nothing is retracted."""
    new, old = rows.new, rows.old
    columns = []
    for column, name in enumerate(new.table.column_names):
        values, mask = new.table[name].combine_chunks(), new.unchanged[column]
        if mask is not None:
            values = _filled(values, mask, new.messages, old, name)
        columns.append(values)
    inserted = pa.table(columns, names=new.table.column_names)
    if not old.table.num_rows:
        return inserted
    return pa.concat_tables([updates.with_diff(old.table, -1), updates.with_diff(inserted, 1)])


def needs_old_rows(rows: TypedRows) -> bool:
    """Whether a message retracts a row that was not sent."""
    return int((rows.kinds != INSERT).sum()) > len(rows.old.messages)


def keys_of(rows: TypedRows, key: Sequence[str]) -> pa.Table:
    """The keys that occur. UnknownRow if one was not sent."""
    return pa.concat_tables([rows.keys.table.select(key), _with_keys(rows, key).select(key)])


def changes_of_keys(rows: TypedRows, key: Sequence[str], found: pa.Table) -> pa.Table:
    """The changes of messages without old rows. Not consolidated.

    `found`: the collection's rows before, at least those with the keys of `keys_of`. UnknownRow if one that was changed
    is missing.
    """
    new = _with_keys(rows, key)
    groups = updates.row_numbers(pa.concat_tables([table.select(key) for table in (found, rows.keys.table, new)]))
    of_found, of_keys, of_new = np.split(groups, [found.num_rows, found.num_rows + rows.keys.table.num_rows])
    group_of_new = np.full(len(rows.kinds), _NONE)
    group_of_new[rows.new.messages] = of_new
    group_before = group_of_new.copy()
    group_before[rows.keys.messages] = of_keys

    # Three kinds of events, by time: the rows found, then for each message the end of the old row and the new row.
    # `rows_then`: the number of the row that the key has after the event, in `found` and then in `new`.
    removing = np.flatnonzero(rows.kinds != INSERT)
    event_group = np.concatenate([of_found, group_before[removing], of_new])
    event_time = np.concatenate([np.full(len(of_found), _NONE), 2 * removing, 2 * rows.new.messages + 1])
    rows_then = np.concatenate(
        [np.arange(len(of_found)), np.full(len(removing), _NONE), len(of_found) + np.arange(len(of_new))]
    )
    order = np.lexsort((event_time, event_group))
    event_group, rows_then = event_group[order], rows_then[order]
    follows = np.zeros(len(order), bool)  # an earlier event of the same key
    follows[1:] = event_group[1:] == event_group[:-1]
    previous = np.full(len(order), _NONE)
    previous[1:] = np.where(follows[1:], rows_then[:-1], _NONE)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    replaced = previous[place[len(of_found) : len(of_found) + len(removing)]]  # the old row of each in `removing`
    if (replaced == _NONE).any():
        raise UnknownRow
    last = np.ones(len(order), bool)
    last[:-1] = ~follows[1:]
    touched = np.zeros(int(groups.max(initial=_NONE)) + 1, bool)
    touched[of_new] = touched[of_keys] = True
    final = rows_then[last]
    final = np.sort(final[(final != _NONE) & touched[event_group[last]]])

    predecessor = np.full(len(rows.kinds), _NONE)
    predecessor[removing] = replaced
    both = _complete(found, new, rows.new, predecessor)
    retracted = updates.with_diff(found.filter(pa.array(touched[of_found])), -1)
    return pa.concat_tables([retracted, updates.with_diff(both.take(pa.array(final)), 1)])


def _with_keys(rows: TypedRows, key: Sequence[str]) -> pa.Table:
    """The new rows. A key that was not sent because it is TOASTed and did not change is the old one, which was sent."""
    table = rows.new.table
    for name in key:
        column = table.column_names.index(name)
        mask = rows.new.unchanged[column]
        if mask is not None:
            values = table[name].combine_chunks()
            table = table.set_column(column, name, _filled(values, mask, rows.new.messages, rows.keys, name))
    return table


def _filled(values: pa.Array, mask: Mask, messages: Positions, before: Rows, name: str) -> pa.Array:
    """`values`, which belong to `messages`, with those of the same messages in `before` where `mask` is set."""
    if not np.isin(messages[mask], before.messages).all():
        raise UnknownRow
    source = np.arange(len(values))
    source[mask] = len(values) + np.searchsorted(before.messages, messages[mask])
    return pa.concat_arrays([values, before.table[name].combine_chunks()]).take(pa.array(source))


def _complete(found: pa.Table, new: pa.Table, rows: Rows, predecessor: Positions) -> pa.Table:
    """`found` and `new` with the values of `new` that were not sent, which are those of the row's predecessors."""
    both = pa.concat_tables([found, new])
    for column, (name, mask) in enumerate(zip(new.column_names, rows.unchanged, strict=True)):
        if mask is None:
            continue
        source = np.arange(both.num_rows)
        source[found.num_rows :][mask] = predecessor[rows.messages[mask]]
        while not np.array_equal(further := source[source], source):  # halves the chains of rows that lack the value
            source = further
        both = both.set_column(column, name, both[name].take(pa.array(source)))
    return both
