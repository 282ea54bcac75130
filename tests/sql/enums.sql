-- Chapter 8.7: enumerated types; 9.10: their functions
-- literals and casts
SELECT 'sad'::mood, 'ok'::public.mood, CAST('happy' AS mood), ''::mood, 'Über "quoted" {1}'::mood;
SELECT 'bad'::mood;
SELECT 'Sad'::mood;
SELECT ' sad'::mood;
SELECT NULL::mood, NULL::mood[];
SELECT 'sad'::nosuch;
SELECT 'sad'::public.nosuch;
SELECT 'sad'::mood::text, 'sad'::mood::varchar(2), 'ok'::mood::char(4) || '|', 'ok'::text::mood, 'ok'::varchar::mood;
SELECT 'ok'::mood::text::color, 'ok'::color::text;
SELECT 'ok'::mood::color;
SELECT 1::mood;
SELECT 'sad'::mood::int;
SELECT true::mood;
SELECT id, m::text, n::varchar(3), m::text || '!', ms::text FROM moods;
SELECT id, s::mood FROM moods WHERE s <> 'none';
SELECT id, s::mood FROM moods;
SELECT id, ms::text[], ARRAY[s]::mood[] FROM moods WHERE s <> 'none';
SELECT pg_typeof('sad'::mood)::text, pg_typeof('{sad}'::mood[])::text, pg_typeof(m)::text FROM moods WHERE id = 1;
-- comparisons are by the order of the labels
SELECT 'sad'::mood < 'ok', 'sad'::mood < 'happy', 'happy'::mood < 'ok', 'ok' >= 'ok'::mood, 'ok' <> 'sad'::mood, ''::mood > 'happy';
SELECT id, m = n, m <> n, m < n, m <= n, m > n, m >= n FROM moods;
SELECT id FROM moods WHERE m = 'sad';
SELECT id FROM moods WHERE m > 'sad' AND m < '';
SELECT id FROM moods WHERE m IN ('sad', 'happy', NULL);
SELECT id FROM moods WHERE m NOT IN ('sad', 'happy');
SELECT id FROM moods WHERE m BETWEEN 'ok' AND 'happy';
SELECT id, m IS DISTINCT FROM n, m IS NOT DISTINCT FROM n, m IS NULL FROM moods;
SELECT id FROM moods WHERE m = ANY ('{sad,ok}');
SELECT id FROM moods WHERE m = ANY (ms);
SELECT id FROM moods WHERE m <> ALL (ms);
SELECT id FROM moods WHERE m = 'nosuch';
SELECT id FROM moods WHERE m = 'sad'::text;
SELECT id FROM moods WHERE m::text = s;
SELECT id FROM moods WHERE m = s;
SELECT id FROM moods WHERE m = 'ok'::color;
SELECT id FROM moods WHERE m = 1;
SELECT id FROM moods WHERE m LIKE 's%';
SELECT id FROM moods WHERE m::text LIKE 's%';
SELECT (m, id) = ('sad', 2), (m, n) < ('ok', 'ok') FROM moods;
-- order
SELECT id, m FROM moods ORDER BY m, id;
SELECT id, m FROM moods ORDER BY m DESC, id;
SELECT id, m FROM moods ORDER BY m NULLS FIRST, id DESC;
SELECT id, m FROM moods ORDER BY m USING >, id;
SELECT id, m FROM moods ORDER BY m::text, id;
SELECT id, ms FROM moods ORDER BY ms, id;
SELECT m FROM moods ORDER BY m LIMIT 3;
SELECT DISTINCT m FROM moods ORDER BY m;
SELECT DISTINCT ON (m) m, id FROM moods ORDER BY m, id DESC;
-- aggregates
SELECT min(m), max(m), count(m), count(DISTINCT m) FROM moods;
SELECT min(m), max(n) FROM moods WHERE m > 'happy';
SELECT m, count(*), min(n), max(n) FROM moods GROUP BY m ORDER BY m;
SELECT m, count(*) FROM moods GROUP BY m HAVING m > 'sad' ORDER BY m;
SELECT array_agg(m ORDER BY m), array_agg(m ORDER BY id DESC), array_agg(DISTINCT n) FROM moods;
SELECT string_agg(m::text, ',' ORDER BY m) FROM moods;
SELECT string_agg(m, ',') FROM moods;
SELECT sum(m) FROM moods;
SELECT mode() WITHIN GROUP (ORDER BY m), percentile_disc(0.5) WITHIN GROUP (ORDER BY m) FROM moods;
SELECT json_agg(m ORDER BY id), jsonb_agg(m ORDER BY id) FROM moods;
SELECT jsonb_object_agg(m, id ORDER BY id) FROM moods WHERE m IS NOT NULL AND id < 4;
SELECT bool_or(m = 'happy'), bool_and(m < '') FROM moods;
SELECT max(ms), min(ms) FROM moods;
SELECT any_value(m) FROM moods WHERE id = 3;
-- windows
SELECT id, row_number() OVER (ORDER BY m, id), rank() OVER (ORDER BY m), dense_rank() OVER (ORDER BY m DESC) FROM moods;
SELECT id, lag(m) OVER (ORDER BY id), lead(m, 2) OVER (ORDER BY id), first_value(m) OVER (ORDER BY m), max(m) OVER (ORDER BY id) FROM moods;
SELECT id, lag(m, 1, 'happy') OVER (ORDER BY id) FROM moods;
SELECT id, count(*) OVER (PARTITION BY m) FROM moods;
-- functions of enumerated types
SELECT enum_first(NULL::mood), enum_last('ok'::mood), enum_range(NULL::mood), enum_range('ok'::mood);
SELECT enum_range('ok'::mood, 'happy'), enum_range(NULL, 'ok'::mood), enum_range('happy'::mood, NULL), enum_range('happy', 'ok'::mood);
SELECT id, enum_first(m), enum_last(n), enum_range(m, n) FROM moods;
SELECT enum_first(NULL);
SELECT enum_first('sad');
SELECT enum_range(1);
SELECT enum_range('ok'::mood, 'ok'::color);
SELECT unnest(enum_range(NULL::mood));
SELECT x, n FROM unnest(enum_range(NULL::mood)) WITH ORDINALITY AS e(x, n);
-- conditional expressions
SELECT coalesce(NULL, 'ok'::mood), nullif('ok'::mood, 'ok'), greatest('sad'::mood, 'happy', 'ok'), least('happy'::mood, 'ok');
SELECT id, coalesce(m, 'sad'), nullif(m, n), greatest(m, n), least(m, n) FROM moods;
SELECT id, CASE m WHEN 'sad' THEN 1 WHEN 'ok' THEN 2 ELSE 3 END, CASE WHEN id > 4 THEN m ELSE 'happy' END FROM moods;
SELECT CASE WHEN true THEN 'ok'::mood ELSE 'ok'::color END;
SELECT coalesce('ok'::mood, 'x'::text);
SELECT coalesce(m, 'nosuch') FROM moods;
-- arrays
SELECT '{sad,NULL,"",happy}'::mood[], ARRAY['sad', 'ok']::mood[], ARRAY['ok'::mood, 'sad'], '{nosuch}'::mood[];
SELECT '{sad,NULL,"",happy}'::mood[], ARRAY['sad', 'ok']::mood[], ARRAY['ok'::mood, 'sad'], ARRAY[]::mood[];
SELECT id, ms[1], ms[2:3], array_length(ms, 1), cardinality(ms) FROM moods;
SELECT id, array_append(ms, 'ok'), array_prepend('sad', ms), ms || 'happy'::mood, ms || ms FROM moods;
SELECT id, array_position(ms, 'ok'), array_positions(ms, 'ok'), array_remove(ms, 'ok'), array_replace(ms, 'ok', 'sad') FROM moods;
SELECT id, ms @> '{ok}', ms <@ '{sad,ok}', ms && '{happy}', ms = '{sad}', ms < '{ok}' FROM moods;
SELECT id, array_to_string(ms, ',', '*') FROM moods;
SELECT id, x FROM moods, unnest(ms) x ORDER BY x, id;
SELECT 'ok' = ANY (enum_range(NULL::mood)), 'sad'::mood = ALL ('{sad,sad}');
SELECT ARRAY['ok'::mood, 'ok'::color];
-- strings
SELECT 'sad'::mood || '!', '!' || 'ok'::mood, concat('ok'::mood, 1, NULL, 'sad'::mood), concat_ws('-', 'ok'::mood, 'sad'::mood);
SELECT id, m || '!', concat(m, n), concat_ws('-', m, n), format('%s %L', m, n) FROM moods;
SELECT quote_literal('ok'::mood), quote_nullable(NULL::mood);
SELECT upper('ok'::mood);
SELECT length(m) FROM moods;
SELECT upper(m::text), length(m::text), left(m::text, 2) FROM moods;
-- rows and JSON
SELECT row(m, n), row(m, id) = row('sad'::mood, 2) FROM moods;
SELECT to_json(m), to_jsonb(m), to_jsonb(ms), jsonb_build_object('m', m, 'ms', ms), json_build_array(m, n) FROM moods;
SELECT row_to_json(moods) FROM moods;
SELECT to_jsonb(moods) FROM moods;
SELECT jsonb_build_object(m, id) FROM moods WHERE id = 1;
-- joins, set operations, subqueries
SELECT a.id, b.id FROM moods a JOIN moods b ON a.m = b.n ORDER BY 1, 2;
SELECT a.id, b.id FROM moods a LEFT JOIN moods b ON a.m > b.m AND b.id < 3 ORDER BY 1, 2;
SELECT a.id, a.m FROM moods a JOIN (VALUES ('ok'::mood, 1), ('sad', 2)) v(m, k) USING (m) ORDER BY k, a.id;
SELECT m FROM moods UNION SELECT n FROM moods ORDER BY 1;
SELECT m FROM moods INTERSECT SELECT 'ok' ORDER BY 1;
SELECT m FROM moods EXCEPT SELECT 'ok'::mood ORDER BY 1;
SELECT m FROM moods UNION SELECT 'ok'::color;
SELECT m FROM moods UNION SELECT s FROM moods;
SELECT id FROM moods WHERE m = (SELECT max(m) FROM moods WHERE m < '') ORDER BY id;
SELECT id FROM moods WHERE m IN (SELECT n FROM moods WHERE id > 5) ORDER BY id;
SELECT id, (SELECT count(*) FROM moods b WHERE b.m < a.m) FROM moods a ORDER BY id;
WITH RECURSIVE r(m, k) AS (SELECT 'sad'::mood, 1 UNION ALL SELECT 'ok', k + 1 FROM r WHERE k < 2) SELECT * FROM r;
SELECT count(*) FROM moods GROUP BY ROLLUP (m) ORDER BY m, count(*);
SELECT m, n, count(*) FROM moods GROUP BY GROUPING SETS ((m), (n)) ORDER BY 1, 2;
SELECT v FROM (VALUES ('ok'::mood), ('sad'), (NULL)) AS t(v) ORDER BY v;
SELECT mood FROM (SELECT 'ok'::mood) x;
