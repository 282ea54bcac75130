-- PostgreSQL's catalog functions for the catalog engine, as macros over the system relations.
-- `database.py` defines those that a query uses and loads the relations that they name. DuckDB substitutes a macro's
-- body into the query. The aliases and columns in it have names that no query uses, so that they cannot capture names
-- in an argument. Queries can call the functions in the schema `fn`. Those in `tw` do not exist in PostgreSQL: only
-- other macros and the rewritten query call them.

-- visibility in the search path
CREATE MACRO fn.pg_table_is_visible(p_oid) AS (SELECT bool_or(tw_r.tw_visible) FROM (SELECT oid AS tw_oid, visible
    AS tw_visible FROM pg.tw_relations) tw_r WHERE tw_r.tw_oid = p_oid);
CREATE MACRO fn.pg_type_is_visible(p_oid) AS (SELECT bool_or(tw_t.tw_visible) FROM (SELECT oid AS tw_oid, visible AS
    tw_visible FROM pg.tw_types) tw_t WHERE tw_t.tw_oid = p_oid);
CREATE MACRO fn.pg_function_is_visible(p_oid) AS (SELECT bool_or(true) FROM (SELECT oid AS tw_oid FROM pg.pg_proc)
    tw_p WHERE tw_p.tw_oid = p_oid);
CREATE MACRO fn.pg_collation_is_visible(p_oid) AS (SELECT bool_or(true) FROM (SELECT oid AS tw_oid FROM
    pg.pg_collation) tw_c WHERE tw_c.tw_oid = p_oid);
CREATE MACRO fn.pg_operator_is_visible(p_oid) AS (p_oid IS NOT NULL);
CREATE MACRO fn.pg_opclass_is_visible(p_oid) AS (p_oid IS NOT NULL);
CREATE MACRO fn.pg_opfamily_is_visible(p_oid) AS (p_oid IS NOT NULL);
CREATE MACRO fn.pg_conversion_is_visible(p_oid) AS (p_oid IS NOT NULL);
CREATE MACRO fn.pg_statistics_obj_is_visible(p_oid) AS (p_oid IS NOT NULL);
CREATE MACRO fn.pg_ts_config_is_visible(p_oid) AS (p_oid IS NOT NULL);
CREATE MACRO fn.pg_ts_dict_is_visible(p_oid) AS (p_oid IS NOT NULL);
CREATE MACRO fn.pg_ts_parser_is_visible(p_oid) AS (p_oid IS NOT NULL);
CREATE MACRO fn.pg_ts_template_is_visible(p_oid) AS (p_oid IS NOT NULL);

-- names
CREATE MACRO fn.quote_ident(p_name) AS (
  CASE WHEN regexp_full_match(p_name, '[a-z_][a-z0-9_]*') AND p_name NOT IN (SELECT word FROM pg.tw_reserved)
       THEN p_name ELSE '"' || replace(p_name, '"', '""') || '"' END);
CREATE MACRO tw.identifiers(p_name) AS (
  list_transform(regexp_extract_all(p_name, '"(?:[^"]|"")*"|[^\s."]+'), lambda tw_x: tw.name_part(tw_x)));
CREATE MACRO tw.parsed_identifier(p_name) AS (
  CASE WHEN p_name IS NULL OR (NOT regexp_matches(p_name, '\.\s*$') AND regexp_full_match(p_name,
      '\s*(?:(?:"(?:[^"]|"")+"|[\pL_][\pL\pN_$]*)\s*(?:\.\s*|$))+')) THEN tw.identifiers(p_name)
    ELSE error('string is not a valid identifier: "' || p_name || '"') END);
CREATE MACRO fn.parse_ident(p_name) AS (tw.parsed_identifier(p_name)),
  (p_name, p_strict) AS (tw.parsed_identifier(CASE WHEN p_strict THEN p_name ELSE regexp_extract(p_name,
    '^\s*(?:"(?:[^"]|"")+"|[\pL_][\pL\pN_$]*)(?:\s*\.\s*(?:"(?:[^"]|"")+"|[\pL_][\pL\pN_$]*))*') END));
CREATE MACRO fn.initcap(p_text) AS (array_to_string(list_transform(regexp_extract_all(lower(p_text),
  '[\pL\pN]+|[^\pL\pN]+'), lambda tw_x: upper(tw_x[1]) || tw_x[2:]), ''));
