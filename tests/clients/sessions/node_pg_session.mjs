import assert from "node:assert/strict";
import { once } from "node:events";
import { createRequire } from "node:module";
import { options, run } from "./steps.mjs";

const require = createRequire(process.env.NODE_PACKAGES);
const pg = require("pg");
const Cursor = require("pg-cursor");
const QueryStream = require("pg-query-stream");

const pool = new pg.Pool(options);

await run({
  "Pool, parameters, prepared statements": async () => {
    await pool.query("CREATE TABLE np (id int, name text, data jsonb, at timestamptz DEFAULT now())");
    await pool.query("INSERT INTO np (id, name, data) VALUES ($1, $2, $3)", [1, "it's", { a: [1] }]);
    const named = { name: "by-id", text: "SELECT name, data FROM np WHERE id = $1", values: [1] };
    for (let i = 0; i < 2; i++) assert.deepEqual((await pool.query(named)).rows, [{ name: "it's", data: { a: [1] } }]);
  },
  "Transactions on one client": async () => {
    const client = await pool.connect();
    await client.query("BEGIN");
    await client.query("INSERT INTO np (id) SELECT g FROM generate_series(2, 100) AS g");
    await client.query("SAVEPOINT s");
    await client.query("DELETE FROM np");
    await client.query("ROLLBACK TO SAVEPOINT s");
    await client.query("COMMIT");
    client.release();
    assert.equal((await pool.query("SELECT count(*)::int AS n FROM np")).rows[0].n, 100);
  },
  "`pg-cursor`": async () => {
    const client = await pool.connect();
    const cursor = client.query(new Cursor("SELECT id FROM np ORDER BY id"));
    assert.equal((await cursor.read(30)).length, 30);
    assert.equal((await cursor.read(100)).length, 70);
    await cursor.close();
    client.release();
  },
  "`pg-query-stream`": async () => {
    const client = await pool.connect();
    let rows = 0;
    for await (const _ of client.query(new QueryStream("SELECT id FROM np WHERE id > $1", [10], { batchSize: 7 }))) rows++;
    assert.equal(rows, 90);
    client.release();
  },
  "LISTEN": async () => {
    const client = await pool.connect();
    await client.query("LISTEN np");
    const received = once(client, "notification");
    await pool.query("SELECT pg_notify('np', 'hello')");
    assert.equal((await received)[0].payload, "hello");
    client.release();
  },
  "Upsert (ON CONFLICT)": async () => {
    await pool.query("CREATE TABLE np_keys (id int PRIMARY KEY, n int)");
    const upsert = "INSERT INTO np_keys VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET n = np_keys.n + 1 RETURNING n";
    assert.equal((await pool.query(upsert)).rows[0].n, 1);
    assert.equal((await pool.query(upsert)).rows[0].n, 2);
  },
});
await pool.end();
