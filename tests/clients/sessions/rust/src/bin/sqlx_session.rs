//! A session of SQLx, as its users write it.

use std::borrow::Cow;
use std::time::Duration;

use anyhow::{Result, ensure};
use chrono::{DateTime, NaiveDate, Utc};
use clients::{report, url};
use futures_util::TryStreamExt;
use rust_decimal::Decimal;
use serde_json::{Value, json};
use sqlx::migrate::{Migration, MigrationSource, MigrationType, Migrator};
use sqlx::postgres::types::PgInterval;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPool, PgPoolOptions};
use sqlx::{Connection, Executor, FromRow, QueryBuilder, Row, Type};
use uuid::Uuid;

#[derive(Debug)]
struct Migrations;

impl<'s> MigrationSource<'s> for Migrations {
    fn resolve(self) -> futures_util::future::BoxFuture<'s, Result<Vec<Migration>, Box<dyn std::error::Error + Send + Sync>>> {
        let texts = [
            ("users", "CREATE TABLE users (id bigserial PRIMARY KEY, name text NOT NULL UNIQUE, born date, meta jsonb, uid uuid)"),
            ("roles", "CREATE TYPE role AS ENUM ('admin', 'member'); ALTER TABLE users ADD COLUMN role role NOT NULL DEFAULT 'member'"),
        ];
        let migrations = texts.iter().enumerate().map(|(number, (name, text))| {
            Migration::new(number as i64 + 1, Cow::Borrowed(*name), MigrationType::Simple, Cow::Borrowed(*text), false)
        });
        Box::pin(std::future::ready(Ok(migrations.collect())))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Type)]
#[sqlx(type_name = "role", rename_all = "lowercase")]
enum Role {
    Admin,
    Member,
}

#[derive(FromRow)]
struct User {
    id: i64,
    name: String,
    born: Option<NaiveDate>,
    meta: Option<Value>,
    role: Role,
}

async fn migrations(pool: &PgPool) -> Result<()> {
    for _ in 0..2 {
        Migrator::new(Migrations).await?.run(pool).await?;
    }
    Ok(())
}

async fn structs(pool: &PgPool) -> Result<()> {
    let id: i64 = sqlx::query_scalar("INSERT INTO users (name, born, meta, role) VALUES ($1, $2, $3, $4) RETURNING id")
        .bind("Ada")
        .bind(NaiveDate::from_ymd_opt(1815, 12, 10))
        .bind(json!({"a": 1}))
        .bind(Role::Admin)
        .fetch_one(pool)
        .await?;
    let user: User = sqlx::query_as("SELECT * FROM users WHERE id = $1").bind(id).fetch_one(pool).await?;
    ensure!(user.id == 1 && user.name == "Ada" && user.born.is_some() && user.meta == Some(json!({"a": 1})));
    ensure!(user.role == Role::Admin);
    let missing: Option<User> = sqlx::query_as("SELECT * FROM users WHERE id = $1").bind(99i64).fetch_optional(pool).await?;
    ensure!(missing.is_none());
    Ok(())
}

async fn types(pool: &PgPool) -> Result<()> {
    let at: DateTime<Utc> = "2024-02-29T12:34:56.789Z".parse()?;
    let row = sqlx::query("SELECT $1::timestamptz, $2::numeric, $3::uuid, $4::bytea, $5::float8, $6::text[], $7::interval, $8::int2")
        .bind(at)
        .bind(Decimal::new(12345, 3))
        .bind(Uuid::max())
        .bind(vec![1u8, 2])
        .bind(f64::NAN)
        .bind(vec![Some("a".to_string()), None])
        .bind(PgInterval { months: 1, days: 2, microseconds: 3 })
        .bind(7i16)
        .fetch_one(pool)
        .await?;
    ensure!(row.get::<DateTime<Utc>, _>(0) == at && row.get::<Decimal, _>(1) == Decimal::new(12345, 3));
    ensure!(row.get::<Uuid, _>(2) == Uuid::max() && row.get::<Vec<u8>, _>(3) == [1, 2] && row.get::<f64, _>(4).is_nan());
    ensure!(row.get::<Vec<Option<String>>, _>(5) == [Some("a".to_string()), None] && row.get::<i16, _>(7) == 7);
    ensure!(row.get::<PgInterval, _>(6) == PgInterval { months: 1, days: 2, microseconds: 3 });
    Ok(())
}

