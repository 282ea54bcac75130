-- PostgreSQL's system views. Columns that Tidewire has no data for are not defined here and are NULL.

CREATE VIEW pg.pg_tables AS
  SELECT n.nspname AS schemaname, c.relname AS tablename, fn.pg_get_userbyid(c.relowner) AS tableowner,
         c.relhasindex AS hasindexes, c.relhasrules AS hasrules, c.relhastriggers AS hastriggers,
         c.relrowsecurity AS rowsecurity
  FROM pg.pg_class c JOIN pg.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p');
CREATE VIEW pg.pg_views AS
  SELECT n.nspname AS schemaname, c.relname AS viewname, fn.pg_get_userbyid(c.relowner) AS viewowner,
         fn.pg_get_viewdef(c.oid) AS definition
  FROM pg.pg_class c JOIN pg.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'v';
CREATE VIEW pg.pg_matviews AS
  SELECT n.nspname AS schemaname, c.relname AS matviewname, fn.pg_get_userbyid(c.relowner) AS matviewowner,
         c.relhasindex AS hasindexes, c.relispopulated AS ispopulated, fn.pg_get_viewdef(c.oid) AS definition
  FROM pg.pg_class c JOIN pg.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'm';
CREATE VIEW pg.pg_indexes AS
  SELECT n.nspname AS schemaname, c.relname AS tablename, i.relname AS indexname,
         fn.pg_get_indexdef(i.oid) AS indexdef
  FROM pg.pg_index x JOIN pg.pg_class c ON c.oid = x.indrelid JOIN pg.pg_class i ON i.oid = x.indexrelid
  JOIN pg.pg_namespace n ON n.oid = c.relnamespace;
CREATE VIEW pg.pg_sequences AS
  SELECT n.nspname AS schemaname, c.relname AS sequencename, fn.pg_get_userbyid(c.relowner) AS sequenceowner,
         tw.regtype_text(s.seqtypid) AS data_type, s.seqstart AS start_value, s.seqmin AS min_value,
         s.seqmax AS max_value, s.seqincrement AS increment_by, s.seqcycle AS cycle, s.seqcache AS cache_size,
         v.last_value
  FROM pg.pg_sequence s JOIN pg.pg_class c ON c.oid = s.seqrelid JOIN pg.pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN pg.tw_last_values v ON v.oid = c.oid;
CREATE VIEW pg.pg_roles AS
  SELECT rolname, rolsuper, rolinherit, rolcreaterole, rolcreatedb, rolcanlogin, rolreplication, rolconnlimit,
         '********' AS rolpassword, rolvaliduntil, rolbypassrls, oid
  FROM pg.pg_authid;
CREATE VIEW pg.pg_shadow AS
  SELECT rolname AS usename, oid AS usesysid, rolcreatedb AS usecreatedb, rolsuper AS usesuper,
         rolreplication AS userepl, rolbypassrls AS usebypassrls, rolpassword AS passwd, rolvaliduntil AS valuntil
  FROM pg.pg_authid WHERE rolcanlogin;
CREATE VIEW pg.pg_user AS
  SELECT usename, usesysid, usecreatedb, usesuper, userepl, usebypassrls, '********' AS passwd, valuntil
  FROM pg.pg_shadow;
CREATE VIEW pg.pg_stat_all_tables AS
  SELECT c.oid AS relid, n.nspname AS schemaname, c.relname
  FROM pg.pg_class c JOIN pg.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'm');
CREATE VIEW pg.pg_stat_user_tables AS
  SELECT relid, schemaname, relname FROM pg.pg_stat_all_tables WHERE relid >= 16384;
CREATE VIEW pg.pg_statio_all_tables AS SELECT * FROM pg.pg_stat_all_tables;
CREATE VIEW pg.pg_statio_user_tables AS SELECT * FROM pg.pg_stat_user_tables;
CREATE VIEW pg.pg_stat_all_indexes AS
  SELECT t.relid, c.oid AS indexrelid, t.schemaname, t.relname, c.relname AS indexrelname
  FROM pg.pg_index i JOIN pg.pg_class c ON c.oid = i.indexrelid JOIN pg.pg_stat_all_tables t ON t.relid = i.indrelid;
