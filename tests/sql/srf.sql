-- Set-returning functions: in FROM, LATERAL, ROWS FROM, with ordinality; in the select list.
SELECT * FROM generate_series(1, 3);
SELECT g FROM generate_series(1, 3) g;
SELECT g.x FROM generate_series(1, 3) AS g (x);
SELECT generate_series FROM generate_series(1, 3);
SELECT * FROM generate_series(3, 1);
SELECT * FROM generate_series(3, 1, -1);
SELECT * FROM generate_series(1, 10, 4);
SELECT * FROM generate_series(-2, 2);
SELECT * FROM generate_series(1, 5, 0);
SELECT * FROM generate_series(1, NULL);
SELECT * FROM generate_series(1::bigint, 3);
SELECT * FROM generate_series(2147483646, 2147483647);
SELECT * FROM generate_series(9223372036854775806, 9223372036854775807);
SELECT * FROM generate_series(1.0, 2.0, 0.5);
SELECT * FROM generate_series(1.5, 3);
SELECT * FROM generate_series(1, 2, 0.25);
SELECT * FROM generate_series(1.0, 2.0, 0.0);
SELECT * FROM generate_series('2024-01-01'::timestamp, '2024-01-03', '12 hours');
SELECT * FROM generate_series('2024-01-31'::timestamp, '2024-06-30', '1 month');
SELECT * FROM generate_series('2024-01-03'::timestamp, '2024-01-01', '-1 day');
SELECT * FROM generate_series('2024-03-30'::timestamptz, '2024-04-01', '1 day');
SELECT * FROM generate_series('2024-01-01'::date, '2024-01-03'::date, '1 day');
SELECT * FROM generate_series('2024-01-01'::timestamp, '2024-01-03', '0 days');
SELECT id, g FROM times, generate_series(ts, ts + interval '1 day', interval '8 hours') g WHERE id < 5;
SELECT id, g FROM times, generate_series(ts, ts - interval '2 days', interval '-1 day -1 microsecond') g WHERE id < 5;
SELECT id, g FROM times, generate_series(tz, tz + interval '1 hour', interval '25 min') g WHERE id < 5;
SELECT id, g FROM times, generate_series(ts, ts - interval '1 day', interval '1 day') g;
SELECT id, g FROM times, generate_series(ts, ts + interval '3 mons', interval '1 mon') g WHERE id < 5;
SELECT g::date FROM generate_series('2024-02-27'::date, '2024-03-02', interval '1 day') g;
SELECT * FROM generate_series(1);
SELECT * FROM generate_series('a', 'b');
SELECT * FROM generate_series(1, 3) WITH ORDINALITY;
SELECT * FROM generate_series(11, 13) WITH ORDINALITY AS g (v, n);
SELECT * FROM generate_series(1, 3) AS g (a, b);
SELECT sum(g) FROM generate_series(1, 1000) g;
SELECT a, b FROM generate_series(1, 2) a, generate_series(a, 3) b;
SELECT a, b FROM generate_series(1, 2) a LEFT JOIN generate_series(3, 2) b ON true;
SELECT p.id, g FROM people p JOIN generate_series(1, 3) g ON g = p.dept;
SELECT p.id, g FROM people p LEFT JOIN generate_series(1, 3) g ON g = p.dept;
SELECT p.id, g FROM people p, generate_series(1, p.dept, p.id) g;
SELECT g, count(p.id) FROM generate_series(0, 4) g LEFT JOIN people p ON p.dept = g GROUP BY g;
SELECT id FROM people WHERE id IN (SELECT * FROM generate_series(2, 4));
SELECT (SELECT sum(x) FROM generate_series(1, p.id) x) FROM people p;
SELECT p.id, ARRAY(SELECT x * x FROM generate_series(1, p.id) x) FROM people p WHERE p.id < 4;

