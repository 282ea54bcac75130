select nope from t
select t.nope from t
select zz.a from t
select t.a from t tt
select a from t, u
select * from nope
select * from nos.t
select foo(a) from t
select length(a) from t
select sum(b) from t
select a + b from t
select - b from t
select '1' + '2'
select d + '1' from t
select b and true from t
select a from t where a
select a from t where b
select case when a then 1 end from t
select case when true then 1 else b end from t
select coalesce(a, b) from t
select a = 'x' from t
select '12x'::int
select '2024-13-01'::date
select 'maybe'::bool
select a::date from t
select true::date
select 3000000000::int
select 1.5::numeric(3,3)
select a union select b from t
select a from t union select b from t
select a from t union select a, b from t
select a from t order by 2
select a from t order by nope
select a from t order by 1.5
select a from t group by 5
select a from t group by b
select a, count(*) from t
select a from t having count(*) > 1
select * from t group by a
select count(*) from t where count(*) > 1
select sum(sum(a)) from t
select sum(a) from t group by sum(a)
select row_number() over () from t where row_number() over () > 1
select abs(a) over () from t
select sum(a) over nope from t
select a from t limit -1
select a from t limit b
select a from t limit a
select a from t limit 'x'
select distinct b from t order by a
select distinct on (b) b from t order by a
select a from t union select a from t order by a + 1
select * from t, t
select * from t join u using (b)
select * from t join u using (nope)
select * from (values (1), (1, 2)) x
values (1), ('x')
select (select a, b from t)
select a from t where a in (select a, b from t)
select array[1, 'x']
select array[]
select (1, 2) = (1, 2, 3)
select a[1] from t
select extract(foo from d) from t
select extract(hour from d) from t
select date_trunc('foo', d) from t
select 'x' like 'y' escape 'zz'
select a::nosuch from t
select 1::varchar(0)
select with from t
with x as (select 1), x as (select 2) select * from x
with x(a, b) as (select 1) select * from x
select * from (select 1) x(a, b)
select a from t where exists (select nope from u)
select a, (select b) from t group by a
select 1/0
select a / (a - a) from t
select a % 0 from t
select 1.5 / 0
select f8 / 0 from v
select exp(f8) from v where id = 4
select 2147483647 + a from t where a > 0
select i8 * 10000 from v
select (-32768)::int2 * i2 from v where i2 > 1
select s::int from v
select (f8 * 1e9)::int from v
select n2 * 1e6::numeric(10,2) + nb::numeric(3,1) from v
select sqrt(f8 - 10) from v where id = 1
select ln(f8 - f8) from v where id = 1
select power(f8 - f8, -1) from v where id = 1
select substr(s, 1, i4 - 100) from v
select split_part(s, 'a', i4 - i4) from v
select (select a from t)
select a from t where a = (select k from u)
select nb::numeric(3,1) from v
select s::date from v where id = 1
select s::numeric from v where id = 1
select make_date(2023, 2, 30 + i2) from v
select 'ab' like 'a\' || vc from v where vc = ''
select 'ab' like 'a\'
