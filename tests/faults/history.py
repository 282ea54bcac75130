"""The model: decides whether a correct server can have given the clients the answers that they recorded.

The model is independent of the server. Writers record what they wrote and what was acknowledged; subscribers record the
changes and the progress that they received. All subscribers of a relation must have received the same history. Each
acknowledged operation occurs in it once and completely; every other operation occurs once and completely, or not at
all. An operation is later than all progress that was received before it was sent. The history adds up to the contents
of the relation at the end.
"""

from __future__ import annotations

import bisect
import itertools
import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.writers import ACCOUNTS, MONEY, Drawn, Operation, Row

Changes = dict[int, Counter[Row]]
"""By time. The numbers are diffs, consolidated."""


@dataclass(frozen=True)
class Violation:
    """`kind`: loss, double, order (of times), unity (a part of an operation), hold, or other."""

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass
class Segment:
    """What one subscriber received without a gap: the rows at `as_of`, and all changes before the last progress."""

    relation: str
    as_of: int
    changes: Changes
    progress: list[tuple[int, int]]  # (time, when it was received in ns), in the order of receipt

    @property
    def end(self) -> int:
        """All changes before this time were received."""
        return self.progress[-1][0]

    def at(self, time: int) -> Counter[Row]:
        """The rows at `time`, for as_of <= time < end."""
        rows: Counter[Row] = Counter()
        for changed in sorted(self.changes):
            if changed > time:
                break
            _add(rows, self.changes[changed])
        return rows


def _add(rows: Counter[Row], changes: Mapping[Row, int]) -> None:
    for row, diff in changes.items():
        rows[row] += diff
        if not rows[row]:
            del rows[row]


@dataclass
class Account:
    """The contents of a subscriber's file."""

    relation: str
    segments: list[Segment] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, file: Path, relation: str) -> Account:
        account = cls(relation)
        with closing(sqlite3.connect(file)) as store:
            account.broken = [what for (what,) in store.execute("SELECT what FROM broken")]
            segments = store.execute("SELECT id, as_of FROM segments ORDER BY id").fetchall()
            for id, as_of in segments:
                changes: Changes = defaultdict(Counter)
                for time, diff, row in store.execute("SELECT time, diff, row FROM updates WHERE segment = ?", (id,)):
                    changes[time][tuple(json.loads(row))] += diff
                query = "SELECT time, received_ns FROM progress WHERE segment = ? ORDER BY rowid"
                progress = store.execute(query, (id,)).fetchall()
                account.segments.append(Segment(relation, as_of, dict(changes), progress))
        return account

    @property
    def updates(self) -> int:
        return sum(len(changes) for segment in self.segments for changes in segment.changes.values())


def violations(
    operations: Sequence[Operation], accounts: Sequence[Account], contents: Mapping[str, Counter[Row]]
) -> list[Violation]:
    """`contents`: the contents of each relation at the end, after the last operation and before the last progress."""
    found = [Violation("other", what) for account in accounts for what in account.broken]
    histories: dict[str, list[Segment]] = defaultdict(list)
    for account in accounts:
        histories[account.relation] += account.segments
        found += _order(account)
    for relation, segments in histories.items():
        found += _one_history(relation, segments, contents[relation])
    found += _operations(operations, histories, contents)
    subscribers = Counter(account.relation for account in accounts)
    found += _times(operations, histories, subscribers, [p for a in accounts for s in a.segments for p in s.progress])
    moved = {(id, tag): amount for o in operations for id, amount, tag in o.rows.get("accounts", ())}
    for segment in histories["accounts"]:
        found += _money(segment, moved)
    for view, source, query in (("totals", "ledger", totals), ("parities", "accounts", parities)):
        for one, other in itertools.product(histories[view], histories[source]):
            found += _derived(one, other, query)
    return found


def repeated_values(writers: Iterable[Sequence[Drawn]]) -> Iterator[Violation]:
    """A sequence never returns a value twice, and each writer receives ascending values."""
    seen: Counter[tuple[str, int]] = Counter()
    for drawn in writers:
        last: dict[str, int] = {}
        for one in drawn:
            seen[one.sequence, one.value] += 1
            if one.value <= last.get(one.sequence, 0):
                yield Violation("order", f"{one.sequence} returned {one.value} after {last[one.sequence]}")
            last[one.sequence] = one.value
    for (sequence, value), count in seen.items():
        if count > 1:
            yield Violation("double", f"{sequence} returned {value} {count} times")


