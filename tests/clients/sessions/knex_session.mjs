import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { options, run } from "./steps.mjs";

const require = createRequire(process.env.NODE_PACKAGES);
const knex = require("knex")({ client: "pg", connection: options });

const migrations = {
  getMigrations: async () => ["first"],
  getMigrationName: (name) => name,
  getMigration: async () => ({
    up: (schema) => schema.schema.createTable("migrated", (table) => table.increments()),
    down: (schema) => schema.schema.dropTable("migrated"),
  }),
};

await run({
  "Schema builder: `createTable`, `alterTable`": async () => {
    await knex.schema.createTable("users", (table) => {
      table.increments("id");
      table.string("name").notNullable().index();
      table.string("email").unique();
      table.jsonb("meta");
      table.timestamps(true, true);
      table.enum("role", ["admin", "user"]);
      table.decimal("balance", 10, 2).defaultTo(0);
      table.uuid("uid").defaultTo(knex.fn.uuid());
    });
    await knex.schema.createTable("posts", (table) => {
      table.bigIncrements("id");
      table.integer("user_id").references("users.id").onDelete("CASCADE");
      table.text("title");
    });
    await knex.schema.alterTable("users", (table) => {
      table.integer("age");
      table.dropColumn("uid");
    });
    await knex.schema.alterTable("users", (table) => table.string("name", 500).notNullable().alter());
    assert.ok(await knex.schema.hasColumn("users", "age"));
    assert.equal((await knex("users").columnInfo()).name.maxLength, 500);
  },
  "Insert with `returning`, `onConflict().merge()`": async () => {
    const rows = [{ name: "Ada", email: "a", role: "admin", meta: { a: 1 } }, { name: "Bob", email: "b" }];
    assert.deepEqual(await knex("users").insert(rows, ["id"]), [{ id: 1 }, { id: 2 }]);
    const changed = await knex("users").insert({ name: "Ada L.", email: "a" }).onConflict("email").merge(["name"]);
    assert.equal(changed.rowCount, 1);
  },
  "Joins, WITH, JSON": async () => {
    await knex("posts").insert({ user_id: 1, title: "first" });
    const joined = await knex("users").leftJoin("posts", "users.id", "posts.user_id").select("title").orderBy("users.id");
    assert.deepEqual(joined, [{ title: "first" }, { title: null }]);
    const firsts = await knex.with("u", knex("users").select("id")).select("id").from("u").orderBy("id").first();
    assert.deepEqual(firsts, { id: 1 });
    assert.deepEqual(await knex("users").jsonExtract("meta", "$.a", "a").orderBy("id").first(), { a: 1 });
  },
  "Nested transactions, row locks": async () => {
    await knex.transaction(async (outer) => {
      await outer("users").where({ id: 1 }).forUpdate().select();
      await outer("users").where({ id: 1 }).increment("balance", 5);
      const inner = outer.transaction(async (nested) => {
        await nested("users").where({ id: 2 }).del();
        throw new Error("undone");
      });
      await assert.rejects(inner, /undone/);
    });
    assert.equal((await knex("users").count("* as n").first()).n, "2");
  },
  "`migrate.latest`, `migrate.list`, `migrate.rollback`": async () => {
    await knex.migrate.latest({ migrationSource: migrations });
    assert.equal((await knex.migrate.list({ migrationSource: migrations }))[0].length, 1);
    await knex.migrate.rollback({ migrationSource: migrations });
    assert.equal(await knex.schema.hasTable("migrated"), false);
  },
  "Raw queries, streams": async () => {
    assert.deepEqual((await knex.raw("SELECT ?::int + 1 AS n", [1])).rows, [{ n: 2 }]);
    let rows = 0;
    for await (const _ of knex("users").select().stream()) rows++;
    assert.equal(rows, 2);
  },
});
await knex.destroy();
