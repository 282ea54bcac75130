-- Statements that ORMs and tools for migrations generate.
CREATE TABLE customers (id bigint PRIMARY KEY, name text);
CREATE TABLE orders (id int, part int, customer_id bigint, amount int, PRIMARY KEY (id, part));
INSERT INTO customers VALUES (1, 'Ada'), (2, 'Bob');
INSERT INTO orders VALUES (1, 1, 1, 10), (1, 2, 2, 20), (2, 1, 1, 30);
UPDATE orders SET amount = o.amount * 2 FROM orders o JOIN customers c ON c.id = o.customer_id WHERE c.name = 'Ada' AND orders.ctid = o.ctid;
SELECT * FROM orders ORDER BY id, part;
DELETE FROM orders USING orders o JOIN customers c ON c.id = o.customer_id WHERE c.name = 'Bob' AND orders.ctid = o.ctid RETURNING orders.*;
SELECT a.id, b.id FROM customers a JOIN customers b ON a.ctid <> b.ctid ORDER BY 1;
SELECT a.id, b.ctid = a.ctid FROM customers a LEFT JOIN customers b ON a.ctid = b.ctid AND b.id = 1 ORDER BY 1;
SELECT count(*) FROM customers c WHERE EXISTS (SELECT 1 FROM customers d WHERE (d.ctid) = (c.ctid));
UPDATE customers c SET name = s.name FROM (SELECT id, upper(name) AS name FROM customers) s WHERE s.id = c.id;
SELECT * FROM customers ORDER BY id;
ALTER INDEX customers_pkey RENAME TO clients_pkey;
SELECT conname FROM pg_constraint WHERE conrelid = 'customers'::regclass;
ALTER INDEX customers_pkey RENAME TO another;
ALTER INDEX IF EXISTS customers_pkey RENAME TO another;
ALTER INDEX clients_pkey RENAME TO clients_pkey;
ALTER INDEX clients_pkey RENAME TO orders;
ALTER INDEX public.clients_pkey RENAME TO another;
ALTER TABLE clients_pkey RENAME TO another;
ALTER TABLE customers RENAME TO clients;
INSERT INTO clients VALUES (2, 'x');
SELECT indexname FROM pg_indexes WHERE tablename = 'clients';
-- Piccolo: a default of each type
CREATE TABLE piccolo_times (id serial PRIMARY KEY, "at" time NOT NULL DEFAULT CURRENT_TIME, whole time(0) DEFAULT current_time(0));
INSERT INTO piccolo_times (whole) VALUES (DEFAULT);
SELECT "at" IS NULL, whole IS NULL FROM piccolo_times;
-- Doctrine compares the defaults of columns with its models
CREATE DOMAIN stars AS int DEFAULT 5;
CREATE TABLE rated (id int DEFAULT (NULL), note text DEFAULT NULL::text, given stars DEFAULT NULL, words text[] DEFAULT NULL);
ALTER TABLE rated ADD COLUMN late date DEFAULT NULL;
ALTER TABLE rated ADD COLUMN kept text DEFAULT nullif('a', 'a');
SELECT attname, atthasdef FROM pg_attribute WHERE attrelid = 'rated'::regclass AND attnum > 0 ORDER BY attnum;
ALTER TABLE rated ALTER COLUMN id SET DEFAULT 3;
ALTER TABLE rated ALTER COLUMN id SET DEFAULT NULL;
ALTER TABLE rated ALTER COLUMN given SET DEFAULT 4;
ALTER TABLE rated ALTER COLUMN given SET DEFAULT NULL;
INSERT INTO rated DEFAULT VALUES RETURNING *;
SELECT column_name, column_default IS NULL FROM information_schema.columns WHERE table_name = 'rated' ORDER BY 1;

