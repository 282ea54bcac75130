"""The set of the updates that a reader has received and whose times are not closed.

Rows are found by hash in an open-addressed table of row numbers, which numpy probes for a whole batch together, and are
then compared exactly. The rows themselves are in a few Arrow tables of geometrically decreasing size:

    slots[hash(row) + k] = row number        rows = chunks[0] ++ chunks[1] ++ ...

Closed rows stay until the table is rebuilt, so that memory is proportional to the open rows and the largest batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from protocol.cdcv2.messages import TIME, Integers, are_before
from protocol.columnar.equality import equal_rows
from protocol.columnar.hashing import key_hashes

SLOTS_MIN = 1 << 12
CHUNK_BYTES_MAX = 256 << 20  # chunks are not merged to larger ones: Arrow's offsets of texts have 32 bits
SPARE = 32  # slots per open row above which the table is made smaller
_FREE = -1

Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Rows with the numbers `start`, `start + 1`, ..."""

    start: int
    rows: pa.Table

    @property
    def end(self) -> int:
        count: int = self.rows.num_rows
        return self.start + count


class OpenUpdates:
    """A set of updates, with the number of the call in which each arrived first."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._open = 0
        self._latest = 0  # rows of the last call of `add`
        self._reset(SLOTS_MIN)

    def __len__(self) -> int:
        return self._open

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        rows: int = sum(chunk.rows.nbytes for chunk in self._chunks)
        return rows + self._slots.nbytes + self._hashes.nbytes + self._times.nbytes + self._arrivals.nbytes

    def oldest(self) -> int | None:
        """The least arrival of the open updates."""
        open_rows = self._is_open[: self._used]
        return int(self._arrivals[: self._used][open_rows].min()) if self._open else None

    def add(self, updates: pa.Table, arrival: int) -> Integers:
        """Adds the updates that are not in the set. Returns their times."""
        count = self._latest = updates.num_rows
        if 2 * (self._used + count) > len(self._slots):
            self._rebuild(count)
        hashes = key_hashes(updates, updates.column_names)
        self._hashes[self._used : self._used + count] = hashes
        place = self._insert(updates, np.arange(count))
        new = np.flatnonzero(place >= 0)
        if len(new) < count:
            updates = updates.take(pa.array(new))
        times: Integers = updates[TIME].to_numpy()
        self._append(updates, hashes[new], times, np.full(len(new), arrival))
        self._slots[place[new]] = np.arange(self._used - len(new), self._used)
        return times

    def take(self, before: int) -> pa.Table:
        """Removes the updates at times before a frontier, and returns them in the order of their times."""
        chosen = np.flatnonzero(self._is_open[: self._used] & are_before(self._times[: self._used], before))
        self._is_open[chosen] = False
        self._open -= len(chosen)
        chosen = chosen[np.argsort(self._times[chosen], kind="stable")]
        found = self._rows(chosen)
        if len(self._slots) > max(SLOTS_MIN, SPARE * (self._open + self._latest)):
            self._rebuild(self._latest)
        return found

    # -- the table of slots -----------------------------------------------------------------------------------------

    def _insert(self, updates: pa.Table, rows: Rows) -> Integers:
        """The slot of each row that is not in the set; -1 for the others. Slots have `used + row` as row number."""
        place = np.full(updates.num_rows, -1, np.int64)
        mask = len(self._slots) - 1
        slots = (self._hashes[self._used + rows] & np.uint64(mask)).astype(np.int64)
        while len(rows):
            alike: list[tuple[Rows, Integers, Integers]] = []
            while len(rows):
                numbers = self._used + rows
                found = self._slots[slots]
                free = found == _FREE
                self._slots[slots[free]] = numbers[free]  # of rows that claim the same slot, one wins
                won = self._slots[slots] == numbers
                place[rows[won]] = slots[won]
                taken = ~free
                same = taken & (self._hashes[found] == self._hashes[numbers])
                if same.any():
                    alike.append((rows[same], found[same].astype(np.int64), slots[same]))
                slots = np.where(taken, (slots + 1) & mask, slots)  # losers look at the same slot again
                left = ~won & ~same
                rows, slots = rows[left], slots[left]
            if alike:
                rows, numbers, slots = (np.concatenate(part) for part in zip(*alike, strict=True))
                differ = ~self._are_equal(updates, rows, numbers)  # equal hashes of different rows
                rows, slots = rows[differ], (slots[differ] + 1) & mask
        return place

    def _are_equal(self, updates: pa.Table, rows: Rows, numbers: Integers) -> NDArray[np.bool_]:
        """Whether rows of the batch equal the rows with these numbers, which may be of the batch themselves."""
        equal = np.zeros(len(rows), np.bool_)
        for chunk in (*self._chunks, _Chunk(self._used, updates)):
            own = np.flatnonzero((numbers >= chunk.start) & (numbers < chunk.end))
            if len(own):
                held = chunk.rows.take(pa.array(numbers[own] - chunk.start))
                equal[own] = equal_rows(updates.take(pa.array(rows[own])), held)
        return equal

    def _rebuild(self, more: int) -> None:
        """Forgets closed rows, and makes the table large enough for `more` rows."""
        rows = np.flatnonzero(self._is_open[: self._used])
        hashes, times, arrivals = self._hashes[rows], self._times[rows], self._arrivals[rows]
        updates = self._rows(rows)
        self._reset(max(SLOTS_MIN, 1 << (4 * (len(rows) + more)).bit_length()))
        mask = len(self._slots) - 1
        left = np.arange(len(rows))
        slots = (hashes & np.uint64(mask)).astype(np.int64)
        while len(left):  # the rows are distinct: each takes the first free slot
            free = self._slots[slots] == _FREE
            self._slots[slots[free]] = left[free]
            lost = self._slots[slots] != left
            slots = np.where(free, slots, (slots + 1) & mask)[lost]
            left = left[lost]
        self._open = 0
        self._append(updates, hashes, times, arrivals)

    def _reset(self, slots: int) -> None:
        self._slots = np.full(slots, _FREE, np.int32)
        rows = slots // 2
        self._hashes = np.empty(rows, np.uint64)
        self._times = np.empty(rows, np.int64)
        self._arrivals = np.empty(rows, np.int64)
        self._is_open = np.zeros(rows, np.bool_)
        self._used = 0
        self._chunks: list[_Chunk] = []

    # -- rows -------------------------------------------------------------------------------------------------------

    def _append(
        self, updates: pa.Table, hashes: NDArray[np.unsignedinteger], times: Integers, arrivals: Integers
    ) -> None:
        if not updates.num_rows:
            return
        part = slice(self._used, self._used + updates.num_rows)
        self._hashes[part], self._times[part], self._arrivals[part], self._is_open[part] = hashes, times, arrivals, True
        self._chunks.append(_Chunk(self._used, updates.combine_chunks()))
        self._used, self._open = part.stop, self._open + updates.num_rows
        while len(self._chunks) > 1:
            first, second = self._chunks[-2:]
            if first.rows.num_rows >= 2 * second.rows.num_rows:
                break
            if first.rows.nbytes + second.rows.nbytes > CHUNK_BYTES_MAX:
                break
            rows = pa.concat_tables([first.rows, second.rows]).combine_chunks()
            self._chunks[-2:] = [_Chunk(first.start, rows)]

    def _rows(self, numbers: Integers) -> pa.Table:
        """The rows with these numbers, in their order."""
        parts, start, places = [], 0, np.empty(len(numbers), np.int64)
        for chunk in self._chunks:
            own = np.flatnonzero((numbers >= chunk.start) & (numbers < chunk.end))
            if len(own):
                parts.append(chunk.rows.take(pa.array(numbers[own] - chunk.start)))
                places[own] = np.arange(start, start + len(own))
                start += len(own)
        if len(parts) <= 1:
            return parts[0] if parts else self._schema.empty_table()
        return pa.concat_tables(parts).combine_chunks().take(pa.array(places))
