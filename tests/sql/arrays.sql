-- Chapter 9.19: array functions and operators; 8.15: arrays
-- comparisons
SELECT id, ia = '{1,2,3}', ia <> '{1,2,3}', ia < '{1,2,3}', ia <= '{1,2,3}', ia > '{1,2,3}', ia >= '{1,2,3}' FROM lists;
SELECT id, ia = '{3,NULL,1,3}', ia < '{3,NULL,1,3}', ia > '{3,1}', ia < '{3,NULL}' FROM lists;
SELECT id, ta = '{a,b,c}', ta < '{b}', ta > '{A}', ta <= '{"with space",NULL,"quo\"te",""}' FROM lists;
SELECT id, na = '{1.5,2.25}', na < '{1.500,3}', na >= '{-1}' FROM lists;
SELECT id, fa = '{NaN,Infinity}', fa < '{NaN}', fa > '{1e300}', fa = '{-0}' FROM lists;
SELECT id, da = '{2024-01-01,2024-02-29}', da < '{2000-01-01}' FROM lists;
SELECT id, ba = '{t,f}', ba < '{t}', ba > '{f}' FROM lists;
SELECT ARRAY[1,2] = ARRAY[1,2], ARRAY[1,2] <> ARRAY[2,1], ARRAY[1,2] < ARRAY[1,2,3], ARRAY[2] > ARRAY[1,9,9];
SELECT ARRAY[1.0, 2] = ARRAY[1, 2.00], ARRAY[NULL::int] = ARRAY[NULL::int], ARRAY[]::int[] = '{}', ARRAY[1] < ARRAY[NULL::int];
SELECT ARRAY['a','b'] = ARRAY['a','b'], ARRAY['a'] < ARRAY['B'], ARRAY['ä'] > ARRAY['z'];
SELECT ARRAY['a '::char(3)] = ARRAY['a'::char(2)], ARRAY['NaN'::float8] = ARRAY['NaN'::float8], ARRAY['-0'::float8] = ARRAY[0::float8];
SELECT ARRAY['1'::jsonb] = ARRAY['1.0'::jsonb], ARRAY['{"a":1}'::jsonb] < ARRAY['[1]'::jsonb];
SELECT ARRAY['1'::json] = ARRAY['1'::json];
SELECT ARRAY[1] = ARRAY['a'];
SELECT ARRAY[1] = 1;
SELECT ARRAY[1,2] = ARRAY[1,2]::bigint[];
SELECT ia IS DISTINCT FROM '{1}', ia IS NOT DISTINCT FROM NULL FROM lists;
SELECT id FROM lists WHERE ia IN ('{1}', '{1,2,3}', NULL);
-- containment and overlap
SELECT id, ia @> '{1}', ia @> '{3,1}', ia @> '{}', ia @> '{NULL}', ia <@ '{1,2,3,4}', ia && '{1,9}', ia && '{NULL}', ia && '{}' FROM lists;
SELECT id, ta @> '{a}', ta <@ '{a,b,c,d}', ta && '{"",x}', ta && '{NULL}' FROM lists;
SELECT id, na @> '{1.5}', fa @> '{NaN}', da && '{2000-01-01}', ba <@ '{t}' FROM lists;
SELECT ARRAY[1,4,3] @> ARRAY[3,1,3], ARRAY[2,2,7] <@ ARRAY[1,7,4,2,6], ARRAY[1,4,3] && ARRAY[2,1];
SELECT ARRAY[1,2] @> ARRAY[]::int[], ARRAY[]::int[] <@ ARRAY[1], ARRAY[NULL::int] @> ARRAY[NULL::int], NULL::int[] && ARRAY[1];
SELECT ARRAY['NaN'::float8, 1] @> ARRAY['NaN'::float8], ARRAY['-0'::float8] && ARRAY[0::float8];
SELECT ARRAY[1] @> ARRAY['a'];
SELECT ARRAY[1] && 1;
-- concatenation
SELECT id, ia || 4, 0 || ia, ia || ia, ia || NULL::int, NULL::int[] || ia FROM lists;
SELECT id, ta || 'x'::text, 'x'::text || ta, ta || ARRAY['y', NULL] FROM lists;
SELECT id, na || 9.5, na || ARRAY[1, 2.345], 7 || na FROM lists;
SELECT ARRAY[1,2] || ARRAY[3], ARRAY[1] || 2, 0 || ARRAY[1], ARRAY[1] || '{2,3}', NULL || ARRAY[1], ARRAY[1] || NULL;
SELECT ARRAY[1] || 2.5, 1.5 || ARRAY[1], ARRAY[1] || ARRAY[2.5], ARRAY[1::int2] || 3000000000;
SELECT ARRAY[1,2] || '7';
SELECT ARRAY['a'] || 'b'::text, 'b'::text || ARRAY['a'], ARRAY['a'] || ARRAY[]::text[];
SELECT ARRAY[1] || 'a'::text;
SELECT ARRAY[1] || ARRAY['a'];
SELECT array_append(ia, 9), array_append(ia, NULL), array_prepend(9, ia), array_prepend(NULL, ia), array_cat(ia, '{8,9}'), array_cat(ia, NULL) FROM lists;
SELECT array_append(ARRAY[1,2], 3), array_append(NULL, 1), array_append(ARRAY[1], 1.5), array_append(ARRAY[]::text[], '');
SELECT array_cat(ARRAY[1,2], ARRAY[3]), array_cat(NULL::int[], NULL), array_cat(ARRAY['a'], ARRAY[NULL]), array_prepend(1, ARRAY[2.50]);
SELECT array_append(1, 2);
SELECT array_append(ARRAY[1], 'x');
SELECT array_append(ARRAY[1], true);
-- sizes
SELECT id, array_length(ia, 1), array_length(ia, 2), array_upper(ia, 1), array_lower(ia, 1), array_ndims(ia), array_dims(ia), cardinality(ia) FROM lists;
SELECT id, array_length(ta, 1), array_dims(ta), cardinality(ta), cardinality(ba), array_ndims(da) FROM lists;
SELECT array_length(ARRAY[1,2,3], 1), array_length(ARRAY[]::int[], 1), array_length(ARRAY[1], 0), array_length(ARRAY[1], -1), array_length(ARRAY[1], NULL);
SELECT array_upper(ARRAY[1,8,3,7], 1), array_lower(ARRAY[1,8], 1), array_lower('{}'::int[], 1), array_ndims(ARRAY[1]), array_ndims('{}'::text[]);
SELECT array_dims(ARRAY[1,2,3]), array_dims('{}'::int[]), cardinality(ARRAY[1,NULL]), cardinality('{}'::text[]), cardinality(NULL::int[]);
SELECT array_dims(NULL);
SELECT cardinality('a'::text);
SELECT array_fill(7, ARRAY[3]), array_fill(NULL::int, ARRAY[2]), array_fill('x'::text, ARRAY[1]), array_fill(1.50, ARRAY[2]), array_fill(1, '{}'), array_fill(1, '{0}');
SELECT array_fill(11, ARRAY[2], ARRAY[1]);
SELECT id, array_fill(id, ARRAY[2]) FROM lists;
SELECT array_fill(1, NULL);
SELECT array_fill(1, ARRAY[NULL::int]);
SELECT array_fill(1, ARRAY[-1]);
SELECT array_fill(1, ARRAY[2], ARRAY[1,1]);
-- searching
SELECT id, array_position(ia, 3), array_position(ia, NULL), array_position(ia, 3, 2), array_positions(ia, 3), array_positions(ia, NULL) FROM lists;
SELECT id, array_position(ta, 'b'), array_position(ta, ''), array_positions(ta, 'NULL'), array_position(fa, 'NaN'), array_position(na, 2.25), array_position(da, '2000-01-01', 2) FROM lists;
SELECT array_position(ARRAY['sun','mon','tue','mon'], 'mon'), array_position(ARRAY['sun','mon'], 'x'), array_position(ARRAY[1,2,3,2], 2, 3), array_position(ARRAY[1,2], 2, -5);
SELECT array_position(ARRAY[1], 1, NULL);
SELECT array_position(NULL::int[], 1), array_position(ARRAY[1, 2.5], 2.50), array_position(ARRAY[1,2], 2.0), array_position(ARRAY[NULL, 1], NULL::int);
SELECT array_positions(ARRAY['A','A','B','A'], 'A'), array_positions(ARRAY[1], 2), array_positions(NULL::text[], 'a'), array_positions(ARRAY['a'::char(3)], 'a');
SELECT array_position(ARRAY[1], 'x');
SELECT id, array_remove(ia, 3), array_remove(ia, NULL), array_replace(ia, 3, 30), array_replace(ia, NULL, 0), array_replace(ia, 1, NULL) FROM lists;
SELECT id, array_remove(ta, 'a'), array_replace(ta, '', 'empty'), array_remove(fa, 'NaN'), array_remove(na, 1.5), array_replace(ba, true, NULL) FROM lists;
SELECT array_remove(ARRAY[1,2,3,2], 2), array_remove(ARRAY[1,NULL,2], NULL), array_remove(NULL::int[], 1), array_remove(ARRAY['-0'::float8, 0], 0);
SELECT array_replace(ARRAY[1,2,5,4], 5, 3), array_replace(ARRAY[1,NULL], NULL, 9), array_replace(ARRAY['a'], 'a', NULL), array_replace(ARRAY[1], 1, 2.5);
SELECT id, trim_array(ia, 0) FROM lists WHERE ia IS NOT NULL;
SELECT trim_array(ARRAY[1,2,3,4,5,6], 2), trim_array(ARRAY['a'], 1), trim_array('{}'::int[], 0), trim_array(NULL::int[], 1), trim_array(ARRAY[1], NULL);
SELECT trim_array(ARRAY[1,2], 3);
SELECT trim_array(ARRAY[1,2], -1);
SELECT id, trim_array(ia, 2) FROM lists WHERE id = 6;
-- text
SELECT id, array_to_string(ia, ','), array_to_string(ia, ',', '*'), array_to_string(ta, '|'), array_to_string(ta, '', 'NULL'), array_to_string(na, ' '), array_to_string(fa, ';'), array_to_string(da, ','), array_to_string(ba, ',', '?') FROM lists;
SELECT array_to_string(ARRAY[1,2,NULL,5], ',', '*'), array_to_string(ARRAY[1,2,NULL,5], ','), array_to_string(ARRAY[]::int[], ','), array_to_string(NULL::int[], ','), array_to_string(ARRAY[1], NULL), array_to_string(ARRAY[1,NULL], ',', NULL);
SELECT array_to_string(ARRAY[1.5::float8, 'NaN'], ','), array_to_string(ARRAY[true,false], ','), array_to_string(ARRAY['\x01'::bytea], ','), array_to_string(ARRAY[1.50, 2], ',');
SELECT id, string_to_array(s, ','), string_to_array(s, ','), string_to_array(s, ',', ''), string_to_array(s, NULL), string_to_array(s, '') FROM strs;
SELECT string_to_array('xx~~yy~~zz', '~~'), string_to_array('xx~~yy~~zz', '~~', 'yy'), string_to_array('', ','), string_to_array(NULL, ','), string_to_array('abc', NULL), string_to_array('äö', NULL, 'ö');
SELECT string_to_array('a,b,', ','), string_to_array(',', ','), string_to_array('aXbXc', 'x'), string_to_array('a,NULL', ',', 'NULL'), string_to_array('abc', '', 'abc');
-- subscripts and slices
SELECT ia[1][1], ia[1][1][1], ia[1:2][1:1], ia[1][1:2], ia[:][:], (ta)[1][2] IS NULL FROM lists;
SELECT (ARRAY[1,2])[1][2], (ARRAY[1,2])[2][1:1], ('{}'::int[])[1][1], (NULL::int[])[1:1][1:1];
SELECT (ARRAY[1,2])['x'][1];
SELECT (ARRAY[1,2])[1][true];
SELECT (5)[1][2];
SELECT id, ia[1], ia[2], ia[0], ia[-1], ia[100], ia[id], ta[1], na[2], fa[1], da[1], ba[2] FROM lists;
SELECT id, ia[1:2], ia[2:], ia[:2], ia[:], ia[0:1], ia[3:2], ia[NULL:2], ta[2:3], na[1:1], ia[id:id+1] FROM lists;
SELECT (ARRAY[1,2,3])[2], (ARRAY[1,2,3])[4], (ARRAY['a','b'])[NULL], ('{5,6}'::int[])[1], (string_to_array('a b c', ' '))[3];
SELECT (ARRAY[1,2,3])[2:3], (ARRAY[1,2,3])[:1], (ARRAY[1,2,3])[2:], (ARRAY[1,2,3])[-5:2], (ARRAY[1,2,3])[5:9];
SELECT (ARRAY[1,2,3])[1.6], (ARRAY[1,2,3])['2'], (ARRAY[1,2,3])[2::bigint];
SELECT (ARRAY[1,2])['a'];
SELECT (ARRAY[1,2])[true];
SELECT (5)[1];
SELECT id, s[1] FROM strs;
SELECT id, ia[1] + ia[2], ta[1] || '!', upper(ta[2]) FROM lists WHERE ia[1] > 0;
-- ANY, SOME, ALL
SELECT id, 3 = ANY (ia), 3 = SOME (ia), 3 = ALL (ia), 3 <> ALL (ia), 2 < ANY (ia), 2 >= ALL (ia), NULL = ANY (ia) FROM lists;
SELECT id, 'a' = ANY (ta), 'NULL' <> ALL (ta), 'b' > ANY (ta), '' = ANY (ta) FROM lists;
SELECT id, i4, i4 = ANY ('{1,100,NULL}'), i4 <> ALL ('{1,100}'), i8 = ANY (ARRAY[1, 42]), n > ALL (ARRAY[0, 2.25]), f8 = ANY ('{NaN,2.5}') FROM nums;
SELECT id, s LIKE ANY (ARRAY['a%', '%5', NULL]), s LIKE ALL (ARRAY['%', '%b%']), s ILIKE ANY ('{A%}'), s ~ ANY (ARRAY['^\d+$', 'x']), s NOT LIKE ALL ('{a%,%5}') FROM strs;
SELECT 1 = ANY (ARRAY[1,2]), 1 = ALL (ARRAY[1,2]), 5 = ANY ('{}'::int[]), 5 = ALL ('{}'::int[]), 1 = ANY (NULL::int[]), 1.0 = ANY (ARRAY[1,2]), 1 = ANY (ARRAY[1.0]);
SELECT 3 = ANY (ARRAY[1,NULL]), 1 <> ALL (ARRAY[1,NULL]), 2 <> ALL (ARRAY[1,NULL]), 'x' = ANY ('{x,y}'), '{"a":1}'::jsonb @> ANY (ARRAY['{}'::jsonb, '1']);
SELECT id, jb @> ANY (ARRAY['{"a": 1}', '[1]']::jsonb[]), jb = ANY (ARRAY['12.5', 'null']::jsonb[]) FROM docs;
SELECT 1 = ANY (1);
SELECT 1 = ANY (ARRAY['a']);
SELECT 1 = ANY ('{a}');
-- constructors and literals
SELECT ARRAY[1,2,3], ARRAY[1,NULL], ARRAY[NULL,NULL]::int[], ARRAY[1,2.5], ARRAY['a',NULL,''], ARRAY[true,NULL], ARRAY[1::int2, 2::int8], ARRAY[1, 1.5::float8];
SELECT ARRAY[id, id + 1], ARRAY[s, 'x'], ARRAY[v, c], ARRAY[u], ARRAY[b] FROM strs;
SELECT ARRAY[n, 1], ARRAY[f8, 1], ARRAY[i2, i8], ARRAY[i4] FROM nums;
SELECT ARRAY[d, '2020-01-01'], ARRAY[ts, d], ARRAY[tz], ARRAY[t] FROM times WHERE id <> 6;
SELECT ARRAY[];
SELECT ARRAY[]::text[], ARRAY[]::numeric(5,1)[], '{}'::bool[], '{ }'::int[];
SELECT ARRAY[1,'a'];
SELECT ARRAY[1,true];
SELECT ARRAY['1', 2], ARRAY[1, '2'];
SELECT '{1,2,3}'::int[], ' { 1 , NULL , null } '::int[], '{"a b",c\"d,"e\"f","NULL",NULL}'::text[], '{t,false,on}'::bool[], '{1e3,NaN,-Infinity}'::float8[];
SELECT '{1.255,-0.005}'::numeric(4,2)[], '{abc,de}'::varchar(2)[], '{a,bcd}'::char(2)[], '{2020-01-01,NULL}'::date[], '{12:30}'::time[], '{"2020-01-01 10:00"}'::timestamp[], '{"2020-01-01 10:00+02"}'::timestamptz[];
SELECT '{"\\x01ff"}'::bytea[], '{A0EEBC999C0B4EF8BB6D6BB9BD380A11}'::uuid[], '{"{\"a\": 1}"}'::jsonb[], '{"{\"a\":1}"}'::json[], '{32767}'::int2[], '{-9223372036854775808}'::int8[], '{1.5}'::float4[];
SELECT '{1,2'::int[];
SELECT '1,2'::int[];
SELECT '{1,a}'::int[];
SELECT '{1,,2}'::int[];
SELECT '{1}x'::int[];
SELECT '{"a}'::text[];
SELECT '{99999}'::int2[];
SELECT '{123.45}'::numeric(3,2)[];
-- casts
SELECT id, ia::text, ta::text, na::text, fa::text, da::text, ba::text, ia::varchar(3) FROM lists;
SELECT id, ia::bigint[], ia::text[], ia::float8[], ia::numeric[], na::int[], na::text[], fa::text[], da::text[], da::timestamp[], ba::text[], ba::int[] FROM lists;
SELECT id, ia::text::int[], ta::text::text[], ta::varchar(2)[], na::numeric(6,1)[] FROM lists;
SELECT ARRAY[1,2]::text, ARRAY['a b',NULL,'','"','\','x,y','{']::text, ARRAY[true]::text, ARRAY['\x01'::bytea]::text, ARRAY['2020-01-01 01:02:03'::timestamp]::text, ARRAY[1.50, 2]::text;
SELECT ARRAY[1,2]::text[], ARRAY['1','2']::int[], ARRAY[1.5,2.5]::int[], ARRAY[2.5::float8]::int[], ARRAY[0,1]::bool[], ARRAY['t','f']::bool[], ARRAY[1]::varchar(1)[];
SELECT ARRAY['x']::int[];
SELECT ARRAY[1.5]::bool[];
SELECT ARRAY[3000000000]::int[];
SELECT ARRAY[1]::int;
SELECT 1::int[];
SELECT id, ia::smallint[] FROM lists WHERE id = 5;
SELECT id, ta::int[] FROM lists WHERE id = 2;
SELECT id, s::text[] FROM strs WHERE id = 2;
-- more than one dimension
SELECT array_length(ARRAY[1,2], 2), array_upper(ARRAY[1], 3);
-- array order, grouping and aggregation
SELECT DISTINCT ia FROM lists;
SELECT ia, count(*) FROM lists GROUP BY ia;
SELECT id FROM lists ORDER BY ia, id;
SELECT id FROM lists ORDER BY ta DESC NULLS LAST, id;
SELECT id, CASE WHEN ia = '{}' THEN ARRAY[0] ELSE ia END, coalesce(ia, ARRAY[-1]), nullif(ia, '{1}'), greatest(ia, '{2}'), least(ia, '{2}') FROM lists;
SELECT ARRAY(SELECT id FROM lists WHERE id < 4 ORDER BY id DESC), ARRAY(SELECT ta[1] FROM lists WHERE id = 99);
SELECT id, ARRAY(SELECT p.name FROM people p WHERE p.dept = d.id ORDER BY p.id) FROM depts d;
SELECT ARRAY(SELECT NULL::int FROM lists WHERE id < 3);

-- of two dimensions
SELECT ARRAY[['a', 'b']]::text[];
SELECT CAST(ARRAY[[1, 2], [3, 4]] AS int[]);
SELECT ARRAY['{1,2}'::int[]]::text[];
SELECT ARRAY[[]]::int[];
SELECT '{{1,2},{3,4}}'::int[];
SELECT '{1,2}'::int[3], CAST('{a,NULL}' AS text[2]), '{1.50}'::numeric(5,2)[1], '{t}'::pg_catalog.bool[9];
SELECT ta || 'x' FROM lists;
SELECT ta || '{x,y}', 'x' || ta[1], ta || 'x'::text, '{z}' || ta FROM lists ORDER BY id;
SELECT 'x' || ta FROM lists;
SELECT id FROM lists WHERE ia[1]::int = 1 AND ia[2] > 0;
SELECT 33 * ANY ('{1,2,3}');
SELECT 33 + ALL (ARRAY[1, 2]);
SELECT 1 || ANY (ARRAY['a', 'b']);
SELECT 33 + ANY (SELECT 1);

-- ANY and ALL with operands that Python computes
SELECT id, jb->>'e' = ANY ('{text,x}'), jb->>'a' <> ALL (ARRAY['1', '5']), (jb->>'a')::int = ANY ('{1,5}') FROM docs WHERE id IN (1, 2, 4, 6);
SELECT id FROM docs WHERE NOT (jb->>'a' = ANY ('{1}'));
SELECT id, jb->>'e' LIKE ANY ('{t%,x}'), jb->>'e' NOT ILIKE ALL ('{T%,x}'), jb->>'e' ~ ANY ('{^t,x}'), jb->>'e' !~ ALL ('{^t,x}') FROM docs WHERE id < 4;
SELECT id, regexp_replace(ta[1], 'a', 'b') = ANY (ta), regexp_replace(ta[1], 'a', 'a') = ANY (regexp_split_to_array(ta[1], ',')) FROM lists;
SELECT count(*) FILTER (WHERE jb->>'e' = ANY ('{text}')), bool_or(jb->>'a' = ANY ('{1}')) FROM docs;
SELECT jb->>'e' = ANY ('{text}'), count(*) FROM docs GROUP BY 1 ORDER BY 1;
SELECT a.id, b.id FROM docs a JOIN docs b ON a.jb->>'a' = ANY (ARRAY[b.jb->>'a', '1']) ORDER BY 1, 2;
-- lengths and precisions of elements of columns
SELECT id, ta::varchar(3)[], ta::char(2)[], ta::char(12)[], ta::varchar(3)[]::varchar(5)[] FROM lists;
SELECT id, (SELECT max(m.ta) FROM lists m WHERE m.id = l.id)::varchar(1)[] FROM lists l;
-- names of array types in pg_type
SELECT '{1,2}'::_int4, '{a}'::_text, CAST('{1}' AS pg_catalog._int8), ARRAY[1,2]::_text;
SELECT '{1}'::_nothing;
