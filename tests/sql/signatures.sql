-- Functions and operators by argument types that no other file gives them.
-- Strings.
SELECT id, char_length(c), character_length(c), length(c) FROM strs;
SELECT id, pow(f8, 2), pow(f8, 0.5::float8) FROM nums WHERE id IN (1, 2, 6, 7, 10);
SELECT pow(f8, 0.5::float8) FROM nums WHERE id = 3;
SELECT id, substr(b, 2), substr(b, 0), substr(b, -1) FROM strs;
SELECT id, is_normalized(s, 'NFC'), is_normalized(s, 'NFD') FROM strs;
SELECT is_normalized('a', 'XYZ');
SELECT id, similar_to_escape(s), similar_to_escape(s, '#') FROM strs;
SELECT id, similar_escape(s, '\') FROM strs;
SELECT similar_to_escape('a', 'ab');
SELECT id, "like"(s, '%a%'), notlike(s, '%a%'), "like"(s, '') FROM strs;
SELECT id, regexp_instr(s, '[a-z]+', 1, 1, 0, 'i'), regexp_instr(s, '[A-Z]', 1, 1, 1, 'c') FROM strs;
SELECT id, regexp_substr(s, '[a-z]+', 1, 1, 'i'), regexp_substr(s, 'B', 1, 1, 'i') FROM strs;
SELECT regexp_instr('abc', 'b', 0, 1, 0, 'i');
SELECT regexp_substr('abc', 'b', 1, 0, 'i');
SELECT id, s !~ 'a', v !~ '^[a-c]', c !~ 'b$' FROM strs;
SELECT id, s !~* 'A', v !~* '^[A-C]', c !~* 'B$' FROM strs;
SELECT id, s NOT LIKE 'a#%%' ESCAPE '#', s ILIKE 'A#%%' ESCAPE '#', s NOT ILIKE 'A#%%' ESCAPE '#' FROM strs;
SELECT id, c NOT LIKE 'a%', c ILIKE 'A%', c NOT ILIKE 'A%', v NOT ILIKE '' FROM strs;
SELECT 'a' !~ '(';
SELECT s NOT LIKE 'a' ESCAPE 'xy' FROM strs;
SELECT s NOT ILIKE 'a\' FROM strs WHERE id = 2;
-- Absolute values.
SELECT id, @ i2, @ i4, @ i8 FROM nums WHERE id NOT IN (5);
SELECT id, @ f4, @ f8, @ n, @ nb FROM nums;
-- Variances by type.
SELECT stddev_samp(i4), stddev_samp(n), stddev_samp(f4), stddev_samp(f8) FROM nums WHERE id IN (1, 2, 3, 6, 7);
SELECT stddev_pop(i8), stddev_pop(f4), variance(i8), variance(f4) FROM nums WHERE id IN (1, 2, 3, 6, 7);
SELECT var_samp(i4), var_samp(f4), var_samp(f8), var_pop(i8) FROM nums WHERE id IN (1, 2, 3, 6, 7);
SELECT i2, stddev_samp(i4), stddev_pop(i8), variance(i8), var_samp(f4), var_pop(f8) FROM nums WHERE id NOT IN (4, 5) GROUP BY i2;
SELECT stddev_samp(f8), var_pop(f4), variance(n) FROM nums WHERE id = 6;
SELECT id, var_samp(i4) OVER (ORDER BY id), stddev_pop(n) OVER (ORDER BY id ROWS 2 PRECEDING) FROM nums WHERE id NOT IN (4, 5);
-- Dates.
SELECT (ts, iv) OVERLAPS (timestamp '2000-01-01', timestamp '2024-12-31') FROM times WHERE id IN (1, 2, 3, 4, 10);
SELECT (t, time '13:00') OVERLAPS (time '12:00', interval '2 hours') FROM times;
SELECT (t, interval '1 hour') OVERLAPS (time '12:00', time '12:30') FROM times;
SELECT (tz, iv) OVERLAPS (tz, interval '1 day') FROM times WHERE id < 4;
SELECT (d, d + 1) OVERLAPS (date '2000-01-01', interval '30 years') FROM times WHERE id < 5;
-- Sets.
SELECT * FROM generate_series(1::bigint, 10::bigint, 4::bigint);
SELECT id, x FROM nums, generate_series(i8, i8 + 2, 1::bigint) x WHERE id IN (1, 2, 6, 10);
SELECT generate_series(9223372036854775805, 9223372036854775807, 1::bigint);
SELECT * FROM generate_series(timestamptz '2024-03-09 12:00+00', timestamptz '2024-03-12 12:00+00', interval '1 day', 'America/New_York');
SELECT * FROM generate_series(timestamptz '2024-03-09', timestamptz '2024-03-10', interval '0', 'UTC');
SELECT * FROM generate_series(timestamptz '2024-03-09', timestamptz '2024-03-10', interval '1 day', 'Nowhere/Else');
