-- concatenation
SELECT 'a' || 'b', 'a' || 1, 1 || 'a', 'a' || 1.50, 'a' || NULL, 'x' || true, 'x' || date '2024-01-01', 'é' || '日', 'a' || 'b' || 'c', 'v=' || 1.5::float8, 'c'::char(3) || 'd';
SELECT id, s || v, s || id, v || c, c || s, s || u, s || NULL FROM strs;
SELECT concat('a', NULL, 1, true, 1.5), concat(NULL), concat_ws(',', 'a', NULL, 'b', 2), concat_ws(NULL, 'a'), concat_ws('', 'a', 'b'), concat('a', date '2024-01-01', 'é'), concat_ws('-', NULL, NULL);
SELECT id, concat(s, '/', v, c, id), concat_ws('|', s, v, id), concat_ws(v, 'a', s) FROM strs;
SELECT concat();
SELECT 1 || 2;
-- case, length, reverse
SELECT lower('ÀBC'), upper('äbc'), initcap('hello wORLD foo-bar 1a éx'), initcap(''), length('日本🙂'), char_length('ab '), character_length(''), length('ab  '::char(6)), octet_length('é🙂'), octet_length('a '::char(4)), bit_length('é'), reverse('ab日🙂'), reverse('');
SELECT id, lower(s), upper(s), initcap(s), length(s), char_length(v), length(c), octet_length(s), octet_length(c), bit_length(s), reverse(s) FROM strs;
-- parts
SELECT left('abcde', 2), left('abcde', -2), left('abcde', 0), left('abcde', -10), left('日本語', 1), right('abcde', 2), right('abcde', -2), right('abcde', 0), right('abcde', 10), right('abcde', -10), left('abc', -2147483648), right('abc', -2147483648), left('abc', 2147483647), right('abc', 2147483647);
SELECT substring('Thomas' from 2 for 3), substring('Thomas' from 3), substring('Thomas' for 2), substr('alphabet', 3), substr('alphabet', 3, 2), substr('abc', 0), substr('abc', -1, 3), substr('abc', 0, 1), substr('abc', 2, 0), substr('abc', 5), substr('abc', 2, 2147483647), substr('abc', -2147483648, 2147483647), substr('日本語🙂', 2, 2), substring('abc', 2147483647), substring('abc', 2147483647, 2147483647);
SELECT substr('abc', 1, -1);
SELECT substring('abc' from -5 for -1);
SELECT id, left(s, id), left(s, -id), right(s, id), right(s, -id), substr(s, id), substr(s, id - 3, 4), substr(s, 2, id), substring(v from 2) FROM strs;
SELECT substr(s, 1, id - 5) FROM strs WHERE id = 2;
SELECT id, left(s, 2147483647), right(s, -2147483648), right(s, 2147483647), substr(s, 2, 2147483647), substr(s, -2147483648, 2147483647), substr(s, -2147483648) FROM strs;
SELECT overlay('Txxxxas' placing 'hom' from 2 for 4), overlay('abcdef' placing 'ZZ' from 3), overlay('abc' placing 'X' from 10), overlay('abc' placing '' from 2 for 1), overlay('abc' placing 'é' from 1 for 0), overlay('abc', 'X', 2, 1), overlay('abc' placing NULL from 1), overlay('abcdef' placing 'x' from 5 for -3);
SELECT overlay('abc' placing 'X' from 0);
SELECT overlay('abc' placing 'X' from 1 for 2147483647);
SELECT id, overlay(s placing 'XY' from 2), overlay(s placing v from 1 for 2) FROM strs;
SELECT split_part('abc~@~def~@~ghi', '~@~', 2), split_part('a,b,c', ',', -1), split_part('a,b,c', ',', -3), split_part('a,b,c', ',', 4), split_part('a,b,c', ',', -4), split_part('abc', '', 1), split_part('abc', '', 2), split_part('abc', '', -1), split_part('', ',', 1), split_part('abc', 'x', 1), split_part('abc', 'x', -1), split_part('aaa', 'aa', 2);
SELECT split_part('a,b', ',', 0);
SELECT id, split_part(s, ',', 2), split_part(s, ',', -2), split_part(s, '', 1), split_part(s, '', id), split_part(s, v, 1), split_part(s, ',', -2147483648) FROM strs;
SELECT split_part(s, ',', id - 2) FROM strs WHERE id = 2;
-- trim, pad, repeat
SELECT trim('  a  '), trim(both 'x' from 'xxaxx'), trim(leading 'x' from 'xxaxx'), trim(trailing 'x' from 'xxaxx'), btrim('xyxtrimyyx', 'xyz'), ltrim('zzzytest', 'xyz'), rtrim('testxxzx', 'xyz'), btrim('abc', ''), ltrim('   '), rtrim(''), trim(E'\t a \n'), btrim('日a日', '日'), trim('yxTomxx', 'xyz');
SELECT id, trim(s), ltrim(s), rtrim(s), btrim(s, 'ace '), ltrim(s, 'a'), rtrim(s, ' e'), btrim(s, v), trim(c), btrim(s, '') FROM strs;
SELECT lpad('hi', 5, 'xy'), rpad('hi', 5, 'xy'), lpad('hi', 5), rpad('hi', 5), lpad('hello', 2), rpad('hello', 2), lpad('hi', 5, ''), rpad('hi', 5, ''), lpad('hi', -1), lpad('', 3, 'é'), rpad('日', 4, '本x'), lpad('hi', 0, 'x'), lpad('a', 3, NULL);
SELECT id, lpad(s, 6, '*'), rpad(s, 6, 'ab'), lpad(s, 3), rpad(s, 8), lpad(s, id, ''), lpad(v, 4, c), rpad(s, -id) FROM strs;
SELECT lpad('a', 2147483647, 'b');
SELECT rpad(s, 2147483647, 'b') FROM strs WHERE id = 2;
SELECT repeat('ab', 3), repeat('ab', 0), repeat('ab', -1), repeat('', 1000), repeat('é', 2), length(repeat('x', 100000));
SELECT repeat('ab', 2147483647);
SELECT id, repeat(s, 2), repeat(v, id - 3), repeat('-', id) FROM strs;
SELECT repeat(s, 2147483647) FROM strs WHERE id = 2;
-- replacing and searching
SELECT replace('abcdefabcdef', 'cd', 'XX'), replace('abc', '', 'x'), replace('aaa', 'a', ''), replace('', 'a', 'b'), replace('aaa', 'aa', 'b'), translate('12345', '143', 'ax'), translate('12345', '', 'ax'), translate('aabb', 'aa', 'xy'), translate('日本', '日', 'x'), translate('a🙂b', '🙂', 'z'), translate('abc', 'abc', '日🙂');
SELECT id, replace(s, 'a', 'XX'), replace(s, v, '!'), replace(s, '', 'x'), translate(s, 'abc ', 'xy'), translate(s, v, 'qrs') FROM strs;
SELECT position('lo' in 'hello'), position('' in 'abc'), position('x' in 'abc'), strpos('high', 'ig'), strpos('日本語', '語'), strpos('', ''), strpos('', 'a'), starts_with('alphabet', 'alph'), starts_with('abc', ''), starts_with('', 'a'), 'alphabet' ^@ 'alph', 'a' ^@ 'abc';
SELECT id, position('b' in s), strpos(s, v), starts_with(s, v), s ^@ 'a', strpos(s, '') FROM strs;
-- characters
SELECT ascii('x'), ascii(''), ascii('é'), ascii('🙂'), chr(65), chr(233), chr(128578), chr(1), to_hex(2147483647), to_hex(-1), to_hex(255::int8), to_hex(-1::int8), to_hex(0);
SELECT chr(0);
SELECT chr(-1);
SELECT chr(1114112);
SELECT chr(55296);
SELECT id, ascii(s), ascii(v), chr(ascii(s)) FROM strs WHERE s <> '';
SELECT id, to_hex(i4), to_hex(i8), chr(abs(i2 % 100) + 65) FROM nums;
SELECT unistr('d\0061t\+000061'), unistr('d\u0061t\U00000061'), unistr('a\\b'), unistr('\D83D\DE42'), unistr('');
SELECT unistr('\x');
SELECT unistr('\D83D');
SELECT unistr('\U00110000');
SELECT normalize('Å'), normalize('e' || chr(769)), length(normalize('é', NFD)), normalize('ﬁ', NFKC), normalize('ﬁ', NFKD), 'é' IS NORMALIZED, ('e' || chr(769)) IS NORMALIZED, ('e' || chr(769)) IS NOT NORMALIZED;
SELECT normalize('a', xyz);
SELECT id, normalize(s), s IS NORMALIZED, length(normalize(s, NFD)) FROM strs;
SELECT md5('abc'), md5(''), md5('é'), md5(NULL::text);
SELECT id, md5(s), md5(v) FROM strs;
-- quoting
SELECT quote_ident('abc'), quote_ident('Foo bar'), quote_ident('select'), quote_ident('a"b'), quote_ident(''), quote_ident('1a'), quote_ident('_a1'), quote_ident('int'), quote_ident('name'), quote_ident('left'), quote_ident('é'), quote_ident('a$');
SELECT quote_literal('O''Reilly'), quote_literal('a\b'), quote_literal(''), quote_literal(42.5), quote_literal(true), quote_literal(NULL), quote_nullable(NULL), quote_nullable(42), quote_nullable('x'), quote_literal(date '2024-01-01'), quote_nullable(ARRAY[1,2]);
SELECT id, quote_ident(s), quote_literal(s), quote_nullable(s), quote_nullable(id), quote_literal(v) FROM strs;
SELECT parse_ident('"SomeSchema".someTable'), parse_ident('foo.Bar.baz'), parse_ident('  a . b '), parse_ident('"a""b"'), parse_ident('foo.boo[]', false), parse_ident('é');
SELECT parse_ident('foo.boo[]');
SELECT parse_ident('');
SELECT parse_ident('a.');
SELECT parse_ident('"a');
SELECT parse_ident('1a');
SELECT parse_ident('""');
-- format
SELECT format('Hello %s, %1$s', 'World'), format('Testing %s, %s, %s, %%', 'one', 'two', 'three'), format('INSERT INTO %I VALUES(%L)', 'Foo bar', 'O''Reilly'), format('INSERT INTO %I VALUES(%L)', 'locations', E'C:\\Program Files');
SELECT format('|%10s|', 'foo'), format('|%-10s|', 'foo'), format('|%*s|', 10, 'foo'), format('|%*s|', -10, 'foo'), format('|%-*s|', 10, 'foo'), format('|%-*s|', -10, 'foo'), format('|%*2$s|', 'foo', 10, 'bar'), format('|%1$*2$s|', 'foo', 10), format('|%10L|', NULL), format('%s', NULL), format('%L', NULL), format(NULL), format('x'), format('%s%s', 1, true), format('%2$s %1$s %s', 'a', 'b');
SELECT format('%s');
SELECT format('%');
SELECT format('%x', 1);
SELECT format('%0$s', 1);
SELECT format('%I', NULL);
SELECT format('%*s', 'a', 'b');
SELECT format('%3$s', 1, 2);
SELECT id, format('%s:%L:%I', id, s, v), format('[%5s]', c) FROM strs WHERE v IS NOT NULL;
SELECT format(s, 1, 2) FROM strs WHERE id = 2;
-- types and NULLs
SELECT length(NULL), upper(NULL), left(NULL, 1), left('a', NULL), replace('a', NULL, 'b'), split_part(NULL, ',', 1), repeat('a', NULL), lpad(NULL, 3), strpos('a', NULL), initcap(NULL), chr(NULL), ascii(NULL);
SELECT length(1);
SELECT upper(1);
SELECT left('a');
SELECT lower('ABC'::varchar(2)), upper('abc'::char(2)), length('abc'::varchar), 'abc'::char(2) = 'ab', 'a'::char(3) || 'b', ('a'::char(3))::text || 'b', 'abcdef'::varchar(3);
SELECT id, lower(s), upper(s), lower(v), upper(c), upper(left(s, 3)), lower(s || 'Ä') FROM strs;
SELECT coalesce(v, '{*:AND}'), concat('{*}', '{0}', v), greatest('{1}', '{*:OR}', v), initcap(s || '{t}'), regexp_split_to_array(s || '{t}', 'b') FROM strs WHERE id < 4;