CREATE VIEW pg.pg_stat_user_indexes AS SELECT * FROM pg.pg_stat_all_indexes WHERE relid >= 16384;

CREATE VIEW pg.pg_stat_database AS
  SELECT d.oid AS datid, d.datname, count(a.pid)::INTEGER AS numbackends
  FROM pg.pg_database d LEFT JOIN pg.pg_stat_activity a ON a.datid = d.oid GROUP BY d.oid, d.datname;

CREATE VIEW info.information_schema_catalog_name AS SELECT fn.current_database() AS catalog_name;
CREATE VIEW info.enabled_roles AS
  SELECT rolname AS role_name FROM pg.pg_authid WHERE oid IN (SELECT oid FROM pg.tw_enabled);
CREATE VIEW info.applicable_roles AS
  SELECT DISTINCT member.rolname AS grantee, role.rolname AS role_name,
         CASE WHEN m.admin_option THEN 'YES' ELSE 'NO' END AS is_grantable
  FROM pg.pg_auth_members m JOIN pg.pg_authid member ON member.oid = m.member JOIN pg.pg_authid role ON role.oid = m.roleid
  WHERE m.member IN (SELECT oid FROM pg.tw_enabled);
CREATE VIEW info.administrable_role_authorizations AS
  SELECT * FROM info.applicable_roles WHERE is_grantable = 'YES';
CREATE VIEW info.character_sets AS
  SELECT 'UTF8' AS character_set_name, 'UCS' AS character_repertoire, 'UTF8' AS form_of_use,
         fn.current_database() AS default_collate_catalog, 'pg_catalog' AS default_collate_schema,
         'C' AS default_collate_name;
CREATE VIEW info.collations AS
  SELECT fn.current_database() AS collation_catalog, n.nspname AS collation_schema, c.collname AS collation_name,
         'NO PAD' AS pad_attribute
  FROM pg.pg_collation c JOIN pg.pg_namespace n ON n.oid = c.collnamespace WHERE c.collencoding IN (-1, 6);
CREATE VIEW info.collation_character_set_applicability AS
  SELECT fn.current_database() AS collation_catalog, n.nspname AS collation_schema, c.collname AS collation_name,
         'UTF8' AS character_set_name
  FROM pg.pg_collation c JOIN pg.pg_namespace n ON n.oid = c.collnamespace WHERE c.collencoding IN (-1, 6);
CREATE VIEW info.schemata AS
  SELECT fn.current_database() AS catalog_name, nspname AS schema_name, fn.pg_get_userbyid(nspowner) AS schema_owner
  FROM pg.pg_namespace WHERE tw.sees_object('schema', oid, nspowner);
CREATE VIEW info.tables AS
  SELECT fn.current_database() AS table_catalog, n.nspname AS table_schema, c.relname AS table_name,
         CASE WHEN c.relpersistence = 't' THEN 'LOCAL TEMPORARY' WHEN c.relkind = 'v' THEN 'VIEW' ELSE 'BASE TABLE' END
             AS table_type,
         CASE WHEN c.relkind = 'r' AND c.oid >= 16384 OR c.oid IN (SELECT oid FROM pg.tw_updatable WHERE place > 0)
              THEN 'YES' ELSE 'NO' END AS is_insertable_into,
         'NO' AS is_typed
  FROM pg.pg_class c JOIN pg.pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relkind IN ('r', 'v') AND tw.sees_relation(c.oid, c.relowner, tw.on_relations());
