import static org.jooq.impl.DSL.asterisk;
import static org.jooq.impl.DSL.count;
import static org.jooq.impl.DSL.countDistinct;
import static org.jooq.impl.DSL.currentDate;
import static org.jooq.impl.DSL.excluded;
import static org.jooq.impl.DSL.exists;
import static org.jooq.impl.DSL.field;
import static org.jooq.impl.DSL.foreignKey;
import static org.jooq.impl.DSL.inline;
import static org.jooq.impl.DSL.jsonbGetAttributeAsText;
import static org.jooq.impl.DSL.lag;
import static org.jooq.impl.DSL.lateral;
import static org.jooq.impl.DSL.multiset;
import static org.jooq.impl.DSL.name;
import static org.jooq.impl.DSL.primaryKey;
import static org.jooq.impl.DSL.rank;
import static org.jooq.impl.DSL.row;
import static org.jooq.impl.DSL.select;
import static org.jooq.impl.DSL.selectOne;
import static org.jooq.impl.DSL.sum;
import static org.jooq.impl.DSL.table;
import static org.jooq.impl.DSL.unique;
import static org.jooq.impl.DSL.val;
import static org.jooq.impl.DSL.values;

import java.math.BigDecimal;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.time.LocalDate;
import java.time.OffsetDateTime;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import javax.sql.DataSource;
import org.jooq.DSLContext;
import org.jooq.DatePart;
import org.jooq.Field;
import org.jooq.JSONB;
import org.jooq.Meta;
import org.jooq.Record;
import org.jooq.Records;
import org.jooq.Result;
import org.jooq.SQLDialect;
import org.jooq.Table;
import org.jooq.exception.DataAccessException;
import org.jooq.exception.IntegrityConstraintViolationException;
import org.jooq.impl.DSL;
import org.jooq.impl.SQLDataType;
import org.postgresql.ds.PGSimpleDataSource;

/** As steps.py, for jOOQ. */
public final class Jooq {
  private static final Table<Record> PEOPLE = table(name("people"));
  private static final Field<Long> ID = field(name("people", "id"), SQLDataType.BIGINT);
  private static final Field<String> NAME = field(name("people", "name"), SQLDataType.VARCHAR);
  private static final Field<BigDecimal> BALANCE = field(name("people", "balance"), SQLDataType.DECIMAL(10, 2));
  private static final Field<LocalDate> BORN = field(name("people", "born"), SQLDataType.LOCALDATE);
  private static final Field<UUID> TOKEN = field(name("people", "token"), SQLDataType.UUID);
  private static final Field<JSONB> DATA = field(name("people", "data"), SQLDataType.JSONB);
  private static final Field<String[]> TAGS = field(name("people", "tags"), SQLDataType.VARCHAR.array());
  private static final Field<OffsetDateTime> SEEN = field(name("people", "seen"), SQLDataType.OFFSETDATETIME);
  private static final Table<Record> ORDERS = table(name("orders"));
  private static final Field<Integer> ORDER = field(name("orders", "id"), SQLDataType.INTEGER);
  private static final Field<Long> PERSON = field(name("orders", "person"), SQLDataType.BIGINT);
  private static final Field<Integer> AMOUNT = field(name("orders", "amount"), SQLDataType.INTEGER);
  private static DSLContext db;
  private static PGSimpleDataSource source;

  private interface Step {
    void run() throws Exception;
  }