async fn transactions(pool: &PgPool) -> Result<()> {
    let mut outer = pool.begin().await?;
    sqlx::query("INSERT INTO users (name) VALUES ('Bob')").execute(&mut *outer).await?;
    let mut inner = outer.begin().await?;
    sqlx::query("DELETE FROM users").execute(&mut *inner).await?;
    inner.rollback().await?;
    outer.commit().await?;
    let mut dropped = pool.begin().await?;
    sqlx::query("DELETE FROM users").execute(&mut *dropped).await?;
    drop(dropped);
    let count: i64 = sqlx::query_scalar("SELECT count(*) FROM users").fetch_one(pool).await?;
    ensure!(count == 2);
    Ok(())
}

async fn builder(pool: &PgPool) -> Result<()> {
    let mut insert = QueryBuilder::new("INSERT INTO users (name, meta) ");
    insert.push_values(0..500, |mut row, number| {
        row.push_bind(format!("user {number}")).push_bind(json!({"n": number}));
    });
    ensure!(insert.build().execute(pool).await?.rows_affected() == 500);
    let names: Vec<String> = (500..600).map(|number| format!("user {number}")).collect();
    let inserted = sqlx::query("INSERT INTO users (name) SELECT * FROM unnest($1::text[]) ON CONFLICT DO NOTHING").bind(&names);
    ensure!(inserted.execute(pool).await?.rows_affected() == 100);
    let mut rows = sqlx::query("SELECT (meta->>'n')::int AS n FROM users WHERE meta ? 'n'").fetch(pool);
    let mut sum = 0;
    while let Some(row) = rows.try_next().await? {
        sum += row.try_get::<i32, _>("n")?;
    }
    ensure!(sum == 499 * 250);
    Ok(())
}

async fn failures(pool: &PgPool) -> Result<()> {
    let error = sqlx::query("INSERT INTO users (name) VALUES ('Ada')").execute(pool).await.expect_err("a key");
    let error = error.as_database_error().expect("an error of the database");
    ensure!(error.is_unique_violation() && error.constraint() == Some("users_name_key") && error.table() == Some("users"));
    Ok(())
}

async fn describe(pool: &PgPool) -> Result<()> {
    let described = pool.describe("SELECT id, name, born FROM users WHERE role = $1").await?;
    ensure!(described.nullable(0) == Some(false) && described.nullable(2) == Some(true), "{described:?}");
    Ok(())
}

async fn listen(pool: &PgPool) -> Result<()> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen_all(["news", "other"]).await?;
    sqlx::query("SELECT pg_notify('news', $1)").bind("hello").execute(pool).await?;
    let received = tokio::time::timeout(Duration::from_secs(30), listener.recv()).await??;
    ensure!(received.payload() == "hello");
    Ok(())
}

async fn copies(pool: &PgPool) -> Result<()> {
    let mut connection = pool.acquire().await?;
    let mut sink = connection.copy_in_raw("COPY users (name) FROM STDIN").await?;
    sink.send("copied 1\ncopied 2\n".as_bytes()).await?;
    ensure!(sink.finish().await? == 2);
    let text: Vec<_> = connection.copy_out_raw("COPY (SELECT 1, 2) TO STDOUT").await?.try_collect().await?;
    ensure!(text.concat() == b"1\t2\n");
    connection.ping().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let options: PgConnectOptions = url().parse()?;
    let pool = PgPoolOptions::new().max_connections(5).connect_with(options).await?;
    report("Migrations, twice", migrations(&pool).await);
    report("Rows as structs, enumerated types", structs(&pool).await);
    report("Values of all types", types(&pool).await);
    report("Transactions, savepoints", transactions(&pool).await);
    report("`QueryBuilder`, `unnest`, streams", builder(&pool).await);
    report("Errors with their constraint", failures(&pool).await);
    report("`describe`, as the macros check statements", describe(&pool).await);
    report("`PgListener`", listen(&pool).await);
    report("COPY in both directions", copies(&pool).await);
    Ok(())
}
