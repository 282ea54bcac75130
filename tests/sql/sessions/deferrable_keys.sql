-- Keys that are checked at COMMIT.
CREATE TABLE t (k int PRIMARY KEY, pos int CONSTRAINT t_pos UNIQUE DEFERRABLE INITIALLY DEFERRED, v text);
INSERT INTO t VALUES (1, 1, 'a'), (2, 2, 'b'), (3, 3, 'c');
-- A statement alone is checked at its end.
INSERT INTO t VALUES (4, 1, 'd');
UPDATE t SET pos = pos + 1;
UPDATE t SET pos = pos - 1;
SELECT * FROM t ORDER BY k;
BEGIN;
UPDATE t SET pos = 2 WHERE k = 1;
UPDATE t SET pos = 1 WHERE k = 2;
SELECT * FROM t ORDER BY k;
COMMIT;
SELECT * FROM t ORDER BY k;
BEGIN;
INSERT INTO t VALUES (4, 1, 'd');
INSERT INTO t VALUES (5, 1, 'e');
SELECT k FROM t WHERE pos = 1 ORDER BY k;
COMMIT;
SELECT count(*) FROM t;
-- The primary key is not deferrable.
BEGIN;
INSERT INTO t VALUES (1, 9, 'x');
ROLLBACK;
-- SET CONSTRAINTS.
BEGIN;
INSERT INTO t VALUES (4, 1, 'd');
SET CONSTRAINTS t_pos IMMEDIATE;
ROLLBACK;
BEGIN;
INSERT INTO t VALUES (4, 1, 'd');
UPDATE t SET pos = 4 WHERE k = 4;
SET CONSTRAINTS ALL IMMEDIATE;
INSERT INTO t VALUES (5, 4, 'e');
ROLLBACK;
BEGIN;
SET CONSTRAINTS t_pkey DEFERRED;
ROLLBACK;
BEGIN;
SET CONSTRAINTS nothing DEFERRED;
ROLLBACK;
-- DEFERRABLE alone is checked at the end of each statement, until SET CONSTRAINTS.
CREATE TABLE u (k int, v int, UNIQUE (k, v) DEFERRABLE);
INSERT INTO u VALUES (1, 1), (1, 2);
BEGIN;
UPDATE u SET v = 1;
ROLLBACK;
UPDATE u SET v = 3 - v;
BEGIN;
SAVEPOINT a;
SET CONSTRAINTS u_k_v_key DEFERRED;
UPDATE u SET v = 1;
ROLLBACK TO a;
UPDATE u SET v = 1;
ROLLBACK;
BEGIN;
SET CONSTRAINTS ALL DEFERRED;
UPDATE u SET v = 1;
DELETE FROM u WHERE v = 1;
INSERT INTO u VALUES (1, 1), (1, 5);
COMMIT;
SELECT * FROM u ORDER BY v;
BEGIN;
SET CONSTRAINTS ALL DEFERRED;
INSERT INTO u VALUES (1, 1);
SET CONSTRAINTS u_k_v_key IMMEDIATE;
ROLLBACK;
SET CONSTRAINTS ALL DEFERRED;
INSERT INTO u VALUES (1, 1);
-- They are no arbiters, and no foreign key can reference them.
INSERT INTO t VALUES (9, 1, 'x') ON CONFLICT (pos) DO NOTHING;
INSERT INTO t VALUES (9, 1, 'x') ON CONFLICT ON CONSTRAINT t_pos DO UPDATE SET v = 'y';
INSERT INTO t VALUES (9, 1, 'x') ON CONFLICT DO NOTHING;
INSERT INTO t VALUES (1, 7, 'x') ON CONFLICT (k) DO UPDATE SET v = 'y';
INSERT INTO t VALUES (1, 7, 'x') ON CONFLICT (k) DO UPDATE SET pos = 2;
CREATE TABLE refers (pos int REFERENCES t (pos));
-- A deferrable primary key does not determine the other columns.
CREATE TABLE w (k int PRIMARY KEY DEFERRABLE, v int);
SELECT v, count(*) FROM w GROUP BY k;
ALTER TABLE w DROP CONSTRAINT w_pkey;
ALTER TABLE w ADD CONSTRAINT later UNIQUE (v) INITIALLY DEFERRED;
BEGIN;
INSERT INTO w VALUES (1, 1), (2, 1);
DELETE FROM w WHERE k = 2;
COMMIT;
SELECT * FROM w;
CREATE TABLE same (LIKE w INCLUDING ALL);
SELECT conname, condeferrable, condeferred, pg_get_constraintdef(oid) FROM pg_constraint
  WHERE conrelid IN ('t'::regclass, 'u'::regclass, 'w'::regclass, 'same'::regclass) ORDER BY 1;
SELECT indexrelid::regclass::text, indimmediate FROM pg_index
  WHERE indrelid IN ('t'::regclass, 'u'::regclass, 'w'::regclass) ORDER BY 1;
SELECT constraint_name, is_deferrable, initially_deferred FROM information_schema.table_constraints
  WHERE table_name IN ('t', 'u', 'w') AND constraint_type <> 'CHECK' ORDER BY 1;
