-- Chapter 8.18: domains
-- casts
SELECT 1.25::price, '3.5'::price, CAST(2 AS price), NULL::price, 1.256::public.price, '7'::text::price;
SELECT (-1)::price;
SELECT '-1'::price;
SELECT 'x'::price;
SELECT 12345678::price;
SELECT 'abc'::code, 'x'::code, 'abcdefgh'::code, 'abc'::text::code;
SELECT 'ABC'::code;
SELECT 'z'::code;
SELECT NULL::code;
SELECT CAST(NULL AS code);
SELECT 'sad'::feeling, 'happy'::mood::feeling, NULL::feeling;
SELECT ''::feeling;
SELECT 'nosuch'::feeling;
SELECT 1::nosuch.price;
SELECT ARRAY[1.5::price, 2], (1.5::price)::int, 1.5::price::text;
-- values of a domain are values of its base type
SELECT 1.5::price + 1, 1.5::price * 2.5, -(1.5::price), 1.5::price > 1, abs(1.5::price), round(1.5::price);
SELECT 'abc'::code || 'd', upper('abc'::code), length('abc'::code), 'abc'::code = 'abc', 'abc'::code < 'b';
SELECT 'sad'::feeling < 'ok', enum_range('ok'::feeling);
SELECT 1.5::price + 'x'::code;
-- columns
SELECT * FROM goods ORDER BY id;
SELECT id, p + 1, p * 2, p::int, p::text, -p FROM goods ORDER BY id;
SELECT id, c || s, upper(c), c = s, length(c), c LIKE 'a%', c::text FROM goods ORDER BY id;
SELECT sum(p), avg(p), min(p), max(p), count(p), min(c) FROM goods;
SELECT c, count(*), sum(p) FROM goods GROUP BY c ORDER BY c;
SELECT id FROM goods WHERE p > 1 AND c = 'abc' ORDER BY id;
SELECT id FROM goods WHERE f = 'ok' OR f < 'ok' ORDER BY id;
SELECT id FROM goods WHERE f::mood = 'ok' OR f::mood < 'ok' ORDER BY id;
SELECT id FROM goods WHERE c IN ('x', 'de') ORDER BY id;
SELECT id, f FROM goods ORDER BY f, id;
SELECT a.id, b.id FROM goods a JOIN goods b ON a.c = b.c AND a.p <= b.p ORDER BY 1, 2;
SELECT p FROM goods UNION SELECT 7 ORDER BY 1;
SELECT coalesce(p, 3), nullif(c, 'x'), greatest(p, 2), CASE WHEN id = 1 THEN p ELSE 0 END FROM goods ORDER BY id;
SELECT to_jsonb(goods) FROM goods ORDER BY id;
SELECT id, id::price, (id - 1)::price FROM goods ORDER BY id;
SELECT id, (id - 2)::price FROM goods ORDER BY id;
SELECT id, s::code FROM goods WHERE id IN (1, 4) ORDER BY id;
SELECT id, s::code FROM goods WHERE id = 1;
SELECT id, s::code FROM goods WHERE id = 2;
SELECT id, s::code FROM goods WHERE id = 3;
SELECT id, s::varchar::code FROM goods WHERE id < 3 AND s = lower(s);
SELECT id, f::text::feeling, f::mood FROM goods ORDER BY id;
SELECT array_agg(p ORDER BY id), string_agg(c, ',' ORDER BY id) FROM goods;
SELECT ARRAY[2,1]::ascending;
SELECT ARRAY[1,2]::ascending, '{3,4}'::ascending;
