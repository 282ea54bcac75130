select * from t
select b, a from t
select t.*, a from t
select a x, b as "Y" from t where a > 1
select a from t where not (a > 1)
select a from t where a > 1 or b = 'x' and c is not null
select 7/2, -7/2, 7%3, -7%3, 7 % -3 from t where a = 3
select a/2, c/a, a*c, a-c, -a from t
select a::int8 + 2147483647, c * 3::int2 from t
select 1.1 + a, n * 2, n / 3, n % 0.7, n - c from t
select n2 * nb, n2 / 7, nb / n2 from v where n2 <> 0
select nb * nb, nb + n2, nb - i8, nb % 2 from v where id <> 4
select f8 * 2, f8 / 3, f4 + f8, f8 - i4 from v
select i2 + i4, i4 + i8, i2 * i2, i2 + n2, i4 + f8, f4 * f4 from v
select n2::int, f8::int, nb::int8, f4::int2 from v where id <> 4
select i4::bool, b::int, i4::text, b::text, d::text, ts::text, uu::text, i8::numeric(20,1), n2::numeric(5,1) from v where id <> 4
select n2::text, (n2 * 2)::text, byt::text, tm::text from v
select f8::numeric(10,3), f4::float8, i8::float8, n2::float8, n2::float4 from v
select ts::date, d::timestamp, d::timestamptz, ts::timestamptz, tz::timestamp, tz::date from v
select s::varchar(3), vc::text, s::char(4) || '|' from v
select ' 42 '::int + a, '1.50'::numeric(5,2) from t
select a = 1, a <> 1, a < 2, a >= 2, a = null from t
select a is null, a is not null, b is null from t
select (a > 1) is true, (a > 1) is not true, (a > 1) is false, (a > 1) is unknown from t
select a is distinct from c, a is not distinct from 1, b is distinct from null from t
select a between 1 and 2, a not between 2 and 3, a between symmetric 3 and 1 from t
select a in (1, 2, null), a not in (1, 2), b in ('x', 'q'), n in (100, 1.125) from t
select (a, b) = (1, 'x'), (a, b) <> (2, 'y'), (a, b) in ((1, 'x'), (3, 'z')) from t
select a = any(array[1,3]), a <> all(array[1,3]), a > any('{0,2}'::int[]), 3 = any(ia) from t, v where id = 1
select id, 3 = any(ia), 3 <> all(ia), 'x' = any(sa) from v
select case when a > 1 then 'big' when a = 1 then 'one' end, case a when 1 then 1.5 when 2 then 2 else c end from t
select case when a = 0 then 1 else 10 / a end from t
select coalesce(a, c, 0), coalesce(b, 'none'), coalesce(null, n, a), nullif(a, 2), nullif(b, 'x') from t
select greatest(a, c, 2), least(a, c), greatest(b, 'xx'), greatest(n, a), least(null, a) from t
select b || '!', a || b, b || a, 'x' || 1 || 2.5, b || null from t
select length(s), char_length(vc), octet_length(s), lower(s), upper(vc) from v
select substr(s, 2), substr(s, 2, 3), substring(s from 2 for 2), substring(s for 2), substr(s, -1, 3), substr(s, 0) from v
select left(s, 2), left(s, -2), right(s, 2), right(s, -2), left(s, i4), right(s, i2) from v
select trim(s), trim(both 'a ' from s), ltrim(s), rtrim(s), btrim(s, 'cd'), trim(leading 'a' from s), trim(trailing from s) from v
select replace(s, 'a', 'XY'), position('b' in s), strpos(s, ''), split_part(s, 'b', 1), split_part(s, 'b', -1) from v
select lpad(s, 5, '*-'), rpad(s, 5), lpad(s, 2), lpad(s, 8, ''), repeat(vc, 2), repeat(vc, -1), reverse(s) from v
select concat(s, null, i4, b), concat_ws(',', s, null, b, d), concat_ws(null, s, vc), md5(s), starts_with(s, 'a') from v
select translate(s, 'abc', 'xy'), s ^@ 'a' from v
select s like 'a%', s like '%\%%', s like '_b_', s not like '%a%', s ilike 'A%', s like '%\_\\x', s like 'a%' escape '!' from v
select s like vc, vc like s, s like '%' || vc from v where id in (1, 3, 5)
select s like '%!%%' escape '!', s like '\x', s like 'a\bc' from v
select s ~ '^a', s ~ 'b.?c$', s !~ 'x', s ~* 'ABC', s ~ '[[:alpha:]]+[^a-c]', s ~ 'p{1}', s ~ 'a|d$', s ~ '\s' from v
select abs(i4), abs(n2), abs(f8), sign(n2), sign(f8), mod(i4, 3), mod(n2, 0.7) from v
select round(n2), round(n2, 1), round(f8), trunc(n2), trunc(n2, 1), trunc(f8), ceil(n2), floor(f8), ceiling(f8) from v
select round(nb, 3), round(-2.5), round(2.5), round(2.5::float8), trunc(-2.7), floor(-0.5) from v
select power(i4, 2), 2 ^ i2, sqrt(abs(f8)), exp(f8 / 100), ln(abs(f8)), log(abs(f8)), |/ 16 from v where id in (2, 3, 6)
select d + 1, d - 1, 1 + d, d - date '2024-01-01', d + interval '1 month', d - interval '1 day 2 hours' from v
select ts + interval '1 mon 2 days 03:04:05.678', ts - interval '1 year', tz + interval '36 hours' from v
select extract(year from d), extract(month from ts), extract(day from tz), extract(dow from d), extract(isodow from d) from v
select extract(doy from d), extract(week from d), extract(isoyear from d), extract(quarter from ts), extract(epoch from d) from v
select extract(hour from ts), extract(minute from tz), extract(second from ts), extract(milliseconds from ts), extract(microseconds from ts) from v
select extract(epoch from ts), extract(epoch from tz), extract(century from d), extract(decade from d), extract(millennium from d) from v
select date_part('year', d), date_part('second', ts) from v
select date_trunc('month', ts), date_trunc('week', ts), date_trunc('hour', tz), date_trunc('day', d), date_trunc('second', ts), date_trunc('quarter', tz) from v
select to_char(ts, 'YYYY-MM-DD HH24:MI:SS.US'), to_char(d, 'DD/MM/YYYY') from v
select make_date(2024, 2, i2 + 10) from v where id < 4
select d < ts, d = ts, ts >= tz, d > '2000-01-01', tm < '12:00' from v
select s < vc, s = 'abc', byt = '\x0102', uu = 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', uu < 'b0000000-0000-0000-0000-000000000000' from v
select ia[1], ia[2], ia[0], ia[9], sa[1], array_length(ia, 1), cardinality(ia), ia = '{1,2,3}', array[i4, 1] from v
select array[a, null, 2], array['x', b], array[1, 2.5], '{}'::int[] from t
select count(*), count(a), count(distinct a), sum(a), sum(c), avg(a), min(a), max(c), sum(n), avg(n) from t
select count(*), sum(a), avg(c), min(b), max(d), bool_and(a > 0), bool_or(a > 2), every(a < 9), array_agg(a), string_agg(b, ',') from t where a > 100
select sum(i2), sum(i4), sum(i8), sum(n2), sum(nb), sum(f8), avg(i2), avg(i8), avg(n2), avg(nb), avg(f4), avg(f8) from v where id <> 4
select min(i2), max(i8), min(n2), max(nb), min(f8), max(s), min(vc), max(d), min(ts), max(tz), min(tm) from v
select b, count(*), sum(c) from t group by b
select b, a, count(*) from t group by 1, 2 having count(*) > 1
select b as g, max(a) from t group by g
select a + 1, count(*) from t group by a + 1 having a + 1 > 2
select a % 2, b || '!', count(*) * 2 + 1 from t group by a % 2, b
select sum(a) filter (where b = 'x'), count(*) filter (where c > 5), avg(n) filter (where a = 1) from t
select sum(distinct a), avg(distinct a), count(distinct b), string_agg(distinct b, '-' order by b) from t
select b, array_agg(c order by c), array_agg(c order by c desc), string_agg(b, ',' order by c desc nulls last) from t group by b
select array_agg(a order by a, c desc), array_agg(n order by n) filter (where n > 0) from t
select count(*) from t having count(*) > 100
select 1 from t group by ()
select max(a) + min(c), coalesce(sum(a), 0) from t where false
select a, b from t order by a, b desc
select a from t order by a desc
select a from t order by a desc nulls last, c
select b, a from t order by 2, 1
select a + 1 as z from t order by z desc limit 2
select a, c from t order by c nulls first limit 2 offset 1
select a from t order by -a, b offset 3
select distinct a, b from t
select distinct b from t order by b
select distinct on (b) b, c, a from t order by b, c desc nulls last, a
select distinct a + 1 from t order by a + 1 desc
select * from t join u on t.a = u.a
select t.b, u.w from t left join u on t.a = u.a and u.k > 0
select t.b, u.w from t right join u on t.a = u.a
select t.b, u.w, t.a, u.a from t full join u on t.a = u.a
select * from t join u using (a)
select * from t full join u using (a)
select * from t natural left join u
select a, t.a, u.a from t left join u using (a)
select x.a, y.a from t x, t y where x.a < y.a
select * from u cross join (values (1), (2)) s(z)
select t.b, u.w, v.id from t join u on t.a = u.a join v on v.id = u.k
select t.b from t, u left join v on v.id = u.k where t.a = u.a and v.i4 is not null
select * from (t join u using (a)) join u as z on z.k = t.a
select s.m, u.w from (select a, max(c) as m from t group by a) s join u on s.a = u.a
select a from t where a in (select a from u)
select a from t where a not in (select a from u where a is not null)
select a from t where a not in (select a from u)
select a from t where exists (select 1 from u where u.a = t.a)
select a, b from t where not exists (select * from u where u.a = t.a and u.k is not null)
select a, (select max(w) from u where u.a = t.a), (select count(*) from u) from t
select a, a in (select k from u), exists (select 1 from u where k = a) from t
select a from t where c > (select avg(c) from t)
select a from t where (a, b) in (select k, 'x' from u)
select b from t where a = (select k from u where w = 'five')
select a from t union select k from u
select a from t union all select c from t
select a, b from t intersect select k, 'x' from u
select a from t except select a from u
select a from t except all select a from u
select a from t intersect all select a from u
select n from t union all select a from t union all select 0.5
select 'a' as x union select b from t order by x desc
(select a from t order by a limit 2) union all (select k from u order by k desc limit 1) order by 1
select 1 union select 2 union all select 2 order by 1
values (1, 'a'), (2, null), (3, 'c')
values (1), (2.5), (null) order by 1 desc
select * from (values (1, 'one'), (2, 'two')) as x(n, w) where n > 1
with w as (select a, count(*) as n from t group by a) select w.*, u.w from w join u on w.a = u.a
with x as (select a from t), y as (select * from x where a > 1) select x.a, y.a from x, y
with w(p, q) as (select a, b from t) select q, p from w where p = 2
select row_number() over (order by a, b, c), rank() over (order by a), dense_rank() over (order by a desc) from t
select a, sum(c) over (partition by b order by c, a), count(*) over (), max(n) over (partition by a) from t
select a, lag(a) over (order by c, a), lead(a, 2) over (order by c, a), first_value(c) over (order by c desc nulls last, a) from t
select sum(a) over (order by c rows between 1 preceding and current row), avg(a) over (partition by b) from t
select sum(a) over w, min(c) over w from t window w as (partition by b)
select b, sum(count(*)) over (), rank() over (order by sum(a) desc nulls last, b) from t group by b
select * from (select a, row_number() over (partition by a order by c, b) as r from t) s where r = 1
select * from generate_series(1, 4)
select g, a from generate_series(5, 1, -2) g, u
select x + 1 from generate_series(1, 0) as y(x)
select sum(g) from generate_series(1, 100) g
select t.a, s.k from t, (select distinct k from u) s where s.k = t.a
select a, count(*) from (select a from t union all select a from u) z group by a order by 2 desc, 1
select true and null, false and null, true or null, not null from t limit 1
select a from t where b like 'x' and a = 1 limit 1
select b from t where b >= 'y' order by b
select d, count(*) from t where d >= date '2024-01-01' and d < date '2024-01-01' + interval '2 months' group by d
select a::text || ':' || coalesce(b, '?') from t
select round(avg(n), 2), round(sum(n) / count(*), 3) from t
select sum(n * a), sum(c / 2.0), max(abs(n)) from t
select '\x0aff'::bytea, 'it''s', 'back\slash', E'tab\there', '${env:PATH}', 'ünï' from t limit 1
select interval '1 day' + d from t
select s, length(s) from v where s = 'Äpfel %_\x'
select f8, f8 = 0.1, f8 > 1 from v order by f8 nulls first
select i8 from v where i8 = 9007199254740993
select min(a), max(a) from t where a = 99
select (select 5), (select a from t where a = 3)
select count(distinct (a)) from t
select bool_and(b), bool_or(b) from v
select uu, byt from v order by uu desc nulls last
select tz from v where tz > '2000-01-01 00:00:00+00' order by 1
select a, a not in (select k from u), (a, b) in (select k, 'x' from u where k is not null) from t
select a from t where a in (select k from u) or b = 'y'
select a from t where not (a in (select k from u where k is not null) and b = 'x')
select a from t where (a in (select k from u)) is null
