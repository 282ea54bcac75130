-- Subqueries in expressions: scalar, EXISTS, IN, ANY, ALL, ARRAY, rows; correlated anywhere.

-- scalar
SELECT (SELECT 1);
SELECT (SELECT max(id) FROM people);
SELECT (SELECT id FROM people WHERE id = 99);
SELECT (SELECT name FROM people WHERE id = 7) IS NULL;
SELECT id, (SELECT count(*) FROM depts) AS n FROM people;
SELECT (SELECT id FROM people);
SELECT id FROM people WHERE salary = (SELECT salary FROM people);
SELECT id, (SELECT p.id FROM people p WHERE p.dept = d.id) FROM depts d;
SELECT (SELECT id, name FROM people);
SELECT (SELECT);
SELECT (VALUES (7));
SELECT (VALUES (7), (8));
SELECT (SELECT 1 UNION ALL SELECT 2 ORDER BY 1 DESC LIMIT 1);
SELECT (TABLE depts);
SELECT 1 + (SELECT 2) * (SELECT 3);
SELECT (SELECT 'x') || 'y';
SELECT (SELECT NULL);
SELECT (SELECT 1.50), (SELECT 1.50::numeric(4,2)), (SELECT '2024-01-01'::date);
SELECT d.id, (SELECT p.name FROM people p WHERE p.dept = d.id ORDER BY p.id LIMIT 1) FROM depts d;
SELECT d.id, (SELECT p.name FROM people p WHERE p.dept = d.id ORDER BY p.id DESC LIMIT 1 OFFSET 1) FROM depts d;
SELECT d.id, (SELECT max(p.salary) FROM people p WHERE p.dept = d.id) FROM depts d;
SELECT d.id, (SELECT count(*) FROM people p WHERE p.dept = d.id) FROM depts d;
SELECT d.id, (SELECT count(*) + 1 FROM people p WHERE p.dept = d.id) FROM depts d;
SELECT d.id, (SELECT coalesce(sum(p.salary), 0) FROM people p WHERE p.dept = d.id) FROM depts d;
SELECT d.id, (SELECT count(*) FROM people p WHERE p.dept < d.id) FROM depts d;
SELECT d.id, (SELECT count(*) FROM people p WHERE p.dept = d.id AND p.salary > d.id * 1000) FROM depts d;
SELECT d.id, (SELECT d.name) FROM depts d;
SELECT d.id, (SELECT d.id + max(p.id) FROM people p) FROM depts d;
SELECT d.id, (SELECT sum(p.id + d.id) FROM people p WHERE p.dept = d.id) FROM depts d;
SELECT d.id, (SELECT string_agg(p.name, ',' ORDER BY p.name) FROM people p WHERE p.dept = d.id) FROM depts d;
SELECT d.id, (SELECT count(*) FROM people p WHERE p.dept = d.id HAVING count(*) > 1) FROM depts d;
SELECT d.id, (SELECT count(DISTINCT p.salary) FROM people p WHERE p.dept = d.id) FROM depts d;
SELECT d.id, (SELECT x.n FROM (SELECT count(*) AS n FROM people p WHERE p.dept = d.id) x) FROM depts d;
SELECT d.id, (SELECT max(x) FROM (SELECT p.id AS x FROM people p WHERE p.dept = d.id UNION ALL SELECT d.id * 100) u) FROM depts d;
SELECT d.id, (SELECT p.id FROM people p WHERE p.id = d.id) FROM depts d;
SELECT p.id, (SELECT b.name FROM people b WHERE b.id = p.boss) FROM people p;
SELECT p.id, (SELECT q.id FROM people q WHERE q.salary > p.salary ORDER BY q.salary, q.id LIMIT 1) FROM people p;
SELECT p.id, (SELECT count(*) FROM people q WHERE q.salary > p.salary) + 1 AS rank FROM people p;

