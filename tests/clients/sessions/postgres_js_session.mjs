import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { options, run } from "./steps.mjs";

const postgres = createRequire(process.env.NODE_PACKAGES)("postgres");
const sql = postgres({ ...options, onnotice: () => {} });

await run({
  "Tagged queries, inserts of objects": async () => {
    await sql`CREATE TABLE pj (id int, name text, tags text[])`;
    await sql`INSERT INTO pj ${sql([{ id: 1, name: "a" }, { id: 2, name: "b" }], "id", "name")}`;
    assert.deepEqual([...(await sql`SELECT id, name FROM pj WHERE id IN ${sql([1, 2])} ORDER BY id`)].map((r) => r.name), ["a", "b"]);
    await sql`UPDATE pj SET tags = ${["x", "y"]} WHERE id = ${1}`;
    assert.deepEqual((await sql`SELECT tags FROM pj WHERE id = 1`)[0].tags, ["x", "y"]);
  },
  "`begin` and `savepoint`": async () => {
    await sql.begin(async (sql) => {
      await sql`INSERT INTO pj (id) VALUES (3)`;
      await sql.savepoint(async (sql) => { await sql`DELETE FROM pj`; throw new Error("back"); }).catch(() => {});
    });
    assert.equal((await sql`SELECT count(*)::int AS n FROM pj`)[0].n, 3);
  },
  "`cursor`": async () => {
    let rows = 0;
    await sql`SELECT * FROM pj`.cursor(2, (batch) => { rows += batch.length; });
    assert.equal(rows, 3);
  },
  "`listen` and `notify`": async () => {
    let resolve;
    const received = new Promise((r) => { resolve = r; });
    await sql.listen("pj", resolve);
    await sql.notify("pj", "hello");
    assert.equal(await received, "hello");
  },
});
await sql.end({ timeout: 2 });
