-- FOREIGN KEY as a definition. Rows that violate it are accepted: see docs/sql.md.
CREATE TABLE a (k int PRIMARY KEY, x int, y int, UNIQUE (x, y));
CREATE TABLE b (k int REFERENCES a ON DELETE CASCADE, x int, y int, CONSTRAINT pair FOREIGN KEY (x, y) REFERENCES a (x, y) MATCH FULL);
CREATE TABLE c (k int REFERENCES none);
CREATE TABLE c (k int REFERENCES a (x));
CREATE TABLE c (k text REFERENCES a);
CREATE TABLE c (k int, FOREIGN KEY (k, k) REFERENCES a (k));
DROP TABLE a;
ALTER TABLE a DROP CONSTRAINT a_pkey;
ALTER TABLE a DROP COLUMN x;
SELECT conname, contype, confdeltype, confmatchtype, conkey, confkey FROM pg_constraint WHERE conname IN ('b_k_fkey', 'pair') ORDER BY conname;
SELECT constraint_name, unique_constraint_name, match_option, delete_rule FROM information_schema.referential_constraints ORDER BY 1;
ALTER TABLE b DROP CONSTRAINT pair;
ALTER TABLE a DROP COLUMN x;
ALTER TABLE b DROP CONSTRAINT none;
DROP TABLE a CASCADE;
SELECT count(*) FROM pg_constraint WHERE contype = 'f';
