SELECT 'flights'::regclass;
SELECT 'flights'::regclass::oid = (SELECT oid FROM pg_class WHERE relname = 'flights');
SELECT attrelid::regclass, attname FROM pg_attribute WHERE attrelid = 's2.other'::regclass AND attnum > 0 ORDER BY
  attnum;
SELECT to_regclass('nothing') IS NULL, to_regclass('flights')::text;
SELECT 'int4'::regtype, 'integer'::regtype::oid, 25::regtype, '_int4'::regtype::text;
SELECT format_type(1700, 655366), format_type(1043, 24), format_type(1009, -1), format_type(0, 0), format_type(NULL,
  1);
SELECT pg_get_indexdef('flights_carrier'::regclass), pg_get_indexdef('flights_carrier'::regclass, 1, false);
SELECT conname, contype, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'flights'::regclass;
SELECT quote_ident('a b'), quote_ident('select'), quote_ident('plain'), quote_ident('Q"x');
SELECT current_schemas(false);
SELECT pg_encoding_to_char(6), pg_size_pretty(0::bigint), pg_size_pretty(123456789::bigint);
SELECT array_to_string(ARRAY(SELECT attname FROM pg_attribute WHERE attrelid = 'carriers'::regclass AND attnum > 0
  ORDER BY attnum), ',');
SELECT count(*) FROM pg_catalog.pg_class c WHERE c.relkind OPERATOR(pg_catalog.=) 'm' AND c.relname !~ '^pg_';
SELECT nspname FROM pg_namespace WHERE nspname LIKE 's\_' OR nspname LIKE E's2' ORDER BY nspname COLLATE "C";
SELECT DISTINCT relkind FROM pg_class WHERE relname ~ '^(flights|cheap)$' ORDER BY relkind;
SELECT c.relname, a.attname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_attribute a ON
  a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey) WHERE i.indrelid = 'flights'::regclass ORDER BY 1, 2;
SELECT indkey, indnatts, indisunique FROM pg_index WHERE indexrelid = 'flights_pkey'::regclass;
SELECT typname, typlen, typtype, typarray FROM pg_type WHERE oid = ANY('{16,20,25,1700}'::oid[]) ORDER BY oid;
SELECT table_schema, table_name, table_type FROM information_schema.tables WHERE table_schema IN ('public', 's2')
  ORDER BY 1, 2;
SELECT column_name, data_type, is_nullable, character_maximum_length, numeric_precision, numeric_scale, udt_name
  FROM information_schema.columns WHERE table_name = 'flights' ORDER BY ordinal_position;
SELECT constraint_name, constraint_type FROM information_schema.table_constraints WHERE table_name = 'flights' AND
  constraint_type <> 'CHECK';
SELECT column_name, ordinal_position FROM information_schema.key_column_usage WHERE table_name = 'carriers' ORDER BY
  constraint_name;
SELECT tablename, tableowner, hasindexes FROM pg_tables WHERE schemaname = 'public' ORDER BY 1;
SELECT viewname FROM pg_views WHERE schemaname = 'public';
SELECT matviewname, ispopulated FROM pg_matviews;
SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'carriers' ORDER BY 1;
SELECT rolname, rolsuper FROM pg_roles WHERE rolname = current_user;
SELECT n.nspname, count(c.oid) FROM pg_namespace n LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relkind =
  'v' WHERE n.nspname IN ('public', 's2') GROUP BY 1 ORDER BY 1;
SELECT relname, CASE relkind WHEN 'r' THEN 'table' ELSE 'other' END AS what FROM pg_class WHERE relname IN
  ('flights', 'cheap') ORDER BY relname DESC;
WITH t AS (SELECT oid, relname FROM pg_class WHERE relname = 'cheap') SELECT t.relname, pg_get_userbyid(c.relowner)
  FROM t JOIN pg_class c USING (oid);
SELECT relname FROM pg_class WHERE relname = 'nothing' UNION ALL SELECT nspname FROM pg_namespace WHERE nspname = 's2';
SELECT x.name FROM pg_class c, LATERAL (SELECT c.relname || '!' AS name) x WHERE c.relname = 'cheap';
SELECT obj_description('flights'::regclass, 'pg_class') IS NULL, col_description('flights'::regclass, 1) IS NULL;
SELECT has_table_privilege('flights', 'SELECT'), pg_table_is_visible('flights'::regclass);
SELECT datname, pg_encoding_to_char(encoding), datcollate FROM pg_database WHERE datname = current_database();
SELECT 7 / 2, 'a' || relname FROM pg_class WHERE relname = 'cheap';
SELECT amname FROM pg_am ORDER BY amname DESC NULLS LAST LIMIT 2 OFFSET 1;
SELECT 1::oid, 'x'::name, 'x'::"char", NULL::oid[];
SELECT * FROM (SELECT oid AS id, relname AS n, relkind FROM pg_class WHERE relname = 'cheap' OFFSET 5) AS t (a, b);
SELECT c.*, n.nspname FROM (SELECT relname, relnamespace FROM pg_class WHERE relname = 'cheap') c
  JOIN pg_namespace n ON n.oid = c.relnamespace WHERE nspname = 'none';
