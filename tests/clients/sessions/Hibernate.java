import jakarta.persistence.Column;
import jakarta.persistence.CascadeType;
import jakarta.persistence.ElementCollection;
import jakarta.persistence.Embeddable;
import jakarta.persistence.Embedded;
import jakarta.persistence.Entity;
import jakarta.persistence.EnumType;
import jakarta.persistence.Enumerated;
import jakarta.persistence.GeneratedValue;
import jakarta.persistence.GenerationType;
import jakarta.persistence.Id;
import jakarta.persistence.Index;
import jakarta.persistence.Inheritance;
import jakarta.persistence.InheritanceType;
import jakarta.persistence.JoinColumn;
import jakarta.persistence.LockModeType;
import jakarta.persistence.ManyToMany;
import jakarta.persistence.ManyToOne;
import jakarta.persistence.OneToMany;
import jakarta.persistence.OptimisticLockException;
import jakarta.persistence.Table;
import jakarta.persistence.UniqueConstraint;
import jakarta.persistence.Version;
import java.math.BigDecimal;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.function.Consumer;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.hibernate.LockMode;
import org.hibernate.LockOptions;
import org.hibernate.ScrollMode;
import org.hibernate.ScrollableResults;
import org.hibernate.Session;
import org.hibernate.SessionFactory;
import org.hibernate.StatelessSession;
import org.hibernate.annotations.ColumnDefault;
import org.hibernate.annotations.CreationTimestamp;
import org.hibernate.annotations.JdbcTypeCode;
import org.hibernate.boot.registry.BootstrapServiceRegistryBuilder;
import org.hibernate.cfg.Configuration;
import org.hibernate.dialect.PostgreSQLEnumJdbcType;
import org.hibernate.annotations.JdbcType;
import org.hibernate.type.SqlTypes;

/** As steps.py, for Hibernate ORM. */
public final class Hibernate {
  private static String url;
  private static SessionFactory factory;

  private interface Step {
    void run() throws Exception;
  }

  public enum Status {
    OPEN,
    PAID,
    SENT
  }

  public enum Mood {
    HAPPY,
    SAD
  }

  @Embeddable
  public static class Address {
    public String street;
    public String city;
  }

  @Entity(name = "Customer")
  @Table(
      name = "customers",
      indexes = @Index(name = "customers_name", columnList = "name, born desc"),
      uniqueConstraints = @UniqueConstraint(name = "customers_email", columnNames = "email"))
  public static class Customer {
    @Id
    @GeneratedValue(strategy = GenerationType.IDENTITY)
    public Long id;

    @Column(nullable = false, length = 100)
    public String name;

    public String email;

    @JdbcType(PostgreSQLEnumJdbcType.class)
    public Mood mood;

    public LocalDate born;
    public OffsetDateTime seen;
    @CreationTimestamp public Instant created;
    public LocalDateTime local;
    public LocalTime wakes;
    public Duration works;
    public UUID token;
    public boolean active;
    public double score;
    public float weight;
    public short small;
    public char letter = 'x';
    public byte[] photo;
    public String[] tags;

    @ColumnDefault("0")
    @Column(precision = 12, scale = 2)
    public BigDecimal balance;

    @JdbcTypeCode(SqlTypes.JSON)
    public Map<String, Object> settings;

    @Column(columnDefinition = "text")
    public String notes;

    @Embedded public Address address;
    @ElementCollection public Set<String> phones = new HashSet<>();
    @Version public int version;

    @OneToMany(mappedBy = "customer", cascade = CascadeType.ALL, orphanRemoval = true)
    public List<Order> orders = new ArrayList<>();
  }

  @Entity(name = "Order")
  @Table(name = "orders")
  public static class Order {
    @Id
    @GeneratedValue(strategy = GenerationType.SEQUENCE)
    public Long id;

    @ManyToOne(optional = false)
    @JoinColumn(name = "customer_id")
    public Customer customer;

    @Enumerated(EnumType.STRING)
    public Status status = Status.OPEN;

    @Column(precision = 10, scale = 2)
    public BigDecimal amount;