CREATE VIEW info.columns AS
  SELECT fn.current_database() AS table_catalog, n.nspname AS table_schema, c.relname AS table_name,
         a.attname AS column_name, a.attnum AS ordinal_position,
         CASE WHEN a.attgenerated = '' THEN d.adbin END AS column_default,
         CASE WHEN a.attnotnull THEN 'NO' ELSE 'YES' END AS is_nullable,
         CASE WHEN t.typcategory = 'A' THEN 'ARRAY' WHEN t.typtype = 'e' THEN 'USER-DEFINED' ELSE fn.format_type(a.atttypid, NULL) END AS data_type,
         CASE WHEN a.atttypid IN (1042, 1043) AND a.atttypmod > 4 THEN a.atttypmod - 4 END AS character_maximum_length,
         CASE WHEN a.atttypid IN (1042, 1043) AND a.atttypmod > 4 THEN (a.atttypmod - 4) * 4
              WHEN a.atttypid IN (25, 1042, 1043) THEN 1073741824 END AS character_octet_length,
         CASE a.atttypid WHEN 21 THEN 16 WHEN 23 THEN 32 WHEN 20 THEN 64 WHEN 700 THEN 24 WHEN 701 THEN 53
              WHEN 1700 THEN CASE WHEN a.atttypmod >= 4 THEN (a.atttypmod - 4) // 65536 END END AS numeric_precision,
         CASE WHEN a.atttypid IN (20, 21, 23, 700, 701) THEN 2 WHEN a.atttypid = 1700 THEN 10
         END AS numeric_precision_radix,
         CASE WHEN a.atttypid IN (20, 21, 23) THEN 0
              WHEN a.atttypid = 1700 AND a.atttypmod >= 4 THEN (a.atttypmod - 4) % 65536 END AS numeric_scale,
         CASE WHEN a.atttypid IN (1083, 1114, 1184, 1186) AND a.atttypmod >= 0 THEN a.atttypmod % 65536
              WHEN a.atttypid IN (1083, 1114, 1184, 1186) THEN 6 WHEN a.atttypid = 1082 THEN 0
         END AS datetime_precision,
         CASE WHEN a.domain IS NOT NULL THEN fn.current_database() END AS domain_catalog,
         (SELECT dn.nspname FROM pg.pg_namespace dn WHERE dn.oid = a.domain_schema) AS domain_schema, a.domain AS domain_name,
         fn.current_database() AS udt_catalog, (SELECT tn.nspname FROM pg.pg_namespace tn WHERE tn.oid = t.typnamespace) AS udt_schema, t.typname AS udt_name,
         a.attnum::VARCHAR AS dtd_identifier, 'NO' AS is_self_referencing,
         CASE WHEN a.attidentity = '' THEN 'NO' ELSE 'YES' END AS is_identity,
         CASE a.attidentity WHEN 'a' THEN 'ALWAYS' WHEN 'd' THEN 'BY DEFAULT' END AS identity_generation,
         q.seqstart::VARCHAR AS identity_start, q.seqincrement::VARCHAR AS identity_increment,
         q.seqmax::VARCHAR AS identity_maximum, q.seqmin::VARCHAR AS identity_minimum,
         CASE WHEN q.seqcycle THEN 'YES' ELSE 'NO' END AS identity_cycle, CASE WHEN a.attgenerated = '' THEN 'NEVER' ELSE 'ALWAYS' END AS is_generated,
         CASE WHEN a.attgenerated <> '' THEN d.adbin END AS generation_expression,
         CASE WHEN c.relkind = 'r' AND c.oid >= 16384
                   OR (c.oid, a.attnum) IN (SELECT (oid, place) FROM pg.tw_updatable) THEN 'YES' ELSE 'NO' END AS is_updatable
  FROM (SELECT b.* REPLACE (CASE WHEN y.typtype = 'd' THEN y.typbasetype ELSE b.atttypid END AS atttypid,
                            CASE WHEN y.typtype = 'd' THEN y.typtypmod ELSE b.atttypmod END AS atttypmod),
               CASE WHEN y.typtype = 'd' THEN y.typname END AS domain,
               CASE WHEN y.typtype = 'd' THEN y.typnamespace END AS domain_schema
        FROM pg.pg_attribute b JOIN pg.pg_type y ON y.oid = b.atttypid) a
  JOIN pg.pg_class c ON c.oid = a.attrelid JOIN pg.pg_namespace n ON n.oid = c.relnamespace
  JOIN pg.pg_type t ON t.oid = a.atttypid LEFT JOIN pg.pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
  LEFT JOIN (pg.pg_depend e JOIN pg.pg_sequence q ON q.seqrelid = e.objid)
    ON e.deptype = 'i' AND e.refobjid = c.oid AND e.refobjsubid = a.attnum
  WHERE a.attnum > 0 AND NOT a.attisdropped AND c.relkind IN ('r', 'v') AND tw.sees_column(c.oid, a.attnum, c.relowner)
  ORDER BY a.attrelid, a.attnum;