def _order(account: Account) -> Iterator[Violation]:
    """Progress never decreases, neither within a stream nor from one stream to the next."""
    last = 0
    for segment in account.segments:
        for time, _ in segment.progress:
            if time < last:
                yield Violation("order", f"{account.relation}: progress at {time} after progress at {last}")
            last = max(last, time)


def _one_history(relation: str, segments: Sequence[Segment], contents: Counter[Row]) -> Iterator[Violation]:
    """Multiplicities are not negative, the changes add up to the contents, and all subscribers received the same
    changes."""
    for segment in segments:
        rows: Counter[Row] = Counter()
        for time in sorted(segment.changes):
            _add(rows, segment.changes[time])
            for row in segment.changes[time]:
                if rows[row] < 0:
                    yield Violation("loss", f"{relation} at {time}: {row} was taken away that was not there")
    for segment in segments[-1:]:
        yield from _differ(f"{relation}, accumulated and at the end", segment.at(segment.end), contents)
    for one, other in itertools.combinations(segments, 2):
        lower, upper = max(one.as_of, other.as_of), min(one.end, other.end)
        if lower >= upper:
            continue
        yield from _differ(f"{relation} at {lower}, two subscribers", one.at(lower), other.at(lower))
        for time in sorted(t for t in {*one.changes, *other.changes} if lower < t < upper):
            one_changes, other_changes = one.changes.get(time, Counter()), other.changes.get(time, Counter())
            yield from _differ(f"{relation}, changes at {time}, two subscribers", one_changes, other_changes)


def _differ(what: str, one: Mapping[Row, int], other: Mapping[Row, int]) -> Iterator[Violation]:
    for row in {*one, *other}:
        if one.get(row, 0) != other.get(row, 0):
            kind = "double" if max(one.get(row, 0), other.get(row, 0)) > 1 else "loss"
            yield Violation(kind, f"{what}: {row} {one.get(row, 0)} times and {other.get(row, 0)} times")
            return  # the first one is enough: the others are mostly consequences of it


def _operations(
    operations: Sequence[Operation], histories: Mapping[str, Sequence[Segment]], contents: Mapping[str, Counter[Row]]
) -> Iterator[Violation]:
    """Each acknowledged operation is present once and completely, a refused one is absent, any other one may be
    absent."""
    unknown = {(table, row) for table in ("events", "ledger") for row in contents[table]}
    deletes = {o.deletes.name: o for o in operations if o.deletes is not None}
    for operation in operations:
        if operation.kind not in ("insert", "pair"):
            continue
        delete = deletes.get(operation.name)
        counts = {}
        for table, rows in operation.rows.items():
            unknown -= {(table, row) for row in rows}
            counts[table] = {contents[table][row] for row in rows}
        if max(max(found) for found in counts.values()) > 1:
            yield Violation("double", f"{operation.name} is there more than once: {counts}")
            continue
        if max(len(found) for found in counts.values()) > 1 or (
            delete is None and len({*itertools.chain(*counts.values())}) > 1
        ):
            yield Violation("unity", f"{operation.name} is there in part: {counts}")
            continue
        for table, (count,) in counts.items():
            took = delete if table == "events" else None
            fate = (operation, 1) if took is None else (took, 0)
            if fate[0].acknowledged_ns is not None and count != fate[1]:
                yield Violation("loss", f"{fate[0].name} was acknowledged, and {table} has its rows {count} times")
            if fate[0].refused is not None and count == fate[1]:
                yield Violation("double", f"{fate[0].name} was refused ({fate[0].refused}), and was done in {table}")
    for table, row in unknown:
        yield Violation("other", f"{table} holds {row}, which nobody wrote")


def _times(
    operations: Sequence[Operation],
    histories: Mapping[str, Sequence[Segment]],
    subscribers: Mapping[str, int],
    progress: list[tuple[int, int]],
) -> Iterator[Violation]:
    """An operation has one time, which is the same for all subscribers whose history has no gap.

    It is after all progress that was received before the operation was sent, and after its writer's previous operation.
    """
    progress = sorted(progress, key=lambda received: received[1])
    received = [ns for _, ns in progress]
    greatest = list(itertools.accumulate((time for time, _ in progress), max))
    times = _times_of_operations(operations, histories)
    whole = {relation for relation, segments in histories.items() if len(segments) == subscribers[relation]}
    latest: dict[int, tuple[int, str]] = {}
    for operation in operations:
        found = times[operation.name]
        if not found and operation.acknowledged_ns is not None and operation.rows.keys() <= whole:
            yield Violation("loss", f"{operation.name} was acknowledged and never shown")
        if found and operation.refused is not None:
            yield Violation("double", f"{operation.name} was refused ({operation.refused}) and shown")
        if len(found) > 1:
            yield Violation("unity", f"{operation.name} was shown at {sorted(found)}")
        for time, count in found.items():
            before = bisect.bisect_left(received, operation.sent_ns)
            if before and time < greatest[before - 1]:
                yield Violation("order", f"{operation.name} is at {time}, progress was {greatest[before - 1]} before")
            if count > 1:
                yield Violation("double", f"{operation.name} was shown {count} times")
            last, name = latest.get(operation.writer, (0, ""))
            if time <= last and operation.acknowledged_ns is not None:
                yield Violation("order", f"{operation.name} is at {time}, {name} before it at {last}")
            if operation.acknowledged_ns is not None:
                latest[operation.writer] = time, operation.name