    public LocalDate day;
    @ManyToMany public Set<Product> products = new HashSet<>();
  }

  @Entity(name = "Product")
  @Table(name = "products")
  public static class Product {
    @Id public UUID id = UUID.randomUUID();

    @Column(unique = true)
    public String title;

    public BigDecimal price;
  }

  @Entity(name = "Payment")
  @Inheritance(strategy = InheritanceType.JOINED)
  public abstract static class Payment {
    @Id @GeneratedValue public Integer id;
    public BigDecimal amount;
  }

  @Entity(name = "Card")
  public static class Card extends Payment {
    public String number;
  }

  @Entity(name = "Transfer")
  public static class Transfer extends Payment {
    public String iban;
  }

  @Entity(name = "Counter")
  @Table(name = "counters")
  public static class Counter {
    @Id public String name;
    public long hits;
  }

  public static void main(String[] arguments) {
    Logger.getLogger("org.hibernate").setLevel(Level.SEVERE);
    url = "jdbc:postgresql://" + arguments[0] + ":" + arguments[1] + "/" + arguments[2];
    step("`hbm2ddl.auto=update`, again, and `validate`", Hibernate::schema);
    factory = configuration("none").buildSessionFactory();
    step("Persist, find, change; all types", Hibernate::persist);
    step("Batched inserts of `SEQUENCE` and `IDENTITY` keys", Hibernate::batches);
    step("One to many, many to many, joined inheritance", Hibernate::relations);
    step("HQL: joins, aggregates, pagination, CTE, set operations", Hibernate::queries);
    step("HQL functions of dates, texts, arrays, JSON", Hibernate::functions);
    step("Criteria queries", Hibernate::criteria);
    step("Native queries, `scroll`", Hibernate::natives);
    step("Pessimistic and optimistic locks", Hibernate::locks);
    step("Bulk update and delete", Hibernate::bulk);
    step("HQL `insert ... select` with `SEQUENCE` keys", Hibernate::insertSelect);
    step("`upsert`, HQL `insert ... on conflict`", Hibernate::upsert);
    step("`hbm2ddl.auto=update` adds a column", Hibernate::addColumn);
    step("`hbm2ddl.auto=create-drop`", Hibernate::drop);
    factory.close();
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

  private static void check(boolean condition) {
    if (!condition) throw new AssertionError("wrong result");
  }

  private static void equal(Object actual, Object expected) {
    if (!expected.equals(actual)) throw new AssertionError(actual + " instead of " + expected);
  }

  private static Configuration configuration(String auto) {
    Configuration configuration =
        new Configuration(
                new BootstrapServiceRegistryBuilder().applyClassLoader(Hibernate.class.getClassLoader()).build())
            .setProperty("hibernate.connection.url", url)
            .setProperty("hibernate.connection.username", "materialize")
            .setProperty("hibernate.hbm2ddl.auto", auto)
            .setProperty("hibernate.hbm2ddl.halt_on_error", "true")
            .setProperty("hibernate.jdbc.batch_size", "20")
            .setProperty("hibernate.order_inserts", "true")
            .setProperty("hibernate.connection.pool_size", "4");
    for (Class<?> entity :
        List.of(
            Customer.class, Order.class, Product.class, Payment.class, Card.class, Transfer.class, Counter.class)) {
      configuration.addAnnotatedClass(entity);
    }
    return configuration;
  }

  private static void in(Consumer<Session> work) {
    factory.inTransaction(work);
  }

  private static void schema() {
    configuration("update").buildSessionFactory().close();
    configuration("update").buildSessionFactory().close();
    configuration("validate").buildSessionFactory().close();
  }

  private static Customer customer(String name) {
    Customer customer = new Customer();
    customer.name = name;
    customer.email = name.toLowerCase() + "@example.org";
    customer.balance = new BigDecimal("10.50");
    customer.born = LocalDate.of(1980 + name.length(), 2, 29 - name.length());
    return customer;
  }

  private static void persist() {
    OffsetDateTime seen = OffsetDateTime.of(2024, 2, 29, 12, 30, 15, 123456000, ZoneOffset.UTC);
    UUID token = UUID.randomUUID();
    Customer ada = customer("Ada");
    ada.mood = Mood.HAPPY;
    ada.seen = seen;
    ada.local = seen.toLocalDateTime();
    ada.wakes = LocalTime.of(6, 45);
    ada.works = Duration.ofHours(8);
    ada.token = token;
    ada.active = true;
    ada.score = 1.25;
    ada.weight = 0.5f;
    ada.small = -3;
    ada.photo = new byte[] {0, 1, (byte) 255};
    ada.tags = new String[] {"a", "b,c"};
    ada.settings = Map.of("theme", "dark", "sizes", List.of(1, 2));
    ada.notes = "it's \"quoted\"";
    ada.address = new Address();
    ada.address.city = "London";
    ada.phones.add("1");
    ada.phones.add("2");
    in(session -> session.persist(ada));
    check(ada.id == 1 && ada.version == 0);
    in(
        session -> {
          Customer found = session.find(Customer.class, ada.id);
          equal(found.seen.toInstant(), seen.toInstant());
          equal(found.token, token);
          equal(found.mood, Mood.HAPPY);
          equal(found.tags[1], "b,c");
          equal(found.settings.get("sizes"), List.of(1, 2));
          equal(found.balance, new BigDecimal("10.50"));
          equal(found.works, Duration.ofHours(8));
          equal(found.wakes, LocalTime.of(6, 45));
          equal(found.phones, Set.of("1", "2"));
          check(found.photo[2] == -1 && found.created != null && found.letter == 'x');
          found.notes = null;
          found.tags = new String[] {};
          found.phones.remove("1");
        });
    in(
        session -> {
          Customer found = session.find(Customer.class, ada.id);
          check(found.version == 1 && found.notes == null && found.tags.length == 0);
          session.refresh(found);
          equal(found.phones, Set.of("2"));
        });
  }

  private static void batches() {
    in(
        session -> {
          Customer ada = session.find(Customer.class, 1L);
          for (int i = 0; i < 60; i++) {
            Order order = new Order();
            order.customer = ada;
            order.amount = new BigDecimal(i + ".25");
            order.day = LocalDate.of(2024, 1, 1).plusDays(i);
            order.status = Status.values()[i % 3];
            session.persist(order);
          }
          for (String name : List.of("Bob", "Charles", "Dorothy")) session.persist(customer(name));
        });
    in(
        session -> {
          equal(session.createQuery("select count(*) from Order", Long.class).getSingleResult(), 60L);
          equal(session.createQuery("select max(id) from Order", Long.class).getSingleResult(), 60L);
        });
  }

  private static void relations() {
    in(
        session -> {
          List<Product> products = new ArrayList<>();
          for (String title : List.of("pen", "ink", "paper")) {
            Product product = new Product();
            product.title = title;
            product.price = new BigDecimal("2.5");
            products.add(product);
            session.persist(product);
          }
          Customer bob = session.createQuery("from Customer where name = 'Bob'", Customer.class).getSingleResult();
          Order order = new Order();
          order.customer = bob;
          order.amount = new BigDecimal("5.00");
          order.products.addAll(products);
          bob.orders.add(order);
          Card card = new Card();
          card.amount = BigDecimal.TEN;
          card.number = "4111";
          session.persist(card);
          Transfer transfer = new Transfer();
          transfer.amount = BigDecimal.ONE;
          transfer.iban = "DE00";
          session.persist(transfer);
        });
    in(
        session -> {
          Customer bob =
              session
                  .createQuery("from Customer c left join fetch c.orders o left join fetch o.products where c.name = :n", Customer.class)
                  .setParameter("n", "Bob")
                  .getSingleResult();
          equal(bob.orders.get(0).products.size(), 3);
          bob.orders.get(0).products.removeIf(product -> product.title.equals("ink"));
          List<Payment> payments = session.createQuery("from Payment order by amount", Payment.class).getResultList();
          check(payments.get(0) instanceof Transfer && payments.get(1) instanceof Card);
          session.remove(payments.get(0));
          equal(
              session
                  .createQuery("select count(*) from Customer c where c.orders is empty", Long.class)
                  .getSingleResult(),
              2L);
        });
    in(
        session -> {
          Customer bob = session.createQuery("from Customer where name = 'Bob'", Customer.class).getSingleResult();
          equal(bob.orders.get(0).products.size(), 2);
          bob.orders.clear();
        });
    in(session -> equal(session.createQuery("from Payment", Payment.class).getResultList().size(), 1));
  }

  private static void queries() {
    in(
        session -> {
          List<Object[]> groups =
              session
                  .createQuery(
                      "select o.status, count(*), sum(o.amount), avg(o.amount), min(o.day) from Order o"
                          + " join o.customer c where c.name = ?1 group by o.status having count(*) > 1 order by o.status",
                      Object[].class)
                  .setParameter(1, "Ada")
                  .getResultList();
          equal(groups.size(), 3);
          equal(groups.get(0)[2], new BigDecimal("575.00"));
          List<Order> page =
              session
                  .createQuery("from Order o where o.amount between :low and :high order by o.amount desc", Order.class)
                  .setParameter("low", new BigDecimal(10))
                  .setParameter("high", new BigDecimal(50))
                  .setFirstResult(10)
                  .setMaxResults(5)
                  .getResultList();
          equal(page.size(), 5);
          equal(page.get(0).amount, new BigDecimal("39.25"));
          equal(
              session
                  .createQuery("from Customer c where c.name in (:names) and c.mood is null", Customer.class)
                  .setParameterList("names", List.of("Bob", "Dorothy", "Nobody"))
                  .getResultList()
                  .size(),
              2);
          equal(
              session
                  .createQuery(
                      "select c.name from Customer c where exists (select 1 from Order o where o.customer = c and o.amount > 50)",
                      String.class)
                  .getResultList(),
              List.of("Ada"));
          List<Object[]> ranked =
              session
                  .createQuery(
                      "select o.id, rank() over (partition by o.status order by o.amount desc) as r,"
                          + " sum(o.amount) over (order by o.id rows between 1 preceding and current row)"
                          + " from Order o order by r, o.id limit 3",
                      Object[].class)
                  .getResultList();
          equal(ranked.size(), 3);
          equal(
              session
                  .createQuery(
                      "with big as (select o.id as id, o.amount as amount from Order o where o.amount > 55)"
                          + " select count(*) from big b where b.amount < 59",
                      Long.class)
                  .getSingleResult(),
              4L);
          equal(
              session
                  .createQuery(
                      "select c.name from Customer c where c.name like 'A%' union all"
                          + " select p.title from Product p where p.title ilike 'PEN'",
                      String.class)
                  .getResultList()
                  .size(),
              2);
          equal(
              session
                  .createQuery(
                      "select case when o.amount > 30 then 'high' else 'low' end as c, count(*) from Order o"
                          + " group by case when o.amount > 30 then 'high' else 'low' end order by 1",
                      Object[].class)
                  .getResultList()
                  .size(),
              2);
          equal(
              session
                  .createQuery(
                      "select count(distinct o.status), sum(o.amount) filter (where o.status = PAID) from Order o",
                      Object[].class)
                  .getSingleResult()[0],
              3L);
          equal(
              session
                  .createQuery("select listagg(p.title, ',') within group (order by p.title) from Product p", String.class)
                  .getSingleResult(),
              "ink,paper,pen");
          equal(
              session
                  .createQuery("from Customer order by mood desc nulls last, name fetch first 2 rows only", Customer.class)
                  .getResultList()
                  .get(0)
                  .name,
              "Ada");
          equal(
              session
                  .createQuery("select c.name, l.amount from Customer c left join lateral"
                      + " (select o.amount as amount from c.orders o order by o.amount desc limit 1) l order by c.name", Object[].class)
                  .getResultList()
                  .size(),
              4);
        });
  }

  private static void functions() {
    in(
        session -> {
          Object[] row =
              session
                  .createQuery(
                      "select extract(year from c.born), year(c.born), c.born + 1 day, cast(c.score as string),"
                          + " concat(c.name, '-', c.email), upper(substring(c.name, 1, 2)), trim(both 'A' from c.name),"
                          + " coalesce(c.notes, 'none'), length(c.name), locate('d', c.name), mod(c.small, 2), abs(c.small),"
                          + " round(c.score, 1), power(c.score, 2), format(c.seen as 'yyyy-MM-dd'), replace(c.name, 'A', 'E'),"
                          + " left(c.name, 1), nullif(c.name, 'Ada'), current_date, local datetime, offset datetime,"
                          + " c.seen - c.seen, truncate(c.seen, hour), lpad(c.name, 5), greatest(c.score, 2), sign(c.small),"
                          + " str(c.id), overlay(c.name placing 'x' from 1), c.born > local date, pad(c.name with 6 trailing '.')"
                          + " from Customer c where c.name = 'Ada'",
                      Object[].class)
                  .getSingleResult();
          equal(row[0], 1983);
          equal(row[2], LocalDate.of(1983, 2, 27));
          equal(row[4], "Ada-ada@example.org");
          equal(row[14], "2024-02-29");
          equal(row[29], "Ada...");
          equal(
              session
                  .createQuery("select array_length(c.tags), array_append(c.tags, 'z') from Customer c where c.name = 'Ada'", Object[].class)
                  .getSingleResult()[0],
              0);
          session.createMutationQuery("update Customer set tags = array('x', 'y') where name = 'Bob'").executeUpdate();
          equal(
              session
                  .createQuery("select c.name from Customer c where array_contains(c.tags, 'y')", String.class)
                  .getResultList(),
              List.of("Bob"));
          equal(
              session
                  .createQuery("select c.name from Customer c where element(c.phones) = '2'", String.class)
                  .getResultList(),
              List.of("Ada"));
        });
  }

  private static void criteria() {
    in(
        session -> {
          var builder = session.getCriteriaBuilder();
          var query = builder.createTupleQuery();
          var order = query.from(Order.class);
          var customer = order.<Order, Customer>join("customer");
          query
              .multiselect(customer.get("name"), builder.count(order), builder.sum(order.<BigDecimal>get("amount")))
              .where(
                  builder.and(
                      builder.greaterThan(order.<BigDecimal>get("amount"), BigDecimal.TEN),
                      order.get("status").in(Status.OPEN, Status.PAID),
                      builder.isTrue(customer.get("active"))))
              .groupBy(customer.get("name"))
              .orderBy(builder.asc(customer.get("name")));
          equal(session.createQuery(query).getResultList().size(), 1);
        });
  }

  private static void natives() {
    in(
        session -> {
          equal(
              session
                  .createNativeQuery("select * from customers where settings ->> 'theme' = :theme", Customer.class)
                  .setParameter("theme", "dark")
                  .getSingleResult()
                  .name,
              "Ada");
          equal(
              session.createNativeQuery("select cast(count(*) as int) from orders", Integer.class).getSingleResult(),
              60);
          int rows = 0;
          try (ScrollableResults<Order> orders =
              session.createQuery("from Order order by id", Order.class).setFetchSize(7).scroll(ScrollMode.FORWARD_ONLY)) {
            while (orders.next()) rows++;
          }
          equal(rows, 60);
          equal(session.createQuery("from Order", Order.class).setFetchSize(10).stream().count(), 60L);
          session.createNativeMutationQuery("insert into counters (name, hits) values (?, ?)").setParameter(1, "n").setParameter(2, 5L).executeUpdate();
        });
  }

  private static void locks() {
    in(
        session -> {
          Customer ada = session.find(Customer.class, 1L, LockModeType.PESSIMISTIC_WRITE);
          session.lock(ada, LockModeType.PESSIMISTIC_READ);
          session.find(Customer.class, 2L, LockModeType.PESSIMISTIC_FORCE_INCREMENT);
          session
              .createQuery("from Order o where o.status = OPEN order by o.id", Order.class)
              .setMaxResults(2)
              .setHibernateLockMode(LockMode.UPGRADE_SKIPLOCKED)
              .getResultList();
          session
              .createQuery("from Order o join fetch o.customer where o.id = 1", Order.class)
              .setHibernateLockMode(LockMode.PESSIMISTIC_WRITE)
              .getResultList();
          session.refresh(ada, new LockOptions(LockMode.UPGRADE_NOWAIT));
        });
    Customer stale = factory.fromTransaction(session -> session.find(Customer.class, 1L));
    in(session -> session.find(Customer.class, 1L).score = 2);
    stale.score = 3;
    try {
      in(session -> session.merge(stale));
      throw new AssertionError("no OptimisticLockException");
    } catch (OptimisticLockException expected) {
      in(session -> equal(session.find(Customer.class, 1L).score, 2.0));
    }
  }

  private static void bulk() {
    in(
        session -> {
          equal(
              session
                  .createMutationQuery("update Order o set o.status = SENT, o.amount = o.amount * 2 where o.customer.name = 'Ada' and o.status = PAID")
                  .executeUpdate(),
              20);
          equal(session.createMutationQuery("update versioned Customer set score = score + 1 where id > 1").executeUpdate(), 3);
          equal(session.createMutationQuery("delete from Order o where o.amount > 50 and o.status = SENT").executeUpdate(), 16);
          equal(session.createMutationQuery("update Payment set amount = amount + 1").executeUpdate(), 1);
          equal(session.createMutationQuery("update Card set number = 'x', amount = 3").executeUpdate(), 1);
          equal(session.createMutationQuery("delete from Payment").executeUpdate(), 1);
          equal(
              session
                  .createMutationQuery("insert into Counter (name, hits) select c.name, c.id from Customer c where c.id > 2")
                  .executeUpdate(),
              2);
          equal(
              session
                  .createMutationQuery("delete from Order o where o.customer.id in (select c.id from Customer c where c.name = 'Bob')")
                  .executeUpdate(),
              0);
        });
  }

  private static void insertSelect() {
    in(
        session ->
            equal(
                session
                    .createMutationQuery("insert into Order (customer, amount, day) select c, 1, c.born from Customer c")
                    .executeUpdate(),
                4));
  }

  private static void upsert() {
    try (StatelessSession session = factory.openStatelessSession()) {
      session.setJdbcBatchSize(1);
      var transaction = session.beginTransaction();
      Counter counter = new Counter();
      counter.name = "home";
      counter.hits = 1;
      session.upsert(counter);
      counter.hits = 7;
      session.upsert(counter);
      equal(session.get(Counter.class, "home").hits, 7L);
      equal(
          session
              .createMutationQuery("insert into Counter (name, hits) values ('home', 1), ('other', 1) on conflict(name) do update set hits = hits + excluded.hits")
              .executeUpdate(),
          2);
      equal(session.createMutationQuery("insert into Counter (name, hits) values ('home', 1) on conflict do nothing").executeUpdate(), 0);
      transaction.commit();
      equal(session.get(Counter.class, "home").hits, 8L);
    }
  }

  @Entity(name = "Wider")
  @Table(name = "counters")
  public static class Wider {
    @Id public String name;
    public long hits;
    public String comment;

    @ManyToOne
    @JoinColumn(name = "product_id")
    public Product product;
  }

  private static void addColumn() {
    Configuration configuration = configuration("update").addAnnotatedClass(Wider.class);
    try (SessionFactory wider = configuration.buildSessionFactory()) {
      wider.inTransaction(
          session -> {
            Wider home = session.find(Wider.class, "home");
            home.comment = "wide";
            equal(session.createQuery("select w.comment from Wider w where w.name <> 'n'", String.class).getResultList().contains("wide"), true);
          });
    }
  }

  private static void drop() {
    Configuration configuration =
        configuration("create-drop").setProperty("hibernate.default_schema", "hib").setProperty("hibernate.hbm2ddl.create_namespaces", "true")
            .setProperty("hibernate.hbm2ddl.halt_on_error", "false");
    try (SessionFactory created = configuration.buildSessionFactory()) {
      created.inTransaction(session -> session.persist(customer("Eve")));
    }
    configuration("drop").buildSessionFactory().close();
    in(
        session ->
            equal(
                session
                    .createNativeQuery("select count(*) from information_schema.tables where table_schema in ('public', 'hib')", Long.class)
                    .getSingleResult(),
                0L));
  }
}
