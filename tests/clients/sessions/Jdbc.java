import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.Savepoint;
import java.sql.Statement;
import java.sql.Timestamp;
import org.postgresql.PGConnection;

/** As steps.py, for JDBC. */
public final class Jdbc {
  private static String url;

  private interface Step {
    void run(Connection connection) throws Exception;
  }

  public static void main(String[] arguments) {
    url = "jdbc:postgresql://" + arguments[0] + ":" + arguments[1] + "/" + arguments[2] + "?user=materialize";
    step("Prepared statements, types", Jdbc::prepared);
    step("Transactions and savepoints", Jdbc::savepoints);
    step("Batches, `reWriteBatchedInserts`", Jdbc::batches);
    step("`setFetchSize`, scrollable results", Jdbc::fetchSize);
    step("`DatabaseMetaData`", Jdbc::metadata);
    step("LISTEN", Jdbc::listen);
    step("Generated keys", Jdbc::generatedKeys);
  }

  private static void step(String title, Step step) {
    String error = "null";
    try (Connection connection = DriverManager.getConnection(url)) {
      step.run(connection);
    } catch (Throwable failure) {
      failure.printStackTrace();
      String message = String.valueOf(failure.getMessage()).lines().findFirst().orElse("");
      error = '"' + (failure.getClass().getSimpleName() + ": " + message).replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }
    System.out.println("{\"step\": \"" + title + "\", \"error\": " + error + "}");
  }

  private static void check(boolean condition) {
    if (!condition) throw new AssertionError("wrong result");
  }

  private static void prepared(Connection connection) throws Exception {
    try (Statement statement = connection.createStatement()) {
      statement.execute("CREATE TABLE jd (id int, name varchar(40), amount numeric(8,2), at timestamp)");
    }
    try (PreparedStatement insert = connection.prepareStatement("INSERT INTO jd VALUES (?, ?, ?, ?)")) {
      for (int i = 0; i < 10; i++) {
        insert.setInt(1, i);
        insert.setString(2, "n" + i);
        insert.setBigDecimal(3, new BigDecimal("1.50"));
        insert.setTimestamp(4, Timestamp.valueOf("2024-02-29 12:00:00"));
        check(insert.executeUpdate() == 1);
      }
    }
    try (PreparedStatement select = connection.prepareStatement("SELECT amount, at FROM jd WHERE id = ?")) {
      select.setInt(1, 3);
      ResultSet rows = select.executeQuery();
      check(rows.next() && rows.getBigDecimal(1).equals(new BigDecimal("1.50")));
      check(rows.getTimestamp(2).equals(Timestamp.valueOf("2024-02-29 12:00:00")));
    }
  }

  private static void savepoints(Connection connection) throws Exception {
    connection.setAutoCommit(false);
    try (Statement statement = connection.createStatement()) {
      statement.executeUpdate("INSERT INTO jd (id) VALUES (100)");
      Savepoint savepoint = connection.setSavepoint("s");
      check(statement.executeUpdate("DELETE FROM jd") == 11);
      connection.rollback(savepoint);
      connection.commit();
      statement.executeUpdate("DELETE FROM jd");
      connection.rollback();
      ResultSet rows = statement.executeQuery("SELECT count(*) FROM jd");
      check(rows.next() && rows.getInt(1) == 11);
    }
  }

  private static void batches(Connection unused) throws Exception {
    try (Connection connection = DriverManager.getConnection(url + "&reWriteBatchedInserts=true");
        PreparedStatement insert = connection.prepareStatement("INSERT INTO jd (id, name) VALUES (?, ?)")) {
      connection.setAutoCommit(false);
      for (int i = 1000; i < 1500; i++) {
        insert.setInt(1, i);
        insert.setString(2, "batch");
        insert.addBatch();
      }
      check(insert.executeBatch().length == 500);
      connection.commit();
    }
  }

  private static void fetchSize(Connection connection) throws Exception {
    connection.setAutoCommit(false);
    try (Statement statement = connection.createStatement()) {
      statement.setFetchSize(50);
      ResultSet rows = statement.executeQuery("SELECT id FROM jd");
      int count = 0;
      while (rows.next()) count++;
      check(count == 511);
    }
    try (Statement statement =
        connection.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_READ_ONLY)) {
      ResultSet rows = statement.executeQuery("SELECT id FROM jd ORDER BY id");
      check(rows.last() && rows.getInt(1) == 1499 && rows.absolute(2) && rows.getInt(1) == 1);
    }
  }

  private static void metadata(Connection connection) throws Exception {
    DatabaseMetaData metadata = connection.getMetaData();
    ResultSet columns = metadata.getColumns(null, "public", "jd", null);
    int count = 0;
    while (columns.next()) count++;
    check(count == 4);
    metadata.getTables(null, null, "%", new String[] {"TABLE", "VIEW"}).next();
    metadata.getPrimaryKeys(null, "public", "jd").next();
    metadata.getIndexInfo(null, "public", "jd", false, false).next();
    metadata.getImportedKeys(null, "public", "jd").next();
    metadata.getTypeInfo().next();
    check(connection.isValid(5));
  }

  private static void listen(Connection connection) throws Exception {
    try (Statement statement = connection.createStatement()) {
      statement.execute("LISTEN jd");
      statement.execute("NOTIFY jd, 'hello'");
    }
    check(connection.unwrap(PGConnection.class).getNotifications(10_000)[0].getParameter().equals("hello"));
  }

  private static void generatedKeys(Connection connection) throws Exception {
    try (Statement statement = connection.createStatement()) {
      statement.execute("CREATE TABLE jd_keys (id int GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, name text)");
      statement.executeUpdate("INSERT INTO jd_keys (name) VALUES ('a')", Statement.RETURN_GENERATED_KEYS);
      ResultSet keys = statement.getGeneratedKeys();
      check(keys.next() && keys.getInt(1) == 1);
    }
  }
}
