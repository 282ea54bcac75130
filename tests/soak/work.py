"""What the sessions do: each item of WORK uses a connection and leaves no object and no row of its own behind.

A session may be cancelled or disconnected within an item. What it leaves then is removed by `clean_up`.
"""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import asyncpg

SETUP = """
CREATE TABLE accounts (id bigint NOT NULL, balance bigint NOT NULL, note text);
CREATE TABLE events (id bigint NOT NULL, account bigint NOT NULL, amount numeric(12, 2), at timestamptz, note text);
CREATE TABLE keyed (id bigint PRIMARY KEY, value bigint);
CREATE INDEX accounts_id ON accounts (id);
CREATE VIEW rich AS SELECT id, balance FROM accounts WHERE balance > 500;
CREATE MATERIALIZED VIEW totals AS SELECT account, count(*) AS n, sum(amount) AS s FROM events GROUP BY account;
CREATE MATERIALIZED VIEW joined AS
    SELECT a.id, a.balance, t.n, t.s FROM accounts a LEFT JOIN totals t ON t.account = a.id;
INSERT INTO accounts SELECT g, g, 'account ' || g FROM generate_series(1, 1000) g;
INSERT INTO events SELECT g, g % 1000 + 1, g / 100.0, '2026-01-01'::timestamptz, 'event ' || g
    FROM generate_series(1, 5000) g;
"""
EXPECTED = (
    "57014",  # cancelled
    "40001",  # could not serialize access
    "40P01",  # deadlock detected
    "55P03",  # lock timeout
    "42P01",  # the relation is gone: another session has dropped it
    "53300",  # too many connections, while those that are lost are being closed
)


@dataclass(slots=True)
class Session:
    """A connection, with random numbers of its own. `number`: of the session; its objects have it in their names."""

    number: int
    random: Random
    connection: asyncpg.Connection[Any]
    http_port: int

    @property
    def key(self) -> int:
        """An id of rows that only this session inserts."""
        return 1_000_000 + self.number

    def new_name(self, prefix: str) -> str:
        """A name that no object has, also if an earlier item was interrupted."""
        return f"{prefix}_{self.number}_{self.random.randrange(10**9)}"

    async def run(self, sql: str, *arguments: Any) -> Any:
        return await self.connection.fetch(sql, *arguments)


Item = Callable[[Session], Awaitable[Any]]


async def constants(session: Session) -> None:
    for _ in range(20):
        await session.run("SELECT $1::int + 1, now(), current_user", session.random.randrange(1000))


async def aggregate(session: Session) -> None:
    await session.run("SELECT account % 7, count(*), sum(amount), max(note) FROM events GROUP BY 1 ORDER BY 1")


async def join(session: Session) -> None:
    low = session.random.randrange(1000)
    await session.run("SELECT a.id, e.note FROM accounts a JOIN events e ON e.account = a.id WHERE a.id < $1", low)


async def lookup(session: Session) -> None:
    for _ in range(10):
        await session.run("SELECT balance, note FROM accounts WHERE id = $1", session.random.randrange(1, 1001))


async def catalogs(session: Session) -> None:
    await session.run("SELECT relname, relkind FROM pg_class WHERE relname LIKE 'a%'")
    await session.run("SELECT * FROM mz_internal.mz_frontiers")


async def insert(session: Session) -> None:
    for number in range(10):
        await session.run(
            "INSERT INTO events VALUES ($1, $2, 1.5, now(), $3)",
            session.key,
            number + 1,
            "x" * session.random.randrange(200),
        )
    await session.run("DELETE FROM events WHERE id = $1", session.key)


async def update(session: Session) -> None:
    source, target = session.random.sample(range(1, 1001), 2)
    async with session.connection.transaction():
        await session.run("UPDATE accounts SET balance = balance - 1 WHERE id = $1", source)
        async with session.connection.transaction():
            await session.run("UPDATE accounts SET balance = balance + 1 WHERE id = $1", target)


async def keys(session: Session) -> None:
    for _ in range(5):
        await session.run(
            "INSERT INTO keyed VALUES ($1, 1) ON CONFLICT (id) DO UPDATE SET value = keyed.value + 1",
            session.random.randrange(50),
        )


async def copy(session: Session) -> None:
    rows = [(session.key, n % 1000 + 1, None, None, "copied") for n in range(session.random.choice((10, 2_000)))]
    await session.connection.copy_records_to_table("events", records=rows)
    await session.connection.copy_from_query("SELECT * FROM events LIMIT 500", output=_ignore)
    await session.run("DELETE FROM events WHERE id = $1", session.key)


async def rollback(session: Session) -> None:
    transaction = session.connection.transaction()
    await transaction.start()
    await session.run("CREATE TABLE rolled_back (a int)")
    await session.run("INSERT INTO events SELECT $1::bigint, id, NULL, NULL, note FROM accounts", session.key)
    await session.run("SELECT count(*) FROM events WHERE id = $1", session.key)
    await transaction.rollback()


async def definitions(session: Session) -> None:
    name = session.new_name("own")
    await session.run(f"CREATE TABLE {name} (a int, b text)")
    await session.run(f"INSERT INTO {name} SELECT g, g::text FROM generate_series(1, 100) g")
    await session.run(
        f"CREATE MATERIALIZED VIEW {name}_view AS SELECT a % 3 AS k, count(*) AS n FROM {name} GROUP BY 1"
    )
    await session.run(f"CREATE INDEX {name}_index ON {name}_view (k)")
    await session.run(f"ALTER TABLE {name} ADD COLUMN c int DEFAULT 7")
    await session.run(f"SELECT * FROM {name}_view WHERE k = 1")
    await session.run(f"DROP TABLE {name} CASCADE")


