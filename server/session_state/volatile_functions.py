"""The functions of `server.sql.volatile` for one session: values of sequences and random values.

Calls that need no waiting are evaluated on the event loop, while a constant is evaluated. If the evaluation turns out
to need waiting or another process, `undo` takes the values back, so that they are returned by the evaluation to follow.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from catalog.ids import ObjectId
from catalog.objects.sequences import Sequence as SequenceItem
from catalog.roles import Privilege
from protocol.pgwire.errors import PgError, SqlState
from server.authorization import privileges
from server.coordinator.sequences import State
from server.session_state.session_state import SessionState
from server.sql.constant import NotCheap
from server.sql.expressions import Volatile
from server.sql.sequence_names import find_sequence
from server.sql.volatile import LAST_VALUES

_UUID_BYTES = 16
_PRIVILEGES = {
    "nextval": (Privilege.USAGE, Privilege.UPDATE),
    "setval": (Privilege.UPDATE,),
    "currval": (Privilege.USAGE, Privilege.SELECT),
    "lastval": (Privilege.USAGE, Privilege.SELECT),
}
"""One of the privileges that each function requires on the sequence."""


class VolatileFunctions:
    """A session's volatile functions, and the values of sequences that it was given."""

    def __init__(self, context: SessionState) -> None:
        self._context = context
        self._values: dict[ObjectId, int] = {}
        self._last: ObjectId | None = None
        self._undo: list[Callable[[], None]] = []

    @cached_property
    def _random(self) -> random.Random:
        """Takes 2.5 kB, so that a session has it only once it is needed."""
        return random.Random()

    def forget(self) -> None:
        """DISCARD SEQUENCES: forgets the values for currval() and lastval()."""
        self._values.clear()
        self._last = None

    # -- calls on the event loop --------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begins an evaluation that `undo` can take back."""
        self._undo = []

    def undo(self) -> None:
        """Takes back the values of the evaluation since `begin`, during which nothing else has run."""
        while self._undo:
            self._undo.pop()()

    def value(self, call: Volatile, arguments: Sequence[Any]) -> Any:
        """The value of a call. NotCheap if it has to wait. PgError."""
        match call.name:
            case "nextval":
                return self._next(call, arguments)
            case "setval":
                raise NotCheap
            case "currval" | "lastval":
                return self._last_value(call, arguments)
            case "setseed":
                return self._set_seed(arguments[0])
            case "gen_random_uuid":
                return str(uuid.uuid4())
            case _:
                before = self._random.getstate()
                self._undo.append(lambda: self._random.setstate(before))
                return self._random_value(call.name, arguments)

    def _next(self, call: Volatile, arguments: Sequence[Any]) -> int | None:
        sequence = self._sequence(call, arguments)
        if sequence is None:
            return None
        self._check_writes("nextval")
        state = self._state(sequence)
        before, values, last = (state.value, state.is_called), self._values.get(sequence.id), self._last
        value = state.next(sequence)
        if value is None:
            raise NotCheap

        def undo() -> None:
            state.value, state.is_called = before
            state.remaining += 1
            self._last = last
            if values is None:
                self._values.pop(sequence.id, None)
            else:
                self._values[sequence.id] = values

        self._undo.append(undo)
        self._note(sequence.id, value)
        return value

    def sequence_value(self, function: str, name: str) -> int | bool:
        """currval(name), lastval(), or a column of the row of the sequence with this id. PgError 55000."""
        state = self._context.state
        if function == "lastval":
            if self._last is None or self._last not in state.items:
                message = "lastval is not yet defined in this session"
                raise PgError(SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE, message)
            self._require(self._last, function)
            return self._values[self._last]
        if function == "currval":
            sequence = self._named(name)
            self._require(sequence.id, function)
            if sequence.id not in self._values:
                message = f'currval of sequence "{sequence.name}" is not yet defined in this session'
                raise PgError(SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE, message)
            return self._values[sequence.id]
        item = state.items[ObjectId(name)]
        assert isinstance(item, SequenceItem)
        found = self._state(item)
        return {"last_value": found.value, "log_cnt": found.remaining, "is_called": found.is_called}[function]

    def _last_value(self, call: Volatile, arguments: Sequence[Any]) -> int | None:
        """The value of currval(name) or lastval() in a query that also calls functions that change it."""
        return None if None in arguments else int(self.sequence_value(call.name, "".join(arguments)))

    # -- calls that may wait ------------------------------------------------------------------------------------

    async def column(self, call: Volatile, arguments: Sequence[Sequence[Any]], count: int) -> pa.Array:
        """The values of a call in `count` rows. `arguments`: its arguments' values, by argument and row. PgError."""
        if call.sequence is not None and call.name == "nextval":
            return pa.array(await self.next_values(call, count))
        if call.name == "random":
            bits = self._random.getrandbits(64)
            return pa.array(np.random.default_rng(bits).random(count))
        if call.name == "gen_random_uuid":
            return _uuids(count)
        values = [await self._waited(call, [argument[row] for argument in arguments]) for row in range(count)]
        return pa.array(values, call.type.arrow)

    async def values(
        self, calls: Sequence[tuple[Volatile, Sequence[Sequence[Any]]]], count: int
    ) -> dict[int, pa.Array]:
        """The values of calls, by number, evaluated row by row. Each call comes with the values of its arguments."""
        found: dict[int, list[Any]] = {call.number: [] for call, _ in calls}
        for row in range(count):
            for call, arguments in calls:
                found[call.number].append(await self._waited(call, [argument[row] for argument in arguments]))
        return {call.number: pa.array(found[call.number], call.type.arrow) for call, _ in calls}

    async def next_values(self, call: Volatile, count: int) -> np.ndarray[Any, Any]:
        """The next values of the call's sequence."""
        sequence = self._sequence(call, ())
        assert sequence is not None
        self._check_writes("nextval")
        if count == 0:
            return np.empty(0, np.int64)
        runs = await self._state(sequence).take(sequence, count)
        parts = [first + sequence.increment * np.arange(length, dtype=np.int64) for first, length in runs]
        values = np.concatenate(parts)
        self._note(sequence.id, int(values[-1]))
        return values

    async def _waited(self, call: Volatile, arguments: Sequence[Any]) -> Any:
        if call.name in LAST_VALUES:
            return self._last_value(call, arguments)
        if call.name == "setval":
            return await self._set(call, arguments)
        if call.name == "nextval":
            sequence = self._sequence(call, arguments)
            if sequence is None:
                return None
            return int((await self.next_values(_of(call, sequence.id), 1))[0])
        return self.value(call, arguments)

    async def _set(self, call: Volatile, arguments: Sequence[Any]) -> int | None:
        sequence = self._sequence(call, arguments)
        value, *rest = arguments if call.sequence is not None else arguments[1:]
        is_called = rest[0] if rest else True
        if sequence is None or value is None or is_called is None:
            return None
        self._check_writes("setval")
        if not sequence.minimum <= value <= sequence.maximum:
            bounds = f"({sequence.minimum}..{sequence.maximum})"
            message = f'setval: value {value} is out of bounds for sequence "{sequence.name}" {bounds}'
            raise PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, message)
        await self._state(sequence).set(value, is_called=is_called)
        if is_called:
            self._values[sequence.id] = value
        return int(value)

    async def reserve(self, calls: Sequence[Volatile], count: int) -> None:
        """Reserves values of the sequences, so that `value` need not wait for `count` calls of each."""
        for id in {call.sequence for call in calls if call.name == "nextval"}:
            item = None if id is None else self._context.state.items.get(id)
            if isinstance(item, SequenceItem):
                await self._state(item).reserve(item, count)

    # -- parts --------------------------------------------------------------------------------------------------

    def current_state(self, sequence: SequenceItem) -> State:
        """The state of a sequence as the session sees it."""
        return self._state(sequence)

    def _state(self, sequence: SequenceItem) -> State:
        coordinator, transaction = self._context.coordinator, self._context.transaction
        key = sequence.id, sequence.generation
        if transaction.catalog is not None:
            committed = coordinator.state.items.get(sequence.id)
            if not isinstance(committed, SequenceItem) or committed.generation != sequence.generation:
                if key not in transaction.sequences:
                    transaction.sequences[key] = State(*key, sequence.first, False, None)
                return transaction.sequences[key]
        return coordinator.sequences.state(sequence)

    def _sequence(self, call: Volatile, arguments: Sequence[Any]) -> SequenceItem | None:
        """The sequence of a call; None if its argument is NULL. PgError 42501."""
        if call.sequence is not None:
            item = self._context.state.items.get(call.sequence)
            if not isinstance(item, SequenceItem):
                message = f"could not open relation with OID {call.sequence[1:]}"
                raise PgError(SqlState.UNDEFINED_TABLE, message)
        elif arguments[0] is None:
            return None
        else:
            item = self._named(arguments[0])
        if not call.implied:
            self._require(item.id, call.name)
        return item

    def _named(self, name: str) -> SequenceItem:
        context = self._context
        return find_sequence(context.state, name, context.settings["database"], context.search_path, None)

    def _require(self, id: ObjectId, function: str) -> None:
        state, role = self._context.state, self._context.role
        if privileges.is_superuser(state, role):
            return
        if not any(privileges.has(state, role, id, privilege) for privilege in _PRIVILEGES[function]):
            raise privileges.denied(state, id)

    def _check_writes(self, function: str) -> None:
        if self._context.transaction.read_only:
            message = f"cannot execute {function}() in a read-only transaction"
            raise PgError(SqlState.READ_ONLY_SQL_TRANSACTION, message)

    def _note(self, id: ObjectId, value: int) -> None:
        self._values[id] = value
        self._last = id

    def _set_seed(self, seed: float | None) -> str | None:
        if seed is None:
            return None
        if not -1 <= seed <= 1:
            message = f"setseed parameter {seed:g} is out of allowed range [-1,1]"
            raise PgError(SqlState.INVALID_PARAMETER_VALUE, message)
        self._random.seed(seed)
        return ""

    def _random_value(self, name: str, arguments: Sequence[Any]) -> float | None:
        if None in arguments:
            return None
        return self._random.gauss(*arguments) if name == "random_normal" else self._random.random()


def _of(call: Volatile, sequence: ObjectId) -> Volatile:
    return Volatile(call.name, (), call.type, call.number, sequence, implied=True)


def _uuids(count: int) -> pa.Array:
    """Random UUIDs (version 4) as texts."""
    data = np.random.default_rng().integers(0, 256, (count, _UUID_BYTES), dtype=np.uint8)
    data[:, 6] = data[:, 6] & 0x0F | 0x40
    data[:, 8] = data[:, 8] & 0x3F | 0x80
    digits = data.tobytes().hex()
    width = 2 * _UUID_BYTES
    texts = (digits[at : at + width] for at in range(0, count * width, width))
    return pa.array([f"{t[:8]}-{t[8:12]}-{t[12:16]}-{t[16:20]}-{t[20:]}" for t in texts], pa.string())
