// A session of pgx, as its users write it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	. "tidewire/clients/steps"
)

var (
	background = context.Background()
	pool       *pgxpool.Pool
)

type product struct {
	ID    int64          `db:"id"`
	Name  string         `db:"name"`
	Price pgtype.Numeric `db:"price"`
	Tags  []string       `db:"tags"`
	Made  time.Time      `db:"made"`
	Notes *string        `db:"notes"`
}

func tables() error {
	pool = Value(pgxpool.New(background, URL))
	_, err := pool.Exec(background, `CREATE TABLE products (
		id bigserial PRIMARY KEY, name text NOT NULL UNIQUE, price numeric(8,2) NOT NULL DEFAULT 0,
		tags text[] NOT NULL DEFAULT '{}', made timestamptz NOT NULL DEFAULT now(), notes text, meta jsonb)`)
	Must(err)
	var id int64
	Must(pool.QueryRow(background, "INSERT INTO products (name, price, tags) VALUES ($1, $2, $3) RETURNING id",
		"lamp", "12.50", []string{"light", "desk"}).Scan(&id))
	Equal(id, int64(1))
	return nil
}

func structs() error {
	rows := Value(pool.Query(background, "SELECT id, name, price, tags, made, notes FROM products WHERE name = @name",
		pgx.NamedArgs{"name": "lamp"}))
	found := Value(pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[product]))
	Equal(found.Tags, []string{"light", "desk"})
	Equal(found.Notes == nil, true)
	rows = Value(pool.Query(background, "SELECT * FROM (VALUES (1, 'a'), (2, 'b')) v (n, t) ORDER BY n"))
	maps := Value(pgx.CollectRows(rows, pgx.RowToMap))
	Equal(maps[1]["t"], "b")
	_, err := pgx.CollectOneRow(Value(pool.Query(background, "SELECT id FROM products WHERE id = -1")), pgx.RowTo[int64])
	Equal(errors.Is(err, pgx.ErrNoRows), true)
	return nil
}

func types() error {
	now := time.Now().UTC().Truncate(time.Microsecond)
	values := []any{true, int16(-2), int32(3), int64(4), float32(1.5), 2.5, "text", []byte{0, 1, 255}, now}
	var (
		b  bool
		i2 int16
		i4 int32
		i8 int64
		f4 float32
		f8 float64
		t  string
		by []byte
		at time.Time
	)
	Must(pool.QueryRow(background, `SELECT $1::bool, $2::int2, $3::int4, $4::int8, $5::float4, $6::float8, $7::text, $8::bytea,
		$9::timestamptz`, values...).Scan(&b, &i2, &i4, &i8, &f4, &f8, &t, &by, &at))
	Equal(Text(b, i2, i4, i8, f4, f8, t, by, at.Equal(now)), "true -2 3 4 1.5 2.5 text [0 1 255] true")

	var (
		numeric pgtype.Numeric
		uuid    pgtype.UUID
		span    pgtype.Interval
		date    pgtype.Date
		clock   pgtype.Time
		ints    []int32
		texts   []*string
		meta    map[string]any
	)
	Must(pool.QueryRow(background, `SELECT 123.4500::numeric(10,4), '11111111-2222-3333-4444-555555555555'::uuid,
		'1 mon 2 days 03:00:00'::interval, '2024-02-29'::date, '12:34:56.5'::time, ARRAY[1,2,3], ARRAY['a', NULL],
		'{"a": [1, 2]}'::jsonb`).Scan(&numeric, &uuid, &span, &date, &clock, &ints, &texts, &meta))
	Equal(Text(Value(numeric.Float64Value()).Float64, span.Months, span.Days, date.Time.Format(time.DateOnly), ints),
		"123.45 1 2 2024-02-29 [1 2 3]")
	Equal(Text(clock.Microseconds, texts[1] == nil, meta["a"]), "45296500000 true [1 2]")
	var length int
	Must(pool.QueryRow(background, "SELECT count(*) FROM unnest($1::int[]) n WHERE n = ANY($2)", ints, []int32{1, 3}).Scan(&length))
	Equal(length, 2)
	return nil
}

func conflicts() error {
	_, err := pool.Exec(background, "INSERT INTO products (name) VALUES ($1)", "lamp")
	var refused *pgconn.PgError
	Equal(errors.As(err, &refused), true)
	Equal(refused.Code+" "+refused.ConstraintName+" "+refused.TableName, "23505 products_name_key products")
	tag := Value(pool.Exec(background, `INSERT INTO products (name, meta) VALUES ($1, $2)
		ON CONFLICT (name) DO UPDATE SET meta = excluded.meta`, "lamp", map[string]any{"watts": 40}))
	Equal(tag.RowsAffected(), int64(1))
	var watts json.Number
	Must(pool.QueryRow(background, "SELECT meta->>'watts' FROM products WHERE name = 'lamp'").Scan(&watts))
	Equal(watts.String(), "40")
	return nil
}