CREATE VIEW info.domains AS
  SELECT fn.current_database() AS domain_catalog, n.nspname AS domain_schema, d.typname AS domain_name,
         CASE WHEN t.typcategory = 'A' THEN 'ARRAY' WHEN t.typtype = 'e' THEN 'USER-DEFINED'
              ELSE fn.format_type(t.oid, NULL) END AS data_type,
         CASE WHEN t.oid IN (1042, 1043) AND d.typtypmod > 4 THEN d.typtypmod - 4 END AS character_maximum_length,
         CASE t.oid WHEN 21 THEN 16 WHEN 23 THEN 32 WHEN 20 THEN 64 WHEN 700 THEN 24 WHEN 701 THEN 53
              WHEN 1700 THEN CASE WHEN d.typtypmod >= 4 THEN (d.typtypmod - 4) // 65536 END END AS numeric_precision,
         CASE WHEN t.oid IN (20, 21, 23) THEN 0
              WHEN t.oid = 1700 AND d.typtypmod >= 4 THEN (d.typtypmod - 4) % 65536 END AS numeric_scale,
         d.typdefault AS domain_default, fn.current_database() AS udt_catalog, tn.nspname AS udt_schema,
         t.typname AS udt_name, '1' AS dtd_identifier
  FROM pg.pg_type d JOIN pg.pg_type t ON t.oid = d.typbasetype JOIN pg.pg_namespace n ON n.oid = d.typnamespace
  JOIN pg.pg_namespace tn ON tn.oid = t.typnamespace
  WHERE d.typtype = 'd' AND d.oid >= 16384 AND tw.sees_object('type', d.oid, d.typowner);
CREATE VIEW info.domain_constraints AS
  SELECT fn.current_database() AS constraint_catalog, n.nspname AS constraint_schema, k.conname AS constraint_name,
         fn.current_database() AS domain_catalog, n.nspname AS domain_schema, t.typname AS domain_name,
         'NO' AS is_deferrable, 'NO' AS initially_deferred
  FROM pg.pg_constraint k JOIN pg.pg_type t ON t.oid = k.contypid JOIN pg.pg_namespace n ON n.oid = t.typnamespace
  WHERE tw.sees_object('type', t.oid, t.typowner);
CREATE VIEW info.sequences AS
  SELECT fn.current_database() AS sequence_catalog, n.nspname AS sequence_schema, c.relname AS sequence_name,
         fn.format_type(s.seqtypid, NULL) AS data_type,
         CASE s.seqtypid WHEN 21 THEN 16 WHEN 23 THEN 32 ELSE 64 END AS numeric_precision,
         2 AS numeric_precision_radix, 0 AS numeric_scale, s.seqstart::VARCHAR AS start_value,
         s.seqmin::VARCHAR AS minimum_value, s.seqmax::VARCHAR AS maximum_value, s.seqincrement::VARCHAR AS increment,
         CASE WHEN s.seqcycle THEN 'YES' ELSE 'NO' END AS cycle_option
  FROM pg.pg_sequence s JOIN pg.pg_class c ON c.oid = s.seqrelid JOIN pg.pg_namespace n ON n.oid = c.relnamespace
  WHERE c.oid NOT IN (SELECT objid FROM pg.pg_depend WHERE deptype = 'i')
    AND tw.sees_relation(c.oid, c.relowner, tw.on_sequences());
