import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.Statement;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.logging.Level;
import java.util.logging.Logger;
import java.util.stream.Stream;
import org.flywaydb.core.api.FlywayException;
import org.flywaydb.core.api.MigrationState;
import org.flywaydb.core.api.configuration.FluentConfiguration;

/** As steps.py, for Flyway. */
public final class Flyway {
  private static String url;
  private static Path scripts;

  private interface Step {
    void run() throws Exception;
  }

  public static void main(String[] arguments) throws Exception {
    Logger.getLogger("org.flywaydb").setLevel(Level.SEVERE);
    url = "jdbc:postgresql://" + arguments[0] + ":" + arguments[1] + "/" + arguments[2];
    scripts = Files.createTempDirectory("flyway");
    step("`migrate`", Flyway::migrate);
    step("`info`, `validate`", Flyway::info);
    step("Repeatable migrations, placeholders", Flyway::repeatable);
    step("Two `migrate` at the same time", Flyway::concurrent);
    step("A failed migration; `repair`", Flyway::repair);
    step("Migrations without a transaction", Flyway::outside);
    step("`createSchemas`, `defaultSchema`", Flyway::schemas);
    step("`clean`", Flyway::clean);
    step("`baseline`", Flyway::baseline);
    try (Stream<Path> paths = Files.walk(scripts)) {
      for (Path path : paths.sorted(Comparator.reverseOrder()).toList()) Files.delete(path);
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

  private static FluentConfiguration configuration() {
    return org.flywaydb.core.Flyway.configure()
        .dataSource(url, "materialize", "")
        .locations("filesystem:" + scripts)
        .placeholders(Map.of("who", "Ada"))
        .configuration(Map.of("flyway.postgresql.transactional.lock", "false"))
        .cleanDisabled(false);
  }

  private static org.flywaydb.core.Flyway flyway() {
    return configuration().load();
  }

  private static void script(String name, String text) throws Exception {
    Files.writeString(scripts.resolve(name), text);
  }

  private static Object value(String query) throws Exception {
    try (Connection connection = DriverManager.getConnection(url, "materialize", "");
        Statement statement = connection.createStatement();
        ResultSet rows = statement.executeQuery(query)) {
      rows.next();
      return rows.getObject(1);
    }
  }

  private static void migrate() throws Exception {
    script(
        "V1__people.sql",
        """
        CREATE TYPE mood AS ENUM ('happy', 'sad');
        CREATE DOMAIN email AS text CHECK (VALUE LIKE '%@%');
        CREATE SEQUENCE tickets START 100;
        CREATE TABLE people (
            id bigserial PRIMARY KEY,
            name varchar(80) NOT NULL,
            mail email UNIQUE,
            mood mood DEFAULT 'happy',
            made timestamptz NOT NULL DEFAULT now()
        );
        COMMENT ON TABLE people IS 'who; what';
        INSERT INTO people (name, mail) VALUES ('${who}', 'ada@example.org');
        """);
    script(
        "V2__orders.sql",
        """
        CREATE TABLE orders (
            id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            person bigint NOT NULL REFERENCES people ON DELETE CASCADE,
            amount numeric(10, 2) CHECK (amount > 0)
        );
        CREATE INDEX orders_person ON orders (person);
        INSERT INTO orders (person, amount) SELECT id, 5 FROM people;
        CREATE VIEW totals AS SELECT person, sum(amount) AS total FROM orders GROUP BY person;
        CREATE MATERIALIZED VIEW counts AS SELECT person, count(*) AS orders FROM orders GROUP BY person;
        """);
    script(
        "V2.1__copy.sql",
        """
        COPY people (name, mail) FROM STDIN WITH (FORMAT csv);
        Bob,bob@example.org
        \\.
        ALTER TABLE people ADD COLUMN age int DEFAULT 30, ALTER COLUMN name TYPE text;
        UPDATE people SET age = 36 WHERE name = 'Ada';
        """);
    equal(flyway().migrate().migrationsExecuted, 3);
    equal(flyway().migrate().migrationsExecuted, 0);
    equal(value("SELECT count(*) FROM people WHERE age > 30"), 1L);
  }

  private static void info() {
    var info = flyway().info();
    equal(info.applied().length, 3);
    equal(info.pending().length, 0);
    equal(info.current().getVersion().getVersion(), "2.1");
    equal(info.current().getState(), MigrationState.SUCCESS);
    flyway().validate();
  }

  private static void repeatable() throws Exception {
    script("R__rich.sql", "CREATE OR REPLACE VIEW rich AS SELECT * FROM totals WHERE total > 3; -- ${flyway:defaultSchema}\n");
    equal(flyway().migrate().migrationsExecuted, 1);
    script("R__rich.sql", "CREATE OR REPLACE VIEW rich AS SELECT * FROM totals WHERE total > 4; -- ${flyway:database}\n");
    equal(flyway().migrate().migrationsExecuted, 1);
    equal(value("SELECT count(*) FROM rich"), 1L);
  }

  private static void concurrent() throws Exception {
    script("V3__more.sql", "CREATE TABLE more (id int); INSERT INTO more VALUES (1);");
    var results = new java.util.concurrent.ConcurrentLinkedQueue<Object>();
    List<Thread> threads =
        Stream.of(1, 2)
            .map(
                number ->
                    new Thread(
                        () -> {
                          try {
                            results.add(flyway().migrate().migrationsExecuted);
                          } catch (RuntimeException failure) {
                            failure.printStackTrace();
                            results.add(failure.getMessage());
                          }
                        }))
            .toList();
    for (Thread thread : threads) thread.start();
    for (Thread thread : threads) thread.join();
    equal(results.stream().map(String::valueOf).sorted().toList(), List.of("0", "1"));
    equal(value("SELECT count(*) FROM more"), 1L);
  }

  private static void repair() throws Exception {
    script("V4__wrong.sql", "CREATE TABLE half (id int); INSERT INTO missing VALUES (1);");
    try {
      flyway().migrate();
      throw new AssertionError("no error");
    } catch (FlywayException expected) {
      equal(value("SELECT to_regclass('half') IS NULL"), true);
    }
    script("V4__wrong.sql", "CREATE TABLE whole (id int);");
    script("V1__people.sql", Files.readString(scripts.resolve("V1__people.sql")) + "-- changed\n");
    try {
      flyway().validate();
      throw new AssertionError("no error");
    } catch (FlywayException expected) {
      equal(flyway().repair().migrationsAligned.size(), 1);
    }
    equal(flyway().migrate().migrationsExecuted, 1);
    flyway().validate();
  }

  private static void outside() throws Exception {
    script("V5__index.sql", "CREATE INDEX CONCURRENTLY people_age ON people (age);");
    script("V6__vacuum.sql", "VACUUM people;");
    script("V7__prepared.sql", "INSERT INTO orders (person, amount) VALUES (1, 2); SELECT * FROM orders; DELETE FROM orders WHERE amount = 2;");
    equal(flyway().migrate().migrationsExecuted, 3);
  }

  private static void schemas() throws Exception {
    var other = configuration().schemas("app", "audit").defaultSchema("app").load();
    equal(other.migrate().migrationsExecuted, 9);
    equal(value("SELECT count(*) FROM app.flyway_schema_history"), 10L);
    other.clean();
    equal(value("SELECT count(*) FROM information_schema.schemata WHERE schema_name IN ('app', 'audit')"), 0L);
  }

  private static void clean() throws Exception {
    flyway().clean();
    equal(value("SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace"), 0L);
    equal(value("SELECT count(*) FROM pg_type WHERE typnamespace = 'public'::regnamespace"), 0L);
  }

  private static void baseline() throws Exception {
    try (Connection connection = DriverManager.getConnection(url, "materialize", "")) {
      connection.createStatement().execute("CREATE TABLE people (id bigserial PRIMARY KEY, name text, age int)");
    }
    Files.delete(scripts.resolve("R__rich.sql"));
    flyway().baseline();
    equal(flyway().info().applied().length, 1);
    equal(configuration().target("1").load().migrate().migrationsExecuted, 0);
  }
}
