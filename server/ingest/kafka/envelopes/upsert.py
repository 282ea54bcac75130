"""ENVELOPE UPSERT and DEBEZIUM UPSERT: the last message of a key is its row, and a message without value deletes it.

With K the keys of a step, `last(k)` the row of the last message of k, and A the output before the step:

    ΔA = { (last(k), +1) : k ∈ K with a value } - { (a, 1) : a ∈ A, key(a) ∈ K }

docs/envelopes.md has the states of a key, errors included.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from catalog import updates
from catalog.hashing import key_hashes
from server.ingest.kafka.avro_format import Part
from server.ingest.kafka.envelopes.envelope import Decoded, Mask, Step, decode, replaced, unavailable
from server.ingest.kafka.errors import DecodeFailure, Failures, identity
from server.ingest.kafka.keyed_output import KeyedOutput, Numbers, groups_of, last_of_each
from server.ingest.kafka.layout import AFTER, Layout
from server.ingest.kafka.messages import Messages

Rows = NDArray[np.intp]

_PREFIX = "Envelope error: Upsert: "
_NULL_KEY = (
    f"{_PREFIX}Null key: record with NULL key in UPSERT source; to retract this error, produce a record upstream with "
    "a NULL key and NULL value"
)
_NULL_ID = "null key"


class UpsertEnvelope:
    """The rows of keys. `is_debezium`: the row is the field `after` of the value."""

    def __init__(
        self,
        topic: str,
        layout: Layout,
        failures: Failures,
        output: Callable[[], KeyedOutput],
        *,
        is_debezium: bool = False,
    ) -> None:
        """`output` returns the rows of the collection by key; the envelope closes it."""
        self.failures = failures
        self._topic = topic
        self._layout = layout
        self._open = output
        self._output: KeyedOutput | None = None
        self._is_debezium = is_debezium

    async def step(self, messages: Messages) -> Step:
        messages = messages.in_order()
        decoded = await decode(self._layout, messages)
        assert decoded.key is not None
        null_key = np.asarray(messages.keys.is_null())
        bad_key = decoded.key.failed & ~null_key
        changed = self._key_failures(decoded, np.flatnonzero(null_key), np.flatnonzero(bad_key))
        rows = np.flatnonzero(~null_key & ~bad_key)
        columns = [decoded.key.columns[path] for _, path in self._layout.key]
        keys = pa.table(columns, names=[f"c{i}" for i in range(len(columns))])
        if len(rows) < len(messages):
            keys = keys.take(pa.array(rows))
        groups = groups_of(keys)
        last = last_of_each(groups)
        chosen = rows[last]
        keys = keys.take(pa.array(last))

        deleted = np.asarray(messages.values.is_null())
        failed = decoded.value.failed & ~deleted
        if self._is_debezium:
            deleted = deleted | (~failed & ~np.asarray(decoded.value.columns[(AFTER,)].fill_null(False)))
        changed.update(self._value_failures(decoded, chosen, keys, failed))
        present = ~deleted[chosen] & (~failed[chosen] if self._layout.error is None else True)
        new = self._layout.rows(messages, decoded.key, decoded.value)
        if self._layout.error is not None and failed.any():
            new = self._with_errors(new, decoded.value, failed)
        if self._output is None:
            self._output = self._open()
        old, numbers = await self._output.find(keys)
        if self._is_debezium:
            new = self._with_unchanged(new, failed | deleted, rows, groups, last, old, numbers)
        new = new.take(pa.array(chosen[present]))
        state = self.failures.changed(changed)
        if old.num_rows == 0:
            return Step([new], state)
        return Step([updates.with_diff(old, -1), updates.with_diff(new, 1)], state)

    def _key_failures(self, decoded: Decoded, null: Rows, bad: Rows) -> dict[str, DecodeFailure | None]:
        """The errors of keys that are null or cannot be decoded. A message without value retracts the error."""
        changed: dict[str, DecodeFailure | None] = {}
        values = decoded.messages.values
        for row in null[-1:].tolist():
            is_error = values[row].is_valid
            failure = DecodeFailure(_NULL_KEY, decoded.detail(row, self._topic)) if is_error else None
            changed[_NULL_ID] = failure
        assert decoded.key is not None
        for row in bad.tolist():
            id = identity("key", decoded.messages.keys[row].as_py())
            changed[id] = None
            if values[row].is_valid:
                text = f"{_PREFIX}Key decode: {decoded.key.reason(row)}"
                changed[id] = DecodeFailure(text, decoded.detail(row, self._topic, of_key=True))
        return changed

    def _value_failures(
        self, decoded: Decoded, chosen: Rows, keys: pa.Table, failed: Mask
    ) -> dict[str, DecodeFailure | None]:
        """The errors of values that cannot be decoded. Any later message of the key retracts its error."""
        is_error = failed[chosen] if self._layout.error is None else np.zeros(len(chosen), np.bool_)
        live = {int(id[6:22], 16) for id in self.failures.live if id.startswith("value:")}
        if not live and not is_error.any():
            return {}
        hashes = key_hashes(keys, keys.column_names)
        touched = np.flatnonzero(is_error | np.isin(hashes, np.array(sorted(live), np.uint64)))
        changed: dict[str, DecodeFailure | None] = {}
        for number in touched.tolist():
            values = {name: keys[i][number].as_py() for i, name in enumerate(self._layout.key_names)}
            id = identity(f"value:{int(hashes[number]):016x}", repr(values).encode())
            row = int(chosen[number])
            changed[id] = None
            if is_error[number]:
                text = f"{_PREFIX}Value error: {decoded.value.reason(row)}, decoded key: {_text(values)}"
                changed[id] = DecodeFailure(text, decoded.detail(row, self._topic))
        return changed

    def _with_errors(self, new: pa.Table, value: Part, failed: Mask) -> pa.Table:
        """Rows of values that cannot be decoded have the reason in the error column, and NULL in those of the value."""
        assert self._layout.error is not None
        reasons = pa.array([value.reason(row) for row in np.flatnonzero(failed).tolist()], pa.string())
        for position, _ in self._layout.values:
            new = replaced(new, position, failed, pa.nulls(int(failed.sum()), new.schema.field(position).type))
        return replaced(new, self._layout.error, failed, reasons)

    def _with_unchanged(
        self, new: pa.Table, unusable: Mask, rows: Rows, groups: Numbers, last: Rows, old: pa.Table, numbers: Numbers
    ) -> pa.Table:
        """Replaces unavailable values by those of the key's previous message in the step, else of its old row."""
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

    def partitions_added(self, count: int) -> None:
        """A key may be in any partition."""

    def close(self) -> None:
        if self._output is not None:
            self._output.close()
            self._output = None


def _text(values: dict[str, object]) -> str:
    return "(" + ", ".join("NULL" if value is None else str(value) for value in values.values()) + ")"