CREATE VIEW info.views AS
  SELECT fn.current_database() AS table_catalog, n.nspname AS table_schema, c.relname AS table_name,
         CASE WHEN tw.is_enabled(c.relowner) THEN fn.pg_get_viewdef(c.oid) END AS view_definition,
         CASE WHEN list_contains(c.reloptions, 'check_option=cascaded') THEN 'CASCADED'
              WHEN list_contains(c.reloptions, 'check_option=local') THEN 'LOCAL' ELSE 'NONE' END AS check_option,
         CASE WHEN c.oid IN (SELECT oid FROM pg.tw_updatable WHERE place > 0) THEN 'YES' ELSE 'NO' END AS is_updatable,
         CASE WHEN c.oid IN (SELECT oid FROM pg.tw_updatable WHERE place > 0) THEN 'YES' ELSE 'NO' END AS is_insertable_into,
         'NO' AS is_trigger_updatable, 'NO' AS is_trigger_deletable,
         'NO' AS is_trigger_insertable_into
  FROM pg.pg_class c JOIN pg.pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relkind = 'v' AND tw.sees_relation(c.oid, c.relowner, tw.on_relations());
CREATE VIEW info.table_constraints AS
  SELECT fn.current_database() AS constraint_catalog, n.nspname AS constraint_schema, k.conname AS constraint_name,
         fn.current_database() AS table_catalog, n.nspname AS table_schema, c.relname AS table_name,
         CASE k.contype WHEN 'p' THEN 'PRIMARY KEY' WHEN 'c' THEN 'CHECK' WHEN 'f' THEN 'FOREIGN KEY'
              ELSE 'UNIQUE' END AS constraint_type,
         CASE WHEN k.condeferrable THEN 'YES' ELSE 'NO' END AS is_deferrable,
         CASE WHEN k.condeferred THEN 'YES' ELSE 'NO' END AS initially_deferred,
         CASE WHEN k.contype = 'c' OR k.convalidated THEN 'YES' ELSE 'NO' END AS enforced,
         CASE WHEN k.contype = 'u' THEN CASE WHEN i.indnullsnotdistinct THEN 'NO' ELSE 'YES' END END AS nulls_distinct
  FROM pg.pg_constraint k JOIN pg.pg_class c ON c.oid = k.conrelid JOIN pg.pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN pg.pg_index i ON i.indexrelid = k.conindid
  WHERE tw.sees_relation(c.oid, c.relowner, tw.on_constraints())
  UNION ALL
  SELECT fn.current_database(), n.nspname, n.oid || '_' || c.oid || '_' || a.attnum || '_not_null',
         fn.current_database(), n.nspname, c.relname, 'CHECK', 'NO', 'NO', 'YES', NULL
  FROM pg.pg_attribute a JOIN pg.pg_class c ON c.oid = a.attrelid JOIN pg.pg_namespace n ON n.oid = c.relnamespace
  WHERE a.attnotnull AND a.attnum > 0 AND c.relkind = 'r'
    AND tw.sees_relation(c.oid, c.relowner, tw.on_constraints());
CREATE VIEW info.check_constraints AS
  SELECT fn.current_database() AS constraint_catalog, n.nspname AS constraint_schema, k.conname AS constraint_name,
         substr(fn.pg_get_constraintdef(k.oid), 7) AS check_clause
  FROM pg.pg_constraint k JOIN pg.pg_namespace n ON n.oid = k.connamespace
  LEFT JOIN pg.pg_class c ON c.oid = k.conrelid LEFT JOIN pg.pg_type t ON t.oid = k.contypid
  WHERE k.contype = 'c' AND tw.is_enabled(coalesce(c.relowner, t.typowner))
  UNION ALL
  SELECT fn.current_database(), n.nspname, n.oid || '_' || c.oid || '_' || a.attnum || '_not_null',
         a.attname || ' IS NOT NULL'
  FROM pg.pg_attribute a JOIN pg.pg_class c ON c.oid = a.attrelid JOIN pg.pg_namespace n ON n.oid = c.relnamespace
  WHERE a.attnotnull AND a.attnum > 0 AND c.relkind = 'r' AND tw.is_enabled(c.relowner);