-- unnest
SELECT * FROM unnest(ARRAY[1, 2, 3]);
SELECT * FROM unnest(ARRAY['a', NULL, '']) AS x;
SELECT * FROM unnest('{}'::int[]);
SELECT * FROM unnest(NULL::int[]);
SELECT * FROM unnest(ARRAY[1, 2], ARRAY['a', 'b', 'c']);
SELECT * FROM unnest(ARRAY[1, 2], ARRAY['a', 'b', 'c']) AS t (n, s);
SELECT * FROM unnest(ARRAY[1, 2], NULL::text[]) AS t (n, s);
SELECT * FROM unnest(ARRAY['x', 'y']) WITH ORDINALITY;
SELECT * FROM unnest(ARRAY['x', 'y']) WITH ORDINALITY AS t (v, n);
SELECT v, n FROM unnest(ARRAY['x', 'y']) WITH ORDINALITY AS t (v, n) ORDER BY n DESC;
SELECT l.id, x FROM lists l, unnest(l.ia) x;
SELECT l.id, x FROM lists l LEFT JOIN LATERAL unnest(l.ia) x ON true;
SELECT l.id, x, n FROM lists l, unnest(l.ta) WITH ORDINALITY AS u (x, n);
SELECT l.id, u.* FROM lists l, unnest(l.ia, l.ta) AS u (i, t);
SELECT l.id, x FROM lists l, unnest(l.na) x;
SELECT l.id, x FROM lists l, unnest(l.fa) x;
SELECT l.id, x FROM lists l, unnest(l.da) x;
SELECT l.id, x FROM lists l, unnest(l.ba) x;
SELECT l.id, x FROM lists l CROSS JOIN unnest(l.ia) x WHERE x > 1;
SELECT l.id, x FROM lists l LEFT JOIN unnest(l.ia) x ON x > 1;
SELECT l.id, (SELECT sum(x) FROM unnest(l.ia) x) FROM lists l;
SELECT l.id, (SELECT count(*) FROM unnest(l.ta) x WHERE x IS NULL) FROM lists l;
SELECT l.id FROM lists l WHERE EXISTS (SELECT 1 FROM unnest(l.ia) x WHERE x = 3);
SELECT l.id FROM lists l WHERE 3 IN (SELECT unnest(l.ia));
SELECT l.id, ARRAY(SELECT x FROM unnest(l.ia) x ORDER BY x DESC) FROM lists l WHERE l.ia IS NOT NULL;
SELECT l.id, x, y FROM lists l, unnest(l.ia) x, unnest(l.ta) y WHERE l.id = 2;
SELECT x, count(*) FROM lists l, unnest(l.ia) x GROUP BY x;
SELECT * FROM unnest(1);
SELECT * FROM unnest('x');

-- ROWS FROM
SELECT * FROM ROWS FROM (generate_series(1, 3), unnest(ARRAY['a', 'b']));
SELECT * FROM ROWS FROM (generate_series(1, 2), generate_series(1, 4)) AS x (a, b);
SELECT * FROM ROWS FROM (generate_series(1, 2), unnest(ARRAY[5, 6, 7])) WITH ORDINALITY AS x (a, b, n);
SELECT l.id, x.* FROM lists l, ROWS FROM (unnest(l.ia), unnest(l.ta)) AS x (a, b);

-- functions that give one row
SELECT * FROM abs(-3);
SELECT * FROM upper('x') AS u;
SELECT u FROM upper('x') AS u;
SELECT p.id, l FROM people p, length(p.name) l;
SELECT * FROM nope(1);
SELECT * FROM sum(1);

-- strings
SELECT * FROM string_to_table('a,b,,c', ',');
SELECT * FROM string_to_table('a,b,,c', ',', '');
SELECT * FROM string_to_table('abc', NULL);
SELECT * FROM string_to_table('', ',');
SELECT * FROM string_to_table(NULL, ',');
SELECT s.id, w FROM strs s, string_to_table(s.s, ',') w;
SELECT * FROM regexp_split_to_table('a1b22c', '[0-9]+');
SELECT * FROM regexp_split_to_table('hello', '');
SELECT id, regexp_split_to_table(s, '[,_]') FROM strs WHERE id IN (2, 7, 10);

-- json
SELECT * FROM json_array_elements('[1, "two", null, {"a": [3]}]');
SELECT * FROM jsonb_array_elements('[1, "two", null, {"a": [3]}]');
SELECT * FROM json_array_elements_text('[1, "two", null, {"a": [3]}]');
SELECT * FROM jsonb_array_elements_text('[1, "two", null, {"a":[3]}]') AS x;
SELECT value FROM json_array_elements('[1, 2]') AS x;
SELECT x FROM json_array_elements('[]') AS x;
SELECT * FROM json_each('{"a": 1, "b": {"c": null}}');
SELECT * FROM jsonb_each('{"b": 1, "a": "x"}');
SELECT key, value FROM json_each_text('{"a": 1, "b": "x", "c": null}');
SELECT k, v FROM jsonb_each_text('{"a": 1, "b": "x", "c": null}') AS t (k, v);
SELECT * FROM json_object_keys('{"b": 1, "a": 2}');
SELECT * FROM jsonb_object_keys('{"b": 1, "a": 2}') AS k;
SELECT d.id, e.value FROM docs d, jsonb_array_elements(d.jb) e WHERE d.id = 3;
SELECT d.id, k FROM docs d, jsonb_object_keys(d.jb) k WHERE d.id IN (1, 2, 6, 9);
SELECT d.id, e.key, e.value FROM docs d, jsonb_each(d.jb) e WHERE d.id IN (2, 9);
SELECT d.id, e.value FROM docs d, json_array_elements(d.j) e;
SELECT json_array_elements('{"a": 1}');
SELECT json_array_elements('1');
SELECT * FROM json_each('[1]');
SELECT * FROM json_object_keys('[1]');
SELECT jsonb_array_elements(NULL);

-- subscripts
SELECT generate_subscripts(ARRAY[5, 6, 7], 1);
SELECT generate_subscripts(ARRAY[5, 6, 7], 1, true);
SELECT generate_subscripts(ARRAY[5, 6, 7], 2);
SELECT l.id, i, l.ia[i] FROM lists l, generate_subscripts(l.ia, 1) i;