-- where they are allowed
SELECT id FROM people WHERE salary > (SELECT avg(salary) FROM people);
SELECT id FROM people p WHERE salary > (SELECT avg(salary) FROM people q WHERE q.dept = p.dept);
SELECT id FROM people p WHERE salary >= (SELECT max(salary) FROM people q WHERE q.dept = p.dept) AND id < 5;
SELECT dept FROM people GROUP BY dept HAVING sum(salary) > (SELECT avg(salary) FROM people);
SELECT dept, count(*) FROM people p GROUP BY dept HAVING count(*) > (SELECT count(*) FROM depts d WHERE d.id = p.dept);
SELECT dept, (SELECT d.name FROM depts d WHERE d.id = p.dept) FROM people p GROUP BY dept;
SELECT dept, (SELECT d.name FROM depts d WHERE d.id = p.dept), sum(salary) FROM people p GROUP BY dept;
SELECT dept, (SELECT count(*) FROM depts d WHERE d.id = p.boss) FROM people p GROUP BY dept;
SELECT CASE WHEN EXISTS (SELECT 1 FROM depts d WHERE d.id = p.dept) THEN 'known' ELSE 'unknown' END, id FROM people p;
SELECT CASE WHEN id = 1 THEN (SELECT max(id) FROM nums) ELSE (SELECT min(id) FROM nums) END FROM people;
SELECT id FROM people p ORDER BY (SELECT d.name FROM depts d WHERE d.id = p.dept) NULLS FIRST, id;
SELECT sum((SELECT count(*) FROM depts d WHERE d.id = p.dept)) FROM people p;
SELECT sum((SELECT d.id FROM depts d WHERE d.id = p.dept)), dept FROM people p GROUP BY dept;
SELECT count(*) FILTER (WHERE EXISTS (SELECT 1 FROM depts d WHERE d.id = p.dept)) FROM people p;
SELECT coalesce((SELECT name FROM depts d WHERE d.id = p.dept), '-'), p.id FROM people p;
SELECT (SELECT count(*) FROM people q WHERE q.dept = p.dept), count(*) FROM people p GROUP BY 1;
SELECT p.id FROM people p LEFT JOIN depts d ON d.id = (SELECT max(x.id) FROM depts x WHERE x.id <= p.dept);
SELECT id, rank() OVER (ORDER BY (SELECT max(salary) FROM people) - salary, id) FROM people;
SELECT id FROM people LIMIT (SELECT 2);
SELECT id FROM people ORDER BY id OFFSET (SELECT count(*) FROM people) - 2;
SELECT (SELECT sum(p.id)) FROM people p;
SELECT (SELECT sum(p.id) FROM depts d WHERE d.id = 1) FROM people p;
SELECT (SELECT max(p.id + d.id) FROM depts d) FROM people p;
SELECT id FROM people WHERE (SELECT true);
SELECT id FROM people WHERE id = (SELECT 2) OR id = (SELECT 3);

-- nested twice
SELECT d.id, (SELECT (SELECT max(p.id) FROM people p WHERE p.dept = d.id)) FROM depts d;
SELECT d.id FROM depts d WHERE EXISTS (SELECT 1 FROM people p WHERE p.dept = d.id AND EXISTS (SELECT 1 FROM people q WHERE q.boss = p.id));
SELECT d.id FROM depts d WHERE EXISTS (SELECT 1 FROM people p WHERE EXISTS (SELECT 1 FROM people q WHERE q.boss = p.id AND q.dept = d.id));
SELECT d.id, (SELECT count(*) FROM people p WHERE p.dept = d.id AND p.salary > (SELECT avg(q.salary) FROM people q WHERE q.dept = d.id)) FROM depts d;
SELECT p.id FROM people p WHERE p.salary = (SELECT max(q.salary) FROM people q WHERE q.dept = p.dept AND q.id NOT IN (SELECT b.boss FROM people b WHERE b.boss IS NOT NULL AND b.dept = p.dept));
SELECT d.id FROM depts d WHERE 2 <= (SELECT count(*) FROM people p WHERE p.dept IN (SELECT e.id FROM depts e WHERE e.id = d.id));

