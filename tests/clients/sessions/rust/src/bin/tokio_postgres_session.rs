//! A session of tokio-postgres, as its users write it.

use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, Utc};
use clients::{report, url};
use futures_util::{SinkExt, StreamExt, TryStreamExt, pin_mut, stream};
use postgres_types::{FromSql, ToSql};
use rust_decimal::Decimal;
use serde_json::{Value, json};
use tokio_postgres::binary_copy::{BinaryCopyInWriter, BinaryCopyOutStream};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client, IsolationLevel, NoTls, SimpleQueryMessage};
use uuid::Uuid;

async fn connect() -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(&url(), NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn parameters(client: &mut Client) -> Result<()> {
    client
        .batch_execute("CREATE TABLE books (id serial PRIMARY KEY, title text NOT NULL, price numeric(8,2), tags text[]);")
        .await?;
    let row = client
        .query_one(
            "INSERT INTO books (title, price, tags) VALUES ($1, $2, $3) RETURNING id",
            &[&"Emma", &Decimal::new(1250, 2), &vec!["a", "b"]],
        )
        .await?;
    ensure!(row.get::<_, i32>("id") == 1);
    let none = client.query_opt("SELECT id FROM books WHERE id = $1", &[&99]).await?;
    ensure!(none.is_none());
    let rows = client.query("SELECT title FROM books WHERE id = ANY($1)", &[&vec![1, 2]]).await?;
    ensure!(rows[0].get::<_, &str>(0) == "Emma");
    Ok(())
}

async fn types(client: &mut Client) -> Result<()> {
    let at: DateTime<Utc> = "2024-02-29T12:34:56.789Z".parse()?;
    let row = client
        .query_one(
            "SELECT $1::bool, $2::int2, $3::int8, $4::float4, $5::float8, $6::bytea, $7::timestamptz, $8::uuid, $9::jsonb",
            &[&true, &1i16, &2i64, &1.5f32, &2.5f64, &vec![0u8, 255], &at, &Uuid::nil(), &json!({"a": [1, null]})],
        )
        .await?;
    ensure!(row.get::<_, bool>(0) && row.get::<_, i16>(1) == 1 && row.get::<_, i64>(2) == 2);
    ensure!(row.get::<_, f32>(3) == 1.5 && row.get::<_, f64>(4) == 2.5 && row.get::<_, Vec<u8>>(5) == [0, 255]);
    ensure!(row.get::<_, DateTime<Utc>>(6) == at && row.get::<_, Uuid>(7) == Uuid::nil());
    ensure!(row.get::<_, Value>(8) == json!({"a": [1, null]}));
    let row = client
        .query_one(
            "SELECT '2024-02-29'::date, '12:34:56'::time, '2024-02-29 12:34:56'::timestamp, -1234.5600::numeric,
                ARRAY[1.5, NULL]::float8[], now(), NULL::int, 'x'::\"char\", 'pg_class'::regclass::oid",
            &[],
        )
        .await?;
    ensure!(row.get::<_, NaiveDate>(0).to_string() == "2024-02-29" && row.get::<_, NaiveTime>(1).to_string() == "12:34:56");
    ensure!(row.get::<_, NaiveDateTime>(2).to_string() == "2024-02-29 12:34:56");
    ensure!(row.get::<_, Decimal>(3) == Decimal::new(-123456, 2));
    ensure!(row.get::<_, Vec<Option<f64>>>(4) == [Some(1.5), None]);
    ensure!(row.get::<_, SystemTime>(5).elapsed().unwrap_or_default() < Duration::from_secs(3600));
    ensure!(row.get::<_, Option<i32>>(6).is_none() && row.get::<_, i8>(7) == b'x' as i8 && row.get::<_, u32>(8) == 1259);
    let row = client.query_one("SELECT 'c'::char(3)", &[]).await?;
    ensure!(row.get::<_, &str>(0) == "c  ");
    Ok(())
}

#[derive(Debug, ToSql, FromSql, PartialEq)]
#[postgres(name = "color")]
enum Color {
    #[postgres(name = "red")]
    Red,
    #[postgres(name = "blue")]
    Blue,
}

async fn enums(client: &mut Client) -> Result<()> {
    client.batch_execute("CREATE TYPE color AS ENUM ('red', 'blue'); CREATE TABLE cars (id int, color color, all_colors color[])").await?;
    client.execute("INSERT INTO cars VALUES (1, $1, $2)", &[&Color::Blue, &vec![Color::Red]]).await?;
    let row = client.query_one("SELECT color, all_colors FROM cars", &[]).await?;
    ensure!(row.get::<_, Color>(0) == Color::Blue && row.get::<_, Vec<Color>>(1) == [Color::Red]);
    Ok(())
}

async fn prepared(client: &mut Client) -> Result<()> {
    let statement = client.prepare_typed("SELECT title, price FROM books WHERE id = $1", &[Type::INT4]).await?;
    ensure!(statement.params() == [Type::INT4] && statement.columns()[1].type_() == &Type::NUMERIC);
    let client = &*client;
    let many = stream::iter(0..100).map(|_| client.query_one(&statement, &[&1])).buffered(20);
    let rows: Vec<_> = many.try_collect().await?; // the protocol's pipeline
    ensure!(rows.len() == 100);
    let rows = client.query_raw("SELECT generate_series(1, $1::int)", [1000]).await?;
    pin_mut!(rows);
    let mut sum = 0;
    while let Some(row) = rows.try_next().await? {
        sum += row.get::<_, i32>(0);
    }
    ensure!(sum == 500_500);
    let rows = client.query_typed("SELECT $1 + 1", &[(&41i64, Type::INT8)]).await?;
    ensure!(rows[0].get::<_, i64>(0) == 42);
    Ok(())
}

async fn transactions(client: &mut Client) -> Result<()> {
    let mut outer = client.build_transaction().isolation_level(IsolationLevel::RepeatableRead).start().await?;
    outer.execute("INSERT INTO books (title) VALUES ('Persuasion')", &[]).await?;
    let inner = outer.transaction().await?;
    inner.execute("DELETE FROM books", &[]).await?;
    inner.rollback().await?;
    let statement = outer.prepare("SELECT title FROM books ORDER BY id").await?;
    let portal = outer.bind(&statement, &[]).await?;
    ensure!(outer.query_portal(&portal, 1).await?.len() == 1 && outer.query_portal(&portal, 5).await?.len() == 1);
    outer.commit().await?;
    let dropped = client.transaction().await?;
    dropped.execute("DELETE FROM books", &[]).await?;
    drop(dropped);
    let row = client.query_one("SELECT count(*) FROM books", &[]).await?;
    ensure!(row.get::<_, i64>(0) == 2);
    Ok(())
}

async fn copies(client: &mut Client) -> Result<()> {
    let sink = client.copy_in("COPY books (title, price) FROM STDIN BINARY").await?;
    let writer = BinaryCopyInWriter::new(sink, &[Type::TEXT, Type::NUMERIC]);
    pin_mut!(writer);
    for number in 0..1000 {
        writer.as_mut().write(&[&format!("copied {number}"), &Decimal::new(number, 0)]).await?;
    }
    ensure!(writer.finish().await? == 1000);
    let text = client.copy_in("COPY books (title) FROM STDIN").await?;
    pin_mut!(text);
    text.send(stream_bytes("one\ntwo\n")).await?;
    ensure!(text.finish().await? == 2);
    let rows = client.copy_out("COPY (SELECT title, price FROM books WHERE price = 7) TO STDOUT BINARY").await?;
    let rows = BinaryCopyOutStream::new(rows, &[Type::TEXT, Type::NUMERIC]);
    let rows: Vec<_> = rows.try_collect().await?;
    ensure!(rows.len() == 1 && rows[0].get::<&str>(0) == "copied 7");
    Ok(())
}

fn stream_bytes(text: &'static str) -> std::io::Cursor<&'static [u8]> {
    std::io::Cursor::new(text.as_bytes())
}

async fn failures(client: &mut Client) -> Result<()> {
    let error = client.execute("INSERT INTO books (id, title) VALUES (1, 'again')", &[]).await.expect_err("a key");
    ensure!(error.code() == Some(&SqlState::UNIQUE_VIOLATION));
    ensure!(error.as_db_error().and_then(|error| error.constraint()) == Some("books_pkey"));
    let error = client.query("SELECT titel FROM books", &[]).await.expect_err("a column");
    ensure!(error.code() == Some(&SqlState::UNDEFINED_COLUMN));
    Ok(())
}

async fn simple(client: &mut Client) -> Result<()> {
    let messages = client.simple_query("SELECT 1 AS n; CREATE TABLE tiny (n int); INSERT INTO tiny VALUES (1), (2)").await?;
    let done: Vec<_> = messages.iter().filter_map(|m| match m { SimpleQueryMessage::CommandComplete(rows) => Some(*rows), _ => None }).collect();
    ensure!(done == [1, 0, 2]);
    Ok(())
}

async fn cancellation(client: &mut Client) -> Result<()> {
    let token = client.cancel_token();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        token.cancel_query(NoTls).await
    });
    let error = client.execute("SELECT pg_sleep(60)", &[]).await.expect_err("the query is cancelled");
    ensure!(error.code() == Some(&SqlState::QUERY_CANCELED));
    Ok(())
}

