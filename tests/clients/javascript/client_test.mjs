// The JavaScript client in Node.js. TIDEWIRE_URL is the server's; TIDEWIRE_FILES the directory of the files that it serves;
// TIDEWIRE_TRANSPORT the transport of subscriptions.

import assert from "node:assert/strict";
import { test } from "node:test";

const { Tidewire, TidewireError } = await import(`${process.env.TIDEWIRE_FILES}/client.mjs`);
const tidewire = new Tidewire(process.env.TIDEWIRE_URL);
const transport = process.env.TIDEWIRE_TRANSPORT;

async function table(name) {
  await tidewire.query(`DROP TABLE IF EXISTS ${name} CASCADE; CREATE TABLE ${name} (k int, v text)`);
  return name;
}

/** Ends at most `count` sessions that follow a query. */
async function terminate(count) {
  const { rows } = await tidewire.query("SELECT session_id FROM mz_internal.mz_subscriptions");
  const sessions = (await tidewire.query("SELECT id, connection_id FROM mz_internal.mz_sessions")).rows;
  for (const [id] of rows.slice(0, count)) {
    const pid = sessions.find(([session]) => session === id)[1];
    await tidewire.query(`SELECT pg_terminate_backend(${pid})`);
  }
}

let sockets = 0; // that were opened
globalThis.WebSocket = class extends globalThis.WebSocket {
  constructor(...parameters) {
    super(...parameters);
    sockets += 1;
  }
};

/** The rows of a stream's batches, as a multiset: JSON text to multiplicity. */
class Mirror {
  constructor() { this.rows = new Map(); }

  apply(batch) {
    for (const { diff, row } of batch.changes) {
      const text = JSON.stringify(row);
      const count = (this.rows.get(text) ?? 0) + diff;
      if (count) this.rows.set(text, count); else this.rows.delete(text);
    }
  }

  get sorted() { return [...this.rows.keys()].sort(); }
}

test("query returns rows, objects and tags", async () => {
  await table("queried");
  await tidewire.query("INSERT INTO queried VALUES ($1, $2)", [1, "it's"]);
  const result = await tidewire.query("SELECT * FROM queried WHERE k = $1", [1]);
  assert.deepEqual(result.rows, [[1, "it's"]]);
  assert.deepEqual(result.objects(), [{ k: 1, v: "it's" }]);
  assert.equal(result.tag, "SELECT 1");
  assert.equal((await tidewire.query("DROP TABLE queried")).rows, null);
});

test("settings and database", async () => {
  const settings = { timezone: "Asia/Tokyo" };
  const other = new Tidewire(process.env.TIDEWIRE_URL, { user: "materialize", settings });
  assert.deepEqual((await other.query("SHOW timezone")).rows, [["Asia/Tokyo"]]);
  const nowhere = new Tidewire(process.env.TIDEWIRE_URL, { database: "nowhere" });
  await assert.rejects(nowhere.query("SELECT 1"), { sqlstate: "3D000" });
});

test("statements are one transaction", async () => {
  await table("together");
  const insert = { query: "INSERT INTO together VALUES ($1, 'x')", parameters: [1] };
  const results = await tidewire.execute([insert, { query: "SELECT * FROM together" }]);
  assert.deepEqual(results.map(({ tag }) => tag), ["INSERT 0 1", "SELECT 1"]);
  await assert.rejects(tidewire.execute([insert, { query: "SELECT nothing" }]), (error) => {
    assert(error instanceof TidewireError);
    assert.deepEqual([error.sqlstate, error.status, error.position, error.isTransient], ["42703", 400, 8, false]);
    return true;
  });
  assert.equal((await tidewire.query("SELECT * FROM together")).rows.length, 1);
});

test("a server that does not answer is a transient error", async () => {
  const nobody = new Tidewire("http://127.0.0.1:1");
  await assert.rejects(nobody.query("SELECT 1"), (error) => error.sqlstate === null && error.isTransient);
});

