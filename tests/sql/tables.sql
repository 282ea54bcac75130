-- The tables that the statements of this directory read: NULLs, extremes and odd strings. No statement changes them.
CREATE TABLE nums (id int, i2 smallint, i4 int, i8 bigint, f4 real, f8 double precision, n numeric(12,3), nb numeric);
INSERT INTO nums VALUES
 (1, 0, 0, 0, 0, 0, 0, 0),
 (2, 1, 1, 1, 1, 1, 1, 1),
 (3, -1, -1, -1, -1.5, -1.5, -1.5, -1.5),
 (4, 32767, 2147483647, 9223372036854775807, 3.4e38, 1.7e308, 999999999.999, 123456789.123456),
 (5, -32768, -2147483648, -9223372036854775808, -3.4e38, -1.7e308, -999999999.999, -123456789.123456),
 (6, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
 (7, 7, 42, 4200000000, 2.5, 2.5, 2.5, 2.5),
 (8, 7, -42, -4200000000, 1e-30, 1e-300, 0.001, 0.000001),
 (9, 100, 100, 100, 'NaN', 'NaN', 100.5, 100.125),
 (10, -7, 13, 13, 'Infinity', '-Infinity', -0.005, 3.14159);
CREATE TABLE strs (id int, s text, v varchar(12), c char(6), b bytea, u uuid);
INSERT INTO strs VALUES
 (1, '', '', '', '', '00000000-0000-0000-0000-000000000000'),
 (2, 'abc', 'abc', 'abc', '\x616263', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'),
 (3, 'ABC', 'ABC', 'ABC', '\x00ff10', 'ffffffff-ffff-ffff-ffff-ffffffffffff'),
 (4, NULL, NULL, NULL, NULL, NULL),
 (5, '  padded  ', ' pad ', ' p', '\x20', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12'),
 (6, 'Ünïcödé ß 日本 🙂', 'Ünï', 'é', '\xc3bc', 'b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'),
 (7, 'a%b_c\d''e"f', 'a%b_c', '%', '\x5c27', '11111111-2222-3333-4444-555555555555'),
 (8, E'tab\tnew\nline', E'x\ty', 'ab', '\x090a', '11111111-2222-3333-4444-555555555556'),
 (9, '12345', '-17', '42', '\xdeadbeef', '11111111-2222-3333-4444-555555555557'),
 (10, 'one,two,,three', 'a,b', 'a,b', '\x2c2c', '11111111-2222-3333-4444-555555555558');
CREATE TABLE times (id int, d date, t time, ts timestamp, tz timestamptz, iv interval);
INSERT INTO times VALUES
 (1, '2024-02-29', '00:00:00', '2024-02-29 00:00:00', '2024-02-29 00:00:00+00', '0'),
 (2, '1999-12-31', '23:59:59.999999', '1999-12-31 23:59:59.999999', '1999-12-31 23:59:59.999999+00', '1 day'),
 (3, '2000-01-01', '12:34:56.789', '2000-01-01 12:34:56.789', '2000-01-01 12:34:56.789+02', '1 year 2 mons 3 days 04:05:06.789'),
 (4, NULL, NULL, NULL, NULL, NULL),
 (5, '1970-01-01', '06:00:00', '1970-01-01 06:00:00', '1970-01-01 06:00:00-08', '-1 mons +15 days -10:00:00'),
 (6, '0001-01-01', '01:02:03', '0001-01-01 01:02:03', '0001-01-02 01:02:03+00', '30 days'),
 (7, '9999-12-31', '23:00:00', '9999-12-31 23:59:59', '9999-12-31 12:00:00+00', '1 mon'),
 (8, '2013-03-10', '02:30:00', '2013-03-10 02:30:00', '2013-03-10 07:30:00+00', '36:00:00'),
 (9, '2013-11-03', '01:30:00', '2013-11-03 01:30:00', '2013-11-03 05:30:00+00', '-00:00:00.000001'),
 (10, '2024-12-30', '15:16:17', '2024-12-30 15:16:17', '2024-12-30 15:16:17+05:30', '100 years');
CREATE TABLE lists (id int, ia int[], ta text[], na numeric(8,2)[], fa double precision[], da date[], ba boolean[]);
INSERT INTO lists VALUES
 (1, '{}', '{}', '{}', '{}', '{}', '{}'),
 (2, '{1,2,3}', '{a,b,c}', '{1.50,2.25}', '{1.5,-2.5}', '{2024-01-01,2024-02-29}', '{t,f}'),
 (3, '{3,NULL,1,3}', '{"with space",NULL,"quo\"te",""}', '{NULL,0.01}', '{NaN,Infinity}', '{NULL}', '{NULL,t}'),
 (4, NULL, NULL, NULL, NULL, NULL, NULL),
 (5, '{2147483647,-2147483648}', '{NULL,"NULL",null}', '{999999.99}', '{1e300}', '{1999-12-31}', '{f}'),
 (6, '{1}', '{"ä,{}","日本"}', '{-1.00}', '{0}', '{2000-01-01,1970-01-01,2000-01-01}', '{t,t}');
CREATE TABLE docs (id int, j json, jb jsonb);
INSERT INTO docs VALUES
 (1, '{}', '{}'),
 (2, '{"a": 1, "b": {"c": [1, 2, {"d": null}]}, "e": "text"}', '{"a": 1, "b": {"c": [1, 2, {"d": null}]}, "e": "text"}'),
 (3, '[1, "two", null, true, 3.50]', '[1, "two", null, true, 3.50]'),
 (4, NULL, NULL),
 (5, '"str\u00e4ng \"q\""', '"str\u00e4ng \"q\""'),
 (6, ' { "a" : 2 , "a" : 3, "z":[] } ', ' { "a" : 2 , "a" : 3, "z":[] } '),
 (7, '12.50', '12.50'),
 (8, 'null', 'null'),
 (9, '{"a": {"b": "c"}, "list": [{"x": 1}, {"x": 2}], "n": -1e3}', '{"a": {"b": "c"}, "list": [{"x": 1}, {"x": 2}], "n": -1e3}');
CREATE TABLE people (id int NOT NULL, name text, dept int, boss int, salary numeric(10,2), hired date, active boolean);
INSERT INTO people VALUES
 (1, 'Ada', 1, NULL, 5000.00, '2010-01-15', true),
 (2, 'Bob', 1, 1, 4000.50, '2012-06-01', true),
 (3, 'Cyd', 2, 1, 4000.50, '2012-06-01', false),
 (4, 'Dee', 2, 3, 3000.00, '2015-03-20', NULL),
 (5, 'Eve', NULL, 3, NULL, '2020-12-31', true),
 (6, 'Fox', 3, 2, 0.00, NULL, false),
 (7, NULL, 1, 2, 3999.99, '2019-02-28', true),
 (8, 'Gus', 9, 4, 1234.56, '2020-12-31', false);
CREATE TABLE depts (id int, name text, city text);
INSERT INTO depts VALUES (1, 'Sales', 'Paris'), (2, 'Lab', NULL), (3, 'Empty', 'Oslo'), (4, NULL, 'Rome'), (NULL, 'Void', 'Paris');
-- A table with columns of most types, and two small ones with duplicates.
CREATE TABLE v (id int4, i2 int2, i4 int4, i8 int8, n2 numeric(10,2), nb numeric, f4 float4, f8 float8, b bool,
  s text, vc varchar(10), d date, tm time, ts timestamp, tz timestamptz, byt bytea, uu uuid, ia int4[], sa text[]);
CREATE TABLE t (a int4, b text, c int8, n numeric(12,3), d date);
CREATE TABLE u (a int4, k int4, w text);
INSERT INTO v VALUES
 (1, 1, 10, 100, 1.50, 2.25, 0.5, 1.5, true, 'abc', 'Hello', '2024-02-29', '01:02:03', '2024-02-29 10:11:12.345678',
  '2024-02-29 10:11:12+02', '\x0102', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{1,2,3}', '{a,b}'),
 (2, -7, -3, 9007199254740993, -2.50, -0.5, -1.25, -2.5, false, 'Äpfel %_\x', 'x', '1999-12-31', '23:59:59.999999',
  '1999-12-31 23:59:59.999999', '1999-12-31 23:59:59.5+00', '\x', '00000000-0000-0000-0000-000000000000', '{}', '{}'),
 (3, 7, 2, -5, 0.00, 3, 2.5, 3.5, true, '', '', '2000-01-01', '00:00:00', '2000-01-01 00:00:00',
  '2000-01-01 00:00:00+00', '\xff', 'ffffffff-ffff-ffff-ffff-ffffffffffff', '{3,NULL}', '{NULL,x}'),
 (4, 3, 7, 3, 99999999.99, 12345678.123456789, 100, 1234567.891, null, '  padded  ', 'a b', '1970-01-01', '12:00:00',
  '1969-12-31 23:00:00.000001', '1970-01-01 00:00:00+00', null, null, null, null),
 (5, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null),
 (6, 2, 5, 2, 3.33, 1.1, 4, 0.1, false, E'a''b"c\nd', 'ABC', '2023-07-16', '06:30:00', '2023-07-16 06:30:00', '2023-07-16 06:30:00-05', '\x00ff',
  'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12', '{5}', '{"a b",c}');
INSERT INTO t VALUES (1,'x',10,1.125,'2024-01-31'), (2,'y',20,-2.5,'2024-02-29'), (2,'x',null,0.001,null),
  (null,null,5,null,'2023-12-31'), (3,'z',-7,100,'2024-01-31'), (1,'x',10,1.125,'2024-01-31');
INSERT INTO u VALUES (1,1,'one'), (2,1,'two'), (2,null,'deux'), (null,3,null), (5,2,'five');
-- A column of every type in one table.
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy', 'Über "quoted" {1}', '');
CREATE TYPE color AS ENUM ('red', 'ok', 'green');
CREATE TABLE moods (id int, m mood, n mood, ms mood[], s text);
INSERT INTO moods VALUES
 (1, 'happy', 'sad', '{happy,sad}', 'happy'),
 (2, 'sad', 'sad', '{}', 'sad'),
 (3, 'ok', NULL, '{NULL,ok,ok}', 'ok'),
 (4, NULL, 'ok', NULL, NULL),
 (5, 'Über "quoted" {1}', '', '{"",happy,"Über \"quoted\" {1}"}', 'none'),
 (6, '', 'happy', '{sad}', ''),
 (7, 'sad', 'ok', '{ok,happy}', 'ok'),
 (8, 'ok', 'ok', '{happy}', 'sad');
CREATE DOMAIN price AS numeric(8,2) CHECK (VALUE >= 0);
CREATE DOMAIN code AS varchar(5) NOT NULL CHECK (VALUE = lower(VALUE)) CHECK (length(VALUE) > 1 OR VALUE IN ('x', 'y'));
CREATE DOMAIN feeling AS mood CHECK (VALUE <> '');
CREATE DOMAIN ascending AS int[] CHECK (value[1] < value[2]);
CREATE TABLE goods (id int, p price, c code, f feeling, s text);
INSERT INTO goods VALUES (1, 1.5, 'abc', 'sad', 'abc'), (2, 0, 'x', NULL, 'ABC'), (3, NULL, 'de', 'happy', NULL), (4, 99.99, 'abc', 'ok', 'z');
CREATE TABLE wide (id int, i2 smallint, i4 int, i8 bigint, f4 real, f8 double precision, n numeric(12,3), nb numeric,
  s text, v varchar(12), c char(6), b bytea, u uuid, d date, t time, ts timestamp, tz timestamptz, iv interval,
  ia int[], ta text[], na numeric(8,2)[], fa double precision[], da date[], ba boolean[], j json, jb jsonb, bo boolean);
INSERT INTO wide SELECT *, i4 > 0 FROM nums JOIN strs USING (id) JOIN times USING (id) LEFT JOIN lists USING (id)
  LEFT JOIN docs USING (id);
CREATE TABLE forever (id int, d date, ts timestamp, tz timestamptz, n int, iv interval, stop timestamptz NOT NULL DEFAULT 'infinity');
INSERT INTO forever VALUES
 (1, 'infinity', '-infinity', 'infinity', 1, '1 day'),
 (2, '-infinity', 'infinity', '-infinity', 5, '1 mon -2 hours'),
 (3, '2024-02-29', '2024-02-29 10:20:30.5', '2024-02-29 10:20:30.5+00', NULL, NULL),
 (4, NULL, NULL, NULL, 2, '10 days'),
 (5, '5000000-01-01', '0044-03-15 12:00 BC', '294000-01-01 00:00+00', 0, '00:00:01'),
 (6, '2024-07-01', 'infinity', 'infinity', -3, '1 year');
CREATE TABLE addresses (id int, a inet, n cidr, m macaddr, e macaddr8, aa inet[]);
INSERT INTO addresses VALUES
 (1, '10.0.0.1', '10.0.0.0/8', '08:00:2b:01:02:03', '08:00:2b:01:02:03', '{10.0.0.1,::1}'),
 (2, '10.0.0.1/8', '10.1.0.0/16', '08:00:2b:01:02:04', '08:00:2b:01:02:03:04:05', '{}'),
 (3, '2001:db8::1/64', '2001:db8::/32', NULL, 'ff:ff:ff:ff:ff:ff:ff:ff', NULL),
 (4, NULL, NULL, 'ff:ff:ff:ff:ff:ff', NULL, '{NULL,192.168.1.5}'),
 (5, '192.168.1.5/25', '192.168.1.0/24', '00:00:00:00:00:00', '00:00:00:ff:fe:00:00:00', '{192.168.1.5}'),
 (6, '::ffff:10.0.0.1', '::/0', '08:00:2b:01:02:03', '08:00:2b:ff:fe:01:02:03', NULL),
 (7, '192.168.1.128', '192.168.1.128/32', '08:00:2b:01:02:03', NULL, '{::1}');
