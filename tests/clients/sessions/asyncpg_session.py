"""A session with asyncpg: each step is a function, whose docstring is its title in docs/clients.md."""

import asyncio
import datetime
import decimal

import asyncpg
from steps import URL, run


def step(work):
    def call():
        asyncio.run(work())

    call.__doc__ = work.__doc__
    return call


@step
async def pool():
    """Default pool"""
    async with asyncpg.create_pool(URL) as pool:
        await pool.execute("CREATE TABLE ap (id int, name text, amount numeric(10,2), at timestamptz)")
        async with pool.acquire() as connection:
            await connection.execute("INSERT INTO ap VALUES ($1, $2, $3, now())", 1, "one", decimal.Decimal("1.50"))
        assert await pool.fetchval("SELECT amount FROM ap WHERE id = $1", 1) == decimal.Decimal("1.50")


@step
async def transactions():
    """Nested transactions"""
    connection = await asyncpg.connect(URL)
    async with connection.transaction():
        await connection.execute("INSERT INTO ap (id) VALUES (2)")
        try:
            async with connection.transaction():
                await connection.execute("INSERT INTO ap (id) VALUES (3)")
                raise ValueError
        except ValueError:
            pass
        assert await connection.fetchval("SELECT count(*) FROM ap") == 2
    await connection.close()


@step
async def isolation():
    """Transactions with isolation levels, read only and deferrable"""
    connection = await asyncpg.connect(URL)
    async with connection.transaction(isolation="serializable", readonly=True, deferrable=True):
        assert await connection.fetchval("SELECT count(*) FROM ap") == 2
    async with connection.transaction(isolation="repeatable_read"):
        assert await connection.fetchval("SELECT count(*) FROM ap") == 2
    await connection.close()


@step
async def many():
    """`executemany`, `copy_records_to_table`, `copy_from_query`"""
    connection = await asyncpg.connect(URL)
    await connection.executemany("INSERT INTO ap (id, name) VALUES ($1, $2)", [(n, str(n)) for n in range(10, 110)])
    at = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    await connection.copy_records_to_table("ap", records=[(200, "copied", decimal.Decimal("2.25"), at)])
    written = []

    async def write(data):
        written.append(bytes(data))

    await connection.copy_from_query("SELECT id, at FROM ap WHERE id = $1", 200, output=write, format="csv")
    assert b"".join(written).startswith(b"200,2024-01-01"), written
    await connection.close()


@step
async def cursors():
    """Cursors"""
    connection = await asyncpg.connect(URL)
    async with connection.transaction():
        assert len([row async for row in connection.cursor("SELECT * FROM ap")]) == 103
        cursor = await connection.cursor("SELECT id FROM ap ORDER BY id")
        await cursor.forward(3)
        assert len(await cursor.fetch(10)) == 10
    await connection.close()


@step
async def listen():
    """`add_listener`"""
    received = asyncio.Queue()
    ours, other = await asyncpg.connect(URL), await asyncpg.connect(URL)
    await other.add_listener("jobs", lambda connection, pid, channel, payload: received.put_nowait(payload))
    await ours.execute("SELECT pg_notify('jobs', 'work')")
    assert await asyncio.wait_for(received.get(), 60) == "work"
    await ours.close()
    await other.close()


@step
async def types():
    """Type introspection, arrays, JSON codecs"""
    connection = await asyncpg.connect(URL)
    await connection.set_type_codec("jsonb", encoder=str, decoder=len, schema="pg_catalog")
    row = await connection.fetchrow("""SELECT '{"a":1}'::jsonb AS j, ARRAY[1,2]::int[] AS a, '1 day'::interval AS i""")
    assert (row["j"], row["a"], row["i"]) == (8, [1, 2], datetime.timedelta(days=1))
    statement = await connection.prepare("SELECT id FROM ap WHERE id = ANY($1::int[]) AND name LIKE $2")
    assert [attribute.name for attribute in statement.get_attributes()] == ["id"]
    assert len(await statement.fetch([10, 11, 200], "1%")) == 2
    await connection.close()


@step
async def keys():
    """IDENTITY and ON CONFLICT"""
    connection = await asyncpg.connect(URL)
    await connection.execute(
        "CREATE TABLE ap_keys (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text UNIQUE, n int)"
    )
    upsert = (
        "INSERT INTO ap_keys (name, n) VALUES ($1, 1) ON CONFLICT (name) DO UPDATE SET n = ap_keys.n + 1 RETURNING n"
    )
    assert [await connection.fetchval(upsert, "a") for _ in range(2)] == [1, 2]
    await connection.close()


@step
async def enums():
    """Enumerated types, also with `set_type_codec`"""
    connection = await asyncpg.connect(URL)
    await connection.execute(
        "CREATE TYPE ap_mood AS ENUM ('sad', 'ok'); CREATE TABLE ap_moods (m ap_mood, ms ap_mood[])"
    )
    await connection.execute("INSERT INTO ap_moods VALUES ($1, $2)", "ok", ["sad", None])
    assert [*await connection.fetchrow("SELECT * FROM ap_moods WHERE m = $1", "ok")] == ["ok", ["sad", None]]
    await connection.copy_records_to_table("ap_moods", records=[("sad", ["ok"])])
    await connection.set_type_codec("ap_mood", encoder=str.lower, decoder=str.upper, format="text")
    assert await connection.fetchval("SELECT m FROM ap_moods WHERE m < $1", "OK") == "SAD"
    await connection.close()


run(pool, transactions, isolation, many, cursors, listen, types, keys, enums)
