import java.io.File;
import java.io.StringWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.logging.Level;
import java.util.logging.Logger;
import liquibase.Contexts;
import liquibase.LabelExpression;
import liquibase.Scope;
import liquibase.command.CommandScope;
import liquibase.command.core.helpers.DbUrlConnectionArgumentsCommandStep;
import liquibase.database.Database;
import liquibase.database.DatabaseFactory;
import liquibase.database.jvm.JdbcConnection;
import liquibase.diff.DiffGeneratorFactory;
import liquibase.diff.DiffResult;
import liquibase.diff.compare.CompareControl;
import liquibase.diff.output.DiffOutputControl;
import liquibase.diff.output.changelog.DiffToChangeLog;
import liquibase.resource.DirectoryResourceAccessor;
import liquibase.snapshot.DatabaseSnapshot;
import liquibase.snapshot.SnapshotControl;
import liquibase.snapshot.SnapshotGeneratorFactory;
import liquibase.structure.core.Column;
import liquibase.structure.core.ForeignKey;
import liquibase.structure.core.Index;
import liquibase.structure.core.PrimaryKey;
import liquibase.structure.core.Sequence;
import liquibase.structure.core.Table;
import liquibase.structure.core.UniqueConstraint;
import liquibase.structure.core.View;

/** As steps.py, for Liquibase. */
public final class Liquibase {
  private static String url;
  private static Path directory;

  private interface Step {
    void run() throws Exception;
  }