CREATE VIEW info.key_column_usage AS
  SELECT fn.current_database() AS constraint_catalog, n.nspname AS constraint_schema, k.conname AS constraint_name,
         fn.current_database() AS table_catalog, n.nspname AS table_schema, c.relname AS table_name,
         a.attname AS column_name, k.place AS ordinal_position,
         CASE WHEN k.contype = 'f' THEN list_position(i.indkey, k.other) END AS position_in_unique_constraint
  FROM (SELECT conname, contype, conrelid, conindid, unnest(conkey) AS column, unnest(confkey) AS other,
               generate_subscripts(conkey, 1) AS place
        FROM pg.pg_constraint WHERE contype IN ('p', 'u', 'f')) k
  JOIN pg.pg_class c ON c.oid = k.conrelid JOIN pg.pg_namespace n ON n.oid = c.relnamespace
  JOIN pg.pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.column
  LEFT JOIN pg.pg_index i ON i.indexrelid = k.conindid
  WHERE tw.sees_column(c.oid, a.attnum, c.relowner);
CREATE VIEW info.constraint_column_usage AS
  SELECT fn.current_database() AS table_catalog, n.nspname AS table_schema, c.relname AS table_name,
         a.attname AS column_name, fn.current_database() AS constraint_catalog, o.nspname AS constraint_schema,
         k.conname AS constraint_name
  FROM (SELECT conname, connamespace, CASE contype WHEN 'f' THEN confrelid ELSE conrelid END AS relation,
               unnest(CASE contype WHEN 'f' THEN confkey ELSE conkey END) AS column
        FROM pg.pg_constraint) k
  JOIN pg.pg_class c ON c.oid = k.relation JOIN pg.pg_namespace n ON n.oid = c.relnamespace
  JOIN pg.pg_namespace o ON o.oid = k.connamespace
  JOIN pg.pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.column
  WHERE tw.is_enabled(c.relowner);
CREATE VIEW info.constraint_table_usage AS
  SELECT fn.current_database() AS table_catalog, n.nspname AS table_schema, c.relname AS table_name,
         fn.current_database() AS constraint_catalog, o.nspname AS constraint_schema, k.conname AS constraint_name
  FROM (SELECT conname, connamespace, CASE contype WHEN 'f' THEN confrelid ELSE conrelid END AS relation
        FROM pg.pg_constraint WHERE contype IN ('p', 'u', 'f')) k
  JOIN pg.pg_class c ON c.oid = k.relation JOIN pg.pg_namespace n ON n.oid = c.relnamespace
  JOIN pg.pg_namespace o ON o.oid = k.connamespace
  WHERE tw.is_enabled(c.relowner);
CREATE VIEW info.referential_constraints AS
  SELECT fn.current_database() AS constraint_catalog, n.nspname AS constraint_schema, k.conname AS constraint_name,
         CASE WHEN u.oid IS NOT NULL THEN fn.current_database() END AS unique_constraint_catalog,
         m.nspname AS unique_constraint_schema, u.conname AS unique_constraint_name,
         CASE k.confmatchtype WHEN 'f' THEN 'FULL' ELSE 'NONE' END AS match_option,
         CASE k.confupdtype WHEN 'c' THEN 'CASCADE' WHEN 'n' THEN 'SET NULL' WHEN 'd' THEN 'SET DEFAULT'
              WHEN 'r' THEN 'RESTRICT' ELSE 'NO ACTION' END AS update_rule,
         CASE k.confdeltype WHEN 'c' THEN 'CASCADE' WHEN 'n' THEN 'SET NULL' WHEN 'd' THEN 'SET DEFAULT'
              WHEN 'r' THEN 'RESTRICT' ELSE 'NO ACTION' END AS delete_rule
  FROM pg.pg_constraint k JOIN pg.pg_namespace n ON n.oid = k.connamespace
  LEFT JOIN pg.pg_constraint u ON u.contype IN ('p', 'u') AND u.conindid = k.conindid AND u.conrelid = k.confrelid
  LEFT JOIN pg.pg_namespace m ON m.oid = u.connamespace
  JOIN pg.pg_class c ON c.oid = k.conrelid
  WHERE k.contype = 'f' AND tw.sees_relation(c.oid, c.relowner, tw.on_constraints());
