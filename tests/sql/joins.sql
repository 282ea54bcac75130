-- Joins of every kind: conditions, USING, NATURAL, parentheses, aliases, LATERAL.

-- kinds with ON
SELECT p.id, d.id FROM people p JOIN depts d ON p.dept = d.id;
SELECT p.id, d.name FROM people p INNER JOIN depts d ON p.dept = d.id AND d.city IS NOT NULL;
SELECT p.id, d.name FROM people p LEFT JOIN depts d ON p.dept = d.id;
SELECT p.id, d.name FROM people p LEFT OUTER JOIN depts d ON p.dept = d.id WHERE d.id IS NULL;
SELECT p.id, d.name FROM people p RIGHT JOIN depts d ON p.dept = d.id;
SELECT p.id, d.name FROM people p FULL JOIN depts d ON p.dept = d.id;
SELECT p.id, d.name FROM people p FULL OUTER JOIN depts d ON p.dept = d.id WHERE p.id IS NULL OR d.id IS NULL;
SELECT p.id, d.id FROM people p CROSS JOIN depts d WHERE p.id < 3;
SELECT p.id, d.id FROM people p, depts d WHERE p.dept = d.id;
SELECT count(*) FROM people, depts, nums;
SELECT p.id, q.id FROM people p JOIN people q ON p.id = q.boss;
SELECT p.name, b.name, bb.name FROM people p LEFT JOIN people b ON p.boss = b.id LEFT JOIN people bb ON b.boss = bb.id;
SELECT a.id, b.id FROM people a LEFT JOIN people b ON a.salary < b.salary;
SELECT a.id, b.id FROM people a JOIN people b ON a.salary = b.salary AND a.id <> b.id;
SELECT a.id, d.id FROM people a LEFT JOIN depts d ON a.dept > d.id;
SELECT a.id, d.id FROM people a RIGHT JOIN depts d ON a.dept > d.id;
SELECT a.id, d.id FROM people a JOIN depts d ON true WHERE a.id = 1;
SELECT a.id, d.id FROM people a LEFT JOIN depts d ON false;
SELECT a.id, d.id FROM people a LEFT JOIN depts d ON NULL;
SELECT a.id, d.id FROM people a JOIN depts d ON NULL;
SELECT a.id, d.id FROM people a LEFT JOIN depts d ON a.dept = d.id AND a.active;
SELECT a.id, d.id FROM people a FULL JOIN depts d ON a.dept = d.id AND a.active;
SELECT a.id, d.id FROM people a FULL JOIN depts d ON a.dept = d.id AND d.city = 'Paris';
SELECT a.id, d.id FROM people a LEFT JOIN depts d ON a.dept = d.id OR a.id = 5;
SELECT a.id, d.id FROM people a LEFT JOIN depts d ON a.dept IS NOT DISTINCT FROM d.id;
SELECT a.id, d.id FROM people a JOIN depts d ON coalesce(a.dept, 0) = coalesce(d.id, 0);
SELECT n.id, m.id FROM nums n JOIN nums m ON n.i4 = m.i8;
SELECT n.id, m.id FROM nums n JOIN nums m ON n.f8 = m.f8 WHERE n.id <= m.id;
SELECT n.id, m.id FROM nums n JOIN nums m ON n.n = m.nb;
SELECT n.id, m.id FROM nums n JOIN nums m ON n.i2 = m.f8;
SELECT s.id, r.id FROM strs s JOIN strs r ON s.s = r.v;
SELECT s.id, r.id FROM strs s JOIN strs r ON s.s LIKE r.v || '%' AND r.v <> '';
SELECT x.id, y.id FROM strs x JOIN strs y ON x.u = y.u;
SELECT x.id, y.id FROM strs x JOIN strs y ON x.b = y.b;

-- chains, parentheses, order of joins
SELECT p.id, d.id, n.id FROM people p JOIN depts d ON p.dept = d.id JOIN nums n ON n.id = p.id;
SELECT p.id, d.id, n.id FROM people p LEFT JOIN (depts d JOIN nums n ON n.id = d.id) ON p.dept = d.id;
SELECT p.id, d.id, n.id FROM (people p LEFT JOIN depts d ON p.dept = d.id) JOIN nums n ON n.id = d.id;
SELECT p.id, d.id, n.id FROM people p LEFT JOIN depts d JOIN nums n ON n.id = d.id ON p.dept = d.id;
SELECT count(*) FROM people p CROSS JOIN depts d CROSS JOIN nums n;
SELECT p.id, d.id, n.id FROM nums n, people p JOIN depts d ON p.dept = d.id WHERE n.id = p.id;
SELECT p.id, d.id FROM ((people p JOIN depts d ON p.dept = d.id)) WHERE p.id > 2;
SELECT * FROM (people p JOIN depts d ON p.dept = d.id) WHERE p.id = 1;
SELECT count(*) FROM (people CROSS JOIN depts);
SELECT a.id, b.id, c.id FROM people a FULL JOIN depts b ON a.dept = b.id FULL JOIN nums c ON c.id = b.id;
SELECT a.id, b.id FROM people a JOIN people b USING (id) JOIN people c USING (id) WHERE c.id = 3;

