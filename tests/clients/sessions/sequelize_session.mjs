import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { options, run } from "./steps.mjs";

const require = createRequire(process.env.NODE_PACKAGES);
const { DataTypes, Op, Sequelize } = require("sequelize");

const { host, port, user, database } = options;
const sequelize = new Sequelize(database, user, "", { host, port, dialect: "postgres", logging: false });
const User = sequelize.define(
  "User",
  {
    name: { type: DataTypes.STRING, allowNull: false },
    email: { type: DataTypes.STRING, unique: true },
    role: DataTypes.ENUM("admin", "user"),
    meta: DataTypes.JSONB,
    tags: DataTypes.ARRAY(DataTypes.TEXT),
    balance: { type: DataTypes.DECIMAL(10, 2), defaultValue: 0 },
    uid: { type: DataTypes.UUID, defaultValue: DataTypes.UUIDV4 },
  },
  { indexes: [{ fields: ["name"] }] },
);
const Post = sequelize.define("Post", { title: DataTypes.STRING });
const Tag = sequelize.define("Tag", { label: DataTypes.STRING });
User.hasMany(Post);
Post.belongsTo(User);
Post.belongsToMany(Tag, { through: "PostTags" });
Tag.belongsToMany(Post, { through: "PostTags" });

await run({
  "`sync`, also again and with `alter`": async () => {
    await sequelize.sync();
    await sequelize.sync();
    await sequelize.sync({ alter: true });
  },
  "Create, `bulkCreate`, `upsert`": async () => {
    const ada = await User.create({ name: "Ada", email: "a@x", role: "admin", meta: { a: 1 }, tags: ["x"] });
    await ada.createPost({ title: "first" });
    await User.bulkCreate([{ name: "Bob", email: "b@x" }, { name: "Cleo", email: "c@x" }]);
    const [changed] = await User.upsert({ name: "Ada L.", email: "a@x" }, { conflictFields: ["email"] });
    assert.equal(changed.id, ada.id);
  },
  "Eager loading, many to many": async () => {
    await (await Post.findOne()).addTag(await Tag.create({ label: "new" }));
    const users = await User.findAll({ include: [{ model: Post, include: [Tag] }], order: [["id", "ASC"]] });
    assert.deepEqual(users.map((user) => user.Posts.length), [1, 0, 0]);
    assert.equal(users[0].Posts[0].Tags[0].label, "new");
  },
  "Conditions on JSON and arrays, `findAndCountAll`, groups": async () => {
    assert.equal((await User.findAll({ where: { "meta.a": 1, tags: { [Op.contains]: ["x"] } } })).length, 1);
    const found = await User.findAndCountAll({ where: { name: { [Op.iLike]: "%a%" } }, limit: 1, include: Post });
    assert.equal(found.count, 1);
    const groups = { attributes: ["role", [sequelize.fn("COUNT", "*"), "n"]], group: ["role"], raw: true };
    assert.equal((await User.findAll(groups)).length, 2);
  },
  "Managed transactions, row locks, `increment`": async () => {
    await sequelize.transaction(async (transaction) => {
      const user = await User.findByPk(1, { transaction, lock: transaction.LOCK.UPDATE });
      await user.increment("balance", { by: 3, transaction });
    });
    assert.equal((await User.findByPk(1)).balance, "3.00");
  },
  "`findOrCreate`": async () => {
    const [, created] = await User.findOrCreate({ where: { email: "z@x" }, defaults: { name: "Zoe" } });
    assert.ok(created);
  },
  "`findCreateFind`": async () => {
    const [, created] = await User.findCreateFind({ where: { email: "y@x" }, defaults: { name: "Yves" } });
    assert.ok(created);
  },
  "Raw queries": async () => {
    const replacements = { id: 1 };
    const [rows] = await sequelize.query('SELECT name FROM "Users" WHERE id = :id', { replacements });
    assert.deepEqual(rows, [{ name: "Ada L." }]);
  },
  "QueryInterface: describe, indexes, keys, columns": async () => {
    const schema = sequelize.getQueryInterface();
    assert.equal((await schema.describeTable("Users")).id.primaryKey, true);
    assert.ok((await schema.showIndex("Users")).some((index) => index.name === "users_name"));
    assert.equal((await schema.getForeignKeyReferencesForTable("Posts")).length, 1);
    await schema.addColumn("Users", "age", { type: DataTypes.INTEGER });
    await schema.changeColumn("Users", "age", { type: DataTypes.BIGINT });
    await schema.renameColumn("Users", "age", "years");
    await schema.removeColumn("Users", "years");
  },
  "`destroy`": async () => assert.equal(await User.destroy({ where: { email: "c@x" } }), 1),
});
await sequelize.close();