async fn notifications(client: &mut Client) -> Result<()> {
    let (listener, mut connection) = tokio_postgres::connect(&url(), NoTls).await?;
    let mut messages = stream::poll_fn(move |context| connection.poll_message(context)).boxed();
    let (sender, receiver) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = messages.next().await {
            if let AsyncMessage::Notification(notification) = message {
                let _ = sender.send(notification.payload().to_string());
                break;
            }
        }
    });
    listener.batch_execute("LISTEN news").await?;
    client.execute("SELECT pg_notify('news', $1)", &[&"hello"]).await?;
    let payload = tokio::time::timeout(Duration::from_secs(30), receiver).await.context("no notification")??;
    ensure!(payload == "hello");
    Ok(())
}

async fn subscribe(client: &mut Client) -> Result<()> {
    let subscriber = connect().await?;
    let rows = subscriber.copy_out("COPY (SUBSCRIBE (SELECT id, color::text FROM cars)) TO STDOUT").await?;
    pin_mut!(rows);
    let snapshot = rows.try_next().await?.context("no snapshot")?;
    ensure!(snapshot.ends_with(b"\t1\t1\tblue\n"));
    client.execute("UPDATE cars SET color = 'red'", &[]).await?;
    ensure!(rows.try_next().await?.is_some());
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut client = connect().await?;
    report("Parameters, arrays, RETURNING", parameters(&mut client).await);
    report("Values of all types", types(&mut client).await);
    report("Enumerated types", enums(&mut client).await);
    report("Prepared statements, pipelines, streams", prepared(&mut client).await);
    report("Transactions, savepoints, portals", transactions(&mut client).await);
    report("COPY in both directions, binary and text", copies(&mut client).await);
    report("Errors with their code", failures(&mut client).await);
    report("`simple_query`", simple(&mut client).await);
    report("Cancellation", cancellation(&mut client).await);
    report("LISTEN", notifications(&mut client).await);
    report("SUBSCRIBE", subscribe(&mut client).await);
    Ok(())
}
