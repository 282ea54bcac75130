-- logic
SELECT true AND NULL, false AND NULL, NULL AND NULL::bool, true OR NULL, false OR NULL, NOT NULL, NOT true, true AND true AND false, false OR false OR true;
SELECT id, i2 > 0 AND i4 > 0, i2 > 0 OR i4 > 0, NOT i2 > 0, (i2 > 0) IS TRUE, (i2 > 0) IS NOT TRUE, (i2 > 0) IS FALSE, (i2 > 0) IS NOT FALSE, (i2 > 0) IS UNKNOWN, (i2 > 0) IS NOT UNKNOWN, i2 IS NULL, i2 IS NOT NULL, i2 ISNULL, i2 NOTNULL FROM nums;
SELECT true > false, true = true, false <> true, true >= false, false < NULL, true <= true, NULL IS UNKNOWN, true IS NOT UNKNOWN;
SELECT 1 AND true;
SELECT NOT 1;
SELECT 'x' IS TRUE;
-- integers, floats, numerics
SELECT 1 < 2, 1 <= 1, 2 > 1, 2 >= 3, 1 = 1, 1 <> 2, 1 != 1, 1::int2 < 2::int8, 1 = 1.0, 1.5 > 1, 1.50 = 1.5, 1::float8 = 1.0, 0.1::float8 = 0.1, 0.1::float4 = 0.1, 0.1::float4 = 0.1::float8, 9007199254740993 = 9007199254740992::float8, 9007199254740993 = 9007199254740992.0;
SELECT 'NaN'::float8 = 'NaN', 'NaN'::float8 > 'Infinity', 'NaN'::float8 < 1, 'NaN'::float8 <> 'NaN', 'NaN'::float4 >= 'NaN'::float8, '-0'::float8 = 0, '-Infinity'::float8 < -1e308, 'Infinity'::float8 >= 'Infinity';
SELECT id, i2 < i4, i4 = i8, i8 > f8, n = nb, n < f8, f4 = f8, nb <> i2, n >= 0, f4 < n FROM nums;
SELECT id, f8 = 'NaN', f8 > 1, f8 < 'NaN', f8 <= 'Infinity', f8 <> f8, f4 = 'NaN' FROM nums;
SELECT a.id, b.id FROM nums a JOIN nums b ON a.nb = b.n;
SELECT id FROM nums WHERE n = 0.0010 OR nb = 100.1250 OR n > 999999999.9989;
-- other types
SELECT 'a' < 'b', 'a' < 'B', '' < 'a', 'ab' > 'a', 'é' > 'z', 'a ' = 'a', 'a '::char(3) = 'a'::char(5), 'a '::varchar = 'a', '日' > 'é', '🙂' > '日', 'Z' < 'a';
SELECT id, s < 'b', s = 'abc', s >= 'ABC', v <> 'abc', c = 'abc', c = 'abc   ', c < v, s > v FROM strs;
SELECT id, b < '\x61', b = '\x', b >= '\x00ff10', u < 'b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', u = 'FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF' FROM strs;
SELECT '\x00'::bytea < '\x01', '\x'::bytea < '\x00', '\xff'::bytea > '\x7f00', '\x61'::bytea = 'a'::bytea;
SELECT id, d < '2000-01-01', d = '2024-02-29', t >= '12:34:56.789', ts > '2000-01-01', ts <= d, tz < '2000-01-01 00:00:00+00', d < ts, tz = ts, d <> tz FROM times;
SELECT date '2024-01-01' = timestamp '2024-01-01', date '2024-01-01' < timestamptz '2024-01-01 00:00:01+00', time '01:00' < '02:00', timestamp '2024-01-01 10:00' >= timestamptz '2024-01-01 10:00+02';
SELECT ARRAY[1,2] < ARRAY[1,3], ARRAY[1,2] = ARRAY[1,2], ARRAY[1] < ARRAY[1,1], ARRAY[NULL]::int[] = ARRAY[NULL]::int[], ARRAY[1,NULL] > ARRAY[1,2], '{}'::int[] < ARRAY[1], ARRAY['a','b'] >= ARRAY['a'], ARRAY[1,2] <> ARRAY[2,1];
SELECT '{"a":1}'::jsonb = '{"a": 1.0}', '[1]'::jsonb < '{}', '1'::jsonb < '"a"', 'null'::jsonb < '1', '[]'::jsonb < 'null', '{"a":1,"b":2}'::jsonb > '{"c":1}', 'true'::jsonb > 'false';
SELECT '{}'::json = '{}';
SELECT 1 = 'x';
SELECT 1 < true;
SELECT 'a'::text = 1;
SELECT date '2024-01-01' = 1;
SELECT ARRAY[1] = ARRAY['a'];
-- BETWEEN
SELECT 2 BETWEEN 1 AND 3, 2 NOT BETWEEN 1 AND 3, 2 BETWEEN 3 AND 1, 2 BETWEEN SYMMETRIC 3 AND 1, 2 NOT BETWEEN SYMMETRIC 3 AND 1, 2 BETWEEN NULL AND 1, 2 BETWEEN NULL AND 3, 'b' BETWEEN 'a' AND 'c', 1.5 BETWEEN 1 AND 2;
SELECT id, i4 BETWEEN 0 AND 42, i4 NOT BETWEEN -1 AND 1, n BETWEEN SYMMETRIC 10 AND -10, f8 BETWEEN -2 AND 3 FROM nums;
SELECT id, s BETWEEN 'A' AND 'b', v BETWEEN SYMMETRIC 'b' AND 'a' FROM strs;
-- IS DISTINCT FROM
SELECT 1 IS DISTINCT FROM 2, 1 IS DISTINCT FROM NULL, NULL IS DISTINCT FROM NULL, 1 IS NOT DISTINCT FROM 1, 'NaN'::float8 IS DISTINCT FROM 'NaN', 1 IS NOT DISTINCT FROM NULL, 'a' IS DISTINCT FROM 'a ';
SELECT id, i2 IS DISTINCT FROM i4, n IS NOT DISTINCT FROM nb, f8 IS DISTINCT FROM f4, i4 IS DISTINCT FROM NULL FROM nums;
SELECT id, s IS DISTINCT FROM v, c IS NOT DISTINCT FROM v, c IS DISTINCT FROM 'abc' FROM strs;
-- counting and choosing
SELECT num_nulls(1, NULL, 'a'), num_nonnulls(1, NULL, 'a'), num_nulls(NULL), num_nonnulls(1.5, true, NULL::date);
SELECT id, num_nulls(i2, n, f8), num_nonnulls(i4, i8, nb, NULL) FROM nums;
SELECT id, num_nulls(s, c, b, u) FROM strs;
SELECT num_nulls();
SELECT greatest(1, 2, 3), least(1, 2, 3), greatest(1, NULL, 3), least(NULL, NULL::int), greatest(1, 2.5), greatest('a', 'b'), least('2024-01-01'::date, '2023-01-01'), greatest(1.5::float8, 'NaN'), least('NaN'::float8, 1), greatest(true, false);
SELECT id, greatest(i2, i4, i8), least(n, nb), greatest(f8, f4), least(f8, 0), greatest(i4, n) FROM nums;
SELECT id, greatest(s, v), least(s, v, 'm') FROM strs;
SELECT greatest(1, 'x');
SELECT greatest(1, true);
-- IN and rows
SELECT 1 IN (1, 2), 3 IN (1, NULL), 1 NOT IN (2, 3), 1 NOT IN (2, NULL), NULL IN (1), 'a' IN ('a', 'b'), 1.0 IN (1, 2), 1 IN (1.0, 2.5);
SELECT id, i4 IN (0, 42, 13), n NOT IN (0, 2.5), f8 IN ('NaN', 1) FROM nums;
SELECT id, s IN ('abc', ''), c IN ('abc', '42'), v NOT IN ('abc', NULL) FROM strs;
SELECT (1, 2) = (1, 2), (1, 2) < (1, 3), (1, NULL) = (1, 2), (1, NULL) = (2, 2), (2, 1) > (1, 5), (1, 2) <> (1, 3);