CREATE VIEW info.routines AS
  SELECT fn.current_database() AS specific_catalog, 'pg_catalog' AS specific_schema,
         p.proname || '_' || p.oid AS specific_name, fn.current_database() AS routine_catalog,
         'pg_catalog' AS routine_schema, p.proname AS routine_name, 'FUNCTION' AS routine_type,
         fn.format_type(p.prorettype, NULL) AS data_type, 'EXTERNAL' AS routine_body, 'INTERNAL' AS external_language
  FROM pg.pg_proc p;
CREATE VIEW info.table_privileges AS
  SELECT fn.pg_get_userbyid(g.grantor) AS grantor,
         CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE fn.pg_get_userbyid(g.grantee) END AS grantee,
         fn.current_database() AS table_catalog, n.nspname AS table_schema,
         c.relname AS table_name, g.privilege AS privilege_type,
         CASE WHEN g.grantable THEN 'YES' ELSE 'NO' END AS is_grantable,
         CASE g.privilege WHEN 'SELECT' THEN 'YES' ELSE 'NO' END AS with_hierarchy
  FROM pg.tw_grants g JOIN pg.pg_class c ON c.oid = g.relation JOIN pg.pg_namespace n ON n.oid = c.relnamespace
  WHERE g.place = 0 AND c.relkind IN ('r', 'v', 'f', 'p') AND g.privilege <> 'MAINTAIN'
    AND (g.grantee = 0 OR g.grantee IN (SELECT oid FROM pg.tw_enabled) OR g.grantor IN (SELECT oid FROM pg.tw_enabled));
CREATE VIEW info.role_table_grants AS
  SELECT * FROM info.table_privileges WHERE grantor IN (SELECT role_name FROM info.enabled_roles)
    OR grantee IN (SELECT role_name FROM info.enabled_roles);
CREATE VIEW info.column_privileges AS
  SELECT fn.pg_get_userbyid(g.grantor) AS grantor,
         CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE fn.pg_get_userbyid(g.grantee) END AS grantee,
         fn.current_database() AS table_catalog, n.nspname AS table_schema,
         c.relname AS table_name, a.attname AS column_name, g.privilege AS privilege_type,
         CASE WHEN bool_or(g.grantable) THEN 'YES' ELSE 'NO' END AS is_grantable
  FROM pg.tw_grants g JOIN pg.pg_class c ON c.oid = g.relation JOIN pg.pg_namespace n ON n.oid = c.relnamespace
  JOIN pg.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND g.place IN (0, a.attnum)
  WHERE c.relkind IN ('r', 'v', 'f', 'p') AND g.privilege IN ('INSERT', 'SELECT', 'UPDATE', 'REFERENCES')
    AND (g.grantee = 0 OR g.grantee IN (SELECT oid FROM pg.tw_enabled) OR g.grantor IN (SELECT oid FROM pg.tw_enabled))
  GROUP BY g.grantor, g.grantee, n.nspname, c.relname, a.attname, g.privilege;
CREATE VIEW info.role_column_grants AS
  SELECT * FROM info.column_privileges WHERE grantor IN (SELECT role_name FROM info.enabled_roles)
    OR grantee IN (SELECT role_name FROM info.enabled_roles);