-- a queue of jobs
CREATE TABLE jobs (id int PRIMARY KEY, state text NOT NULL DEFAULT 'new');
INSERT INTO jobs SELECT generate_series(1, 6);
UPDATE jobs SET state = 'run' WHERE id = (SELECT id FROM jobs WHERE state = 'new' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id;
WITH next AS (SELECT id FROM jobs WHERE state = 'new' ORDER BY id LIMIT 2 FOR UPDATE SKIP LOCKED) UPDATE jobs j SET state = 'run' FROM next WHERE j.id = next.id RETURNING j.id;
DELETE FROM jobs WHERE id IN (SELECT id FROM jobs WHERE state = 'run' ORDER BY id FOR UPDATE) RETURNING id;
WITH done AS (DELETE FROM jobs WHERE id = (SELECT id FROM jobs ORDER BY id LIMIT 1 FOR NO KEY UPDATE) RETURNING *) SELECT * FROM done;
INSERT INTO jobs SELECT id + 10, state FROM jobs ORDER BY id FOR UPDATE OF jobs;
MERGE INTO jobs USING (SELECT id FROM jobs WHERE id > 10 FOR SHARE) o ON o.id = jobs.id WHEN MATCHED THEN DELETE;
DELETE FROM jobs WHERE id IN (SELECT 5 UNION SELECT id FROM jobs FOR UPDATE);
SELECT 5 UNION SELECT id FROM jobs FOR UPDATE;
DELETE FROM jobs WHERE id IN (SELECT max(id) FROM jobs FOR UPDATE);
DELETE FROM jobs WHERE id IN (SELECT id FROM jobs j FOR UPDATE OF jobs);
TABLE jobs;

-- a queue whose states are an enumerated type, which the conditions of its indexes name
CREATE SCHEMA queues;
CREATE TYPE queues.state AS ENUM ('queued', 'picked', 'done');
SET search_path = queues;
CREATE TABLE tasks (id int PRIMARY KEY, state state NOT NULL DEFAULT 'queued', key text, others state[]);
CREATE INDEX ON tasks (id DESC) WHERE state = 'queued'::state;
CREATE UNIQUE INDEX tasks_key ON tasks USING btree (key) WHERE ((state = ANY (ARRAY['queued'::state, 'picked'::queues.state])) AND (key IS NOT NULL));
CREATE UNIQUE INDEX tasks_others ON tasks (id) WHERE others = '{done}'::state[];
CREATE INDEX ON tasks (id) WHERE state = 'queued'::nothing;
INSERT INTO tasks VALUES (1, 'queued', 'a'), (2, 'done', 'a');
INSERT INTO tasks VALUES (3, 'picked', 'a');
INSERT INTO tasks VALUES (3, 'picked', 'a') ON CONFLICT (key) WHERE state = ANY (ARRAY['queued'::state, 'picked'::state]) AND key IS NOT NULL DO NOTHING;
INSERT INTO tasks VALUES (4, 'done', 'a') ON CONFLICT (key) WHERE state = ANY (ARRAY['queued'::state, 'picked'::state]) AND key IS NOT NULL DO UPDATE SET id = 5;
INSERT INTO tasks VALUES (6, 'queued', 'a') ON CONFLICT (key) WHERE state = ANY (ARRAY['queued'::state, 'picked'::state]) AND key IS NOT NULL DO UPDATE SET id = excluded.id RETURNING id, key;
INSERT INTO tasks VALUES (7, 'queued', 'a') ON CONFLICT (key) WHERE state = 'queued'::state DO NOTHING;
ALTER TYPE state RENAME TO stage;
ALTER TABLE tasks RENAME COLUMN state TO stage;
SET search_path = public;
UPDATE queues.tasks SET stage = 'picked' WHERE id = 2;
UPDATE queues.tasks SET stage = 'done' WHERE id = 6;
UPDATE queues.tasks SET stage = 'picked' WHERE id = 2 RETURNING id, stage::text, key;
SELECT id, stage::text, key FROM queues.tasks WHERE stage = 'picked'::queues.stage ORDER BY id;

-- intervals with fields, as Pony ORM declares them
CREATE TABLE spans (id int PRIMARY KEY, a interval day to second, b interval hour to second(2), c interval second(0) NOT NULL DEFAULT '90', d interval day to second(3)[]);
INSERT INTO spans VALUES (1, '1 2:03:04.5678', '1 2:03:04.5678', '1.5', '{"1.23456 s", "2 days"}'), (2, '7', '3 mons 1:30', DEFAULT, NULL) RETURNING *;
ALTER TABLE spans ALTER COLUMN a TYPE interval second(1);
ALTER TABLE spans ADD COLUMN e interval day to second(7);
SELECT id, a, b::interval hour to second, (a + b)::interval second, CAST(c AS interval day to second) FROM spans ORDER BY id;
CREATE TABLE spans2 (a interval second to day);
CREATE TABLE spans2 (a interval(2) day to second);

-- the digits of seconds in arrays
CREATE TABLE moments (id int PRIMARY KEY, a timestamp(0)[], b interval(3)[], c time(1)[], d timestamptz(2)[]);
INSERT INTO moments VALUES (1, '{"2024-01-02 03:04:05.678",infinity,NULL}', '{1.23456 s}', '{10:00:00.99,11:00:00.44}', '{"2024-01-02 03:04:05.678+00"}');
INSERT INTO moments SELECT id + 1, ARRAY[timestamp '1999-12-31 23:59:59.5', a[1] + interval '0.5 s'], ARRAY[interval '-1.23456 s', b[1] / 7], ARRAY[time '10:00:00.96'], ARRAY[d[1] + interval '0.005 s'] FROM moments;
UPDATE moments SET a = array_append(a, '2000-01-01 00:00:00.6'), b = b || interval '0.0005 s' WHERE id = 2;
SELECT * FROM moments ORDER BY id;
SELECT '{"2024-01-02 03:04:05.678"}'::timestamp(0)[], '{1.23456 s}'::interval(3)[]::text, ARRAY[now()]::timestamptz(0)[] = ARRAY[now()::timestamptz(0)];
SELECT id, a::timestamp(0)[], b::interval(1)[], d::timestamptz(0)[], c::text[]::time(0)[] FROM moments ORDER BY id;
UPDATE moments SET a[2] = a[1] + interval '0.6 s' WHERE id = 1 RETURNING a;
SELECT id, ARRAY[a[1] + interval '0.06 s', NULL]::timestamp(1)[], b[1]::interval(0) FROM moments ORDER BY id;
SELECT g, ARRAY[g * interval '0.06 s']::interval(1)[], ARRAY[ARRAY[timestamp '2024-01-01' + g * interval '0.06 s']]::timestamp(0)[] FROM generate_series(1, 20000) g WHERE g % 9999 = 1 ORDER BY g;
WITH set_timeout AS (SELECT set_config('lock_timeout', '3600000', true) AS config_val) SELECT pg_advisory_lock(3853314791062309107) FROM set_timeout;
SELECT current_setting('lock_timeout'), pg_advisory_unlock(3853314791062309107);
SELECT set_config('lock_timeout', '2s', false), pg_try_advisory_lock(7) AS locked, pg_advisory_unlock(7) AS unlocked;
SHOW lock_timeout;
RESET lock_timeout;
CREATE TABLE accounts (id int PRIMARY KEY, email text, active bool, price numeric);
CREATE INDEX accounts_active ON accounts (price) WHERE "accounts"."active" AND public.accounts . id > 1;
CREATE UNIQUE INDEX accounts_email ON accounts (lower("accounts"."email"), (accounts.price + 1), id);
SELECT indexdef LIKE '%lower(%email%)%', indexdef LIKE '%accounts.%', indexdef LIKE '%accounts"%' FROM pg_indexes WHERE indexname = 'accounts_email';
SELECT indexdef LIKE '%active%', indexdef LIKE '%accounts.%', indexdef LIKE '%accounts"%' FROM pg_indexes WHERE indexname = 'accounts_active';
INSERT INTO accounts VALUES (1, 'A@x', true, 1), (2, 'b@x', true, 2);
INSERT INTO accounts VALUES (2, 'B@X', false, 2) ON CONFLICT (lower(email), (price + 1), id) DO UPDATE SET active = false RETURNING *;
CREATE UNIQUE INDEX ON accounts (lower(accounts.email)) WHERE accounts.active;
ALTER TABLE accounts RENAME TO owners;
INSERT INTO owners VALUES (3, 'a@X', true, 9);
CREATE INDEX ON owners ((accounts.price + 1));
CREATE INDEX ON owners (price) WHERE accounts.active;
CREATE INDEX ON owners ((other.owners.price + 1));