-- hashes
SELECT hashtext(''), hashtext('a'), hashtext('hello'), hashtext('exactly12byt'), hashtext('more than twelve bytes'), hashtext('äöü€'), hashtext(NULL);
SELECT hashtextextended('', 0), hashtextextended('hello', 0), hashtextextended('hello', 1), hashtextextended('hello', -1), hashtextextended('more than twelve bytes', 12345678901234);
SELECT id, hashtext(s), hashtextextended(s, id) FROM strs;

-- VARIADIC
SELECT concat(VARIADIC ARRAY['a',NULL,'b']), concat(VARIADIC ARRAY[1,2]), concat(VARIADIC '{}'::text[]), concat(VARIADIC NULL::text[]);
SELECT concat_ws(',', VARIADIC ARRAY['a',NULL,'b']), concat_ws(NULL, VARIADIC ARRAY['a']), concat_ws(',', VARIADIC NULL::text[]), concat_ws('-', VARIADIC ARRAY[true,false]);
SELECT concat_ws(',', 'x', VARIADIC ARRAY['a']);
SELECT concat('x', VARIADIC ARRAY['a']);
SELECT concat(VARIADIC '{a,b}');
SELECT concat(VARIADIC 7);
SELECT lower(VARIADIC ARRAY['A']);
SELECT abs(VARIADIC ARRAY[1]);
SELECT sum(VARIADIC ARRAY[1]);
SELECT nosuch(VARIADIC ARRAY[1]);
SELECT format('%s-%s', VARIADIC ARRAY['a','b']), format('%2$s %1$s', VARIADIC ARRAY[1,2]), format('x', VARIADIC NULL::text[]), format('%s', VARIADIC '{a}'::text[]);
SELECT format('%s %s %s', 'x', VARIADIC ARRAY['a','b']);
SELECT num_nulls(VARIADIC ARRAY[1,NULL,3]), num_nonnulls(VARIADIC ARRAY[1,NULL,3]), num_nulls(VARIADIC NULL::int[]);
SELECT json_extract_path('{"a":{"b":7}}', VARIADIC ARRAY['a','b']), jsonb_extract_path_text('{"a":{"b":"x"}}', VARIADIC '{a,b}'), jsonb_extract_path('{"a":1}', VARIADIC ARRAY['a',NULL]), json_extract_path_text('{"a":1}', VARIADIC '{}'::text[]);
SELECT jsonb_build_array(VARIADIC ARRAY[1,2]), json_build_array(VARIADIC ARRAY['a',NULL]), jsonb_build_array(VARIADIC NULL::int[]), json_build_array(VARIADIC '{}'::int[]);
SELECT jsonb_build_object(VARIADIC ARRAY['a','1','b','2']), json_build_object(VARIADIC ARRAY['a','1','b']);
SELECT count(*) FILTER (WHERE true), concat(VARIADIC array_agg(g::text)) FROM generate_series(1,3) g;
SELECT concat_ws(',', VARIADIC string_to_array(x, ' ')) FROM (VALUES ('a b'), ('c')) v(x);
SELECT concat_ws(',', VARIADIC ARRAY[g, g + 1]), format('%s/%s', VARIADIC ARRAY[g, g*2]), num_nulls(VARIADIC ARRAY[g, NULL]) FROM generate_series(1,3) g;
SELECT jsonb_extract_path(j, VARIADIC ARRAY[k]) FROM (VALUES ('{"a":1,"b":[2]}'::jsonb, 'a'), ('{"a":1,"b":[2]}', 'b')) v(j, k);
SELECT concat(VARIADIC ARRAY[[1,2],[3,4]]), concat_ws(',', VARIADIC ARRAY[['a','b'],['c','d']]);
SELECT concat(VARIADIC ARRAY[1.50, 2]);
SELECT concat(VARIADIC ARRAY[date '2020-01-01']);
SELECT concat(a, VARIADIC b) FROM (VALUES ('x', ARRAY['y'])) v(a, b);