  public static void main(String[] arguments) {
    System.setProperty("org.jooq.no-logo", "true");
    System.setProperty("org.jooq.no-tips", "true");
    source = new PGSimpleDataSource();
    source.setUrl("jdbc:postgresql://" + arguments[0] + ":" + arguments[1] + "/" + arguments[2]);
    source.setUser("materialize");
    db = DSL.using(source, SQLDialect.POSTGRES);
    step("DDL: `createTable`, `alterTable`, `createIndex`, `createView`", Jooq::ddl);
    step("`insertInto ... returning`, all types", Jooq::insert);
    step("`onConflict`, `mergeInto`", Jooq::upsert);
    step("Joins, groups, conditions, `seek`, `limit`", Jooq::queries);
    step("Window functions, CTEs, recursive CTEs, `values`, `lateral`", Jooq::windows);
    step("`percentileCont`", Jooq::orderedSets);
    step("`explain`", Jooq::explain);
    step("`multiset`, nested rows, JSON", Jooq::multisets);
    step("Functions of dates, texts, arrays", Jooq::functions);
    step("Batches, `loadInto`, `fetchLazy`", Jooq::batches);
    step("Transactions, nested, locks", Jooq::transactions);
    step("`update ... from`, `delete ... using`, returning", Jooq::changes);
    step("`meta()`: tables, keys, indexes, DDL export", Jooq::meta);
    step("Code generation", Jooq::generate);
  }

  private static void step(String title, Step step) {
    String error = "null";
    try {
      step.run();
    } catch (Throwable failure) {
      failure.printStackTrace();
      String message = String.valueOf(failure.getMessage()).lines().findFirst().orElse("");
      error = '"' + (failure.getClass().getSimpleName() + ": " + message).replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }
    System.out.println("{\"step\": \"" + title + "\", \"error\": " + error + "}");
  }

  private static void equal(Object actual, Object expected) {
    if (!expected.equals(actual)) throw new AssertionError(actual + " instead of " + expected);
  }

  private static void ddl() {
    db.createTableIfNotExists(PEOPLE)
        .column("id", SQLDataType.BIGINT.identity(true))
        .column("name", SQLDataType.VARCHAR(80).nullable(false))
        .column("balance", SQLDataType.DECIMAL(10, 2).default_(BigDecimal.ZERO))
        .column("born", SQLDataType.LOCALDATE)
        .column("token", SQLDataType.UUID)
        .column("data", SQLDataType.JSONB)
        .column("tags", SQLDataType.VARCHAR.array())
        .column("seen", SQLDataType.OFFSETDATETIME.default_(DSL.currentOffsetDateTime()))
        .constraints(primaryKey("id"), unique("name"))
        .execute();
    db.createTable(ORDERS)
        .column("id", SQLDataType.INTEGER.identity(true))
        .column("person", SQLDataType.BIGINT.nullable(false))
        .column("amount", SQLDataType.INTEGER)
        .constraints(
            primaryKey("id"),
            foreignKey("person").references("people", "id").onDeleteCascade(),
            DSL.constraint("positive").check(field(name("amount"), Integer.class).gt(0)))
        .execute();
    db.alterTable(ORDERS).addColumn("note", SQLDataType.CLOB).execute();
    db.alterTable(ORDERS).renameColumn("note").to("remark").execute();
    db.alterTable(ORDERS).alterColumn("remark").set(SQLDataType.VARCHAR(50)).execute();
    db.alterTable(ORDERS).dropColumn("remark").execute();
    db.createIndex("by_person").on(ORDERS, PERSON.asc(), AMOUNT.desc()).execute();
    db.createSequence("numbers").startWith(5).execute();
    equal(db.nextval("numbers").longValue(), 5L);
    db.createView("totals").as(select(PERSON, sum(AMOUNT).as("total")).from(ORDERS).groupBy(PERSON)).execute();
    db.commentOnTable(PEOPLE).is("Who").execute();
  }

