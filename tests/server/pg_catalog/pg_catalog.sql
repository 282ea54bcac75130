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
SELECT n, pg_size_pretty(n) FROM pg_namespace, (VALUES (0::bigint), (10239::bigint), (10240::bigint), (10751::bigint), (10752::bigint), (20470::bigint), (20479::bigint), (20480::bigint), (1048575::bigint), (12345678::bigint), (20970495::bigint), (20970496::bigint), (20971007::bigint), (20971008::bigint), (21473787903::bigint), (21473787904::bigint), (21989158748159::bigint), (21990232555520::bigint), (22516998136852480::bigint), (9223372036854775807::bigint), (-10240::bigint), (-12345678::bigint), (-9223372036854775807::bigint)) v(n)
  WHERE nspname = 'pg_catalog' ORDER BY n;
SELECT pg_size_pretty(pg_relation_size('flights') * 0 + 12345678), pg_size_pretty(1.5 + (pg_relation_size('flights') * 0));
SELECT pg_relation_size('flights') IS NULL, pg_table_size('s2.other'::text) IS NULL, pg_total_relation_size('"flights"') IS NULL,
  pg_indexes_size('public.flights') IS NULL, pg_relation_size('flights', 'main') IS NULL;
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
SELECT obj_description('carriers'::regclass), obj_description('carriers'::regclass, 'pg_class'),
  obj_description('carriers'::regclass, 'pg_namespace'), col_description('carriers'::regclass, 1), col_description('cheap'::regclass, 1);
SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = 's2';
SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = 'materialize';
SELECT objoid::regclass, objsubid, description FROM pg_description WHERE classoid = 'pg_class'::regclass AND objoid >= 16384 ORDER BY objsubid, description;
SELECT has_table_privilege('flights', 'SELECT'), pg_table_is_visible('flights'::regclass);
SELECT datname, pg_encoding_to_char(encoding), datcollate FROM pg_database WHERE datname = current_database();
SELECT 7 / 2, 'a' || relname FROM pg_class WHERE relname = 'cheap';
SELECT amname FROM pg_am ORDER BY amname DESC NULLS LAST LIMIT 2 OFFSET 1;
SELECT 1::oid, 'x'::name, 'x'::"char", NULL::oid[];
SELECT * FROM (SELECT oid AS id, relname AS n, relkind FROM pg_class WHERE relname = 'cheap' OFFSET 5) AS t (a, b);
SELECT c.*, n.nspname FROM (SELECT relname, relnamespace FROM pg_class WHERE relname = 'cheap') c
  JOIN pg_namespace n ON n.oid = c.relnamespace WHERE nspname = 'none';
SELECT typname, typinput, typreceive::regproc::text FROM pg_type WHERE typreceive = 'array_recv'::regproc
  AND typname IN ('_int4', '_text') ORDER BY typname;
SELECT typname, proname FROM pg_type JOIN pg_proc ON pg_proc.oid = typreceive WHERE typname IN ('int4', '_text')
  ORDER BY 1;
SELECT * FROM pg_am ORDER BY amname;
SELECT ns.nspname, t.oid, t.typname, t.typtype, t.typnotnull, t.elemtypoid
  FROM (
    SELECT typ.oid, typ.typnamespace, typ.typname, typ.typtype, typ.typrelid, typ.typnotnull, typ.relkind,
      elemtyp.oid AS elemtypoid, elemtyp.typname AS elemtypname, elemcls.relkind AS elemrelkind,
      CASE WHEN elemproc.proname = 'array_recv' THEN 'a' ELSE elemtyp.typtype END AS elemtyptype
    FROM (
      SELECT typ.oid, typnamespace, typname, typrelid, typnotnull, relkind, typelem AS elemoid,
        CASE WHEN proc.proname = 'array_recv' THEN 'a' ELSE typ.typtype END AS typtype,
        CASE WHEN proc.proname = 'array_recv' THEN typ.typelem
             WHEN typ.typtype = 'r' THEN rngsubtype
             WHEN typ.typtype = 'm' THEN (SELECT rngtypid FROM pg_range WHERE rngmultitypid = typ.oid)
             WHEN typ.typtype = 'd' THEN typ.typbasetype END AS elemtypoid
      FROM pg_type AS typ LEFT JOIN pg_class AS cls ON (cls.oid = typ.typrelid)
      LEFT JOIN pg_proc AS proc ON proc.oid = typ.typreceive LEFT JOIN pg_range ON (pg_range.rngtypid = typ.oid)
    ) AS typ
    LEFT JOIN pg_type AS elemtyp ON elemtyp.oid = elemtypoid
    LEFT JOIN pg_class AS elemcls ON (elemcls.oid = elemtyp.typrelid)
    LEFT JOIN pg_proc AS elemproc ON elemproc.oid = elemtyp.typreceive
  ) AS t
  JOIN pg_namespace AS ns ON (ns.oid = typnamespace)
  WHERE ns.nspname = 'pg_catalog' AND t.oid < 4000 AND (typtype IN ('b', 'r', 'm', 'e', 'd')
    OR (typtype = 'p' AND typname IN ('record', 'void')) OR (typtype = 'a' AND elemtyptype IN ('b', 'r', 'm', 'e', 'd')))
    AND typname NOT LIKE 'pg\_%' AND typname NOT LIKE '\_pg\_%'
  ORDER BY CASE WHEN typtype IN ('b', 'e', 'p') THEN 0 WHEN typtype = 'r' THEN 1 ELSE 2 END, t.oid;
