// What the console reads, in Node.js. TIDEWIRE_URL is the server's; TIDEWIRE_FILES the directory of the files that it serves.

import assert from "node:assert/strict";
import { test } from "node:test";

const { Tidewire } = await import(`${process.env.TIDEWIRE_FILES}/client.mjs`);
const { TABLES, Tables } = await import(`${process.env.TIDEWIRE_FILES}/tables.mjs`);
const boss = new Tidewire(process.env.TIDEWIRE_URL);
const FOR_SUPERUSERS = [
  "mz_internal.mz_hydration_statuses", "mz_internal.mz_dataflow_operators", "mz_internal.mz_arrangements",
  "mz_internal.mz_source_statistics", "mz_internal.mz_sink_statistics",
];

test("a superuser reads all tables", async () => {
  const found = await new Tables(boss).read(...Object.keys(TABLES));
  assert.deepEqual(found.hidden, []);
  assert(found.schemas.some(({ name }) => name === "public"));
});

test("a plain role reads what it may, and the rest is named", async () => {
  await boss.query("CREATE TABLE t (a int); CREATE INDEX i ON t (a); CREATE USER plain");
  const tables = new Tables(new Tidewire(process.env.TIDEWIRE_URL, { user: "plain" }));
  const found = await tables.read(...Object.keys(TABLES));
  assert.deepEqual(found.hidden, FOR_SUPERUSERS);
  assert(found.objects.some(({ name }) => name === "t"));
  assert(found.sizes.some(({ relname }) => relname === "t")); // the last query, after those that failed
  for (const name of ["hydration", "operators", "arrangements", "sourceNumbers", "sinkNumbers"]) assert.deepEqual(found[name], []);
  assert.deepEqual((await tables.read("holds", "operators")).hidden, ["mz_internal.mz_dataflow_operators"]);
  assert.deepEqual(await tables.read("operators"), { operators: [], hidden: ["mz_internal.mz_dataflow_operators"] });
});

test("tables that were granted are read after a reset, and other errors are errors", async () => {
  const tables = new Tables(new Tidewire(process.env.TIDEWIRE_URL, { user: "plain" }));
  assert.equal((await tables.read("arrangements")).hidden.length, 1);
  await boss.query("ALTER ROLE plain SUPERUSER");
  assert.equal((await tables.read("arrangements")).hidden.length, 1);
  tables.reset();
  assert.deepEqual((await tables.read("arrangements")).hidden, []);
  await assert.rejects(new Tables(new Tidewire("http://127.0.0.1:1")).read("holds"), { sqlstate: null });
});