  private static void insert() {
    UUID token = UUID.randomUUID();
    Record made =
        db.insertInto(PEOPLE)
            .set(NAME, "Ada")
            .set(BALANCE, new BigDecimal("12.50"))
            .set(BORN, LocalDate.of(1815, 12, 10))
            .set(TOKEN, token)
            .set(DATA, JSONB.valueOf("{\"a\": [1]}"))
            .set(TAGS, new String[] {"x", "y,z"})
            .set(SEEN, OffsetDateTime.parse("2024-02-29T12:30:00+02:00"))
            .returningResult(ID, TOKEN, DATA, TAGS, SEEN, BALANCE)
            .fetchOne();
    equal(made.get(ID), 1L);
    equal(made.get(TOKEN), token);
    equal(made.get(TAGS)[1], "y,z");
    equal(made.get(SEEN).toInstant(), OffsetDateTime.parse("2024-02-29T10:30:00Z").toInstant());
    equal(made.get(DATA), JSONB.valueOf("{\"a\": [1]}"));
    equal(
        db.insertInto(PEOPLE, NAME, BORN).values("Bob", LocalDate.of(1990, 1, 2)).values("Cy", null).returning(ID).fetch().getValues(ID),
        List.of(2L, 3L));
    equal(
        db.insertInto(ORDERS, PERSON, AMOUNT).select(select(ID, inline(5)).from(PEOPLE).where(NAME.ne("Cy"))).execute(), 2);
    try {
      db.insertInto(PEOPLE, NAME).values("Ada").execute();
      throw new AssertionError("no error");
    } catch (IntegrityConstraintViolationException expected) {
      equal(expected.sqlState(), "23505");
    }
  }

  private static void upsert() {
    equal(db.insertInto(PEOPLE, NAME).values("Ada").onConflict(NAME).doNothing().execute(), 0);
    equal(
        db.insertInto(PEOPLE, NAME, BALANCE)
            .values("Ada", BigDecimal.ONE)
            .onConflict(NAME)
            .doUpdate()
            .set(BALANCE, BALANCE.plus(excluded(BALANCE)))
            .where(BALANCE.gt(BigDecimal.ZERO))
            .returning(BALANCE)
            .fetchOne(BALANCE),
        new BigDecimal("13.50"));
    db.insertInto(PEOPLE, ID, NAME).values(3L, "Cyd").onConflict(ID).doUpdate().setAllToExcluded().execute();
    db.mergeInto(PEOPLE)
        .using(values(row(2L, "Bobby"), row(9L, "Dora")).as("s", "id", "name"))
        .on(ID.eq(field(name("s", "id"), Long.class)))
        .whenMatchedThenUpdate()
        .set(NAME, field(name("s", "name"), String.class))
        .whenNotMatchedThenInsert(ID, NAME)
        .values(field(name("s", "id"), Long.class), field(name("s", "name"), String.class))
        .execute();
    equal(db.select(NAME).from(PEOPLE).orderBy(ID).fetch(NAME), List.of("Ada", "Bobby", "Cyd", "Dora"));
  }

  private static void queries() {
    for (int amount = 1; amount <= 20; amount++) {
      db.insertInto(ORDERS).set(PERSON, (long) (amount % 3 + 1)).set(AMOUNT, amount).execute();
    }
    Result<?> groups =
        db.select(NAME, count(), sum(AMOUNT), countDistinct(AMOUNT), DSL.avg(AMOUNT), DSL.listAgg(ORDER, ",").withinGroupOrderBy(ORDER), DSL.arrayAgg(AMOUNT).orderBy(AMOUNT.desc()))
            .from(PEOPLE)
            .leftJoin(ORDERS)
            .on(PERSON.eq(ID))
            .groupBy(NAME)
            .having(count().gt(1))
            .orderBy(NAME)
            .fetch();
    equal(groups.size(), 3);
    equal(db.fetchCount(ORDERS, AMOUNT.between(3, 5).and(PERSON.in(1L, 2L))), 4);
    equal(db.fetchExists(PEOPLE, NAME.likeIgnoreCase("ad%")), true);
    equal(db.selectFrom(ORDERS).orderBy(ORDER).seek(5).limit(3).fetch(ORDER).size(), 3);
    equal(db.select(ORDER).from(ORDERS).orderBy(AMOUNT.desc().nullsLast(), ORDER).limit(2).offset(1).fetch().size(), 2);
    equal(db.select(NAME).from(PEOPLE).where(exists(selectOne().from(ORDERS).where(PERSON.eq(ID)))).fetch().size(), 3);
    equal(db.select(NAME).from(PEOPLE).where(row(ID, NAME).in(row(1L, "Ada"), row(2L, "x"))).fetch(NAME), List.of("Ada"));
    equal(db.select(NAME).from(PEOPLE).except(select(inline("Ada"))).intersect(select(inline("Cyd"))).fetch().size(), 1);
    equal(db.selectDistinct(PERSON).on(PERSON).from(ORDERS).orderBy(PERSON, AMOUNT.desc()).fetch().size(), 3);
    equal(db.select(NAME).from(PEOPLE).where(BORN.isDistinctFrom((LocalDate) null)).and(ID.eq(DSL.any(1L, 2L))).fetch().size(), 2);
    equal(db.select(PERSON, sum(AMOUNT)).from(ORDERS).groupBy(DSL.rollup(PERSON)).fetch().size(), 4);
    equal(db.fetchValue("SELECT count(*) FROM orders WHERE amount > ?", 10), 10L);
  }