CREATE VIEW info.usage_privileges AS
  SELECT fn.pg_get_userbyid(c.collowner) AS grantor, 'PUBLIC' AS grantee, fn.current_database() AS object_catalog,
         n.nspname AS object_schema, c.collname AS object_name, 'COLLATION' AS object_type, 'USAGE' AS privilege_type,
         'NO' AS is_grantable
  FROM pg.pg_collation c JOIN pg.pg_namespace n ON n.oid = c.collnamespace WHERE c.collencoding IN (-1, 6)
  UNION ALL
  SELECT fn.pg_get_userbyid(x.grantor), CASE x.grantee WHEN 0 THEN 'PUBLIC' ELSE fn.pg_get_userbyid(x.grantee) END,
         fn.current_database(), n.nspname, x.typname, 'DOMAIN', x.privilege_type,
         CASE WHEN x.is_grantable OR x.grantee = x.typowner THEN 'YES' ELSE 'NO' END
  FROM (SELECT typname, typnamespace, typowner, e.grantor, e.grantee, e.privilege_type, e.is_grantable
        FROM (SELECT typname, typnamespace, typowner, fn.aclexplode(coalesce(typacl, fn.acldefault('T', typowner))) AS e
              FROM pg.pg_type WHERE typtype = 'd') t) x
  JOIN pg.pg_namespace n ON n.oid = x.typnamespace
  WHERE tw.is_enabled(x.grantee) OR tw.is_enabled(x.grantor)
  UNION ALL
  SELECT fn.pg_get_userbyid(g.grantor), CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE fn.pg_get_userbyid(g.grantee) END,
         fn.current_database(), n.nspname, c.relname, 'SEQUENCE', g.privilege, CASE WHEN g.grantable THEN 'YES' ELSE 'NO' END
  FROM pg.tw_grants g JOIN pg.pg_class c ON c.oid = g.relation JOIN pg.pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relkind = 'S' AND c.relacl IS NOT NULL AND g.privilege = 'USAGE' AND (tw.is_enabled(g.grantee) OR tw.is_enabled(g.grantor));
CREATE VIEW info.role_usage_grants AS
  SELECT * FROM info.usage_privileges WHERE grantor IN (SELECT role_name FROM info.enabled_roles)
    OR grantee IN (SELECT role_name FROM info.enabled_roles);
CREATE VIEW info.data_type_privileges AS
  SELECT fn.current_database() AS object_catalog, table_schema AS object_schema, table_name AS object_name,
         'TABLE' AS object_type, dtd_identifier FROM info.columns
  UNION ALL SELECT fn.current_database(), domain_schema, domain_name, 'DOMAIN', dtd_identifier FROM info.domains;
CREATE VIEW info.element_types AS
  SELECT fn.current_database() AS object_catalog, x.schema AS object_schema, x.name AS object_name, x.type AS object_type,
         x.identifier AS collection_type_identifier,
         CASE WHEN n.nspname = 'pg_catalog' THEN fn.format_type(t.oid, NULL) ELSE 'USER-DEFINED' END AS data_type,
         fn.current_database() AS udt_catalog, n.nspname AS udt_schema, t.typname AS udt_name,
         'a' || x.identifier AS dtd_identifier
  FROM (SELECT table_schema AS schema, table_name AS name, 'TABLE' AS type, dtd_identifier AS identifier, udt_schema, udt_name
        FROM info.columns WHERE data_type = 'ARRAY'
        UNION ALL SELECT domain_schema, domain_name, 'DOMAIN', dtd_identifier, udt_schema, udt_name
        FROM info.domains WHERE data_type = 'ARRAY') x
  JOIN pg.pg_namespace m ON m.nspname = x.udt_schema JOIN pg.pg_type a ON a.typname = x.udt_name AND a.typnamespace = m.oid
  JOIN pg.pg_type t ON t.oid = a.typelem JOIN pg.pg_namespace n ON n.oid = t.typnamespace;