  public static void main(String[] arguments) throws Exception {
    Logger.getLogger("liquibase").setLevel(Level.SEVERE);
    url = "jdbc:postgresql://" + arguments[0] + ":" + arguments[1] + "/" + arguments[2];
    directory = Files.createTempDirectory("liquibase");
    Files.writeString(directory.resolve("changes.yaml"), CHANGES);
    Files.writeString(directory.resolve("people.csv"), "name,born,vip\nBob,1990-02-03,true\nCy,NULL,false\n");
    Map<String, Object> quiet = new java.util.HashMap<>();
    quiet.put(Scope.Attr.ui.name(), new liquibase.ui.LoggerUIService());
    quiet.put(Scope.Attr.classLoader.name(), Liquibase.class.getClassLoader());
    Scope.child(quiet, () -> {
      step("`status`, `updateSQL`", Liquibase::status);
      step("`update`, again", Liquibase::update);
      step("`tag`, `rollback`, `update`", Liquibase::rollback);
      step("`loadData`, preconditions, `sql` with `splitStatements`", Liquibase::data);
      step("`snapshot`", Liquibase::snapshot);
      step("`diff` finds no difference", Liquibase::diff);
      step("`generateChangeLog`, and `update` with it", Liquibase::generate);
      step("`validate`, `clearCheckSums`, `listLocks`, `releaseLocks`", Liquibase::locks);
      step("`futureRollbackSQL`, `rollbackCount`, `changelogSync`", Liquibase::future);
      step("`dropAll`", Liquibase::dropAll);
    });
    try (var paths = Files.walk(directory)) {
      for (Path path : paths.sorted(java.util.Comparator.reverseOrder()).toList()) Files.delete(path);
    }
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

  private interface Work {
    void with(liquibase.Liquibase liquibase) throws Exception;
  }

  private static Database database(String schema) throws Exception {
    Connection connection = DriverManager.getConnection(url, "materialize", "");
    Database database = DatabaseFactory.getInstance().findCorrectDatabaseImplementation(new JdbcConnection(connection));
    if (schema != null) database.setDefaultSchemaName(schema);
    return database;
  }

  private static void with(String changes, String schema, Work work) throws Exception {
    try (Database database = database(schema);
        DirectoryResourceAccessor files = new DirectoryResourceAccessor(directory)) {
      work.with(new liquibase.Liquibase(changes, files, database));
    }
  }

  private static void with(Work work) throws Exception {
    with("changes.yaml", null, work);
  }

  private static Object value(String query) throws Exception {
    try (Connection connection = DriverManager.getConnection(url, "materialize", "");
        ResultSet rows = connection.createStatement().executeQuery(query)) {
      rows.next();
      return rows.getObject(1);
    }
  }

  private static void status() throws Exception {
    with(
        liquibase -> {
          equal(liquibase.listUnrunChangeSets(new Contexts(), new LabelExpression()).size(), 8);
          StringWriter text = new StringWriter();
          liquibase.update(new Contexts(), text);
          equal(text.toString().contains("CREATE TABLE public.people"), true);
        });
  }

  private static void update() throws Exception {
    with(liquibase -> liquibase.update(new Contexts()));
    with(liquibase -> liquibase.update(new Contexts()));
    equal(value("SELECT count(*) FROM databasechangelog"), 8L);
    equal(value("SELECT count(*) FROM people WHERE name = 'Ada' AND vip"), 1L);
  }

  private static void rollback() throws Exception {
    with(
        liquibase -> {
          liquibase.tag("first");
          liquibase.rollback(2, "");
          equal(liquibase.listUnrunChangeSets(new Contexts(), new LabelExpression()).size(), 2);
          liquibase.update(new Contexts());
          liquibase.tag("second");
        });
  }

  private static void data() throws Exception {
    Files.writeString(directory.resolve("data.yaml"), DATA);
    with("data.yaml", null, liquibase -> liquibase.update(new Contexts()));
    equal(value("SELECT count(*) FROM people"), 4L);
    equal(value("SELECT count(*) FROM people WHERE born IS NULL"), 3L);
  }

  private static DatabaseSnapshot taken(Database database) throws Exception {
    return SnapshotGeneratorFactory.getInstance()
        .createSnapshot(database.getDefaultSchema(), database, new SnapshotControl(database));
  }

  private static void snapshot() throws Exception {
    try (Database database = database(null)) {
      DatabaseSnapshot snapshot = taken(database);
      equal(snapshot.get(Table.class).size(), 5);
      equal(snapshot.get(View.class).size(), 1);
      equal(snapshot.get(ForeignKey.class).size(), 1);
      equal(snapshot.get(PrimaryKey.class).size(), 4);
      equal(snapshot.get(UniqueConstraint.class).size(), 2);
      equal(snapshot.get(Sequence.class).stream().map(Sequence::getName).anyMatch("tickets"::equals), true);
      equal(snapshot.get(Index.class).stream().anyMatch(index -> "by_name".equals(index.getName())), true);
      for (Column column : snapshot.get(Column.class)) {
        if (column.getRelation().getName().equals("people") && column.getName().equals("score")) {
          equal(column.getType().toString(), "numeric(8, 2)");
          equal(column.getDefaultValue().toString(), "1.5");
        }
      }
    }
  }

  private static void diff() throws Exception {
    try (Database one = database(null);
        Database other = database(null)) {
      DiffResult diff = DiffGeneratorFactory.getInstance().compare(one, other, new CompareControl());
      equal(diff.areEqual(), true);
    }
  }

  private static void generate() throws Exception {
    try (Database database = database(null);
        Database empty = database("copy")) {
      ((JdbcConnection) database.getConnection()).getUnderlyingConnection().createStatement().execute("CREATE SCHEMA IF NOT EXISTS copy");
      DiffResult diff =
          DiffGeneratorFactory.getInstance()
              .compare(taken(database), SnapshotGeneratorFactory.getInstance().createSnapshot(empty.getDefaultSchema(), empty, new SnapshotControl(empty)), new CompareControl());
      DiffToChangeLog writer = new DiffToChangeLog(diff, new DiffOutputControl(false, false, false, null));
      writer.setChangeSetAuthor("test");
      writer.print(directory.resolve("generated.yaml").toString());
    }
    with("generated.yaml", "copy", liquibase -> liquibase.update(new Contexts()));
    equal(value("SELECT count(*) FROM information_schema.columns WHERE table_schema = 'copy' AND table_name = 'people'"),
        value("SELECT count(*) FROM information_schema.columns WHERE table_schema = 'public' AND table_name = 'people'"));
  }

  private static void locks() throws Exception {
    with(
        liquibase -> {
          liquibase.validate();
          liquibase.clearCheckSums();
          liquibase.update(new Contexts());
          equal(liquibase.listLocks().length, 0);
          liquibase.forceReleaseLocks();
        });
  }

  private static void future() throws Exception {
    with(
        liquibase -> {
          liquibase.rollback(1, "");
          StringWriter text = new StringWriter();
          liquibase.futureRollbackSQL(text);
          liquibase.changeLogSync("");
          equal(liquibase.listUnrunChangeSets(new Contexts(), new LabelExpression()).size(), 0);
        });
  }

  private static void dropAll() throws Exception {
    with(liquibase -> liquibase.dropAll());
    equal(value("SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relname NOT LIKE 'databasechangelog%'"), 0L);
  }

  private static final String CHANGES =
      """
      databaseChangeLog:
        - changeSet:
            id: 1
            author: test
            changes:
              - createTable:
                  tableName: people
                  remarks: Who they are
                  columns:
                    - column: {name: id, type: bigint, autoIncrement: true, constraints: {primaryKey: true}}
                    - column: {name: name, type: varchar(80), constraints: {nullable: false, unique: true, uniqueConstraintName: people_name}}
                    - column: {name: born, type: date}
                    - column: {name: seen, type: timestamp with time zone, defaultValueComputed: now()}
                    - column: {name: score, type: 'decimal(8,2)', defaultValueNumeric: 1.5}
                    - column: {name: photo, type: bytea}
                    - column: {name: bio, type: clob, remarks: A text}
                    - column: {name: token, type: uuid}
                    - column: {name: active, type: boolean, defaultValueBoolean: true}
        - changeSet:
            id: 2
            author: test
            changes:
              - createSequence: {sequenceName: tickets, startValue: 100, incrementBy: 10}
              - createTable:
                  tableName: orders
                  columns:
                    - column: {name: id, type: int, constraints: {primaryKey: true, primaryKeyName: orders_key}}
                    - column: {name: person, type: bigint, constraints: {nullable: false, foreignKeyName: orders_person, references: people(id)}}
                    - column: {name: code, type: char(3)}
              - createIndex:
                  indexName: by_name
                  tableName: people
                  columns: [{column: {name: name}}, {column: {name: born, descending: true}}]
        - changeSet:
            id: 3
            author: test
            changes:
              - insert: {tableName: people, columns: [{column: {name: name, value: Ada}}]}
              - insert: {tableName: people, columns: [{column: {name: name, value: Eve}}]}
              - addColumn: {tableName: people, columns: [{column: {name: vip, type: boolean, valueBoolean: true, constraints: {nullable: false}}}]}
            rollback:
              - dropColumn: {tableName: people, columnName: vip}
              - delete: {tableName: people}
        - changeSet:
            id: 4
            author: test
            changes:
              - createView: {viewName: vips, selectQuery: 'SELECT id, name FROM people WHERE vip', replaceIfExists: true}
        - changeSet:
            id: 5
            author: test
            changes:
              - addUniqueConstraint: {tableName: orders, columnNames: 'person, code', constraintName: orders_code}
              - addDefaultValue: {tableName: orders, columnName: code, defaultValue: abc}
              - addNotNullConstraint: {tableName: orders, columnName: code, columnDataType: char(3), defaultNullValue: xyz}
              - setColumnRemarks: {tableName: orders, columnName: code, remarks: Three letters}
            rollback: []
        - changeSet:
            id: 6
            author: test
            changes:
              - createTable: {tableName: moves, columns: [{column: {name: a, type: int}}, {column: {name: b, type: text}}]}
              - renameColumn: {tableName: moves, oldColumnName: a, newColumnName: id}
              - renameTable: {oldTableName: moves, newTableName: moved}
              - addPrimaryKey: {tableName: moved, columnNames: id, constraintName: moved_key}
              - modifyDataType: {tableName: moved, columnName: b, newDataType: varchar(10)}
              - addAutoIncrement: {tableName: moved, columnName: id, columnDataType: int, startWith: 5}
              - renameSequence: {oldSequenceName: tickets, newSequenceName: tickets2}
              - renameSequence: {oldSequenceName: tickets2, newSequenceName: tickets}
              - alterSequence: {sequenceName: tickets, incrementBy: 1}
            rollback:
              - dropTable: {tableName: moved}
        - changeSet:
            id: 7
            author: test
            changes:
              - addColumn: {tableName: moved, columns: [{column: {name: first, type: text}}, {column: {name: last, type: text}}]}
              - mergeColumns: {tableName: moved, column1Name: first, column2Name: last, finalColumnName: whole, finalColumnType: text, joinString: ' '}
              - update: {tableName: moved, columns: [{column: {name: whole, valueComputed: lower(b)}}], where: id > 0}
            rollback:
              - dropColumn: {tableName: moved, columnName: whole}
        - changeSet:
            id: 8
            author: test
            changes:
              - sql: {sql: "UPDATE people SET active = false WHERE name = 'Eve'; UPDATE people SET score = 2 WHERE name = 'Eve'", splitStatements: true}
            rollback:
              - sql: {sql: UPDATE people SET active = true}
      """;

  private static final String DATA =
      """
      databaseChangeLog:
        - changeSet:
            id: data
            author: test
            preConditions:
              - onFail: MARK_RAN
              - tableExists: {tableName: people}
              - columnExists: {tableName: people, columnName: born}
              - primaryKeyExists: {tableName: people}
              - indexExists: {indexName: by_name, tableName: people}
              - viewExists: {viewName: vips}
              - sequenceExists: {sequenceName: tickets}
              - foreignKeyConstraintExists: {foreignKeyName: orders_person, foreignKeyTableName: orders}
              - sqlCheck: {expectedResult: 2, sql: SELECT count(*) FROM people}
            changes:
              - loadData: {tableName: people, file: people.csv, columns: [{column: {name: name, type: string}}, {column: {name: born, type: date}}, {column: {name: vip, type: boolean}}]}
      """;
}