-- EXISTS
SELECT EXISTS (SELECT 1 FROM people), EXISTS (SELECT 1 FROM people WHERE false), NOT EXISTS (SELECT);
SELECT id FROM depts d WHERE EXISTS (SELECT * FROM people p WHERE p.dept = d.id);
SELECT id FROM depts d WHERE NOT EXISTS (SELECT 1 FROM people p WHERE p.dept = d.id);
SELECT id FROM depts d WHERE EXISTS (SELECT 1 FROM people p WHERE p.dept > d.id);
SELECT id, EXISTS (SELECT 1 FROM people p WHERE p.dept = d.id) FROM depts d;
SELECT id, NOT EXISTS (SELECT 1 FROM people p WHERE p.dept = d.id) AND city IS NOT NULL FROM depts d;
SELECT id FROM depts d WHERE EXISTS (SELECT count(*) FROM people p WHERE p.dept = d.id);
SELECT id FROM depts d WHERE EXISTS (SELECT p.dept FROM people p WHERE p.dept = d.id GROUP BY p.dept HAVING count(*) > 1);
SELECT id FROM depts d WHERE EXISTS (SELECT 1 FROM people p WHERE p.dept = d.id LIMIT 1);
SELECT id FROM depts d WHERE EXISTS (SELECT 1 FROM people p WHERE p.dept = d.id OFFSET 1);
SELECT id FROM depts d WHERE EXISTS (SELECT 1 FROM people p WHERE p.dept = d.id LIMIT 0);
SELECT id FROM depts d WHERE EXISTS (SELECT d.id FROM nums WHERE id = 1) AND d.id > 2;
SELECT id FROM depts d WHERE EXISTS (SELECT 1 WHERE d.id = 3);
SELECT id FROM depts d WHERE EXISTS (SELECT 1 FROM people p WHERE p.dept = d.id UNION SELECT 1 FROM nums n WHERE n.i4 = d.id);
SELECT id FROM depts d WHERE EXISTS (SELECT 1 FROM people p WHERE p.dept = d.id) OR city = 'Oslo';

-- IN and NOT IN, with NULLs
SELECT id FROM people WHERE dept IN (SELECT id FROM depts);
SELECT id FROM people WHERE dept NOT IN (SELECT id FROM depts);
SELECT id FROM people WHERE dept NOT IN (SELECT id FROM depts WHERE id IS NOT NULL);
SELECT id FROM people WHERE dept NOT IN (SELECT id FROM depts WHERE false);
SELECT id, dept IN (SELECT id FROM depts) AS known FROM people;
SELECT id, dept NOT IN (SELECT id FROM depts WHERE id IS NOT NULL) FROM people;
SELECT id, (dept IN (SELECT id FROM depts)) IS NULL FROM people;
SELECT id FROM people p WHERE dept IN (SELECT d.id FROM depts d WHERE d.city = 'Paris' AND d.id <= p.id);
SELECT id, dept IN (SELECT d.id FROM depts d WHERE d.id <= p.id) FROM people p;
SELECT id FROM people WHERE NOT (dept IN (SELECT id FROM depts WHERE id IS NOT NULL));
SELECT id FROM people WHERE dept IN (SELECT id FROM depts) OR id = 8;
SELECT id FROM people WHERE id IN (VALUES (1), (3), (NULL));
SELECT id FROM people WHERE id NOT IN (VALUES (1), (3), (NULL));
SELECT 1 IN (SELECT 1), 1 IN (SELECT 2), 1 IN (SELECT NULL::int), NULL IN (SELECT 1 WHERE false);
SELECT id FROM people WHERE dept IN (SELECT dept, id FROM people);
SELECT id FROM people WHERE name IN (SELECT id FROM people);
SELECT id FROM nums WHERE i4 IN (SELECT f8 FROM nums);
SELECT id FROM nums WHERE n IN (SELECT i4 FROM nums);
SELECT id FROM people WHERE salary IN (SELECT max(salary) FROM people GROUP BY dept);
SELECT id FROM people WHERE id IN (SELECT id FROM nums ORDER BY id LIMIT 3);
SELECT id FROM people WHERE id IN (SELECT boss FROM people UNION SELECT 8);
SELECT id FROM people p WHERE p.id IN (SELECT max(q.id) FROM people q GROUP BY q.dept HAVING max(q.salary) > p.salary - 2000);

