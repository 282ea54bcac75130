-- int2vector and oidvector: text, subscripts from 0, bounds
SELECT indkey::text, indclass::text, indoption::text, indkey::varchar FROM pg_index WHERE indexrelid = 'pairs_pkey'::regclass;
SELECT indkey[0], indkey[1], indkey[2], (indclass)[0], i.indoption[1], indkey[-1] FROM pg_index i WHERE indexrelid = 'pairs_pkey'::regclass;
SELECT array_lower(indkey, 1), array_upper(indkey, 1), array_length(indkey, 1), cardinality(indkey), array_ndims(indkey), array_dims(indkey) FROM pg_index WHERE indexrelid = 'pairs_pkey'::regclass;
SELECT generate_subscripts(indkey, 1), unnest(indkey) FROM pg_index WHERE indexrelid = 'pairs_pkey'::regclass ORDER BY 1;
SELECT indkey[0:0], indkey[0:1], indkey[1:1] FROM pg_index WHERE indexrelid = 'pairs_pkey'::regclass;
SELECT array_to_string(indkey, ','), array_position(indkey, 1::int2), array_position(indkey, 2::int2) FROM pg_index WHERE indexrelid = 'pairs_pkey'::regclass;
SELECT string_to_array(indkey::text, ' '), (string_to_array(indkey::text, ' '))[1] FROM pg_index WHERE indexrelid = 'pairs_pkey'::regclass;
SELECT indexrelid::regclass::text FROM pg_index WHERE indkey::text = '2 1' AND indrelid = 'pairs'::regclass;
SELECT indexrelid::regclass::text FROM pg_index WHERE indkey = '2 1' AND indrelid = 'pairs'::regclass;
SELECT 2 = ANY (indkey), 9 = ANY (indkey), 3 <> ALL (indkey::int2[]), 1 = ANY (indkey::int[]) FROM pg_index WHERE indexrelid = 'pairs_pkey'::regclass;
SELECT conkey, conkey[1], conkey[0], array_length(conkey, 1), array_lower(conkey, 1), conkey::text, confkey FROM pg_constraint WHERE conname = 'pairs_pkey';
SELECT proargtypes::text, proargtypes[0], proargtypes[0]::regtype::text, pronargs FROM pg_proc WHERE proname = 'int2vectorin';
SELECT proargtypes FROM pg_proc WHERE proname = 'array_in';
SELECT q.key[0], q.key::text FROM (SELECT indkey AS key FROM pg_index WHERE indexrelid = 'pairs_pkey'::regclass) AS q;
WITH k AS (SELECT indkey, indexrelid FROM pg_index WHERE indrelid = 'pairs'::regclass) SELECT k.indkey[0], indkey::text FROM k ORDER BY indexrelid::regclass::text;
SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] WHERE i.indrelid = 'pairs'::regclass ORDER BY 1;
SELECT (SELECT a.attname FROM pg_attribute a WHERE a.attrelid = i.indrelid AND a.attnum = i.indkey[i.indnkeyatts - 1]) FROM pg_index i WHERE indexrelid = 'pairs_pkey'::regclass;
SELECT '1 2'::int2vector, '1 2'::oidvector, ('5 6'::int2vector)[0], '5 6'::int2vector::text, '5 6'::int2vector = '5 6';
SELECT indkey[0], max(indkey[1]), min(indkey::text) FROM pg_index WHERE indrelid = 'pairs'::regclass GROUP BY 1 ORDER BY 1;
SELECT indkey FROM pg_index WHERE indrelid = 'pairs'::regclass ORDER BY indkey;
SELECT relname, (SELECT count(*) FROM generate_subscripts(i.indkey, 1)) FROM pg_index i JOIN pg_class ON oid = indexrelid WHERE indrelid = 'pairs'::regclass ORDER BY 1;
SELECT proname, array_length(proargtypes, 1), array_lower(proargtypes, 1), array_upper(proargtypes, 1), cardinality(proargtypes), proargtypes::text, proargtypes[0] FROM pg_proc WHERE proname = 'pi' AND pronargs = 0 ORDER BY 1;
SELECT array_agg(indkey[0] ORDER BY indexrelid), json_agg(indkey[0] ORDER BY indkey[0]) FROM pg_index WHERE indrelid = 'pairs'::regclass AND indisprimary;
SELECT ARRAY['a', 'b c', NULL, '', 'null', 'q"x', 'e\f', 'g,h']::text[]::text, conkey::text FROM pg_constraint WHERE conname = 'pairs_pkey';
SELECT conkey[1:1], conkey[2:5], conkey[:1], conkey[2:], conkey[-5:1], conkey[-1], conkey[3:1], conkey[NULL:1] FROM pg_constraint WHERE conname = 'pairs_pkey';
SELECT array_dims(conkey), array_ndims(conkey), generate_subscripts(conkey, 1), generate_subscripts(conkey, 1, true) FROM pg_constraint WHERE conname = 'pairs_pkey';
SELECT k FROM pg_index i, generate_subscripts(i.indkey, 1) AS k WHERE indexrelid = 'pairs_pkey'::regclass ORDER BY 1 DESC;
SELECT k FROM pg_constraint c, generate_subscripts(c.conkey, 1) AS k WHERE conname = 'pairs_pkey' ORDER BY 1 DESC;
SELECT string_to_array('a,b,,', ','), string_to_array('', ','), string_to_array('a,b', ',', 'b'), string_to_array('ab', NULL) FROM pg_am WHERE amname = 'heap';
-- dimensions that arrays do not have
SELECT conkey, array_length(conkey, 1), array_length(conkey, 2), array_upper(conkey, 2), array_lower(conkey, 2), array_upper(conkey, 0) FROM pg_constraint WHERE conrelid = 'pairs'::regclass;
-- an empty separator
SELECT string_to_array('ab', ''), string_to_array('ab', '', 'ab'), string_to_array('', ''), string_to_array('ab', NULL, 'b'), string_to_array(NULL, '') FROM pg_am WHERE amname = 'heap';
-- json_agg of no rows
SELECT json_agg(relname), json_agg(relname) IS NULL, jsonb_agg(relname) IS NULL FROM pg_class WHERE relname = 'nothing';