-- in the select list
SELECT generate_series(1, 3);
SELECT generate_series(1, 3) AS g, 'x';
SELECT unnest(ARRAY[1, 2]), unnest(ARRAY['a', 'b', 'c']);
SELECT generate_series(1, 2), generate_series(1, 4);
SELECT id, unnest(ia) FROM lists;
SELECT id, unnest(ia) AS x FROM lists ORDER BY id, x NULLS FIRST;
SELECT id, unnest(ta) FROM lists WHERE id = 3 ORDER BY id;
SELECT id, unnest(ia) FROM lists ORDER BY id DESC LIMIT 3;
SELECT generate_series(1, 3) + 10;
SELECT generate_series(1, 3) * generate_series(1, 2);
SELECT -generate_series(1, 2) AS n;
SELECT DISTINCT unnest(ARRAY[1, 1, 2]);
SELECT unnest(ARRAY[3, 1, 2]) ORDER BY 1;
SELECT unnest(ARRAY[3, 1, 2]) AS u ORDER BY u DESC;
SELECT dept, generate_series(1, count(*)) FROM people GROUP BY dept;
SELECT count(*), generate_series(1, 2) FROM people;
SELECT sum(x) FROM (SELECT unnest(ia) AS x FROM lists) t;
SELECT id FROM people WHERE id IN (SELECT generate_series(1, 3));
SELECT generate_series(1, 3) LIMIT 2;
SELECT id, generate_series(1, 2) AS g, row_number() OVER (ORDER BY id) FROM depts WHERE id < 3;
SELECT generate_series(1, 2) UNION ALL SELECT 9;
SELECT id FROM people WHERE generate_series(1, 2) = 1;
SELECT id FROM people GROUP BY id HAVING generate_series(1, 2) = 1;
SELECT sum(generate_series(1, 3));
SELECT CASE WHEN true THEN generate_series(1, 2) END;
SELECT coalesce(generate_series(1, 2), 0);
SELECT id FROM people JOIN depts USING (id) WHERE unnest(ARRAY[true]);
SELECT id FROM people LIMIT generate_series(1, 2);
VALUES (generate_series(1, 2));
-- regexp_matches
SELECT regexp_matches('foobarbequebaz', '(bar)(beque)'), regexp_matches('foobarbequebaz', 'ba.', 'g');
SELECT regexp_matches('abc', 'x'), 1;
SELECT id, m FROM people, regexp_matches(name, '([aeiou])(.)', 'g') AS m ORDER BY id, m;
SELECT m[1], n FROM regexp_matches('a1b22', '[a-z](\d+)', 'g') WITH ORDINALITY AS t (m, n);
SELECT id, (regexp_matches(name, '(.)a'))[1] FROM people ORDER BY id;
SELECT regexp_matches('a', '(a)|(b)', 'g'), regexp_matches('A', 'a', 'i');
SELECT regexp_matches('a', '(');
SELECT regexp_matches('a', 'a', 'z');
-- records of JSON
SELECT * FROM jsonb_to_recordset('[{"a": 1, "b": "x"}, {"a": "2", "c": 3}, {"b": null}, {"b": {"k": 1}}]') AS t (a int, b text);
SELECT * FROM json_to_recordset('[{"a": 1.50, "d": "2024-02-29", "l": [1, null, 3], "j": {"k": [1]}, "f": true}]') AS t (a numeric(6, 2), d date, l int[], j json, f boolean, missing text);
SELECT t.a + 1, upper(b) FROM json_to_record('{"a": 1, "b": "x"}') AS t (a int, b text);
SELECT * FROM jsonb_to_record('{"a": ["x", "y \"q\"", "{z}"], "b": [{"k": 1}], "c": "{1,2}"}') AS t (a text[], b jsonb[], c int[]);
SELECT d.id, t.x FROM docs d, jsonb_to_recordset(d.jb -> 'list') AS t (x int) ORDER BY d.id, t.x;
SELECT count(*) FROM jsonb_to_recordset('[]') AS t (x int);
SELECT * FROM jsonb_to_recordset('[{"a": "x"}]') AS t (a int);
SELECT * FROM jsonb_to_recordset('[1]') AS t (a int);
SELECT * FROM jsonb_to_recordset('{}') AS t (a int);
SELECT * FROM jsonb_to_record('[]') AS t (a int);
SELECT * FROM jsonb_to_recordset('[]');
SELECT * FROM jsonb_to_recordset('[]') AS t;
-- the columns of a function in a select list
SELECT id, (jsonb_each(jb -> 'b')).* FROM docs ORDER BY 1, 2;
SELECT id, (jsonb_each_text(jb)).key FROM docs WHERE id IN (1, 9) ORDER BY 1, 2;
SELECT (json_each('{"a": 1, "b": [2]}')).value, (json_each('{"a": 1, "b": [2]}')).key;
SELECT (jsonb_each('{}')).nope;