-- ANY, SOME, ALL with any operator
SELECT id FROM people WHERE id = ANY (SELECT boss FROM people);
SELECT id FROM people WHERE id = SOME (SELECT boss FROM people);
SELECT id FROM people WHERE id <> ALL (SELECT boss FROM people WHERE boss IS NOT NULL);
SELECT id FROM people WHERE id <> ALL (SELECT boss FROM people);
SELECT id FROM people WHERE id <> ANY (SELECT boss FROM people);
SELECT id FROM people WHERE id = ALL (SELECT boss FROM people WHERE boss = 4);
SELECT id FROM people WHERE salary > ANY (SELECT salary FROM people WHERE dept = 1);
SELECT id FROM people WHERE salary > ALL (SELECT salary FROM people WHERE dept = 2);
SELECT id FROM people WHERE salary >= ALL (SELECT salary FROM people);
SELECT id FROM people WHERE salary >= ALL (SELECT salary FROM people WHERE salary IS NOT NULL);
SELECT id FROM people WHERE salary < ALL (SELECT salary FROM people WHERE false);
SELECT id FROM people WHERE salary < ANY (SELECT salary FROM people WHERE false);
SELECT id, salary > ANY (SELECT salary FROM people WHERE dept = 1), salary > ALL (SELECT salary FROM people WHERE dept = 1) FROM people;
SELECT id, salary < ANY (SELECT salary FROM people), salary <= ALL (SELECT salary FROM people) FROM people;
SELECT id FROM people p WHERE salary >= ALL (SELECT q.salary FROM people q WHERE q.dept = p.dept);
SELECT id, name LIKE ANY (SELECT city FROM depts) FROM people;
SELECT 'abc' LIKE ANY (SELECT 'a%'), 'abc' LIKE ALL (VALUES ('a%'), ('b%'));
SELECT 5 > ANY (SELECT 'x');
SELECT 5 > ANY (SELECT 1, 2);
SELECT NOT (3 = ANY (SELECT id FROM depts));
SELECT 3 > ALL (SELECT id FROM depts), 3 <> ALL (SELECT id FROM depts), 9 = ANY (SELECT id FROM depts);

-- rows
SELECT id FROM people WHERE (id, dept) IN (SELECT boss, dept FROM people);
SELECT id FROM people WHERE (id, dept) NOT IN (SELECT boss, dept FROM people WHERE boss IS NOT NULL AND dept IS NOT NULL);
SELECT id, (id, dept) IN (SELECT boss, dept FROM people) FROM people;
SELECT id FROM people WHERE (dept, salary) IN (SELECT dept, max(salary) FROM people GROUP BY dept);
SELECT (1, 2) = (SELECT 1, 2), (1, 2) = (SELECT 1, 3), (1, 2) < (SELECT 1, 3), (1, NULL) = (SELECT 1, 2);
SELECT id FROM people WHERE (id, dept) = (SELECT max(id), 9 FROM people);
SELECT (1, 2) = (SELECT id, dept FROM people);
SELECT (1, 2) = (SELECT 1);
SELECT (1, 2) IN (SELECT 1);
SELECT (1, 2) = ANY (SELECT 1, 2), (1, 2) <> ALL (SELECT 1, 2);
SELECT (1, 2) = (1, 2), (1, 2) <> (1, 3), (1, 2) < (1, 3), (1, 2) <= (1, 2), (2, 1) > (1, 9), (1, 1) >= (1, 2);
SELECT id FROM people WHERE (dept, id) > (1, 2);
SELECT id FROM people WHERE (dept, salary) >= (2, 3000.00);
SELECT id, (dept, boss) < (2, 2), (dept, boss) = (1, 1), (dept, boss) <> (1, 1) FROM people;
SELECT (1, NULL) < (2, 1), (1, NULL) < (1, 1), (NULL, 1) = (NULL, 1), (1, NULL) = (2, NULL), (1, NULL) <> (2, NULL);
SELECT ROW(1, 2) = ROW(1, 2), ROW(1, 'a') < ROW(1, 'b'), ROW(1) = ROW(1);
SELECT (1, 2) IS DISTINCT FROM (1, 2), (1, NULL) IS DISTINCT FROM (1, NULL), (1, 2) IS NOT DISTINCT FROM (1, NULL);
SELECT id FROM people WHERE (dept, boss) IS NOT DISTINCT FROM (1, NULL);
SELECT (1, 2) IN ((1, 2), (3, 4)), (1, 2) NOT IN ((1, 3), (3, 4)), (1, NULL) IN ((1, 2));
SELECT (NULL, NULL) IS NULL, (1, NULL) IS NULL, (1, NULL) IS NOT NULL, (1, 2) IS NOT NULL, ROW() IS NULL;
SELECT id, (dept, boss) IS NULL, (dept, boss) IS NOT NULL FROM people;
SELECT (1, 2) BETWEEN (1, 1) AND (1, 3);
SELECT (1, 2) = (1, 2, 3);
SELECT (1, 2) < (1, 'x');
SELECT (1, 2) ~ (1, 2);
SELECT (1, 2) + (1, 2);

