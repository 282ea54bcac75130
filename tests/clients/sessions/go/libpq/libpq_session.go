// A session of database/sql with lib/pq, as its users write it.
package main

import (
	"database/sql"
	"errors"
	"time"

	"github.com/lib/pq"

	. "tidewire/clients/steps"
)

var db *sql.DB

func tables() error {
	db = Value(sql.Open("postgres", URL))
	Value(db.Exec("CREATE TABLE events (id serial PRIMARY KEY, kind varchar(20), at timestamptz, amount numeric(8,2), tags text[])"))
	for n := range 3 {
		var id int
		Must(db.QueryRow("INSERT INTO events (kind, at, amount, tags) VALUES ($1, $2, $3, $4) RETURNING id", "k", time.Unix(1, 0),
			"1.50", pq.Array([]string{"a", "b"})).Scan(&id))
		Equal(id, n+1)
	}
	return nil
}

func prepared() error {
	statement := Value(db.Prepare("SELECT kind, at, amount, tags FROM events WHERE id = $1"))
	defer statement.Close()
	for id := 1; id <= 3; id++ {
		var (
			kind   sql.NullString
			at     time.Time
			amount string
			tags   []string
		)
		Must(statement.QueryRow(id).Scan(&kind, &at, &amount, pq.Array(&tags)))
		Equal(Text(kind.String, at.Unix(), amount, tags), "k 1 1.50 [a b]")
	}
	return nil
}

func transactions() error {
	transaction := Value(db.Begin())
	result := Value(transaction.Exec("UPDATE events SET kind = 'changed' WHERE id = ANY($1)", pq.Array([]int64{1, 2})))
	Equal(Value(result.RowsAffected()), int64(2))
	Must(transaction.Rollback())
	var count int
	Must(db.QueryRow("SELECT count(*) FROM events WHERE kind = 'changed'").Scan(&count))
	Equal(count, 0)
	return nil
}

func copies() error {
	transaction := Value(db.Begin())
	statement := Value(transaction.Prepare(pq.CopyIn("events", "kind", "at", "amount")))
	for n := range 500 {
		Value(statement.Exec("copied", time.Unix(int64(n), 0), n))
	}
	Value(statement.Exec())
	Must(statement.Close())
	Must(transaction.Commit())
	var sum float64
	Must(db.QueryRow("SELECT sum(amount) FROM events WHERE kind = 'copied'").Scan(&sum))
	Equal(sum, 124750.0)
	return nil
}

func failures() error {
	_, err := db.Exec("INSERT INTO events (id) VALUES (1)")
	var refused *pq.Error
	Equal(errors.As(err, &refused), true)
	Equal(refused.Code.Name()+" "+refused.Constraint, "unique_violation events_pkey")
	return nil
}

func listen() error {
	listener := pq.NewListener(URL, time.Second, time.Minute, nil)
	defer listener.Close()
	Must(listener.Listen("news"))
	Value(db.Exec("NOTIFY news, 'hello'"))
	select {
	case message := <-listener.Notify:
		Equal(message.Extra, "hello")
	case <-time.After(30 * time.Second):
		return errors.New("no notification")
	}
	return listener.Ping()
}

func columns() error {
	rows := Value(db.Query("SELECT * FROM events LIMIT 1"))
	defer rows.Close()
	names := []string{}
	for _, column := range Value(rows.ColumnTypes()) {
		names = append(names, column.Name()+" "+column.DatabaseTypeName())
	}
	Equal(Text(names), "[id INT4 kind VARCHAR at TIMESTAMPTZ amount NUMERIC tags _TEXT]")
	return nil
}

func main() {
	Run(
		Titled("Parameters, arrays, RETURNING", tables),
		Titled("Prepared statements", prepared),
		Titled("Transactions", transactions),
		Titled("`CopyIn`", copies),
		Titled("Errors with their name", failures),
		Titled("`Listener`", listen),
		Titled("Column types", columns),
	)
}