test("subscribe yields whole timestamps, and resumes from a token", async () => {
  await table("followed");
  await tidewire.query("INSERT INTO followed VALUES (1, 'a'), (2, 'b')");
  await tidewire.query("DROP HOLD IF EXISTS keeper; CREATE HOLD keeper ON followed");
  const mirror = new Mirror();
  let token;
  for await (const batch of tidewire.subscribe("followed", { hold: "keeper", transport })) {
    mirror.apply(batch);
    token = batch.token;
    if (batch.kind === "snapshot") {
      assert.deepEqual(batch.columns.map(({ name }) => name), ["k", "v"]);
      assert.deepEqual(mirror.sorted, ['[1,"a"]', '[2,"b"]']);
      await tidewire.query("INSERT INTO followed VALUES (1, 'c'), (1, 'd')");
    } else if (batch.kind === "update") {
      assert.equal(batch.changes.length, 2);
      assert.equal(batch.progress, batch.time + 1);
      await batch.ack();
      const { rows: [[at]] } = await tidewire.query("SELECT at FROM mz_holds");
      assert.equal(Number(at), batch.time);
      break;
    }
  }
  await tidewire.query("INSERT INTO followed VALUES (3, 'd')");
  for await (const batch of tidewire.subscribe("followed", { token, transport })) {
    assert.notEqual(batch.kind, "snapshot");
    mirror.apply(batch);
    if (batch.kind === "update") break;
  }
  assert.deepEqual(mirror.sorted, ['[1,"a"]', '[1,"c"]', '[1,"d"]', '[2,"b"]', '[3,"d"]']);
});

test("a lost connection is resumed without loss or repetition", async () => {
  await table("interrupted");
  await tidewire.query("DROP HOLD IF EXISTS held; CREATE HOLD held ON interrupted");
  const mirror = new Mirror();
  let inserted = 0;
  for await (const batch of tidewire.subscribe("interrupted", { transport })) {
    mirror.apply(batch);
    assert(batch.kind !== "snapshot" || inserted === 0);
    if (mirror.rows.size === 5) break;
    if (batch.kind === "progress") continue;
    assert.equal(mirror.rows.size, inserted);
    inserted += 1;
    await terminate(Infinity);
    await tidewire.query(`INSERT INTO interrupted VALUES (${inserted}, 'x')`);
  }
  assert.deepEqual([...mirror.rows.values()], [1, 1, 1, 1, 1]);
});

test("errors of subscriptions, envelopes, ends and signals", async () => {
  await table("various");
  await tidewire.query("INSERT INTO various VALUES (1, 'a')");
  const first = async (query, options) => {
    for await (const batch of tidewire.subscribe(query, { ...options, transport })) return batch;
    return null;
  };
  await assert.rejects(first("nothing"), { sqlstate: "42P01", position: 1 });
  await assert.rejects(first("various", { token: "tw1:0000000000000000:5" }), { sqlstate: "22023" });
  const { columns, changes } = await first("various", { key: "k", envelope: "upsert" });
  assert.deepEqual([columns.map(({ name }) => name), changes], [["k", "v"], [{ state: "upsert", row: [1, "a"] }]]);
  assert.deepEqual((await first("SELECT * FROM various WHERE k = $1", { parameters: [2] })).changes, []);
  const kinds = [];
  for await (const { kind } of tidewire.subscribe("VALUES (1)", { transport })) kinds.push(kind);
  assert.deepEqual(kinds, ["snapshot"]);
  const controller = new AbortController();
  await assert.rejects(async () => {
    for await (const _ of tidewire.subscribe("various", { signal: controller.signal, transport })) controller.abort();
  }, { name: "AbortError" });
});