-- ARRAY
SELECT ARRAY(SELECT id FROM people ORDER BY id);
SELECT ARRAY(SELECT id FROM people WHERE false);
SELECT ARRAY(SELECT name FROM people ORDER BY id DESC);
SELECT ARRAY(SELECT salary FROM people ORDER BY salary NULLS FIRST, id LIMIT 3);
SELECT d.id, ARRAY(SELECT p.id FROM people p WHERE p.dept = d.id ORDER BY p.id) FROM depts d;
SELECT d.id, ARRAY(SELECT p.name FROM people p WHERE p.dept = d.id ORDER BY p.salary DESC, p.id) FROM depts d;
SELECT ARRAY(SELECT 1 UNION ALL SELECT 2 ORDER BY 1 DESC);
SELECT ARRAY(SELECT id, name FROM people);
SELECT ARRAY(VALUES (1), (NULL), (3));
SELECT array_length(ARRAY(SELECT id FROM people), 1);

-- aggregates of an outer query in a subquery
SELECT a, (SELECT sum(t.c)), (SELECT sum(t.c) FROM u WHERE k = 2) FROM t GROUP BY a;
SELECT a FROM t GROUP BY a HAVING EXISTS (SELECT 1 FROM u WHERE u.k = count(t.c));
SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = sum(t.c));
SELECT a FROM t WHERE EXISTS (SELECT sum(t.c) FROM u);
SELECT a FROM t GROUP BY a ORDER BY (SELECT sum(t.c)), a;
SELECT a, (SELECT sum(u.k + t.a) FROM u), (SELECT sum(u.k) + sum(t.c) FROM u), (SELECT sum(u.k * sum(t.c)) FROM u) FROM t GROUP BY a;
SELECT a, (SELECT sum(u.k + t.c) FROM u) FROM t GROUP BY a;
SELECT a, (SELECT count(*) FROM u GROUP BY sum(t.c)), (SELECT max(k) FROM u HAVING max(k) < sum(t.c)) FROM t GROUP BY a;
SELECT a, (SELECT w FROM u ORDER BY k * sum(t.c), a LIMIT 1), (SELECT count(*) FROM u JOIN u v ON v.k = count(t.c)) FROM t GROUP BY a;
SELECT a, (SELECT sum(u.k) FILTER (WHERE u.k < sum(t.c)) FROM u), (SELECT sum(t.c) FILTER (WHERE t.n > 0) FROM u LIMIT 1) FROM t GROUP BY a;
SELECT a, (SELECT x FROM (SELECT sum(t.c) AS x) s), (WITH w AS (SELECT sum(t.c) AS x) SELECT x FROM w) FROM t GROUP BY a;
SELECT a, (SELECT sum(sum(t.c))) FROM t GROUP BY a;
SELECT a, sum((SELECT sum(t.c))) FROM t GROUP BY a;
SELECT * FROM t, LATERAL (SELECT sum(t.c)) s;
SELECT * FROM t, LATERAL (VALUES (sum(t.c))) s;
SELECT a, (SELECT sum(t.c) OVER () FROM u LIMIT 1) FROM t GROUP BY a, c;
SELECT a, (SELECT sum(sum(t.c)) OVER () FROM u LIMIT 1) FROM t GROUP BY a;
SELECT a, b, (SELECT grouping(t.a) + grouping(t.b)), (SELECT count(*) FROM u WHERE grouping(t.a) = 0) FROM t GROUP BY ROLLUP (a, b);
SELECT (SELECT (SELECT sum(t.c))) FROM t;
SELECT (SELECT (SELECT sum(t.c) + sum(u.k) FROM depts LIMIT 1) FROM u) FROM t GROUP BY a;
SELECT a = ANY (SELECT count(t.b) FROM u), a IN (SELECT sum(t.a) FROM u) FROM t GROUP BY a;
SELECT a FROM t GROUP BY a, (SELECT sum(t.c));
SELECT (SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY t.c)), array(SELECT u.k + sum(t.c) FROM u ORDER BY 1) FROM t;
SELECT (SELECT count(*) + count(t.a)) FROM t;

