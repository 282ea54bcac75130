"""Clients that write: each records what it sent, when it sent it, and the server's answer.

There are three tables. `events` has rows that are inserted in groups, some of them large, and deleted again. In
`ledger`, some transactions record that they wrote to `events`. UPDATEs move money between the rows of `accounts`; these
need Spark.
"""

from __future__ import annotations

import random
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import psycopg
from psycopg import errors

from tests.faults.subscriber import kept, passes

ACCOUNTS, MONEY = 5, 1_000
SETUP = (
    "CREATE TABLE events (writer int, seq int, part int, pad text, PRIMARY KEY (writer, seq, part))",
    "CREATE TABLE ledger (writer int, seq int, UNIQUE (seq, writer))",
    "CREATE TABLE accounts (id int PRIMARY KEY, balance int, tag text)",
    f"INSERT INTO accounts VALUES {', '.join(f'({id}, {MONEY}, NULL)' for id in range(ACCOUNTS))}",
    "CREATE MATERIALIZED VIEW totals AS SELECT writer, count(*) AS n, sum(seq) AS s FROM ledger GROUP BY writer",
)
PARITIES = "(SELECT id % 2 AS parity, count(*) AS n, sum(balance) AS money FROM accounts GROUP BY id % 2)"
Row = tuple[Any, ...]
RETRY_S = 0.02


@dataclass
class Operation:
    """One transaction. Times are of the machine's monotonic clock, in ns.

    `rows`: by table, the rows that it inserts, as subscribers store them, or that it deletes. `acknowledged_ns` is None
    if the connection was lost before an answer. `refused` is None unless the server answered with an error.
    """

    kind: Literal["insert", "pair", "delete", "transfer"]
    writer: int
    seq: int
    rows: dict[str, list[Row]]
    sent_ns: int = 0
    acknowledged_ns: int | None = None
    refused: str | None = None
    deletes: Operation | None = None

    @property
    def name(self) -> str:
        return f"{self.kind} {self.writer}-{self.seq}"


@dataclass
class Writer(threading.Thread):
    """Writes until it is stopped, over one connection after another.

    `unexplained`: errors that no fault of the run explains.
    """

    dsn: str
    number: int
    seed: int
    operations: list[Operation] = field(default_factory=list)
    unexplained: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(daemon=True, name=f"writer {self.number}")
        self._stopping = threading.Event()
        self._dice = random.Random(self.seed)
        self._pause_s = 0.0

    def __hash__(self) -> int:
        return id(self)

    @property
    def acknowledgements(self) -> int:
        return sum(operation.acknowledged_ns is not None for operation in self.operations)

    @property
    def refusals(self) -> int:
        return sum(operation.refused is not None for operation in self.operations)

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                with psycopg.connect(self.dsn, autocommit=True, connect_timeout=10) as connection:
                    while not self._stopping.is_set():
                        self._write(connection)
                        self._stopping.wait(self._pause_s)
            except Exception as error:
                if not passes(error):
                    self.unexplained.append(f"writer {self.number}: {type(error).__name__}: {error}")
            self._stopping.wait(RETRY_S)

    def _write(self, connection: psycopg.Connection[Any]) -> None:
        self._pause_s = self._dice.choice([0, 0.001, 0.02, 0.1])
        operation, statements = self.choose(len(self.operations) + 1)
        self.operations.append(operation)
        operation.sent_ns = time.monotonic_ns()
        try:
            if len(statements) == 1:
                connection.execute(*statements[0])
            else:
                with connection.transaction():
                    for statement in statements:
                        connection.execute(*statement)
        except psycopg.Error as error:
            if error.sqlstate is not None and error.sqlstate[:2] not in ("08", "57"):
                operation.refused = error.sqlstate
            raise
        operation.acknowledged_ns = time.monotonic_ns()
        self.acknowledged(operation, connection)

    def choose(self, seq: int) -> tuple[Operation, list[tuple[bytes, Row]]]:
        """The next operation, and its statements."""
        mine = [o for o in self.operations[-40:] if o.kind in ("insert", "pair") and o.acknowledged_ns]
        deleted = {o.deletes.seq for o in self.operations[-40:] if o.deletes}
        mine = [o for o in mine if o.seq not in deleted]
        if len(mine) > 3 and self._dice.random() < 0.3:
            old = self._dice.choice(mine)
            operation = Operation("delete", self.number, seq, {"events": old.rows["events"]}, deletes=old)
            return operation, [(b"DELETE FROM events WHERE writer = %s AND seq = %s", (self.number, old.seq))]
        sizes = [0, 10, 10, 10, 2_000, 90_000]
        rows: list[Row] = [
            (self.number, seq, part, "x" * self._dice.choice(sizes)) for part in range(self._dice.choice([1, 1, 2, 5]))
        ]
        places = b", ".join([b"(%s, %s, %s, %s)"] * len(rows))
        insert = b"INSERT INTO events VALUES " + places, tuple(value for row in rows for value in row)
        added = {"events": [tuple(kept(value) for value in row) for row in rows]}
        if self._dice.random() < 0.3:
            note = b"INSERT INTO ledger VALUES (%s, %s)", (self.number, seq)
            added["ledger"] = [(self.number, seq)]
            undone = [
                (b"SAVEPOINT s", ()),
                (b"DELETE FROM events WHERE writer = %s", (self.number,)),
                insert,
                (b"ROLLBACK TO s", ()),
            ]
            return Operation("pair", self.number, seq, added), [insert, *self._dice.choice([[], undone]), note]
        return Operation("insert", self.number, seq, added), [insert]

    def acknowledged(self, operation: Operation, connection: psycopg.Connection[Any]) -> None:
        """Checks from time to time that acknowledged rows can be read."""
        if self._dice.random() < 0.1 and operation.kind != "delete":
            query = b"SELECT part FROM events WHERE writer = %s AND seq = %s"
            found = connection.execute(query, (self.number, operation.seq)).fetchall()
            if len(found) != len(operation.rows["events"]):
                self.unexplained.append(f"{operation.name} was acknowledged, and a read finds {len(found)} rows of it")
            with suppress(errors.UniqueViolation):
                again = b"INSERT INTO events VALUES (%s, %s, 0, 'again')"
                connection.execute(again, (self.number, operation.seq))
                self.unexplained.append(f"the key of {operation.name}, which was acknowledged, was accepted again")


class Teller(Writer):
    """Moves money between two accounts, with one UPDATE of both."""

    def __hash__(self) -> int:
        return id(self)

    def choose(self, seq: int) -> tuple[Operation, list[tuple[bytes, Row]]]:
        payer, payee = self._dice.sample(range(ACCOUNTS), 2)
        amount = self._dice.randrange(1, 20)
        statement = (
            b"UPDATE accounts SET balance = balance + CASE WHEN id = %s THEN %s::int ELSE %s::int END, tag = %s::text "
            b"WHERE id IN (%s, %s)"
        )
        tag = f"{self.number}-{seq}"
        operation = Operation("transfer", self.number, seq, {"accounts": [(payer, -amount, tag), (payee, amount, tag)]})
        return operation, [(statement, (payer, -amount, amount, tag, payer, payee))]

    def acknowledged(self, operation: Operation, connection: psycopg.Connection[Any]) -> None:
        """Reads the balances again, because its accounts may have changed."""