  private static void windows() {
    equal(
        db.select(ORDER, rank().over().partitionBy(PERSON).orderBy(AMOUNT.desc()).as("r"), lag(AMOUNT).over().orderBy(ORDER), sum(AMOUNT).over().orderBy(ORDER).rowsBetweenPreceding(1).andCurrentRow())
            .from(ORDERS)
            .orderBy(field(name("r")), ORDER)
            .limit(3)
            .fetch()
            .getValue(0, "r"),
        1);
    var big = name("big").fields("person", "amount").as(select(PERSON, AMOUNT).from(ORDERS).where(AMOUNT.gt(15)));
    equal(db.with(big).select(count()).from(big).fetchOne(0, int.class), 5);
    Field<Integer> n = field(name("n"), Integer.class);
    equal(
        db.withRecursive(name("t").fields("n").as(select(inline(1)).unionAll(select(n.plus(1)).from(name("t")).where(n.lt(10)))))
            .select(sum(n))
            .from(name("t"))
            .fetchOne(0, int.class),
        55);
    equal(
        db.select(NAME, field(name("l", "amount")))
            .from(PEOPLE)
            .crossJoin(lateral(select(AMOUNT).from(ORDERS).where(PERSON.eq(ID)).orderBy(AMOUNT.desc()).limit(1)).as("l"))
            .fetch()
            .size(),
        3);
    equal(db.select(asterisk()).from(DSL.generateSeries(1, 5)).fetch().size(), 5);
    equal(db.select(count().filterWhere(AMOUNT.gt(15))).from(ORDERS).fetchOne(0, int.class), 5);
  }

  private static void orderedSets() {
    equal(db.select(DSL.percentileCont(0.5).withinGroupOrderBy(AMOUNT)).from(ORDERS).fetchOne(0, double.class) > 0, true);
  }

  private static void explain() {
    equal(db.explain(select(ID).from(PEOPLE)).plan().isEmpty(), false);
  }

  private static void multisets() {
    var people =
        db.select(NAME, multiset(select(ORDER, AMOUNT).from(ORDERS).where(PERSON.eq(ID)).orderBy(AMOUNT)).as("orders"))
            .from(PEOPLE)
            .orderBy(ID)
            .fetch();
    equal(((Result<?>) people.get(3).value2()).size(), 0);
    equal(((Result<?>) people.get(0).value2()).size(), 7);
    equal(db.select(row(ID, NAME).as("r")).from(PEOPLE).orderBy(ID).fetch().get(0).value1().value2(), "Ada");
    equal(
        db.select(DSL.multisetAgg(AMOUNT)).from(ORDERS).where(PERSON.eq(2L)).fetchOne().value1().size(), 8);
    equal(db.select(jsonbGetAttributeAsText(DATA, "a")).from(PEOPLE).where(ID.eq(1L)).fetchOne().value1(), "[1]");
    equal(
        db.select(DSL.jsonbObject(DSL.key("name").value(NAME), DSL.key("n").value(ID))).from(PEOPLE).where(ID.eq(1L)).fetchOne().value1(),
        JSONB.valueOf("{\"n\": 1, \"name\": \"Ada\"}"));
    equal(db.select(DSL.jsonbArrayAgg(NAME).orderBy(NAME)).from(PEOPLE).fetchOne().value1().data().startsWith("[\"Ada\""), true);
    equal(db.select().from(PEOPLE).where(ID.le(2L)).orderBy(ID).fetch().formatJSON().contains("Bobby"), true);
  }

