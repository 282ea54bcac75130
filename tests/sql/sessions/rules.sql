-- CHECK constraints and generated columns.
CREATE TABLE r (a int CHECK (a > 0), b int CONSTRAINT below CHECK (b < 100), c text, CHECK (a < b), g int GENERATED ALWAYS AS (a + b) STORED, up text GENERATED ALWAYS AS (upper(c)) STORED);
INSERT INTO r VALUES (1, 2, 'x') RETURNING *;
INSERT INTO r VALUES (0, 2, 'x');
INSERT INTO r VALUES (1, 100, 'x');
INSERT INTO r VALUES (5, 2, 'x');
INSERT INTO r VALUES (NULL, NULL, NULL) RETURNING *;
INSERT INTO r (a, g) VALUES (1, 2);
INSERT INTO r (a, b, g) VALUES (1, 3, DEFAULT) RETURNING *;
UPDATE r SET a = a + 1 RETURNING a, b, g;
UPDATE r SET b = 50, c = 'long' WHERE b = 3 RETURNING *;
UPDATE r SET g = 1;
ALTER TABLE r ADD CONSTRAINT few CHECK (g < 10);
ALTER TABLE r ADD CONSTRAINT few CHECK (g < 10) NOT VALID;
INSERT INTO r VALUES (5, 6, 'sum');
ALTER TABLE r VALIDATE CONSTRAINT few;
DELETE FROM r WHERE g > 10;
ALTER TABLE r VALIDATE CONSTRAINT few;
ALTER TABLE r DROP CONSTRAINT below;
ALTER TABLE r DROP CONSTRAINT none;
ALTER TABLE r RENAME CONSTRAINT few TO not_many;
INSERT INTO r VALUES (5, 6, 'sum');
CREATE TABLE bad (a int, b int GENERATED ALWAYS AS (random()) STORED);
CREATE TABLE bad (a int CHECK ((SELECT true)));
SELECT * FROM r;

-- the name of a check of one column that compares it with an array
CREATE TABLE colours (shade text CHECK (lower(shade) = ANY ('{red,blue}')), doc jsonb CHECK (doc->>'a' = ANY (ARRAY['x', 'y'])));
INSERT INTO colours VALUES ('RED', '{"a": "x"}');
INSERT INTO colours VALUES ('green', '{"a": "x"}');
INSERT INTO colours VALUES ('red', '{"a": "z"}');
SELECT conname FROM pg_constraint WHERE conrelid = 'colours'::regclass ORDER BY conname;
