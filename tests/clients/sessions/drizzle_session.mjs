import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { options, run } from "./steps.mjs";

const require = createRequire(process.env.NODE_PACKAGES);
const { eq, relations, sql } = require("drizzle-orm");
const { drizzle } = require("drizzle-orm/node-postgres");
const { migrate } = require("drizzle-orm/node-postgres/migrator");
const { integer, jsonb, pgEnum, pgTable, serial, text, timestamp, varchar } = require("drizzle-orm/pg-core");
const pg = require("pg");

const mood = pgEnum("mood", ["sad", "ok"]);
const users = pgTable("users", {
  id: serial("id").primaryKey(),
  name: text("name").notNull(),
  email: varchar("email", { length: 50 }).unique(),
  mood: mood("mood").default("ok"),
  meta: jsonb("meta"),
  at: timestamp("at", { withTimezone: true }).defaultNow(),
});
const posts = pgTable("posts", {
  id: integer("id").primaryKey().generatedAlwaysAsIdentity(),
  userId: integer("user_id").references(() => users.id, { onDelete: "cascade" }),
  title: text("title"),
});
const schema = {
  users,
  posts,
  ofUsers: relations(users, ({ many }) => ({ posts: many(posts) })),
  ofPosts: relations(posts, ({ one }) => ({ user: one(users, { fields: [posts.userId], references: [users.id] }) })),
};
// What drizzle-kit generates. Its earlier versions wrote the DO blocks.
const MIGRATION = `DO $$ BEGIN
 CREATE TYPE "public"."mood" AS ENUM('sad', 'ok');
EXCEPTION
 WHEN duplicate_object THEN null;
END $$;
--> statement-breakpoint
CREATE TABLE "users" (
	"id" serial PRIMARY KEY NOT NULL,
	"name" text NOT NULL,
	"email" varchar(50),
	"mood" "mood" DEFAULT 'ok',
	"meta" jsonb,
	"at" timestamp with time zone DEFAULT now(),
	CONSTRAINT "users_email_unique" UNIQUE("email")
);
--> statement-breakpoint
CREATE TABLE "posts" (
	"id" integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "posts_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 2147483647 START WITH 1 CACHE 1),
	"user_id" integer,
	"title" text
);
--> statement-breakpoint
DO $$ BEGIN
 ALTER TABLE "posts" ADD CONSTRAINT "posts_user_id_users_id_fk" FOREIGN KEY ("user_id") REFERENCES "public"."users"("id") ON DELETE cascade ON UPDATE no action;
EXCEPTION
 WHEN duplicate_object THEN null;
END $$;
`;
const pool = new pg.Pool(options);
const db = drizzle(pool, { schema });

await run({
  "`migrate`, twice": async () => {
    const migrationsFolder = mkdtempSync(join(tmpdir(), "drizzle-"));
    const entries = [{ idx: 0, version: "7", when: 1700000000000, tag: "0000_first", breakpoints: true }];
    mkdirSync(join(migrationsFolder, "meta"));
    writeFileSync(join(migrationsFolder, "0000_first.sql"), MIGRATION);
    writeFileSync(join(migrationsFolder, "meta/_journal.json"), JSON.stringify({ dialect: "postgresql", entries }));
    await migrate(db, { migrationsFolder });
    await migrate(db, { migrationsFolder });
    rmSync(migrationsFolder, { recursive: true });
  },
  "Insert with `returning`, `onConflictDoUpdate`": async () => {
    const values = [{ name: "Ada", email: "a@x", meta: { a: 1 } }, { name: "Bob", email: "b@x" }];
    assert.deepEqual(await db.insert(users).values(values).returning({ id: users.id }), [{ id: 1 }, { id: 2 }]);
    const set = { name: sql`excluded.name` };
    const upsert = db.insert(users).values({ name: "Ada L.", email: "a@x" });
    assert.equal((await upsert.onConflictDoUpdate({ target: users.email, set }).returning())[0].id, 1);
  },
  "Relational queries": async () => {
    await db.insert(posts).values({ userId: 1, title: "first" });
    const found = await db.query.users.findMany({ with: { posts: true }, orderBy: users.id, limit: 10 });
    assert.deepEqual(found.map((user) => user.posts.map((post) => post.title)), [["first"], []]);
    assert.equal((await db.query.posts.findFirst({ with: { user: true } })).user.name, "Ada L.");
  },
  "Joins, `$count`": async () => {
    assert.equal((await db.select().from(users).leftJoin(posts, eq(posts.userId, users.id))).length, 2);
    assert.equal(await db.$count(users), 2);
  },
  "Nested transactions, row locks": async () => {
    await db.transaction(async (outer) => {
      await outer.update(users).set({ name: "Eve" }).where(eq(users.id, 2));
      await assert.rejects(outer.transaction(async (inner) => inner.rollback()));
      assert.equal((await outer.select().from(users).where(eq(users.id, 2)).for("update"))[0].name, "Eve");
    });
  },
});
await pool.end();