SELECT n.oid > 0, n.nspname, d.description FROM pg_catalog.pg_namespace n
  LEFT OUTER JOIN pg_catalog.pg_description d
  ON d.objoid = n.oid AND d.objsubid = 0 AND d.classoid = 'pg_namespace'::regclass WHERE nspname = 's2';
SELECT t.oid, t.*, c.relkind, format_type(nullif(t.typbasetype, 0), t.typtypmod) AS base_type_name, d.description
  FROM pg_catalog.pg_type t LEFT OUTER JOIN pg_catalog.pg_type et ON et.oid = t.typelem
  LEFT OUTER JOIN pg_catalog.pg_class c ON c.oid = t.typrelid
  LEFT OUTER JOIN pg_catalog.pg_description d ON t.oid = d.objoid AND d.objsubid = 9
  WHERE t.typname IN ('int4', 'text', '_numeric', 'timestamptz') AND (c.relkind IS NULL OR c.relkind = 'c')
  AND (et.typcategory IS NULL OR et.typcategory <> 'C') ORDER BY t.oid;
SELECT c.relname, a.*, pg_catalog.pg_get_expr(ad.adbin, ad.adrelid, true) AS def_value, dep.objid
  FROM pg_catalog.pg_attribute a INNER JOIN pg_catalog.pg_class c ON (a.attrelid = c.oid)
  LEFT OUTER JOIN pg_catalog.pg_attrdef ad ON (a.attrelid = ad.adrelid AND a.attnum = ad.adnum)
  LEFT OUTER JOIN pg_depend dep ON dep.refobjid = a.attrelid AND dep.deptype = 'i' AND dep.refobjsubid = a.attnum
    AND dep.classid = dep.refclassid
  WHERE NOT a.attisdropped AND c.relkind NOT IN ('i', 'I', 'c') AND a.attnum > 0 AND c.relname = 'nothing';
SELECT c.relname, pg_catalog.pg_get_partkeydef(c.oid) AS partition_key,
  pg_catalog.pg_get_expr(c.relpartbound, c.oid) AS partition_expr
  FROM pg_catalog.pg_class c WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'public')
  AND c.relkind NOT IN ('i', 'I', 'c') ORDER BY 1;
SELECT attname, attlen, atttypmod, attndims > 0, attnotnull, atthasdef, attalign, attstorage, attcollation
  FROM pg_attribute WHERE attrelid = 'flights'::regclass AND attnum > 0 ORDER BY attnum;
SELECT relname, relnatts, relhasindex, relkind, relpersistence, relispopulated, relam FROM pg_class
  WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'v', 'm', 'i') ORDER BY relname;
SELECT indkey, indclass, indcollation, indoption, indisprimary FROM pg_index
  WHERE indrelid IN ('flights'::regclass, 'carriers'::regclass) ORDER BY indexrelid::regclass::text;
SELECT string_agg(word, ',' ORDER BY word) FROM pg_catalog.pg_get_keywords()
  WHERE word <> ALL ('{a,abs,select}'::text[]) AND catcode = 'R' AND word LIKE 'w%';
SELECT p.proname, coalesce(p.proallargtypes::regtype[], p.proargtypes::regtype[])::text[], p.prorettype::regtype::text
  FROM pg_proc p WHERE p.proname IN ('pi', 'substr', 'left') ORDER BY p.proname, 2;
SELECT relname FROM pg_class WHERE relkind = ANY ('{v,m}') AND relnamespace = 'public'::regnamespace ORDER BY relname;
SELECT x.key, x.option, x.n FROM (SELECT * FROM pg_index i, unnest(i.indkey, i.indoption) WITH ORDINALITY
  koi (key, option, n)) AS x WHERE x.indrelid = 'flights'::regclass ORDER BY x.indexrelid::regclass::text, x.n;
SELECT relname FROM pg_class WHERE relname SIMILAR TO '(fligh|carrier)%' ORDER BY 1;
SELECT relname SIMILAR TO 'pg_cla_s', relname NOT SIMILAR TO 'pg', relname SIMILAR TO 'pg#_cl#%' ESCAPE '#', relname SIMILAR TO 'pg!_c[k-l]a+s{2}' ESCAPE '!' FROM pg_class WHERE relname = 'pg_class';
