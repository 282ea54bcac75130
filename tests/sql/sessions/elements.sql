-- UPDATE of elements of arrays.
CREATE TABLE lists (id int PRIMARY KEY, a int[], t text[], n numeric(8, 2)[], j jsonb);
INSERT INTO lists VALUES (1, '{1,2,3}', '{a,b}', '{1.5}', '{}'), (2, '{}', NULL, NULL, NULL), (3, '{7}', '{x}', '{2}', NULL);
UPDATE lists SET a[2] = 20 WHERE id = 1 RETURNING a;
UPDATE lists SET a[5] = id * 10, t[1] = 'first' WHERE id = 1 RETURNING *;
UPDATE lists SET a[1] = 1, a[2] = a[1] + 5, n[2] = 0.125 WHERE id = 3 RETURNING a, n;
UPDATE lists SET t[1] = upper(coalesce(t[1], 'none')), a[1] = NULL WHERE id > 1;
SELECT * FROM lists ORDER BY id;
UPDATE lists l SET a[l.id] = o.id FROM lists o WHERE o.id = 1 AND l.id = 1 RETURNING l.a;
INSERT INTO lists (id, a) VALUES (1, '{9,9}') ON CONFLICT (id) DO UPDATE SET a[1] = excluded.a[1] RETURNING a;
UPDATE lists SET a[1] = 'x';
UPDATE lists SET a['x'] = 1;
UPDATE lists SET a[NULL] = 1;
UPDATE lists SET a[1] = DEFAULT;
UPDATE lists SET a = '{}', a[1] = 1;
UPDATE lists SET a[1] = 1, a = '{}';
UPDATE lists SET a[2147483647] = 1;
SELECT * FROM lists ORDER BY id;
