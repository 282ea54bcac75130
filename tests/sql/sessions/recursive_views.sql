-- CREATE RECURSIVE VIEW: a view over WITH RECURSIVE.
CREATE TABLE parts (id int PRIMARY KEY, parent int, name text);
INSERT INTO parts VALUES (1, NULL, 'car'), (2, 1, 'engine'), (3, 2, 'piston'), (4, 1, 'wheel');
CREATE RECURSIVE VIEW numbers (n) AS VALUES (1) UNION ALL SELECT n + 1 FROM numbers WHERE n < 5;
SELECT * FROM numbers ORDER BY n;
CREATE SCHEMA s;
CREATE OR REPLACE RECURSIVE VIEW s."The tree" (id, "Path") AS SELECT id, name FROM parts WHERE parent IS NULL UNION ALL SELECT p.id, t."Path" || '/' || p.name FROM parts p JOIN "The tree" t ON t.id = p.parent -- a comment
;
SELECT * FROM s."The tree" ORDER BY id;
CREATE OR REPLACE RECURSIVE VIEW numbers (n) AS SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 3;
SELECT count(*) FROM numbers;
CREATE TEMP RECURSIVE VIEW three (n) AS SELECT 3;
SELECT * FROM three;
CREATE RECURSIVE VIEW numbers (n) AS SELECT 1;
CREATE RECURSIVE VIEW nothing AS SELECT 1;
CREATE RECURSIVE VIEW nothing (n) AS SELECT unknown FROM nothing;
ALTER TABLE parts RENAME TO pieces;
ALTER VIEW numbers RENAME TO digits;
SELECT count(*) FROM digits, s."The tree";
