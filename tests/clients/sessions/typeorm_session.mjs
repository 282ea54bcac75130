import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { options, run } from "./steps.mjs";

const require = createRequire(process.env.NODE_PACKAGES);
require("reflect-metadata");
const { DataSource, EntitySchema } = require("typeorm");

const columns = {
  id: { type: Number, primary: true, generated: true },
  name: { type: String },
  email: { type: String, unique: true },
  role: { type: "enum", enum: ["admin", "user"], default: "user" },
  meta: { type: "jsonb", nullable: true },
  tags: { type: "text", array: true, nullable: true },
  created: { type: "timestamptz", createDate: true },
  balance: { type: "decimal", precision: 10, scale: 2, default: 0 },
};
const users = (more = {}) =>
  new EntitySchema({
    name: "User",
    columns: { ...columns, ...more },
    relations: { posts: { type: "one-to-many", target: "Post", inverseSide: "user" } },
    indices: [{ name: "user_name", columns: ["name"] }],
  });
const posts = new EntitySchema({
  name: "Post",
  columns: { id: { type: "uuid", primary: true, generated: "uuid" }, title: { type: String, length: 100 } },
  relations: {
    user: { type: "many-to-one", target: "User", inverseSide: "posts", onDelete: "CASCADE" },
    tags: { type: "many-to-many", target: "Tag", joinTable: true },
  },
});
const tags = new EntitySchema({
  name: "Tag",
  columns: { id: { type: "bigint", primary: true, generated: true }, label: { type: String } },
});
class Migration1700000000000 {
  name = "Migration1700000000000";
  up = (runner) => runner.query("CREATE TABLE migrated (a int)");
  down = (runner) => runner.query("DROP TABLE migrated");
}
const { host, port, user: username, database } = options;
const source = (user, more) =>
  new DataSource({ type: "postgres", host, port, username, database, entities: [user, posts, tags], ...more });
const db = source(users(), { synchronize: true });

await run({
  "`synchronize`, which then finds no difference": async () => {
    await db.initialize();
    assert.deepEqual((await db.driver.createSchemaBuilder().log()).upQueries, []);
  },
  "`save` with relations, many to many": async () => {
    const user = await db.getRepository("User").save({ name: "Ada", email: "a@x", meta: { a: 1 }, tags: ["x"] });
    const tag = await db.getRepository("Tag").save({ label: "new" });
    await db.getRepository("Post").save({ title: "first", user, tags: [tag] });
  },
  "`find` with relations, `findAndCount`, query builder": async () => {
    const [user] = await db.getRepository("User").find({ relations: { posts: { tags: true } } });
    assert.equal(user.posts[0].tags[0].label, "new");
    const options = { relations: { user: true }, take: 1, order: { title: "ASC" } };
    assert.equal((await db.getRepository("Post").findAndCount(options))[1], 1);
    const query = db.getRepository("User").createQueryBuilder("u").leftJoinAndSelect("u.posts", "p");
    assert.equal((await query.where("u.name ILIKE :name", { name: "%a%" }).take(5).getManyAndCount())[1], 1);
  },
  "`upsert`": async () => {
    await db.getRepository("User").upsert([{ email: "a@x", name: "Ada L." }], ["email"]);
    assert.equal((await db.getRepository("User").findOneBy({ email: "a@x" })).name, "Ada L.");
  },
  "Transactions, row locks": async () => {
    await db.transaction(async (manager) => {
      const user = await manager.findOne("User", { where: { id: 1 }, lock: { mode: "pessimistic_write" } });
      await manager.save("User", { ...user, balance: 7 });
    });
    assert.equal((await db.getRepository("User").findOneBy({ id: 1 })).balance, "7.00");
  },
  "Raw queries": async () =>
    assert.deepEqual(await db.query('SELECT name FROM "user" WHERE id = $1', [1]), [{ name: "Ada L." }]),
  "`synchronize` adds and drops a column": async () => {
    for (const user of [users({ age: { type: Number, nullable: true } }), users()]) {
      const changed = await source(user, { synchronize: true }).initialize();
      assert.equal((await changed.getRepository("User").find())[0].age, user.options.columns.age ? null : undefined);
      await changed.destroy();
    }
  },
  "Migrations": async () => {
    const migrating = await source(users(), { migrations: [Migration1700000000000] }).initialize();
    assert.equal((await migrating.runMigrations()).length, 1);
    await migrating.undoLastMigration();
    await migrating.destroy();
  },
  "`dropDatabase`": async () => await db.dropDatabase(),
});
await db.destroy();
