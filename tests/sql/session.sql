-- What depends on the session.
SELECT current_database(), current_catalog, current_schema, current_schema(), current_user, session_user, user, current_role;
SELECT id, current_user = 'postgres' FROM people;
SELECT name FROM people WHERE name <> current_user AND current_database() = 'materialize';
SELECT pg_postmaster_start_time() <= now(), pg_typeof(pg_postmaster_start_time())::text;
SELECT pg_backend_pid() > 0, length(version()) > 10, version() LIKE 'PostgreSQL%';
SELECT now() = current_timestamp, now() = transaction_timestamp(), statement_timestamp() >= now(), now() > '2020-01-01';
SELECT current_date = now()::date, localtimestamp = now()::timestamp, localtime = now()::time;
SELECT count(*) FROM times WHERE ts < now() AND d <= current_date;
SELECT current_timestamp - current_timestamp, now() - now() = interval '0';
SELECT extract(year FROM current_date) >= 2024, date_trunc('day', now()) <= now();
SELECT current_setting('TimeZone');
SELECT current_setting('no such setting');
SELECT current_setting('no.such', true);
SELECT now(1);
SELECT current_user();
SELECT version(1);
-- In another time zone.
SET TimeZone = 'America/New_York';
SELECT current_setting('TimeZone');
SELECT current_date = now()::date, localtimestamp = now()::timestamp, localtime = now()::time;
SET TimeZone = 'Asia/Kolkata';
SELECT localtimestamp - (now() AT TIME ZONE 'UTC');