def _times_of_operations(
    operations: Sequence[Operation], histories: Mapping[str, Sequence[Segment]]
) -> dict[str, Counter[int]]:
    """The times at which each operation's changes were received, with the greatest number of occurrences."""
    shown: dict[tuple[str, Row, int], Counter[int]] = defaultdict(Counter)
    for relation, segments in histories.items():
        seen: dict[int, Counter[Row]] = {}
        for segment in segments:
            seen.update({time: changes for time, changes in segment.changes.items() if time > segment.as_of})
        for time, changes in seen.items():
            for row, diff in changes.items():
                key = (row[0], 0, row[2]) if relation == "accounts" else row
                shown[relation, key, 1 if diff > 0 else -1][time] += abs(diff)
    times: dict[str, Counter[int]] = {}
    for operation in operations:
        sign = -1 if operation.kind == "delete" else 1
        found: Counter[int] = Counter()
        for relation, rows in operation.rows.items():
            for row in rows:
                key = (row[0], 0, row[2]) if relation == "accounts" else row
                found |= shown.get((relation, key, sign), Counter())
        times[operation.name] = found
    return times


def _money(segment: Segment, moved: Mapping[tuple[int, str], int]) -> Iterator[Violation]:
    """At each time, each account exists once, the sum of the money is unchanged, and each transfer has the requested
    amount."""
    balances: dict[int, int] = {}
    for time in sorted(segment.changes):
        changes = segment.changes[time]
        gone = sorted((id, balance) for (id, balance, _), diff in changes.items() for _ in range(-diff))
        come = sorted((id, balance, tag) for (id, balance, tag), diff in changes.items() for _ in range(diff))
        before = balances
        balances = {**before, **{id: balance for id, balance, _ in come}}
        if [id for id, _, _ in come] != ([id for id, _ in gone] if before else list(range(ACCOUNTS))):
            yield Violation("unity", f"accounts at {time}: {dict(changes)}")
        elif sum(balances.values()) != ACCOUNTS * MONEY:
            yield Violation("unity", f"accounts at {time} do not add up: {balances}")
        elif before:
            for id, balance, tag in come:
                if balance - before[id] != moved.get((id, tag)):
                    yield Violation("loss", f"accounts at {time}: {tag} moved {balance - before[id]}")


def totals(ledger: Mapping[Row, int]) -> Counter[Row]:
    """The result of the materialized view's query."""
    sums: dict[int, tuple[int, int]] = {}
    for (writer, seq), count in ledger.items():
        n, s = sums.get(writer, (0, 0))
        sums[writer] = n + count, s + count * seq
    return Counter((writer, n, s) for writer, (n, s) in sums.items())


def parities(accounts: Mapping[Row, int]) -> Counter[Row]:
    """The result of the query PARITIES."""
    sums: dict[int, tuple[int, int]] = {}
    for (id, balance, _), count in accounts.items():
        n, money = sums.get(id % 2, (0, 0))
        sums[id % 2] = n + count, money + count * balance
    return Counter((parity, n, money) for parity, (n, money) in sums.items())


def _derived(view: Segment, source: Segment, query: Callable[[Mapping[Row, int]], Counter[Row]]) -> Iterator[Violation]:
    """At each time, the view contains the result of its query over the source at that time."""
    lower, upper = max(view.as_of, source.as_of), min(view.end, source.end)
    if lower >= upper:
        return
    shown, rows = view.at(lower), source.at(lower)
    for time in (lower, *sorted(t for t in {*view.changes, *source.changes} if lower < t < upper)):
        if time > lower:
            _add(shown, view.changes.get(time, Counter()))
            _add(rows, source.changes.get(time, Counter()))
        if (wanted := query(rows)) != shown:
            yield Violation("loss", f"{view.relation} at {time}: {shown}, its query over {source.relation}: {wanted}")
            return