async def hold(session: Session) -> None:
    name = session.new_name("hold")
    await session.run(f"CREATE HOLD {name} ON events")
    await session.run("INSERT INTO events VALUES ($1, 1, 1, now(), 'held')", session.key)
    await session.run("DELETE FROM events WHERE id = $1", session.key)
    await session.run(f"DROP HOLD {name}")


async def cursor(session: Session) -> None:
    async with session.connection.transaction():
        rows = await session.connection.cursor("SELECT * FROM events ORDER BY id")
        await rows.fetch(100)


async def subscribed(session: Session) -> None:
    """FETCH from a subscription that shares its dataflow with others, or has one of its own."""
    queries = (
        "totals",
        "accounts",
        "(SELECT account, max(amount) AS m FROM events GROUP BY account)",
        f"(SELECT * FROM joined WHERE id = {session.random.randrange(1, 1001)})",
        f"(SELECT balance % {session.random.randrange(2, 6)} AS k, count(*) FROM accounts GROUP BY 1)",
    )
    number = session.random.randrange(len(queries))
    name = f"c{number}"  # asyncpg keeps the columns of FETCH by its text
    async with session.connection.transaction():
        await session.run(f"DECLARE {name} CURSOR FOR SUBSCRIBE {queries[number]} WITH (PROGRESS)")
        for _ in range(session.random.choice((1, 5))):
            await session.run(f"FETCH 200 {name} WITH (timeout = '500ms')")


async def streamed(session: Session) -> None:
    """COPY of a subscription, which is cancelled."""
    received = asyncio.Event()

    async def receive(data: bytes) -> None:
        received.set()

    copying = asyncio.create_task(
        session.connection.copy_from_query("SUBSCRIBE totals WITH (PROGRESS)", output=receive)
    )
    waiting = asyncio.create_task(received.wait())
    await asyncio.wait([copying, waiting], return_when=asyncio.FIRST_COMPLETED)
    await asyncio.sleep(session.random.random())
    copying.cancel()
    waiting.cancel()
    await asyncio.gather(copying, waiting, return_exceptions=True)


async def cancelled(session: Session) -> None:
    statement = session.random.choice(
        (
            "SELECT pg_sleep(60)",
            "SELECT count(*) FROM events a, events b WHERE a.note < b.note",
            "CREATE TABLE cancelled AS SELECT a.* FROM events a, accounts b",
        )
    )
    try:
        await asyncio.wait_for(session.run(statement), session.random.random())
    except TimeoutError:
        pass
    else:
        await session.run("DROP TABLE IF EXISTS cancelled")


async def errors(session: Session) -> None:
    for text in (
        "SELEC 1",
        "SELECT 1 / 0",
        "SELECT * FROM nowhere",
        "INSERT INTO events VALUES ('x')",
        "SELECT a.b FROM c",
    ):
        try:
            await session.run(text)
        except asyncpg.PostgresError:
            continue
        raise AssertionError(text)


async def notify(session: Session) -> None:
    channel = f"channel_{session.random.randrange(5)}"
    await session.connection.add_listener(channel, _ignore_notification)
    await session.run("SELECT pg_notify($1, 'hello')", channel)
    await session.connection.remove_listener(channel, _ignore_notification)


async def http(session: Session) -> None:
    def post() -> None:
        body = json.dumps({"query": "SELECT count(*) FROM rich; SELECT 1"}).encode()
        url = f"http://127.0.0.1:{session.http_port}/api/sql"
        headers = {"Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=60) as answer:
            answer.read()

    await asyncio.to_thread(post)


async def disconnected(session: Session) -> None:
    """A connection that is lost within a statement."""
    statement = session.random.choice(
        ("SELECT pg_sleep(60)", "SELECT count(*) FROM events a JOIN events b USING (account)")
    )
    running = asyncio.create_task(session.run(statement))
    await asyncio.sleep(session.random.random() / 5)
    session.connection.terminate()
    await asyncio.gather(running, return_exceptions=True)


WORK: dict[Item, int] = {
    constants: 20,
    aggregate: 3,
    join: 2,
    lookup: 10,
    catalogs: 2,
    insert: 8,
    update: 6,
    keys: 4,
    copy: 2,
    rollback: 1,
    definitions: 1,
    hold: 2,
    cursor: 2,
    subscribed: 4,
    streamed: 2,
    cancelled: 2,
    errors: 4,
    notify: 2,
    http: 2,
    disconnected: 1,
}
"""The items, and how often each is chosen."""


async def clean_up(connection: asyncpg.Connection[Any]) -> None:
    """Removes what interrupted items have left, so that the tables have their first rows again."""
    for kind, pattern in (("HOLD", "hold\\_%"), ("TABLE", "own\\_%"), ("TABLE", "cancelled")):
        catalog = "mz_holds" if kind == "HOLD" else "mz_tables"
        for row in await connection.fetch(f"SELECT name FROM {catalog} WHERE name LIKE '{pattern}'"):
            await connection.execute(f"DROP {kind} IF EXISTS {row['name']} CASCADE")
    await connection.execute("DELETE FROM events WHERE id >= 1000000")
    await connection.execute("DELETE FROM keyed")


async def _ignore(data: bytes) -> None:
    pass


def _ignore_notification(*_: object) -> None:
    pass