-- USING and NATURAL: merged columns come first, once
SELECT * FROM people JOIN depts USING (id);
SELECT id, people.id, depts.id FROM people LEFT JOIN depts USING (id);
SELECT id, people.id, depts.id FROM people RIGHT JOIN depts USING (id);
SELECT id, people.id, depts.id FROM people FULL JOIN depts USING (id);
SELECT * FROM people FULL JOIN depts USING (id);
SELECT * FROM people JOIN depts USING (id, name);
SELECT * FROM people LEFT JOIN depts USING (name, id);
SELECT * FROM people NATURAL JOIN depts;
SELECT * FROM people NATURAL LEFT JOIN depts;
SELECT * FROM people NATURAL FULL JOIN depts;
SELECT * FROM (SELECT id, city FROM depts) d NATURAL RIGHT JOIN (SELECT id FROM people) p;
SELECT * FROM (SELECT 1 AS a) x NATURAL JOIN (SELECT 2 AS b) y;
SELECT x.*, y.* FROM depts x JOIN depts y USING (id);
SELECT id FROM depts x JOIN depts y USING (id) JOIN depts z USING (id);
SELECT id, a.name, b.name FROM depts a FULL JOIN depts b USING (id) FULL JOIN people c USING (id);
SELECT j.id FROM people JOIN depts USING (id) AS j;
SELECT j.* FROM people p JOIN depts d USING (id) AS j WHERE p.id = 2;
SELECT id FROM nums JOIN (SELECT id::bigint AS id FROM depts) d USING (id);
SELECT pg_typeof(id) FROM nums LEFT JOIN (SELECT id::bigint AS id FROM depts) d USING (id) LIMIT 1;
SELECT id FROM people JOIN depts USING (id) WHERE depts.id > 1 AND id < 4;
SELECT * FROM people p JOIN depts d USING (nope);
SELECT * FROM people p JOIN depts d USING (salary);
SELECT * FROM people p JOIN depts d USING (id, id);
SELECT name FROM people p JOIN depts d USING (id);
SELECT * FROM people p JOIN depts d ON p.dept = d.id JOIN nums USING (id);
SELECT j.name FROM people p JOIN depts d USING (id) AS j;

-- aliases of joins and of columns
SELECT j.a, j.f FROM (people p JOIN depts d ON p.dept = d.id) AS j (a, b, c, d, e, f);
SELECT j.id FROM (people JOIN depts USING (id)) AS j;
SELECT x, y FROM depts AS d (x, y);
SELECT d.x, d.city FROM depts AS d (x, y) WHERE y = 'Lab';
SELECT * FROM depts d (x);
SELECT d.id FROM depts d (x);
SELECT * FROM depts d (a, b, c, e);
SELECT p.id FROM (people p JOIN depts d ON p.dept = d.id) AS j;
SELECT j.* FROM (depts a CROSS JOIN depts b) AS j (a1, a2, a3, b1, b2, b3) WHERE a1 = 1 AND b1 = 2;
SELECT * FROM people AS p, depts AS p;
SELECT * FROM people p JOIN depts p ON true;
SELECT * FROM people JOIN people ON true;
SELECT people.id FROM people p;
SELECT p.id FROM people, depts p WHERE people.id = 1 AND p.id = 1;
SELECT public.people.id FROM public.people WHERE public.people.id = 1;

-- what conditions may see
SELECT * FROM people p JOIN depts d ON p.dept = d.id AND n.id = 1 JOIN nums n ON true;
SELECT * FROM people p, depts d JOIN nums n ON n.id = p.id;
SELECT * FROM people p JOIN depts d ON count(*) > 1;
SELECT * FROM people p JOIN depts d ON p.dept;
SELECT * FROM people p JOIN depts d ON row_number() OVER () = 1;
SELECT p.id FROM people p JOIN depts d ON p.dept = d.id AND EXISTS (SELECT 1 FROM nums n WHERE n.id = d.id);
SELECT p.id, d.id FROM people p JOIN depts d ON p.dept = d.id AND p.id IN (SELECT id FROM nums WHERE i4 > 0);
SELECT p.id, d.id FROM people p JOIN depts d ON p.salary > (SELECT avg(salary) FROM people) AND d.id = p.dept;