  private static void functions() {
    Record result =
        db.select(
                DSL.extract(BORN, DatePart.YEAR),
                DSL.localDateAdd(BORN, 3, DatePart.DAY),
                DSL.trunc(SEEN, DatePart.MONTH),
                DSL.concat(NAME, val("-"), ID),
                DSL.substring(NAME, 1, 2),
                DSL.position(NAME, "d"),
                DSL.lpad(NAME, 5, "."),
                DSL.coalesce(BORN, currentDate().cast(SQLDataType.LOCALDATE)),
                DSL.cardinality(TAGS),
                DSL.arrayGet(TAGS, 2),
                DSL.round(BALANCE, 1),
                DSL.greatest(ID, val(5L)),
                DSL.when(ID.gt(1L), "many").otherwise("one"),
                DSL.nullif(NAME, "Ada"),
                DSL.md5(NAME),
                DSL.dateDiff(DatePart.DAY, BORN.cast(SQLDataType.DATE), BORN.cast(SQLDataType.DATE)),
                DSL.toChar(BORN, "YYYY-MM"),
                DSL.regexpReplaceAll(NAME, "[a-z]", "x"),
                DSL.splitPart(NAME, "d", 2),
                DSL.translate(NAME, "A", "E"))
            .from(PEOPLE)
            .where(ID.eq(1L))
            .fetchOne();
    equal(result.get(0), 1815);
    equal(result.get(1), LocalDate.of(1815, 12, 13));
    equal(result.get(8), 2);
    equal(result.get(9), "y,z");
    equal(result.get(17), "Axx");
    equal(db.select(NAME).from(PEOPLE).where(TAGS.contains(new String[] {"x"})).fetch().size(), 1);
    equal(db.select(DSL.arrayOverlap(TAGS, DSL.array("x", "q"))).from(PEOPLE).where(ID.eq(1L)).fetchOne().value1(), true);
    equal(db.selectFrom(DSL.unnest(new Integer[] {1, 2, 3})).fetch().size(), 3);
  }

  private static void batches() throws Exception {
    var insert = db.insertInto(ORDERS, PERSON, AMOUNT).values((Long) null, (Integer) null);
    var batch = db.batch(insert);
    for (int i = 0; i < 50; i++) batch = batch.bind(1L, 100 + i);
    equal(batch.execute().length, 50);
    equal(
        db.loadInto(ORDERS)
            .bulkAfter(10)
            .batchAfter(2)
            .loadArrays(List.of(new Object[] {1000, 2L, 1}, new Object[] {1001, 2L, 2}, new Object[] {1002, 2L, 3}).iterator())
            .fields(ORDER, PERSON, AMOUNT)
            .execute()
            .stored(),
        3);
    db.transaction(
        inner -> {
          int rows = 0;
          try (var cursor = inner.dsl().selectFrom(ORDERS).fetchSize(10).fetchLazy()) {
            for (Record unused : cursor) rows++;
          }
          equal(rows, 75);
        });
    equal(db.fetchMany("SELECT 1; SELECT 2").size(), 2);
    equal(db.batch(db.update(ORDERS).set(AMOUNT, 7).where(ORDER.eq(1000)), db.deleteFrom(ORDERS).where(AMOUNT.ge(100))).execute()[1], 50);
  }

  private static void transactions() {
    db.transaction(
        outer -> {
          outer.dsl().select(ID).from(PEOPLE).where(ID.eq(1L)).forUpdate().fetch();
          outer.dsl().update(PEOPLE).set(BALANCE, new BigDecimal("1.00")).where(ID.eq(1L)).execute();
          try {
            outer.dsl().transaction(
                inner -> {
                  inner.dsl().deleteFrom(ORDERS).execute();
                  throw new IllegalStateException("undone");
                });
          } catch (IllegalStateException expected) {
            equal(outer.dsl().fetchCount(ORDERS), 25);
          }
          outer.dsl().select(ID).from(PEOPLE).orderBy(ID).limit(1).forNoKeyUpdate().of(PEOPLE).skipLocked().fetch();
        });
    equal(db.select(BALANCE).from(PEOPLE).where(ID.eq(1L)).fetchOne(BALANCE), new BigDecimal("1.00"));
    try {
      db.transaction(inner -> inner.dsl().execute("SELECT 1 / 0"));
      throw new AssertionError("no error");
    } catch (DataAccessException expected) {
      equal(expected.sqlState(), "22012");
    }
  }