test("followTogether yields the changes of all queries at one timestamp, across lost connections", async () => {
  await table("left_side");
  await table("right_side");
  await tidewire.query("INSERT INTO left_side VALUES (0, 'x'), (1, 'x')");
  await tidewire.query("DROP HOLD IF EXISTS sides; CREATE HOLD sides ON left_side, right_side");
  const moves = [...Array(30).keys()].map((i) => [
    { query: `DELETE FROM ${i % 2 ? "right" : "left"}_side WHERE k = 1` },
    { query: `INSERT INTO ${i % 2 ? "left" : "right"}_side VALUES (1, 'x')` },
  ]);
  const queries = { left: "left_side", right: { query: "SELECT k, v FROM right_side" }, constant: "VALUES (1, 2)" };
  const counts = new Map(Object.keys(queries).map((name) => [name, 0]));
  const apply = ({ parts }) => {
    for (const [name, { changes }] of Object.entries(parts)) {
      for (const { diff } of changes) counts.set(name, counts.get(name) + diff);
    }
    assert.deepEqual([counts.get("left") + counts.get("right"), counts.get("constant")], [2, 1]);
  };
  let token;
  let moved = 0;
  const follow = async (until) => {
    for await (const batch of tidewire.followTogether(queries, { token, hold: "sides", transport })) {
      assert.equal(batch.kind === "snapshot", token === undefined);
      if (batch.kind === "update") assert.deepEqual(Object.keys(batch.parts), ["left", "right"]);
      apply(batch);
      token = batch.token;
      moved += batch.kind === "update";
      await batch.ack();
      if (moved === until) break;
      if (batch.kind === "progress") continue;
      if (moved % 5 === 1) await terminate(1 + (moved % 2));
      await tidewire.execute(moves[moved]);
    }
  };
  await follow(15);
  await tidewire.execute(moves[15]); // while nothing is followed
  await follow(30);
  assert.deepEqual(Object.fromEntries(counts), { left: 2, right: 0, constant: 1 });
  const other = tidewire.followTogether({ nothing: "left_side" }, { token });
  await assert.rejects(other.next(), TypeError);
});

test("the snapshot of followTogether has the contents at one time", async () => {
  await table("first_part");
  await table("second_part");
  await tidewire.query("INSERT INTO first_part VALUES (1, 'a')");
  const insert = (k) => [
    { query: `DELETE FROM first_part WHERE k = ${k - 2}` },
    { query: `INSERT INTO first_part VALUES (${k}, 'a')` },
    { query: `DELETE FROM second_part` },
    { query: `INSERT INTO second_part VALUES (1, '${k}')` },
  ];
  let isDone = false;
  const write = async () => {
    for (let k = 3; !isDone; k++) await tidewire.execute(insert(k));
  };
  const read = async () => {
    try {
      for (const envelope of [undefined, "upsert", "debezium"]) {
        for (let i = 0; i < 10; i++) {
          const second = envelope ? { query: "second_part", envelope, key: "k" } : "second_part";
          const queries = { first: "first_part", second };
          for await (const { kind, parts } of tidewire.followTogether(queries, { transport })) {
            assert.equal(kind, "snapshot");
            const keys = parts.first.changes.map(({ row: [k] }) => k).sort((a, b) => a - b);
            assert.equal(keys.length, 2);
            assert.equal(keys[0] + 1, keys[1]);
            const expected = envelope === "debezium" ? [1, null, `${keys[1]}`] : [1, `${keys[1]}`];
            const state = envelope === "debezium" ? "insert" : "upsert";
            const change = envelope ? { state, row: expected } : { diff: 1, row: expected };
            assert.deepEqual(parts.second.changes, [change]);
            break;
          }
        }
      }
    } finally {
      isDone = true;
    }
  };
  await tidewire.execute(insert(2));
  await Promise.all([write(), read()]);
});

test("followTogether ends with its queries, its signal and their errors", async () => {
  const kinds = [];
  for await (const { kind } of tidewire.followTogether({ one: "VALUES (1)" }, { transport })) kinds.push(kind);
  assert.deepEqual(kinds, ["snapshot"]);
  await table("ending");
  const queries = { one: "ending", two: "SELECT k FROM ending" };
  const signal = AbortSignal.timeout(300);
  await assert.rejects(async () => {
    for await (const _ of tidewire.followTogether(queries, { signal, transport }));
  }, { name: "TimeoutError" });
  await assert.rejects(tidewire.followTogether({ ...queries, three: "nothing" }, { transport }).next(), { sqlstate: "42P01" });
  await assert.rejects(tidewire.followTogether({}).next(), TypeError);
});

test("a subscription is one of the given user", async () => {
  await table("foreign_rows");
  await tidewire.query("CREATE USER follower");
  const follower = new Tidewire(process.env.TIDEWIRE_URL, { user: "follower" });
  await assert.rejects(async () => {
    for await (const _ of follower.subscribe("foreign_rows", { transport })) break;
  }, { sqlstate: "42501" });
});

test("the transport is the given one", () => {
  assert.equal(sockets > 0, transport === "websocket");
});

test("no session remains", async () => {
  for (;;) {
    const { rows } = await tidewire.query("SELECT id FROM mz_internal.mz_sessions");
    if (rows.length === 1) break;
    await new Promise((resolve) => { setTimeout(resolve, 20); });
  }
});