-- LATERAL
SELECT d.id, x.n FROM depts d, LATERAL (SELECT count(*) AS n FROM people p WHERE p.dept = d.id) x;
SELECT d.id, x.name FROM depts d CROSS JOIN LATERAL (SELECT p.name FROM people p WHERE p.dept = d.id) x;
SELECT d.id, x.name FROM depts d LEFT JOIN LATERAL (SELECT p.name FROM people p WHERE p.dept = d.id) x ON true;
SELECT d.id, x.id FROM depts d LEFT JOIN LATERAL (SELECT p.id FROM people p WHERE p.dept = d.id ORDER BY p.salary DESC, p.id LIMIT 1) x ON true;
SELECT d.id, x.id FROM depts d, LATERAL (SELECT p.id FROM people p WHERE p.dept = d.id ORDER BY p.id DESC LIMIT 2) x;
SELECT d.id, x.v FROM depts d, LATERAL (SELECT d.id * 10 AS v) x;
SELECT d.id, x.v, y.w FROM depts d, LATERAL (SELECT d.id * 10 AS v) x, LATERAL (SELECT x.v + d.id AS w) y;
SELECT d.id, v FROM depts d, LATERAL (VALUES (d.id), (d.id + 1)) AS t (v);
SELECT d.id, u.x FROM depts d, LATERAL (SELECT id AS x FROM people WHERE dept = d.id UNION ALL SELECT 100) u;
SELECT d.id, x.m FROM depts d JOIN LATERAL (SELECT max(salary) AS m FROM people p WHERE p.dept < d.id) x ON x.m > 3500;
SELECT p.id, x.s FROM people p, LATERAL (SELECT sum(q.salary) AS s FROM people q WHERE q.salary <= p.salary) x;
SELECT d.id, x.* FROM depts d, LATERAL (SELECT p.id, p.name FROM people p WHERE p.dept = d.id AND p.active) x;
SELECT d.id, x.n FROM depts d, (SELECT count(*) AS n FROM people p WHERE p.dept = d.id) x;
SELECT x.n FROM LATERAL (SELECT 1 AS n) x;
SELECT d.id, x.id FROM depts d RIGHT JOIN LATERAL (SELECT p.id FROM people p WHERE p.dept = d.id) x ON true;
SELECT d.id, x.id FROM depts d LEFT JOIN LATERAL (SELECT p.id FROM people p WHERE p.dept = d.id) x ON x.id > 2;
SELECT d.id, g FROM depts d, LATERAL generate_series(1, d.id) g;
SELECT d.id, g FROM depts d, generate_series(1, d.id) g;
SELECT l.id, e FROM lists l, unnest(l.ia) e;
SELECT l.id, e FROM lists l LEFT JOIN unnest(l.ia) e ON true;
SELECT l.id, e, o FROM lists l CROSS JOIN LATERAL unnest(l.ta) WITH ORDINALITY AS u (e, o);

-- LATERAL inside a join, of an item outside of it
SELECT b.a, s.z FROM u a, u b JOIN LATERAL (VALUES (a.k)) s(z) ON b.k = s.z;
SELECT b.a, s.z FROM u a, u b LEFT JOIN LATERAL (VALUES (a.k)) s(z) ON b.k = s.z;
SELECT b.a, s.z FROM u a LEFT JOIN (u b JOIN LATERAL (SELECT a.k, b.a) s(z, y) ON b.k = s.z) ON a.a = b.a;
SELECT b.a, g FROM u a, u b CROSS JOIN LATERAL generate_series(1, a.k) g;
SELECT b.a, s.z FROM u a, LATERAL (SELECT a.k) s(z) RIGHT JOIN u b ON b.k = s.z;
SELECT b.a, s.z, q.y FROM u a, u b JOIN LATERAL (VALUES (a.k)) s(z) ON b.k = s.z JOIN LATERAL (SELECT s.z + a.a) q(y) ON true;
SELECT 1 FROM u a RIGHT JOIN (u b JOIN LATERAL (VALUES (a.k)) s(z) ON b.k = s.z) ON true;
SELECT * FROM ((SELECT a / 2 AS x FROM t) s JOIN u ON x = k) j, LATERAL (SELECT x + 1) AS l (y) ORDER BY 1, 2, 3, 4;
SELECT j.a, p.k FROM ((t JOIN u ON a = k) j JOIN u p ON j.a = p.k) JOIN t c ON c.a = p.k ORDER BY 1, 2;
SELECT * FROM ((VALUES (1), (2)) v (x) JOIN t ON a = x) q ORDER BY 1, 2;
SELECT p.k FROM ((t JOIN u ON a = k) j JOIN u p ON j.a = p.k) x;
-- outer joins in whose condition a pattern or a regular expression compares the two sides
SELECT p.id, d.id FROM people p LEFT JOIN depts d ON d.city ILIKE '%' || left(p.name, 1) || '%' OR p.name ~ d.name;
SELECT p.id, d.id FROM people p RIGHT JOIN depts d ON p.dept = d.id AND d.city LIKE '%' || right(p.name, 1) || '%';
SELECT p.id, d.id FROM people p LEFT JOIN LATERAL (SELECT * FROM depts WHERE id >= p.dept) d ON d.city ~* right(p.name, 1) AND d.id < 4;
SELECT p.id, d.id FROM people p LEFT JOIN depts d ON d.city SIMILAR TO '%' || right(p.name, 1) || '%' AND d.id IN (SELECT dept FROM people);
SELECT a.id, b.id FROM people a LEFT JOIN people b ON a.name LIKE ANY (ARRAY[b.name, left(b.name, 1) || '%']) AND b.id > 6;
SELECT p.id, d.id FROM people p FULL JOIN depts d ON p.dept = d.id AND d.city LIKE '%' || right(p.name, 1) || '%';
SELECT p.id, d.id FROM people p FULL JOIN depts d ON d.city LIKE p.name;