CREATE MACRO fn.quote_literal(p_text) AS ('''' || replace(p_text::VARCHAR, '''', '''''') || '''');
CREATE MACRO fn.format_type(p_type, p_modifier) AS (
  CASE WHEN p_type IS NULL THEN NULL WHEN p_type = 0 THEN '-' ELSE coalesce(
    (SELECT CASE
        WHEN p_modifier IS NULL THEN tw_t.tw_text
        WHEN tw_t.tw_base IN (1083, 1114, 1184, 1186) AND p_modifier >= 0 THEN regexp_replace(tw_t.tw_text, '^(\w+)',
            '\1(' || (p_modifier % 65536) || ')')
        WHEN tw_t.tw_base = 1042 AND p_modifier = -1 THEN 'bpchar'
        WHEN p_modifier < 4 THEN tw_t.tw_text
        WHEN tw_t.tw_base IN (1042, 1043) THEN tw_t.tw_text || '(' || (p_modifier - 4) || ')'
        WHEN tw_t.tw_base = 1700
        THEN tw_t.tw_text || '(' || ((p_modifier - 4) // 65536) || ',' || ((p_modifier - 4) % 65536) || ')'
        ELSE tw_t.tw_text END || tw_t.tw_dimensions
     FROM (SELECT base AS tw_base, dimensions AS tw_dimensions, oid AS tw_oid, text AS tw_text FROM pg.tw_types)
      tw_t WHERE tw_t.tw_oid = p_type), '???') END);
CREATE MACRO tw.format_column_type(p_type, p_modifier, p_dimensions) AS (
  fn.format_type(p_type, p_modifier) || repeat('[]', greatest(p_dimensions - 1, 0)));
CREATE MACRO tw.regclass_text(p_oid) AS (
  CASE WHEN p_oid = 0 THEN '-'
       ELSE coalesce((SELECT tw_r.tw_text FROM (SELECT oid AS tw_oid, text AS tw_text FROM pg.tw_relations) tw_r
      WHERE tw_r.tw_oid = p_oid), p_oid::VARCHAR) END);
CREATE MACRO tw.regtype_text(p_oid) AS (
  CASE WHEN p_oid = 0 THEN '-'
       ELSE coalesce((SELECT tw_t.tw_text || tw_t.tw_dimensions FROM (SELECT dimensions AS tw_dimensions, oid AS
      tw_oid, text AS tw_text FROM pg.tw_types) tw_t WHERE tw_t.tw_oid = p_oid), p_oid::VARCHAR) END);
CREATE MACRO tw.regtype_texts(p_oids) AS (
  CASE WHEN p_oids IS NOT NULL
       THEN coalesce((SELECT list(tw.regtype_text(tw_u.tw_oid)) FROM (SELECT unnest(p_oids) AS tw_oid) tw_u), []) END);
CREATE MACRO tw.regnamespace_text(p_oid) AS (
  CASE WHEN p_oid = 0 THEN '-'
       ELSE coalesce((SELECT fn.quote_ident(tw_n.tw_nspname) FROM (SELECT nspname AS tw_nspname, oid AS tw_oid FROM
      pg.pg_namespace) tw_n WHERE tw_n.tw_oid = p_oid), p_oid::VARCHAR) END);
CREATE MACRO tw.regrole_text(p_oid) AS (
  CASE WHEN p_oid = 0 THEN '-'
       ELSE coalesce((SELECT fn.quote_ident(tw_r.tw_rolname) FROM (SELECT oid AS tw_oid, rolname AS tw_rolname FROM
      pg.pg_authid) tw_r WHERE tw_r.tw_oid = p_oid), p_oid::VARCHAR) END);
CREATE MACRO tw.regproc_text(p_oid) AS (
  CASE WHEN p_oid = 0 THEN '-'
       ELSE coalesce((SELECT tw_p.tw_proname FROM (SELECT oid AS tw_oid, proname AS tw_proname FROM pg.pg_proc) tw_p
                      WHERE tw_p.tw_oid = p_oid), p_oid::VARCHAR) END);
CREATE MACRO tw.regprocedure_text(p_oid) AS (
  CASE WHEN p_oid = 0 THEN '-'
       ELSE coalesce((SELECT tw_f.tw_name || '(' || replace(tw_f.tw_arguments, ', ', ',') || ')' FROM (SELECT arguments AS tw_arguments,
      name AS tw_name, oid AS tw_oid FROM pg.tw_functions) tw_f WHERE tw_f.tw_oid = p_oid), p_oid::VARCHAR) END);
CREATE MACRO tw.regoperator_text(p_oid) AS (
  CASE WHEN p_oid = 0 THEN '0'
       ELSE coalesce((SELECT tw_o.tw_name || '(' || CASE tw_o.tw_left WHEN 0 THEN 'NONE' ELSE tw.regtype_text(tw_o.tw_left) END
        || ',' || tw.regtype_text(tw_o.tw_right) || ')' FROM (SELECT oid AS tw_oid, oprname AS tw_name, oprleft AS tw_left,
        oprright AS tw_right FROM pg.pg_operator) tw_o WHERE tw_o.tw_oid = p_oid), p_oid::VARCHAR) END);
CREATE MACRO tw.regoper_text(p_oid) AS (
  CASE WHEN p_oid = 0 THEN '0'
       ELSE coalesce((SELECT tw_o.tw_name FROM (SELECT oid AS tw_oid, oprname AS tw_name FROM pg.pg_operator) tw_o
                      WHERE tw_o.tw_oid = p_oid), p_oid::VARCHAR) END);
CREATE MACRO fn.pg_get_userbyid(p_oid) AS (
  coalesce((SELECT tw_r.tw_rolname FROM (SELECT oid AS tw_oid, rolname AS tw_rolname FROM pg.pg_authid) tw_r WHERE
      tw_r.tw_oid = p_oid), 'unknown (OID=' || p_oid || ')'));
CREATE MACRO fn.pg_encoding_to_char(p_encoding) AS (CASE WHEN p_encoding = 6 THEN 'UTF8' ELSE '' END);
CREATE MACRO fn.pg_char_to_encoding(p_name) AS (CASE WHEN upper(p_name) IN ('UTF8', 'UTF-8') THEN 6 ELSE -1 END);
CREATE MACRO fn.getdatabaseencoding() AS 'UTF8';
CREATE MACRO fn.current_database() AS (SELECT tw_s.database FROM pg.tw_session tw_s);

-- privileges. `tw_enabled` has the roles whose privileges the session's role has.
CREATE MACRO tw.acl_role(p_name) AS (
  CASE WHEN regexp_full_match(p_name, '[A-Za-z0-9_]*') THEN p_name ELSE '"' || replace(p_name, '"', '""') || '"' END);
CREATE MACRO tw.acl_role_name(p_role) AS (
  coalesce((SELECT tw.acl_role(tw_r.tw_rolname) FROM (SELECT oid AS tw_oid, rolname AS tw_rolname FROM pg.pg_authid) tw_r
    WHERE tw_r.tw_oid = p_role), p_role::VARCHAR));
CREATE MACRO tw.acl_letters() AS TABLE
  SELECT unnest(['a', 'r', 'w', 'd', 'D', 'x', 't', 'X', 'U', 'C', 'T', 'c', 's', 'A', 'm']) AS letter,
    unnest(range(15)) AS place, unnest(['INSERT', 'SELECT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER',
      'EXECUTE', 'USAGE', 'CREATE', 'TEMPORARY', 'CONNECT', 'SET', 'ALTER SYSTEM', 'MAINTAIN']) AS privilege;
CREATE MACRO fn.acldefault(p_kind, p_owner) AS (
  SELECT CASE p_kind::VARCHAR
    WHEN 'c' THEN []::VARCHAR[]
    WHEN 'r' THEN [tw_o.tw_name || '=arwdDxtm/' || tw_o.tw_name]
    WHEN 's' THEN [tw_o.tw_name || '=rwU/' || tw_o.tw_name]
    WHEN 'd' THEN ['=U/' || tw_o.tw_name, tw_o.tw_name || '=UC/' || tw_o.tw_name]
    WHEN 'f' THEN ['=X/' || tw_o.tw_name, tw_o.tw_name || '=X/' || tw_o.tw_name]
    WHEN 'l' THEN ['=U/' || tw_o.tw_name, tw_o.tw_name || '=U/' || tw_o.tw_name]
    WHEN 'T' THEN ['=U/' || tw_o.tw_name, tw_o.tw_name || '=U/' || tw_o.tw_name]
    WHEN 'L' THEN [tw_o.tw_name || '=rw/' || tw_o.tw_name]
    WHEN 'n' THEN [tw_o.tw_name || '=UC/' || tw_o.tw_name]
    WHEN 'p' THEN [tw_o.tw_name || '=sA/' || tw_o.tw_name]
    WHEN 't' THEN [tw_o.tw_name || '=C/' || tw_o.tw_name]
    WHEN 'F' THEN [tw_o.tw_name || '=U/' || tw_o.tw_name]
    WHEN 'S' THEN [tw_o.tw_name || '=U/' || tw_o.tw_name]
    ELSE error('unrecognized object type abbreviation: ' || p_kind) END
  FROM (SELECT tw.acl_role_name(p_owner) AS tw_name) tw_o);
CREATE MACRO tw.acl_entries(p_acl) AS (
  SELECT list({'grantor': tw_g.tw_oid, 'grantee': coalesce(tw_e.tw_oid, 0)::UINTEGER, 'privilege_type': tw_l.privilege,
      'is_grantable': contains(tw_i.tw_letters, tw_l.letter || '*')} ORDER BY tw_i.tw_place, tw_l.place)
  FROM (SELECT tw_p.tw_place, tw_p.tw_parts[1] AS tw_grantee, tw_p.tw_parts[2] AS tw_letters, tw_p.tw_parts[3] AS tw_grantor
        FROM (SELECT tw_u.tw_place, regexp_extract(tw_u.tw_item, '^("(?:[^"]|"")*"|[^"=]*)=([A-Za-z*]*)/(.*)$',
                ['1', '2', '3']) AS tw_split, [tw_split['1'], tw_split['2'], tw_split['3']] AS tw_parts
              FROM (SELECT unnest(p_acl::VARCHAR[]) AS tw_item, unnest(range(len(p_acl))) AS tw_place) tw_u) tw_p) tw_i
  JOIN tw.acl_letters() tw_l ON contains(tw_i.tw_letters, tw_l.letter)
  JOIN (SELECT oid AS tw_oid, tw.acl_role(rolname) AS tw_name FROM pg.pg_authid) tw_g ON tw_g.tw_name = tw_i.tw_grantor
  LEFT JOIN (SELECT oid AS tw_oid, tw.acl_role(rolname) AS tw_name FROM pg.pg_authid) tw_e
    ON tw_e.tw_name = tw_i.tw_grantee);
CREATE MACRO fn.aclexplode(p_acl) AS (unnest(tw.acl_entries(p_acl)));
CREATE MACRO fn.makeaclitem(p_grantee, p_grantor, p_privileges, p_grantable) AS (
  SELECT CASE WHEN p_grantee IS NULL OR p_grantor IS NULL OR p_privileges IS NULL OR p_grantable IS NULL THEN NULL
    WHEN tw_p.tw_unknown IS NOT NULL THEN error('unrecognized privilege type: "' || tw_p.tw_unknown || '"')
    ELSE CASE WHEN p_grantee = 0 THEN '' ELSE tw.acl_role_name(p_grantee) END || '=' || tw_p.tw_letters || '/'
      || tw.acl_role_name(p_grantor) END
  FROM (SELECT string_agg(tw_w.tw_letter || CASE WHEN p_grantable THEN '*' ELSE '' END, '' ORDER BY tw_w.tw_place)
            AS tw_letters, min(tw_w.tw_unknown) AS tw_unknown
        FROM (SELECT DISTINCT tw_l.letter AS tw_letter, tw_l.place AS tw_place,
                CASE WHEN tw_l.letter IS NULL THEN tw_n.tw_name END AS tw_unknown
              FROM (SELECT trim(unnest(string_split(p_privileges, ','))) AS tw_name) tw_n LEFT JOIN tw.acl_letters() tw_l
                ON upper(tw_n.tw_name) IN (tw_l.privilege, CASE tw_l.letter WHEN 'T' THEN 'TEMP' END)) tw_w) tw_p);

-- what the views of information_schema show to the session's role: objects that it owns or has a privilege on
CREATE MACRO tw.is_enabled(p_role) AS (
  p_role = 0 OR p_role IN (SELECT tw_e.tw_oid FROM (SELECT oid AS tw_oid FROM pg.tw_enabled) tw_e));
CREATE MACRO tw.sees_relation(p_relation, p_owner, p_privileges) AS (
  tw.is_enabled(p_owner) OR p_relation IN (
    SELECT tw_g.tw_relation FROM (SELECT relation AS tw_relation, grantee AS tw_grantee, privilege AS tw_privilege
      FROM pg.tw_grants) tw_g WHERE tw.is_enabled(tw_g.tw_grantee) AND list_contains(p_privileges, tw_g.tw_privilege)));
CREATE MACRO tw.sees_column(p_relation, p_column, p_owner) AS (
  tw.is_enabled(p_owner) OR EXISTS (
    SELECT 1 FROM (SELECT relation AS tw_relation, place AS tw_place, grantee AS tw_grantee, privilege AS tw_privilege
      FROM pg.tw_grants) tw_g WHERE tw_g.tw_relation = p_relation AND tw_g.tw_place IN (0, p_column)
      AND tw.is_enabled(tw_g.tw_grantee) AND tw_g.tw_privilege IN ('SELECT', 'INSERT', 'UPDATE', 'REFERENCES')));
CREATE MACRO tw.sees_object(p_kind, p_object, p_owner) AS (
  tw.is_enabled(p_owner) OR p_object IN (
    SELECT tw_g.tw_object FROM (SELECT kind AS tw_kind, object AS tw_object, grantee AS tw_grantee
      FROM pg.tw_object_grants) tw_g WHERE tw_g.tw_kind = p_kind AND tw.is_enabled(tw_g.tw_grantee)));
CREATE MACRO tw.on_relations() AS (['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']);
CREATE MACRO tw.on_constraints() AS (['INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']);
CREATE MACRO tw.on_sequences() AS (['SELECT', 'UPDATE', 'USAGE']);

-- has_table_privilege and similar functions of columns. An object is an OID or a name; the result is NULL without one.
-- `p_roles`: the role and those whose privileges it has, and 0 for PUBLIC. `p_plain` and `p_options`: the privileges of
-- which the role needs one, itself or with GRANT OPTION. The owner has all options. `p_place`: the number of a column,
-- 0 for the whole relation, -1 for any column. Relations are joined by one key, whether OIDs or names: a subquery that
-- finds the OID of a name would be joined with all relations.
CREATE MACRO tw.name_part(p_part) AS (
  CASE WHEN p_part[1] = '"' THEN replace(p_part[2:-2], '""', '"') ELSE lower(p_part) END);
CREATE MACRO tw.relation_key(p_relation) AS (
  CASE WHEN typeof(p_relation) <> 'VARCHAR' THEN p_relation::VARCHAR ELSE
    list_transform([regexp_extract(p_relation::VARCHAR,
        '^\s*(?:(?:(?:"(?:[^"]|"")*"|[^".]+)\.)?("(?:[^"]|"")*"|[^".]+)\.)?("(?:[^"]|"")*"|[^".]+)\s*$', ['s', 'n'])],
      lambda tw_x: tw.name_part(tw_x['s']) || chr(1) || tw.name_part(tw_x['n']))[1] END);
CREATE MACRO tw.relation_keys() AS TABLE
  SELECT oid::VARCHAR AS key, oid FROM pg.pg_class
  UNION ALL SELECT n.nspname || chr(1) || c.relname, c.oid
  FROM pg.pg_class c JOIN pg.pg_namespace n ON n.oid = c.relnamespace
  UNION ALL SELECT chr(1) || c.relname, c.oid FROM pg.pg_class c JOIN pg.tw_relations r ON r.oid = c.oid AND r.visible;
CREATE MACRO tw.type_keys() AS TABLE
  SELECT n.nspname || chr(1) || t.typname AS key, t.oid FROM pg.pg_type t JOIN pg.pg_namespace n ON n.oid = t.typnamespace
  UNION SELECT chr(1) || t.typname, t.oid FROM pg.pg_type t JOIN pg.tw_types v ON v.oid = t.oid AND v.visible
  UNION SELECT chr(1) || v.text || v.dimensions, v.oid FROM pg.tw_types v;
-- the OID of the object that a text names, in a cast to regclass etc. An error if there is none
CREATE MACRO tw.oid_or_error(p_kind, p_name, p_oid) AS (
  CASE WHEN p_name IS NULL THEN NULL WHEN regexp_full_match(p_name, '[0-9]+') THEN try_cast(p_name AS UINTEGER)
       ELSE coalesce(p_oid, error(p_kind || ' "' || p_name || '" does not exist')::UINTEGER) END);
CREATE MACRO tw.regclass_oid(p_name) AS (tw.oid_or_error('relation', p_name, (
  SELECT min(tw_k.tw_oid) FROM (SELECT key AS tw_key, oid AS tw_oid FROM tw.relation_keys()) tw_k
  WHERE tw_k.tw_key = tw.relation_key(p_name))));
CREATE MACRO tw.regtype_oid(p_name) AS (tw.oid_or_error('type', p_name, (
  SELECT min(tw_k.tw_oid) FROM (SELECT key AS tw_key, oid AS tw_oid FROM tw.type_keys()) tw_k
  WHERE tw_k.tw_key = tw.relation_key(p_name))));
CREATE MACRO tw.regnamespace_oid(p_name) AS (tw.oid_or_error('schema', p_name, tw.schema_oid(tw.name_part(p_name))));
CREATE MACRO tw.regrole_oid(p_name) AS (tw.oid_or_error('role', p_name, tw.role_oid(tw.name_part(p_name))));
CREATE MACRO tw.column_number(p_relation, p_column) AS (
  SELECT min(tw_a.tw_number)::INTEGER FROM (SELECT k.key AS tw_key, a.attname AS tw_name, a.attnum AS tw_number
    FROM tw.relation_keys() k JOIN pg.pg_attribute a ON a.attrelid = k.oid) tw_a
  WHERE tw_a.tw_key = tw.relation_key(p_relation) AND CASE WHEN typeof(p_column) = 'VARCHAR'
    THEN tw_a.tw_name = p_column::VARCHAR ELSE tw_a.tw_number = try_cast(p_column AS INTEGER) END);
CREATE MACRO tw.schema_oid(p_schema) AS (
  CASE WHEN typeof(p_schema) <> 'VARCHAR' THEN try_cast(p_schema AS UINTEGER) ELSE (
    SELECT min(tw_n.tw_oid) FROM (SELECT oid AS tw_oid, nspname AS tw_name FROM pg.pg_namespace) tw_n
    WHERE tw_n.tw_name = p_schema::VARCHAR) END);
CREATE MACRO tw.database_oid(p_database) AS (
  CASE WHEN typeof(p_database) <> 'VARCHAR' THEN try_cast(p_database AS UINTEGER) ELSE (
    SELECT min(tw_d.tw_oid) FROM (SELECT oid AS tw_oid, datname AS tw_name FROM pg.pg_database) tw_d
    WHERE tw_d.tw_name = p_database::VARCHAR) END);
CREATE MACRO tw.role_oid(p_role) AS (
  CASE WHEN typeof(p_role) <> 'VARCHAR' THEN try_cast(p_role AS UINTEGER) ELSE (
    SELECT min(tw_r.tw_oid) FROM (SELECT oid AS tw_oid, rolname AS tw_name FROM pg.pg_authid) tw_r
    WHERE tw_r.tw_name = p_role::VARCHAR) END);
CREATE MACRO tw.has_on_relation(p_relation, p_place, p_roles, p_plain, p_options) AS (
  SELECT bool_or((len(p_options) > 0 AND list_contains(p_roles, tw_c.tw_owner)) OR coalesce(
    (p_place = -1 OR tw_c.tw_place = 0 OR tw_c.tw_place = p_place) AND list_contains(p_roles, tw_c.tw_grantee)
    AND (list_contains(p_plain, tw_c.tw_privilege)
         OR (tw_c.tw_grantable AND list_contains(p_options, tw_c.tw_privilege))), false))
  FROM (SELECT k.key AS tw_key, c.relowner AS tw_owner, g.place AS tw_place, g.grantee AS tw_grantee,
          g.privilege AS tw_privilege, g.grantable AS tw_grantable
        FROM tw.relation_keys() k JOIN pg.pg_class c ON c.oid = k.oid LEFT JOIN pg.tw_grants g ON g.relation = c.oid) tw_c
  WHERE tw_c.tw_key = tw.relation_key(p_relation));
CREATE MACRO tw.has_on_object(p_kind, p_object, p_roles, p_plain, p_options) AS (
  SELECT bool_or((len(p_options) > 0 AND list_contains(p_roles, tw_o.tw_owner)) OR coalesce(
    list_contains(p_roles, tw_o.tw_grantee) AND (list_contains(p_plain, tw_o.tw_privilege)
      OR (tw_o.tw_grantable AND list_contains(p_options, tw_o.tw_privilege))), false))
  FROM (SELECT kind AS tw_kind, object AS tw_object, owner AS tw_owner, grantee AS tw_grantee, privilege AS tw_privilege,
          grantable AS tw_grantable FROM pg.tw_object_grants) tw_o
  WHERE tw_o.tw_kind = p_kind AND tw_o.tw_object = p_object);
CREATE MACRO tw.if_relation(p_relation) AS (
  SELECT bool_or(true) FROM (SELECT key AS tw_key FROM tw.relation_keys()) tw_k
  WHERE tw_k.tw_key = tw.relation_key(p_relation));
CREATE MACRO tw.if_column(p_relation, p_column, p_number) AS (
  CASE WHEN p_number IS NOT NULL THEN tw.if_relation(p_relation)
    WHEN typeof(p_column) = 'VARCHAR' AND p_column IS NOT NULL AND tw.if_relation(p_relation)
    THEN error('column "' || p_column || '" of relation "' || regexp_extract(tw.regclass_text(tw.relation_oid(p_relation)),
      '[^.]*$') || '" does not exist')::BOOLEAN END);
CREATE MACRO tw.relation_oid(p_relation) AS (
  SELECT min(tw_k.tw_oid) FROM (SELECT key AS tw_key, oid AS tw_oid FROM tw.relation_keys()) tw_k
  WHERE tw_k.tw_key = tw.relation_key(p_relation));
CREATE MACRO tw.is_one_of(p_object, p_oids) AS (CASE WHEN p_object IS NOT NULL THEN list_contains(p_oids, p_object) END);

-- definitions
CREATE MACRO fn.pg_get_expr(p_node, p_relation) AS p_node, (p_node, p_relation, p_pretty) AS p_node;
CREATE MACRO fn.pg_get_viewdef(p_oid) AS (
    SELECT tw_d.tw_text FROM (SELECT oid AS tw_oid, place AS tw_place, text AS tw_text FROM pg.tw_definitions) tw_d
      WHERE tw_d.tw_oid = p_oid AND tw_d.tw_place = 0),
  (p_oid, p_pretty) AS (SELECT tw_d.tw_text FROM (SELECT oid AS tw_oid, place AS tw_place, text AS tw_text FROM
      pg.tw_definitions) tw_d WHERE tw_d.tw_oid = p_oid AND tw_d.tw_place = 0);
CREATE MACRO fn.pg_get_indexdef(p_oid) AS (
    SELECT tw_d.tw_text FROM (SELECT oid AS tw_oid, place AS tw_place, text AS tw_text FROM pg.tw_definitions) tw_d
      WHERE tw_d.tw_oid = p_oid AND tw_d.tw_place = 0),
  (p_oid, p_place, p_pretty) AS (SELECT tw_d.tw_text FROM (SELECT oid AS tw_oid, place AS tw_place, text AS tw_text
      FROM pg.tw_definitions) tw_d WHERE tw_d.tw_oid = p_oid AND tw_d.tw_place = p_place);
CREATE MACRO fn.pg_get_constraintdef(p_oid) AS (SELECT tw_c.tw_text FROM (SELECT oid AS tw_oid, text AS tw_text FROM
    pg.tw_constraints) tw_c WHERE tw_c.tw_oid = p_oid),
  (p_oid, p_pretty) AS (SELECT CASE WHEN p_pretty THEN regexp_replace(tw_c.tw_text,
      '^CHECK \(\((.*)\)\)( NOT VALID)?$', 'CHECK (\1)\2', 's') ELSE tw_c.tw_text END
      FROM (SELECT oid AS tw_oid, text AS tw_text FROM pg.tw_constraints) tw_c WHERE tw_c.tw_oid = p_oid);
CREATE MACRO fn.pg_get_function_arguments(p_oid) AS (SELECT tw_f.tw_arguments FROM (SELECT arguments AS
    tw_arguments, oid AS tw_oid FROM pg.tw_functions) tw_f WHERE tw_f.tw_oid = p_oid);
CREATE MACRO fn.pg_get_function_identity_arguments(p_oid) AS (
  SELECT tw_f.tw_arguments FROM (SELECT arguments AS tw_arguments, oid AS tw_oid FROM pg.tw_functions) tw_f WHERE
      tw_f.tw_oid = p_oid);
CREATE MACRO fn.pg_get_function_result(p_oid) AS (SELECT tw_f.tw_result FROM (SELECT oid AS tw_oid, result AS
    tw_result FROM pg.tw_functions) tw_f WHERE tw_f.tw_oid = p_oid);
CREATE MACRO fn.pg_get_functiondef(p_oid) AS (SELECT tw_f.tw_definition FROM (SELECT definition AS tw_definition,
    oid AS tw_oid FROM pg.tw_functions) tw_f WHERE tw_f.tw_oid = p_oid);
CREATE MACRO fn.pg_get_function_sqlbody(p_oid) AS (CASE WHEN p_oid IS NULL THEN NULL::VARCHAR END);

-- comments; properties of relations; NULL for rules, triggers, partitions and extended statistics; settings
CREATE MACRO fn.obj_description(p_oid) AS (
    SELECT tw_d.tw_description FROM (SELECT description AS tw_description, objoid AS tw_objoid, objsubid AS
      tw_objsubid FROM pg.pg_description) tw_d WHERE tw_d.tw_objoid = p_oid AND tw_d.tw_objsubid = 0),
  (p_oid, p_catalog) AS (SELECT tw_d.tw_description FROM (SELECT description AS tw_description, objoid AS tw_objoid,
      objsubid AS tw_objsubid, classoid AS tw_classoid FROM pg.pg_description) tw_d WHERE tw_d.tw_objoid = p_oid AND
      tw_d.tw_objsubid = 0 AND tw_d.tw_classoid = CASE p_catalog WHEN 'pg_class' THEN 1259
      WHEN 'pg_namespace' THEN 2615 WHEN 'pg_type' THEN 1247 WHEN 'pg_constraint' THEN 2606 END);
CREATE MACRO fn.col_description(p_oid, p_column) AS (
  SELECT tw_d.tw_description FROM (SELECT description AS tw_description, objoid AS tw_objoid, objsubid AS
      tw_objsubid FROM pg.pg_description) tw_d WHERE tw_d.tw_objoid = p_oid AND tw_d.tw_objsubid = p_column);
CREATE MACRO fn.shobj_description(p_oid, p_catalog) AS (
  SELECT tw_d.tw_description FROM (SELECT description AS tw_description, objoid AS tw_objoid FROM
      pg.pg_shdescription) tw_d WHERE tw_d.tw_objoid = p_oid);
CREATE MACRO fn.pg_get_serial_sequence(p_table, p_column) AS (
  CASE WHEN NOT regexp_full_match(p_table, '[0-9]+') AND tw.regclass_oid(p_table) IS NOT NULL AND p_column IS NOT NULL
      AND tw.column_number(p_table, p_column) IS NULL
    THEN error('column "' || p_column || '" of relation "' || p_table || '" does not exist')::VARCHAR
    ELSE (SELECT tw_s.tw_sequence FROM (SELECT relation AS tw_relation, "column" AS tw_column, sequence AS tw_sequence
      FROM pg.tw_serials) tw_s WHERE tw_s.tw_relation = tw.regclass_oid(p_table) AND tw_s.tw_column = p_column) END);
CREATE MACRO tw.serial_sequence_oid(p_table, p_column) AS (
  SELECT tw_s.tw_oid FROM (SELECT relation AS tw_relation, "column" AS tw_column, oid AS tw_oid FROM
      pg.tw_serials) tw_s WHERE tw_s.tw_relation = tw.regclass_oid(p_table) AND tw_s.tw_column = p_column);
CREATE MACRO fn.pg_sequence_parameters(p_oid) AS (
  SELECT {'start_value': tw_s.tw_start, 'minimum_value': tw_s.tw_min, 'maximum_value': tw_s.tw_max, 'increment':
      tw_s.tw_increment, 'cycle_option': tw_s.tw_cycle, 'cache_size': tw_s.tw_cache, 'data_type': tw_s.tw_type} FROM
      (SELECT seqrelid AS tw_oid, seqstart AS tw_start, seqmin AS tw_min, seqmax AS tw_max, seqincrement AS
      tw_increment, seqcycle AS tw_cycle, seqcache AS tw_cache, seqtypid AS tw_type FROM pg.pg_sequence) tw_s
      WHERE tw_s.tw_oid = p_oid);
CREATE MACRO fn.pg_sequence_last_value(p_oid) AS (SELECT tw_s.tw_last_value FROM (SELECT oid AS tw_oid, last_value
    AS tw_last_value FROM pg.tw_last_values) tw_s WHERE tw_s.tw_oid = p_oid);
CREATE MACRO fn.pg_get_ruledef(p_oid) AS (NULL::VARCHAR), (p_oid, p_pretty) AS (NULL::VARCHAR);
CREATE MACRO fn.pg_get_triggerdef(p_oid) AS (NULL::VARCHAR), (p_oid, p_pretty) AS (NULL::VARCHAR);
CREATE MACRO fn.pg_partition_ancestors(p_oid) AS (unnest([]::UINTEGER[]));
CREATE MACRO fn.pg_get_partkeydef(p_oid) AS (NULL::VARCHAR);
CREATE MACRO fn.pg_get_statisticsobjdef(p_oid) AS (NULL::VARCHAR);
CREATE MACRO fn.pg_get_statisticsobjdef_columns(p_oid) AS (NULL::VARCHAR);
CREATE MACRO fn.pg_relation_is_publishable(p_oid) AS (p_oid::UINTEGER >= 16384);
CREATE MACRO fn.pg_tablespace_location(p_oid) AS (CASE WHEN p_oid IS NOT NULL THEN '' END);
CREATE MACRO fn.pg_index_column_has_property(p_oid, p_column, p_property) AS (
  CASE p_property WHEN 'asc' THEN true WHEN 'orderable' THEN true WHEN 'nulls_last' THEN true ELSE false END);
CREATE MACRO fn.pg_indexam_has_property(p_method, p_property) AS (
  SELECT CASE lower(p_property)
    WHEN 'can_order' THEN tw_m.tw_name = 'btree'
    WHEN 'can_unique' THEN tw_m.tw_name = 'btree'
    WHEN 'can_multi_col' THEN tw_m.tw_name NOT IN ('hash', 'spgist')
    WHEN 'can_exclude' THEN tw_m.tw_name NOT IN ('gin', 'brin')
    WHEN 'can_include' THEN tw_m.tw_name IN ('btree', 'gist', 'spgist') END
  FROM (SELECT oid AS tw_oid, amname AS tw_name FROM pg.pg_am WHERE amtype = 'i') tw_m WHERE tw_m.tw_oid = p_method);
CREATE MACRO fn.pg_index_has_property(p_oid, p_property) AS (
  SELECT CASE lower(p_property)
    WHEN 'clusterable' THEN tw_i.tw_name IN ('btree', 'gist')
    WHEN 'index_scan' THEN tw_i.tw_name NOT IN ('gin', 'brin')
    WHEN 'bitmap_scan' THEN true
    WHEN 'backward_scan' THEN tw_i.tw_name IN ('btree', 'hash') END
  FROM (SELECT c.oid AS tw_oid, m.amname AS tw_name FROM pg.pg_class c JOIN pg.pg_am m ON m.oid = c.relam
        WHERE c.relkind = 'i') tw_i WHERE tw_i.tw_oid = p_oid);
CREATE MACRO fn.pg_my_temp_schema() AS (0::UINTEGER);
CREATE MACRO fn.pg_is_other_temp_schema(p_oid) AS (CASE WHEN p_oid IS NOT NULL THEN false END);
CREATE MACRO tw.xid_age(p_xid) AS (CASE WHEN p_xid IS NOT NULL THEN 0 END);
CREATE MACRO fn.pg_is_in_recovery() AS false;
CREATE MACRO fn.pg_is_wal_replay_paused() AS (error('recovery is not in progress')::BOOLEAN);
CREATE MACRO tw.lsn(p_lsn) AS (
  ('0x' || split_part(p_lsn, '/', 1))::BIGINT * 4294967296::DECIMAL(38, 0) + ('0x' || split_part(p_lsn, '/', 2))::BIGINT);
CREATE MACRO fn.pg_wal_lsn_diff(p_end, p_begin) AS (tw.lsn(p_end) - tw.lsn(p_begin));
CREATE MACRO fn.pg_trigger_depth() AS 0;
CREATE MACRO fn.pg_jit_available() AS false;
CREATE MACRO fn.pg_client_encoding() AS 'UTF8';
CREATE MACRO fn.pg_encoding_max_length(p_encoding) AS (CASE WHEN p_encoding = 6 THEN 4 END);
CREATE MACRO fn.pg_relation_filenode(p_oid) AS (
  SELECT nullif(tw_c.tw_relfilenode, 0) FROM (SELECT oid AS tw_oid, relfilenode AS tw_relfilenode FROM pg.pg_class) tw_c
  WHERE tw_c.tw_oid = p_oid);
CREATE MACRO fn.pg_describe_object(p_catalog, p_oid, p_column) AS (
  CASE p_catalog
    WHEN 1259 THEN (
      SELECT CASE WHEN p_column = 0 THEN '' ELSE 'column ' || (
          SELECT tw_a.tw_name FROM (SELECT attrelid AS tw_relation, attnum AS tw_number, attname AS tw_name
            FROM pg.pg_attribute) tw_a WHERE tw_a.tw_relation = p_oid AND tw_a.tw_number = p_column) || ' of ' END
        || CASE tw_c.tw_kind WHEN 'i' THEN 'index ' WHEN 'S' THEN 'sequence ' WHEN 'v' THEN 'view '
             WHEN 'm' THEN 'materialized view ' ELSE 'table ' END || tw.regclass_text(tw_c.tw_oid)
      FROM (SELECT oid AS tw_oid, relkind AS tw_kind FROM pg.pg_class) tw_c WHERE tw_c.tw_oid = p_oid)
    WHEN 1247 THEN 'type ' || tw.regtype_text(p_oid)
    WHEN 2615 THEN 'schema ' || tw.regnamespace_text(p_oid)
    WHEN 1260 THEN 'role ' || fn.pg_get_userbyid(p_oid)
    WHEN 1262 THEN 'database ' || (SELECT tw_d.tw_name FROM (SELECT oid AS tw_oid, datname AS tw_name
      FROM pg.pg_database) tw_d WHERE tw_d.tw_oid = p_oid)
    WHEN 2606 THEN (
      SELECT 'constraint ' || fn.quote_ident(tw_k.tw_name) || ' on table ' || tw.regclass_text(tw_k.tw_relation)
      FROM (SELECT oid AS tw_oid, conname AS tw_name, conrelid AS tw_relation FROM pg.pg_constraint) tw_k
      WHERE tw_k.tw_oid = p_oid AND tw_k.tw_relation <> 0)
    WHEN 2618 THEN (
      SELECT 'rule _RETURN on ' || CASE tw_c.tw_kind WHEN 'm' THEN 'materialized view ' ELSE 'view ' END
        || tw.regclass_text(tw_c.tw_oid)
      FROM (SELECT r.oid AS tw_rule, c.oid AS tw_oid, c.relkind AS tw_kind FROM pg.pg_rewrite r JOIN pg.pg_class c
        ON c.oid = r.ev_class) tw_c WHERE tw_c.tw_rule = p_oid)
  END);
-- relations, types and schemas; the other objects of pg_depend have NULLs
CREATE MACRO fn.pg_identify_object(p_catalog, p_oid, p_column) AS (
  CASE p_catalog
    WHEN 1259 THEN (
      SELECT {'type': CASE tw_c.tw_kind WHEN 'i' THEN 'index' WHEN 'S' THEN 'sequence' WHEN 'v' THEN 'view'
             WHEN 'm' THEN 'materialized view' ELSE 'table' END || CASE WHEN p_column = 0 THEN '' ELSE ' column' END,
        'schema': tw_c.tw_schema, 'name': CASE WHEN p_column = 0 THEN fn.quote_ident(tw_c.tw_name) END,
        'identity': fn.quote_ident(tw_c.tw_schema) || '.' || fn.quote_ident(tw_c.tw_name)
          || CASE WHEN p_column = 0 THEN '' ELSE '.' || (
          SELECT fn.quote_ident(tw_a.tw_name) FROM (SELECT attrelid AS tw_relation, attnum AS tw_number, attname AS tw_name
            FROM pg.pg_attribute) tw_a WHERE tw_a.tw_relation = p_oid AND tw_a.tw_number = p_column) END}
      FROM (SELECT c.oid AS tw_oid, c.relkind AS tw_kind, c.relname AS tw_name, n.nspname AS tw_schema
        FROM pg.pg_class c JOIN pg.pg_namespace n ON n.oid = c.relnamespace) tw_c WHERE tw_c.tw_oid = p_oid)
    WHEN 1247 THEN (
      SELECT {'type': 'type', 'schema': tw_t.tw_schema, 'name': fn.quote_ident(tw_t.tw_name),
        'identity': CASE WHEN tw_t.tw_schema = 'pg_catalog' THEN tw.regtype_text(p_oid)
          ELSE fn.quote_ident(tw_t.tw_schema) || '.' || fn.quote_ident(tw_t.tw_name) END}
      FROM (SELECT t.oid AS tw_oid, t.typname AS tw_name, n.nspname AS tw_schema
        FROM pg.pg_type t JOIN pg.pg_namespace n ON n.oid = t.typnamespace) tw_t WHERE tw_t.tw_oid = p_oid)
    WHEN 2615 THEN {'type': 'schema', 'schema': NULL, 'name': tw.regnamespace_text(p_oid),
      'identity': tw.regnamespace_text(p_oid)}
  END);
CREATE MACRO fn.host(p_address) AS (split_part(p_address::VARCHAR, '/', 1));
-- a view is updatable if one of its columns is; rows of other automatically updatable views can only be deleted
CREATE MACRO fn.pg_relation_is_updatable(p_oid, p_triggers) AS (
  (SELECT CASE WHEN tw_c.tw_relkind = 'r' AND tw_c.tw_oid >= 16384 THEN 28
      ELSE coalesce((SELECT CASE WHEN max(tw_u.tw_place) > 0 THEN 28 WHEN max(tw_u.tw_place) = 0 THEN 16 END
        FROM (SELECT oid AS tw_view, place AS tw_place FROM pg.tw_updatable) tw_u WHERE tw_u.tw_view = p_oid), 0) END
    FROM (SELECT oid AS tw_oid, relkind AS tw_relkind FROM pg.pg_class) tw_c WHERE tw_c.tw_oid = p_oid));
CREATE MACRO fn.pg_column_is_updatable(p_oid, p_column, p_triggers) AS (
  CASE WHEN p_oid IS NOT NULL AND p_column IS NOT NULL AND p_triggers IS NOT NULL THEN p_column > 0
    AND (EXISTS (SELECT 1 FROM (SELECT oid AS tw_oid, relkind AS tw_relkind FROM pg.pg_class) tw_c
        WHERE tw_c.tw_oid = p_oid AND tw_c.tw_relkind = 'r' AND tw_c.tw_oid >= 16384)
      OR EXISTS (SELECT 1 FROM (SELECT oid AS tw_view, place AS tw_place FROM pg.tw_updatable) tw_u
        WHERE tw_u.tw_view = p_oid AND tw_u.tw_place = p_column)) END);
CREATE MACRO fn.row_security_active(p_table) AS (CASE WHEN p_table IS NOT NULL THEN false END);
CREATE MACRO fn.current_setting(p_name) AS (
    SELECT tw_s.tw_setting FROM (SELECT name AS tw_name, setting AS tw_setting FROM pg.pg_settings) tw_s WHERE
      lower(tw_s.tw_name) = lower(p_name)),
  (p_name, p_missing) AS (SELECT tw_s.tw_setting FROM (SELECT name AS tw_name, setting AS tw_setting FROM
      pg.pg_settings) tw_s WHERE lower(tw_s.tw_name) = lower(p_name));

-- the sessions that hold a lock for which a session waits
CREATE MACRO fn.pg_blocking_pids(p_pid) AS (CASE WHEN p_pid IS NOT NULL THEN coalesce((
  SELECT list(DISTINCT tw_h.tw_pid) FROM
    (SELECT pid AS tw_pid, locktype AS tw_a, database AS tw_b, relation AS tw_c, classid AS tw_d, objid AS tw_e,
      objsubid AS tw_f FROM pg.pg_locks WHERE NOT granted) tw_w
    JOIN (SELECT pid AS tw_pid, locktype AS tw_a, database AS tw_b, relation AS tw_c, classid AS tw_d, objid AS tw_e,
      objsubid AS tw_f FROM pg.pg_locks WHERE granted) tw_h
    ON (tw_w.tw_a, tw_w.tw_b) = (tw_h.tw_a, tw_h.tw_b) AND tw_w.tw_c IS NOT DISTINCT FROM tw_h.tw_c
      AND tw_w.tw_d IS NOT DISTINCT FROM tw_h.tw_d AND tw_w.tw_e IS NOT DISTINCT FROM tw_h.tw_e
      AND tw_w.tw_f IS NOT DISTINCT FROM tw_h.tw_f
  WHERE tw_w.tw_pid = p_pid AND tw_h.tw_pid <> p_pid), []::INTEGER[]) END);

-- sizes of the log's data, in bytes
CREATE MACRO tw.relation_bytes(p_oid) AS (
  SELECT coalesce(tw_c.tw_bytes, 0) FROM (SELECT c.oid AS tw_oid, s.bytes AS tw_bytes FROM pg.pg_class c
    LEFT JOIN pg.tw_sizes s ON s.oid = c.oid) tw_c WHERE tw_c.tw_oid = p_oid);
CREATE MACRO fn.pg_relation_size(p_oid) AS (tw.relation_bytes(p_oid)),
  (p_oid, p_fork) AS (CASE WHEN p_fork = 'main' THEN tw.relation_bytes(p_oid)
    WHEN p_fork IN ('fsm', 'vm', 'init') THEN tw.relation_bytes(p_oid) * 0
    WHEN p_fork IS NOT NULL THEN error('invalid fork name')::BIGINT END);
CREATE MACRO fn.pg_table_size(p_oid) AS (tw.relation_bytes(p_oid));
CREATE MACRO fn.pg_total_relation_size(p_oid) AS (tw.relation_bytes(p_oid));
CREATE MACRO fn.pg_indexes_size(p_oid) AS (tw.relation_bytes(p_oid) * 0);
CREATE MACRO tw.size_of_database(p_oid) AS (
  SELECT tw_d.tw_bytes FROM (SELECT d.oid AS tw_oid, coalesce(sum(s.bytes), 0)::BIGINT AS tw_bytes FROM pg.pg_database d
    LEFT JOIN pg.tw_sizes s ON s.database = d.oid GROUP BY d.oid) tw_d WHERE tw_d.tw_oid = p_oid);
CREATE MACRO fn.pg_database_size(p_database) AS (
  CASE WHEN p_database IS NULL THEN NULL
    WHEN tw.database_oid(p_database) IS NULL THEN error('database "' || p_database || '" does not exist')::BIGINT
    ELSE tw.size_of_database(tw.database_oid(p_database)) END);
CREATE MACRO fn.pg_tablespace_size(p_tablespace) AS (
  CASE WHEN p_tablespace IS NULL THEN NULL
    WHEN typeof(p_tablespace) = 'VARCHAR' AND p_tablespace::VARCHAR NOT IN (SELECT tw_t.tw_name FROM (SELECT spcname AS
      tw_name FROM pg.pg_tablespace) tw_t) THEN error('tablespace "' || p_tablespace || '" does not exist')::BIGINT
    ELSE coalesce((SELECT sum(tw_s.tw_bytes)::BIGINT FROM (SELECT bytes AS tw_bytes FROM pg.tw_sizes) tw_s), 0) END);
-- As in PostgreSQL: truncated to half units, then rounded. From 20,479 half units on, the next unit is used.
CREATE MACRO fn.pg_size_pretty(p_bytes) AS (
  list_transform([p_bytes], lambda tw_b: CASE WHEN tw_b IS NULL THEN NULL
    WHEN abs(tw_b::DECIMAL(38, 6)) < 10240 THEN tw_b || ' bytes'
    ELSE (CASE WHEN tw_b < 0 THEN '-' ELSE '' END) || list_transform([trunc(abs(tw_b::DECIMAL(38, 6)))::HUGEINT],
      lambda tw_n: CASE
        WHEN tw_n // 512 < 20479 THEN (tw_n // 512 + 1) // 2 || ' kB'
        WHEN tw_n // 524288 < 20479 THEN (tw_n // 524288 + 1) // 2 || ' MB'
        WHEN tw_n // 536870912 < 20479 THEN (tw_n // 536870912 + 1) // 2 || ' GB'
        WHEN tw_n // 549755813888 < 20479 THEN (tw_n // 549755813888 + 1) // 2 || ' TB'
        ELSE (tw_n // 562949953421312 + 1) // 2 || ' PB' END)[1] END)[1]);

-- information_schema: properties of a type, by its OID and modifier
CREATE MACRO fn._pg_char_max_length(p_type, p_modifier) AS (
  CASE WHEN p_modifier <> -1 AND p_type IN (1042, 1043) THEN p_modifier - 4
       WHEN p_modifier <> -1 AND p_type IN (1560, 1562) THEN p_modifier END::INTEGER);
CREATE MACRO fn._pg_char_octet_length(p_type, p_modifier) AS (
  CASE WHEN p_type IN (25, 1042, 1043) AND p_modifier = -1 THEN 1073741824
       WHEN p_type IN (1042, 1043) THEN (p_modifier - 4) * 4 END::INTEGER);
CREATE MACRO fn._pg_numeric_precision(p_type, p_modifier) AS (
  CASE WHEN p_type = 21 THEN 16 WHEN p_type = 23 THEN 32 WHEN p_type = 20 THEN 64 WHEN p_type = 700 THEN 24
       WHEN p_type = 701 THEN 53 WHEN p_type = 1700 AND p_modifier <> -1 THEN (p_modifier - 4) // 65536 END::INTEGER);
CREATE MACRO fn._pg_numeric_precision_radix(p_type, p_modifier) AS (
  CASE WHEN p_type IN (20, 21, 23, 700, 701) THEN 2 WHEN p_type = 1700 THEN 10 END::INTEGER);
CREATE MACRO fn._pg_numeric_scale(p_type, p_modifier) AS (
  CASE WHEN p_type IN (20, 21, 23) THEN 0 WHEN p_type = 1700 AND p_modifier <> -1 THEN (p_modifier - 4) % 65536 END::INTEGER);
CREATE MACRO fn._pg_datetime_precision(p_type, p_modifier) AS (
  CASE WHEN p_type = 1082 THEN 0 WHEN p_type NOT IN (1083, 1114, 1184, 1186, 1266) THEN NULL
       WHEN p_modifier < 0 OR (p_type = 1186 AND p_modifier % 65536 = 65535) THEN 6 ELSE p_modifier % 65536 END::INTEGER);
CREATE MACRO fn.nameconcatoid(p_name, p_oid) AS (p_name[1:62 - len(p_oid::VARCHAR)] || '_' || p_oid);
CREATE MACRO fn._pg_interval_type(p_type, p_modifier) AS (NULL::VARCHAR);

-- LIKE ANY and LIKE ALL of an array of patterns
CREATE MACRO tw.any_of(p_values) AS (CASE WHEN list_bool_or(p_values) THEN true
  WHEN list_count(p_values) < len(p_values) THEN NULL WHEN p_values IS NOT NULL THEN false END);
CREATE MACRO tw.all_of(p_values) AS (CASE WHEN NOT list_bool_and(p_values) THEN false
  WHEN list_count(p_values) < len(p_values) THEN NULL WHEN p_values IS NOT NULL THEN true END);
CREATE MACRO tw.likes(p_text, p_patterns) AS (list_transform(p_patterns, lambda tw_x: p_text LIKE tw_x ESCAPE '\'));
CREATE MACRO tw.ilikes(p_text, p_patterns) AS (list_transform(p_patterns, lambda tw_x: p_text ILIKE tw_x ESCAPE '\'));

-- arrays and JSON
CREATE MACRO fn.array_upper(p_array, p_dimension) AS (CASE WHEN p_dimension = 1 THEN nullif(len(p_array), 0)::INTEGER END);
CREATE MACRO fn.array_lower(p_array, p_dimension) AS (CASE WHEN p_dimension = 1 AND len(p_array) > 0 THEN 1 END);
CREATE MACRO fn.array_length(p_array, p_dimension) AS (CASE WHEN p_dimension = 1 THEN nullif(len(p_array), 0)::INTEGER END);
CREATE MACRO fn.array_ndims(p_array) AS (CASE WHEN len(p_array) > 0 THEN 1 END);
CREATE MACRO fn.array_dims(p_array) AS ('[1:' || nullif(len(p_array), 0) || ']');
CREATE MACRO tw.array_element(p_array, p_subscript, p_first) AS (
  CASE WHEN p_subscript >= p_first THEN list_extract(p_array, p_subscript + 1 - p_first) END);
CREATE MACRO tw.array_slice(p_array, p_low, p_high, p_first) AS (
  CASE WHEN p_low IS NULL OR p_high IS NULL THEN NULL WHEN p_high < p_first THEN p_array[1:0]
       ELSE list_slice(p_array, greatest(p_low, p_first) + 1 - p_first, p_high + 1 - p_first) END);
CREATE MACRO tw.array_text(p_array) AS (
  '{' || array_to_string(list_transform(p_array::VARCHAR[], lambda e: CASE
    WHEN e IS NULL THEN 'NULL'
    WHEN e = '' OR lower(e) = 'null' OR regexp_matches(e, '[{},"\\\s]')
    THEN '"' || replace(replace(e, '\', '\\'), '"', '\"') || '"' ELSE e END), ',') || '}');
CREATE MACRO tw.subscripts(p_first, p_array, p_dimension) AS (
    CASE WHEN p_dimension = 1 THEN generate_series(p_first, len(p_array) - 1 + p_first)::INTEGER[] END),
  (p_first, p_array, p_dimension, p_reverse) AS (CASE WHEN p_dimension <> 1 THEN NULL WHEN p_reverse
    THEN list_reverse(generate_series(p_first, len(p_array) - 1 + p_first)::INTEGER[])
    ELSE generate_series(p_first, len(p_array) - 1 + p_first)::INTEGER[] END);
CREATE MACRO tw.text_parts(p_text, p_between) AS (
  CASE WHEN p_text IS NULL THEN NULL WHEN p_text = '' THEN []::VARCHAR[] WHEN p_between = '' THEN [p_text]
       ELSE string_split(p_text, coalesce(p_between, '')) END);
CREATE MACRO fn.string_to_array(p_text, p_between) AS (tw.text_parts(p_text, p_between)),
  (p_text, p_between, p_null) AS (list_transform(tw.text_parts(p_text, p_between), lambda e: nullif(e, p_null)));
CREATE MACRO fn.array_append(p_array, p_value) AS (list_append(p_array, p_value));
CREATE MACRO fn.array_prepend(p_value, p_array) AS (list_prepend(p_value, p_array));
CREATE MACRO fn.cardinality(p_array) AS (len(p_array)::INTEGER);
CREATE MACRO fn.array_remove(p_array, p_value) AS (list_filter(p_array, lambda e: e IS DISTINCT FROM p_value));
CREATE MACRO fn.array_position(p_array, p_value) AS (list_position(p_array, p_value)::INTEGER);
CREATE MACRO fn.array_to_string(p_array, p_between) AS (
    CASE WHEN len(p_array) = 0 THEN '' ELSE list_aggregate(p_array::VARCHAR[], 'string_agg', p_between) END),
  (p_array, p_between, p_null) AS (
    CASE WHEN len(p_array) = 0 THEN ''
         ELSE list_aggregate(list_transform(p_array::VARCHAR[], lambda e: coalesce(e, p_null)), 'string_agg',
      p_between)
    END);
CREATE MACRO fn._pg_expandarray(p_array) AS (
  unnest(list_transform(p_array, lambda e, i: {'x': e, 'n': i::INTEGER})));
-- int2vector and oidvector: lists whose subscripts begin at 0, also empty ones
CREATE MACRO tw.vector_text(p_vector) AS (array_to_string(p_vector::VARCHAR[], ' '));
CREATE MACRO tw.vector_array_lower(p_vector, p_dimension) AS (
  CASE WHEN p_dimension = 1 AND p_vector IS NOT NULL THEN 0 END);
CREATE MACRO tw.vector_array_upper(p_vector, p_dimension) AS (
  CASE WHEN p_dimension = 1 THEN len(p_vector)::INTEGER - 1 END);
CREATE MACRO tw.vector_array_length(p_vector, p_dimension) AS (
  CASE WHEN p_dimension = 1 THEN len(p_vector)::INTEGER END);
CREATE MACRO tw.vector_array_ndims(p_vector) AS (CASE WHEN p_vector IS NOT NULL THEN 1 END);
CREATE MACRO tw.vector_array_dims(p_vector) AS ('[0:' || (len(p_vector) - 1) || ']');
CREATE MACRO tw.vector_array_position(p_vector, p_value) AS (list_position(p_vector, p_value)::INTEGER - 1);
CREATE MACRO fn.generate_series(p_first, p_last) AS (unnest(generate_series(p_first, p_last))),
  (p_first, p_last, p_step) AS (unnest(generate_series(p_first, p_last, p_step)));
CREATE MACRO fn.oidvectortypes(p_vector) AS (array_to_string(tw.regtype_texts(p_vector), ', '));
CREATE MACRO fn.pg_show_all_settings() AS TABLE SELECT * FROM pg.pg_settings;
CREATE MACRO fn.pg_available_extensions() AS TABLE SELECT name, default_version, comment FROM pg.pg_available_extensions;
CREATE MACRO fn.pg_get_keywords() AS TABLE
  SELECT word, 'R' AS catcode, true AS barelabel, 'reserved' AS catdesc, 'can be bare label' AS baredesc
  FROM pg.tw_reserved;
