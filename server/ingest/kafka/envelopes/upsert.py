"""ENVELOPE UPSERT and DEBEZIUM UPSERT: the last message of a key is its row, and a message without value deletes it.

With K the keys of a step, `last(k)` the row of the last message of k, and A the output before the step:

    ΔA = { (last(k), +1) : k ∈ K with a value } - { (a, 1) : a ∈ A, key(a) ∈ K }

docs/envelopes.md has the states of a key, errors included.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from catalog import updates
from catalog.collection_errors import CollectionError
from protocol.columnar.hashing import key_hashes
from server.ingest.decoder_pool import DecoderPool
from server.ingest.kafka.avro_format import Part
from server.ingest.kafka.envelopes.envelope import (
    Decoded,
    Envelope,
    Errors,
    Mask,
    Step,
    decode,
    replaced,
    unavailable,
    worked,
)
from server.ingest.kafka.errors import Failures, identity
from server.ingest.kafka.layouts.debezium import AFTER
from server.ingest.kafka.layouts.layout import Layout
from server.ingest.kafka.messages import Messages
from server.ingest.key_join import KeyJoin, key_numbers
from server.ingest.keyed_rows import Numbers, last_of_each

Rows = NDArray[np.intp]

_PREFIX = "Envelope error: Upsert: "
_NULL_KEY = (
    f"{_PREFIX}Null key: record with NULL key in UPSERT source; to retract this error, produce a record upstream with "
    "a NULL key and NULL value"
)
_NULL_ID = "null key"
_NULL_HINT = "To remove the error, produce a message with a NULL key and a NULL value."
_KEY_HINT = "To remove the error, produce a message with the same bytes as key and a NULL value."
_VALUE_HINT = "To remove the error, produce a message with the same key, and with a valid value or a NULL value."


@dataclass(frozen=True)
class _Last:
    """The last message of each key of a step.

    `keys`: the distinct keys. `rows`: the messages with a key. `groups`: the number of each one's key. `ends`: the last
    of each key, as positions in `rows`. `deleted` and `failed`: of all messages. `failures`: changes of live errors.
    """

    keys: pa.Table
    rows: Rows
    groups: Numbers
    ends: Rows
    deleted: Mask
    failed: Mask
    failures: Errors

    @property
    def chosen(self) -> Rows:
        """The last message of each key."""
        return self.rows[self.ends]


class UpsertEnvelope(Envelope):
    """The rows of keys. `is_debezium`: the row is the field `after` of the value."""

    def __init__(
        self,
        topic: str,
        layout: Layout,
        failures: Failures,
        decoders: DecoderPool,
        output: Callable[[], KeyJoin],
        *,
        is_debezium: bool = False,
    ) -> None:
        """`output` returns the rows of the collection by key; the envelope closes it."""
        self.failures = failures
        self._topic = topic
        self._layout = layout
        self._decoders = decoders
        self._open = output
        self._output: KeyJoin | None = None
        self._is_debezium = is_debezium

    async def ahead(self, messages: Messages) -> Decoded:
        return await decode(self._layout, messages.in_order(), self._decoders)

    async def step(self, messages: Messages, ahead: Decoded | None = None) -> Step:
        decoded = ahead or await self.ahead(messages)
        messages = decoded.messages
        last = await worked(messages, self._last, decoded)
        if self._output is None:
            self._output = self._open()
        old, numbers = await self._output.find(last.keys)
        new = await worked(messages, self._new, decoded, last, old, numbers)
        self._count_inline(decoded, last)
        self._output.rows.keep()
        state = self.failures.changed(last.failures)
        if old.num_rows == 0:
            return Step([new], state)
        return Step([updates.with_diff(old, -1), updates.with_diff(new, 1)], state)

    def _last(self, decoded: Decoded) -> _Last:
        """The keys of the messages, and the last message of each."""
        messages = decoded.messages
        assert decoded.key is not None
        null_key = np.asarray(messages.keys.is_null())
        bad_key = decoded.key.failed & ~null_key
        failures = self._key_failures(decoded, np.flatnonzero(null_key), np.flatnonzero(bad_key))
        rows = np.flatnonzero(~null_key & ~bad_key)
        columns = [decoded.key.columns[path] for _, path in self._layout.key]
        keys = pa.table(columns, names=[f"c{i}" for i in range(len(columns))])
        if len(rows) < len(messages):
            keys = keys.take(pa.array(rows))
        groups = key_numbers(keys)
        ends = last_of_each(groups)
        keys = keys.take(pa.array(ends))
        deleted = np.asarray(messages.values.is_null())
        failed = decoded.value.failed & ~deleted
        if self._is_debezium:
            deleted = deleted | (~failed & ~np.asarray(decoded.value.columns[(AFTER,)].fill_null(False)))
        failures.update(self._value_failures(decoded, rows[ends], keys, failed))
        return _Last(keys, rows, groups, ends, deleted, failed, failures)

    def _new(self, decoded: Decoded, last: _Last, old: pa.Table, numbers: Numbers) -> pa.Table:
        """The new rows of the keys."""
        assert decoded.key is not None
        new = self._layout.rows(decoded.messages, decoded.key, decoded.value)
        if self._layout.error is not None and last.failed.any():
            new = self._with_errors(new, decoded.value, last.failed)
        if self._is_debezium:
            new = self._with_unchanged(new, last, old, numbers)
        chosen = last.chosen
        present = ~last.deleted[chosen] & (~last.failed[chosen] if self._layout.error is None else True)
        return new.take(pa.array(chosen[present]))

    def _key_failures(self, decoded: Decoded, null: Rows, bad: Rows) -> Errors:
        """The errors of keys that are null or cannot be decoded. A message without value retracts the error."""
        changed: Errors = {}
        values = decoded.messages.values
        for row in null[-1:].tolist():
            is_error = values[row].is_valid
            failure = CollectionError(_NULL_KEY, decoded.detail(row, self._topic), _NULL_HINT) if is_error else None
            changed[_NULL_ID] = failure
        assert decoded.key is not None
        for row in bad.tolist():
            id = identity("key", decoded.messages.keys[row].as_py())
            changed[id] = None
            if values[row].is_valid:
                text = f"{_PREFIX}Key decode: {decoded.key.reason(row)}"
                changed[id] = CollectionError(text, decoded.detail(row, self._topic, of_key=True), _KEY_HINT)
        return changed

    def _value_failures(self, decoded: Decoded, chosen: Rows, keys: pa.Table, failed: Mask) -> Errors:
        """The errors of values that cannot be decoded. Any later message of the key retracts its error."""
        is_error = failed[chosen] if self._layout.error is None else np.zeros(len(chosen), np.bool_)
        live = {int(id[6:22], 16) for id in self.failures.live if id.startswith("value:")}
        if not live and not is_error.any():
            return {}
        hashes = key_hashes(keys, keys.column_names)
        touched = np.flatnonzero(is_error | np.isin(hashes, np.array(sorted(live), np.uint64)))
        changed: Errors = {}
        for number in touched.tolist():
            values = {name: _value(keys[i][number]) for i, name in enumerate(self._layout.key_names)}
            id = identity(f"value:{int(hashes[number]):016x}", repr(values).encode())
            row = int(chosen[number])
            changed[id] = None
            if is_error[number]:
                text = f"{_PREFIX}Value error: {decoded.value.reason(row)}, decoded key: {_text(values)}"
                changed[id] = CollectionError(text, decoded.detail(row, self._topic), _VALUE_HINT)
        return changed

    def _count_inline(self, decoded: Decoded, last: _Last) -> None:
        """Counts the values that could not be decoded and have become rows."""
        failed = last.chosen[last.failed[last.chosen]]
        if self._layout.error is not None and len(failed):
            row = int(failed[-1])
            self.failures.count(len(failed), decoded.detail(row, self._topic), decoded.value.reason(row))

    def _with_errors(self, new: pa.Table, value: Part, failed: Mask) -> pa.Table:
        """Rows of values that cannot be decoded have the reason in the error column, and NULL in those of the value."""
        assert self._layout.error is not None
        reasons = pa.array([value.reason(row) for row in np.flatnonzero(failed).tolist()], pa.string())
        for position, _ in self._layout.values:
            new = replaced(new, position, failed, pa.nulls(int(failed.sum()), new.schema.field(position).type))
        return replaced(new, self._layout.error, failed, reasons)

    def _with_unchanged(self, new: pa.Table, steps: _Last, old: pa.Table, numbers: Numbers) -> pa.Table:
        """Replaces unavailable values by those of the key's previous message in the step, else of its old row."""
        rows, groups, last, unusable = steps.rows, steps.groups, steps.ends, steps.failed | steps.deleted
        for position, _ in self._layout.values:
            marked = unavailable(new.column(position))
            if not marked[rows[last]].any():
                continue
            order = np.argsort(groups, kind="stable")
            source = np.where((marked | unusable)[rows][order], -1, np.arange(len(order)))
            known = np.maximum.accumulate(source)
            starts = np.searchsorted(groups[order], groups[last], "left")
            ends = np.searchsorted(groups[order], groups[last], "right") - 1
            within = known[ends] >= starts
            old_of = np.full(len(last), -1)
            old_of[numbers] = np.arange(len(numbers))
            wanted = marked[rows[last]]
            for take, where, values in (
                (rows[order[known[ends]]], wanted & within, new.column(position)),
                (old_of, wanted & ~within & (old_of >= 0), old.column(position)),
            ):
                mask = np.zeros(new.num_rows, np.bool_)
                mask[rows[last][where]] = True
                sources = take[where][np.argsort(rows[last][where])]
                new = replaced(new, position, mask, values.take(pa.array(sources)))
        return new

    async def committed(self) -> None:
        if self._output is not None:
            await self._output.rows.committed()

    def partitions_added(self, count: int) -> None:
        """Does nothing: a key may be in any partition."""

    def close(self) -> None:
        if self._output is not None:
            self._output.rows.close()
            self._output = None


def _value(scalar: pa.Scalar) -> object:
    """The value; its text if Python has no such date or timestamp."""
    return str(scalar) if pa.types.is_temporal(scalar.type) else scalar.as_py()


def _text(values: dict[str, object]) -> str:
    return "(" + ", ".join("NULL" if value is None else str(value) for value in values.values()) + ")"