  private static void changes() {
    equal(
        db.update(ORDERS).set(AMOUNT, AMOUNT.plus(1)).from(PEOPLE).where(PERSON.eq(ID)).and(NAME.eq("Cyd")).returning(AMOUNT).fetch().size(), 7);
    equal(db.update(PEOPLE).set(row(NAME, BALANCE), row(val("Cy"), val(BigDecimal.TEN))).where(ID.eq(3L)).execute(), 1);
    equal(db.deleteFrom(ORDERS).using(PEOPLE).where(PERSON.eq(ID)).and(NAME.eq("Cy")).returning(ORDER).fetch().size(), 7);
    equal(db.deleteFrom(ORDERS).where(ORDER.in(select(ORDER).from(ORDERS).orderBy(ORDER).limit(2))).execute(), 2);
    equal(db.truncate(ORDERS).restartIdentity().cascade().execute(), 0);
  }

  private static void meta() {
    Meta meta = db.meta().filterSchemas(schema -> schema.getName().equals("public"));
    equal(meta.getTables().stream().map(Table::getName).sorted().toList(), List.of("orders", "people", "totals"));
    Table<?> orders = meta.getTables("orders").get(0);
    equal(orders.getPrimaryKey().getFields().get(0).getName(), "id");
    equal(orders.getReferences().get(0).getKey().getTable().getName(), "people");
    equal(orders.getIndexes().stream().anyMatch(index -> index.getName().equals("by_person")), true);
    Table<?> people = meta.getTables("people").get(0);
    equal(people.field("balance").getDataType().precision(), 10);
    equal(people.field("tags").getType(), String[].class);
    equal(people.getUniqueKeys().size(), 1);
    equal(meta.getSequences("numbers").size(), 1);
    equal(meta.ddl().queries().length > 4, true);
  }

  private static void generate() throws Exception {
    Path directory = Files.createTempDirectory("jooq");
    org.jooq.codegen.GenerationTool.generate(
        new org.jooq.meta.jaxb.Configuration()
            .withLogging(org.jooq.meta.jaxb.Logging.ERROR)
            .withJdbc(new org.jooq.meta.jaxb.Jdbc().withDriver("org.postgresql.Driver").withUrl(source.getUrl()).withUser("materialize"))
            .withGenerator(
                new org.jooq.meta.jaxb.Generator()
                    .withDatabase(new org.jooq.meta.jaxb.Database().withName("org.jooq.meta.postgres.PostgresDatabase").withInputSchema("public"))
                    .withTarget(new org.jooq.meta.jaxb.Target().withPackageName("generated").withDirectory(directory.toString()))));
    String text = Files.readString(directory.resolve("generated/tables/People.java"));
    for (String expected : List.of("SQLDataType.BIGINT.nullable(false).identity(true)", "SQLDataType.NUMERIC(10, 2)", "SQLDataType.JSONB", "SQLDataType.UUID", "VARCHAR.array()", "Keys.PEOPLE_PKEY")) {
      if (!text.contains(expected)) throw new AssertionError("no " + expected + " in " + text);
    }
    equal(Files.readString(directory.resolve("generated/Keys.java")).contains("ForeignKey<OrdersRecord, PeopleRecord>"), true);
    equal(Files.exists(directory.resolve("generated/tables/Totals.java")), true);
    equal(Files.readString(directory.resolve("generated/Indexes.java")).contains("BY_PERSON"), true);
    equal(Files.exists(directory.resolve("generated/Sequences.java")), true);
    try (var paths = Files.walk(directory)) {
      for (Path path : paths.sorted(Comparator.reverseOrder()).toList()) Files.delete(path);
    }
  }
}