func transactions() error {
	err := pgx.BeginFunc(background, pool, func(outer pgx.Tx) error {
		Value(outer.Exec(background, "INSERT INTO products (name) VALUES ('chair')"))
		inner := pgx.BeginFunc(background, outer, func(nested pgx.Tx) error {
			Value(nested.Exec(background, "DELETE FROM products"))
			return errors.New("undone")
		})
		Equal(inner.Error(), "undone")
		return nil
	})
	Must(err)
	transaction := Value(pool.BeginTx(background, pgx.TxOptions{IsoLevel: pgx.Serializable, AccessMode: pgx.ReadOnly}))
	var count int
	Must(transaction.QueryRow(background, "SELECT count(*) FROM products").Scan(&count))
	Equal(count, 2)
	return transaction.Commit(background)
}

func batches() error {
	batch := &pgx.Batch{}
	sum := 0
	for n := range 50 {
		batch.Queue("INSERT INTO products (name, price) VALUES ($1, $2)", fmt.Sprintf("item %d", n), fmt.Sprint(n))
	}
	batch.Queue("SELECT count(*) FROM products WHERE name LIKE 'item %'").QueryRow(func(row pgx.Row) error {
		return row.Scan(&sum)
	})
	Must(pool.SendBatch(background, batch).Close())
	Equal(sum, 50)
	return nil
}

func copies() error {
	rows := [][]any{}
	for n := range 1000 {
		rows = append(rows, []any{fmt.Sprintf("copy %d", n), []string{"a", "b"}, time.Unix(int64(n), 0), nil})
	}
	copied := Value(pool.CopyFrom(background, pgx.Identifier{"products"}, []string{"name", "tags", "made", "notes"},
		pgx.CopyFromRows(rows)))
	Equal(copied, int64(1000))
	connection := Value(pool.Acquire(background))
	defer connection.Release()
	var text strings.Builder
	tag := Value(connection.Conn().PgConn().CopyTo(background, &text, "COPY (SELECT 1, 'a') TO STDOUT"))
	Equal(Text(tag.RowsAffected(), text.String()), "1 1\ta\n")
	return nil
}

func modes() error {
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe,
		pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		for range 2 {
			var count int
			var label string
			Must(pool.QueryRow(background, "SELECT count(*), $2::text FROM products WHERE id > $1", mode, 0, "x").Scan(&count, &label))
			Equal(count, 1052)
		}
	}
	return nil
}

func notifications() error {
	listener := Value(pgx.Connect(background, URL))
	defer listener.Close(background)
	Value(listener.Exec(background, "LISTEN changes"))
	Value(pool.Exec(background, "SELECT pg_notify('changes', $1)", "payload"))
	limited, cancel := context.WithTimeout(background, 30*time.Second)
	defer cancel()
	Equal(Value(listener.WaitForNotification(limited)).Payload, "payload")
	return nil
}

func cancellation() error {
	limited, cancel := context.WithTimeout(background, 200*time.Millisecond)
	defer cancel()
	_, err := pool.Exec(limited, "SELECT pg_sleep(60)")
	Equal(pgconn.Timeout(err), true)
	return pool.Ping(background)
}

func enums() error {
	connection := Value(pgx.Connect(background, URL))
	defer connection.Close(background)
	Value(connection.Exec(background, "CREATE TYPE mood AS ENUM ('sad', 'ok')"))
	Value(connection.Exec(background, "CREATE DOMAIN positive AS int CHECK (VALUE > 0)"))
	for _, name := range []string{"mood", "_mood", "positive"} {
		connection.TypeMap().RegisterType(Value(connection.LoadType(background, name)))
	}
	loaded := Value(connection.LoadTypes(background, []string{"mood"}))
	Equal(len(loaded) > 0, true)
	Value(connection.Exec(background, "CREATE TABLE people (name text, now mood, before mood[], age positive)"))
	Value(connection.Exec(background, "INSERT INTO people VALUES ('Ada', $1, $2, $3)", "ok", []string{"sad", "ok"}, 36))
	var before []string
	var age int
	Must(connection.QueryRow(background, "SELECT before, age FROM people").Scan(&before, &age))
	Equal(Text(before, age), "[sad ok] 36")
	return nil
}

// subscribe reads the snapshot and one change of a view with a cursor's rows.
func subscribe() error {
	connection := Value(pgx.Connect(background, URL))
	limited, cancel := context.WithTimeout(background, 60*time.Second)
	defer cancel()
	rows := Value(connection.Query(limited, "SUBSCRIBE (SELECT name FROM people)", pgx.QueryExecModeSimpleProtocol))
	seen := []string{}
	for len(seen) < 2 && rows.Next() {
		values := Value(rows.Values())
		seen = append(seen, fmt.Sprint(values[1:]...))
		if len(seen) == 1 {
			Value(pool.Exec(background, "INSERT INTO people (name) VALUES ('Bob')"))
		}
	}
	Equal(len(seen), 2)
	cancel()
	rows.Close()
	return connection.Close(background)
}

func main() {
	Run(
		Titled("Pool, parameters, RETURNING", tables),
		Titled("Rows as structs and maps, named parameters", structs),
		Titled("Values of all types", types),
		Titled("Errors, ON CONFLICT, jsonb", conflicts),
		Titled("Nested transactions, isolation levels", transactions),
		Titled("Batches", batches),
		Titled("`CopyFrom`, `CopyTo`", copies),
		Titled("All modes of execution", modes),
		Titled("LISTEN", notifications),
		Titled("Cancelled contexts", cancellation),
		Titled("`LoadType`: enumerated types, domains", enums),
		Titled("SUBSCRIBE", subscribe),
	)
}