-- as an argument of what Spark computes with a lambda or in Python
SELECT f8 / (SELECT sum(f8) FROM nums WHERE id < 4), f4 * (SELECT max(f4) FROM nums WHERE id < 4) FROM nums WHERE id < 4;
SELECT sum(f8 * (SELECT max(f8) FROM nums WHERE id < 4)) FROM nums WHERE id < 4;
SELECT id FROM nums WHERE f8 > f8 * (SELECT max(f8) FROM nums WHERE id < 4) AND id < 4;
SELECT lpad((SELECT max(s) FROM strs WHERE id < 4), 5, '-'), string_agg((SELECT max(s) FROM strs WHERE id < 4), ',' ORDER BY id) FROM nums WHERE id < 4;
SELECT id FROM nums ORDER BY (SELECT ia FROM lists WHERE lists.id = 2), id;
SELECT n.id, p.id FROM nums n LEFT JOIN people p ON n.f8 * (SELECT max(f8) FROM nums WHERE id < 4) > p.id WHERE n.id < 4;
SELECT f8 * (SELECT f8 FROM nums WHERE id < 4) FROM nums WHERE id < 4;
SELECT id, EXISTS (SELECT 1 FROM depts d WHERE d.id = dept) IS NOT TRUE, EXISTS (SELECT 1 FROM people b WHERE b.boss = p.id) = active, EXISTS (SELECT 1 FROM depts d WHERE d.id = dept) IS NULL FROM people p ORDER BY id;
SELECT id FROM people p WHERE EXISTS (SELECT 1 FROM people b WHERE b.boss = p.id) IS DISTINCT FROM active OR (EXISTS (SELECT 1 FROM depts d WHERE d.id = dept)) IS FALSE ORDER BY id;
SELECT active IN (EXISTS (SELECT 1 FROM depts d WHERE d.id = dept), NULL), coalesce(active, EXISTS (SELECT 1 FROM depts d WHERE d.id = dept) IS UNKNOWN), (EXISTS (SELECT 1 FROM depts d WHERE d.id = dept))::text || 'x' FROM people ORDER BY id;

-- queries that are not SELECT, and queries in parentheses
SELECT EXISTS (TABLE people), EXISTS (VALUES (1)), EXISTS ((SELECT 1)), EXISTS (((SELECT 1)) OFFSET 1);
SELECT EXISTS ((SELECT 1 WHERE false) UNION (VALUES (2))), NOT EXISTS (WITH x AS (SELECT 1) TABLE x);
SELECT id FROM depts d WHERE EXISTS ((SELECT 1 FROM people p WHERE p.dept = d.id)) ORDER BY id;
SELECT ARRAY(TABLE nope), EXISTS (1);
SELECT EXISTS ((SELECT 1) x);
SELECT count(*) FROM (TABLE depts ORDER BY depts.id LIMIT 2) x WHERE id IN (VALUES (1), (2));

-- VALUES with clauses
SELECT * FROM (VALUES (1), (3), (2) ORDER BY 1 LIMIT 2) x;
SELECT a FROM (VALUES (1) UNION VALUES (2)) x (a) ORDER BY a;
SELECT * FROM (VALUES (1, 'a'), (2, 'b') EXCEPT SELECT 1, 'a') x;
SELECT 1 IN (VALUES (1) ORDER BY 1 LIMIT 1), (VALUES (1) LIMIT 1), ARRAY(VALUES (2), (1) ORDER BY 1);
SELECT a, b FROM (VALUES (1) OFFSET 0) AS x (a), LATERAL (VALUES (a + 1) LIMIT 1) y (b);
SELECT * FROM (VALUES (1), (2) x);
SELECT * FROM (VALUES (1) LIMIT 1) x JOIN depts ON id = column1;
-- conditions in which a pattern or a regular expression compares columns of both queries
SELECT id FROM people p WHERE EXISTS (SELECT 1 FROM depts WHERE city ~* right(p.name, 1));
SELECT id FROM people p WHERE NOT EXISTS (SELECT 1 FROM depts WHERE city LIKE '%' || right(p.name, 1) || '%' AND id = p.dept);
SELECT id FROM people p WHERE dept IN (SELECT id FROM depts WHERE city LIKE '%' || right(p.name, 1) || '%');
SELECT id FROM people p WHERE dept NOT IN (SELECT id FROM depts WHERE city LIKE '%' || right(p.name, 1) || '%');
SELECT id FROM people p WHERE 'Paris' = (SELECT city FROM depts WHERE id = p.dept AND city ~ right(p.name, 1));
SELECT id, dept IN (SELECT id FROM depts WHERE city LIKE ANY (ARRAY[p.name, 'O%'])) FROM people p;
-- a subquery in the select list of a correlated subquery
SELECT id, (SELECT EXISTS (SELECT 1 FROM people WHERE dept = d.id) FROM depts d WHERE d.id = p.dept) FROM people p;
SELECT id, (SELECT d.id IN (SELECT dept FROM people WHERE active) FROM depts d WHERE d.id = p.dept) FROM people p;
