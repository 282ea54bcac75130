-- Chapter 9.16.2: the SQL/JSON path language
-- members, elements, levels
SELECT jsonb_path_query_array('{"a": {"b": [1, 2, 3]}}', '$.a.b[*]'), jsonb_path_query_array('{"a": {"b": [1, 2, 3]}}', '$."a"."b"[0, 2]'), jsonb_path_query_array('[1,2,3,4]', '$[1 to last]'), jsonb_path_query_array('[1,2,3,4]', '$[last - 1]'), jsonb_path_query_array('[[1,2],[3]]', '$[*][0]');
SELECT jsonb_path_query_array('{"bb": 1, "a": [2, {"c": 3}]}', '$.*'), jsonb_path_query_array('{"bb": 1, "a": [2, {"c": 3}]}', '$.**'), jsonb_path_query_array('{"bb": 1, "a": [2, {"c": 3}]}', '$.**{2}'), jsonb_path_query_array('{"bb": 1, "a": [2, {"c": 3}]}', '$.**{1 to 2}'), jsonb_path_query_array('{"bb": 1, "a": [2, {"c": 3}]}', '$.**{last}'), jsonb_path_query_array('{"bb": 1, "a": [2, {"c": 3}]}', '$.**{1 to last}'), jsonb_path_query_array('{"bb": 1, "a": [2, {"c": 3}]}', '$.**.c');
SELECT jsonb_path_query_array('[{"a": 1}, {"a": [2, 3]}, {}]', '$.a'), jsonb_path_query_array('[{"a": 1}, {"a": [2, 3]}, {}]', 'lax $[*].a[*]'), jsonb_path_query_array('[[{"a": 1}]]', '$.a'), jsonb_path_query_array('1', '$[0]'), jsonb_path_query_array('1', '$[*]'), jsonb_path_query_array('1', '$[1]'), jsonb_path_query_array('{}', '$.a.b.c');
SELECT jsonb_path_query_first('[1, 2]', '$[*]'), jsonb_path_query_first('[]', '$[*]'), jsonb_path_query_first('{"a": null}', '$.a'), jsonb_path_query_first('{"a b": 1, "\u00e4": 2}', '$."a b"'), jsonb_path_query_first('{"\u00e4": 2}', '$.ä'), jsonb_path_query_first('{"true": 2, "size": 3, "is": 4}', '$.true + $.size + $.is');
SELECT jsonb_path_query_array('[0,1,2,3,4,5]', '$[0 to 2, 4, $x]', '{"x": 5}'), jsonb_path_query_array('[0,1,2,3,4,5]', '$[1.9]'), jsonb_path_query_array('[0,1,2]', '$[2 to 0]'), jsonb_path_query_array('[0,1,2]', '$[-1]'), jsonb_path_query_array('[[0, 1], [2]]', '$[*][last]');
-- strict mode
SELECT jsonb_path_query_array('{"a": [1]}', 'strict $.a[0]');
SELECT jsonb_path_query_array('{"a": [1]}', 'strict $.b');
SELECT jsonb_path_query_array('[{"a": 1}]', 'strict $.a');
SELECT jsonb_path_query_array('1', 'strict $[*]');
SELECT jsonb_path_query_array('1', 'strict $[0]');
SELECT jsonb_path_query_array('[1]', 'strict $[1]');
SELECT jsonb_path_query_array('1', 'strict $.*');
SELECT jsonb_path_query_array('1', 'strict $.size()');
SELECT jsonb_path_query_array('[1, "a"]', '$[$[1]]');
SELECT jsonb_path_query_array('{"a": {"b": 1}, "c": 2}', 'strict $.**.b'), jsonb_path_query_array('[[1]]', 'strict $.**[0]');
SELECT jsonb_path_query_array('{"a": [1]}', 'strict $.b', '{}', true), jsonb_path_query_array('[1]', 'strict $[1]', '{}', true);
SELECT jsonb_path_exists('[{"a": 1}, {"b": 1}]', 'strict $[*].a', '{}', true), jsonb_path_exists('[{"a": 1}, {"b": 1}]', 'lax $[*].a'), jsonb_path_query_array('[{"a": 1}, {"b": 1}]', 'strict $[*].a', '{}', true);
-- filters
SELECT jsonb_path_query_array('[1, 2, 3, "4", null, true]', '$[*] ? (@ > 1)'), jsonb_path_query_array('[1, 2, 3]', '$[*] ? (@ > 1 && @ < 3)'), jsonb_path_query_array('[1, 2, 3]', '$[*] ? (@ == 1 || @ == 3)'), jsonb_path_query_array('[1, 2, 3]', '$ ? (@ > 1)'), jsonb_path_query_array('[1, 2, 3]', '$[*] ? (!(@ > 1))');
SELECT jsonb_path_query_array('[{"n": "x", "p": 5}, {"n": "y", "p": 50}, {"n": "z"}]', '$[*] ? (@.p > 10).n'), jsonb_path_query_array('[{"n": "x", "p": 5}, {"n": "y", "p": 50}, {"n": "z"}]', '$[*] ? (exists(@.p)).n'), jsonb_path_query_array('[{"n": "x", "p": 5}, {"n": "z"}]', '$[*] ? (!exists(@.p)) .n'), jsonb_path_query_array('[{"n": "x", "p": 5}]', '$[*] ? (@.p > $least).n', '{"least": 1}');
SELECT jsonb_path_query_array('[null, 1, "a", [1], {"a": 1}]', '$[*] ? (@ == null)'), jsonb_path_query_array('[null, 1, "a", {"a": 1}]', '$[*] ? (@ != null)'), jsonb_path_query_array('[null, 1, "a", {"a": 1}]', '$[*] ? ((@ == 1) is unknown)'), jsonb_path_query_array('["a", "b", "ab", "B"]', '$[*] ? (@ < "b")'), jsonb_path_query_array('[true, false]', '$[*] ? (@ > false)');
SELECT jsonb_path_query_array('["abc", "xbc", 1]', '$[*] ? (@ starts with "ab")'), jsonb_path_query_array('["abc", "xbc"]', '$[*] ? (@ starts with $p)', '{"p": "x"}'), jsonb_path_query_array('["abc", "ABC", "a\nb"]', '$[*] ? (@ like_regex "^a")'), jsonb_path_query_array('["abc", "ABC", "b\na"]', '$[*] ? (@ like_regex "^a" flag "i")'), jsonb_path_query_array('["a.c", "abc"]', '$[*] ? (@ like_regex "a.c" flag "q")');
SELECT jsonb_path_query_array('["a\nb", "b\na"]', '$[*] ? (@ like_regex "a.b")'), jsonb_path_query_array('["a\nb", "b\na"]', '$[*] ? (@ like_regex "a.b" flag "s")'), jsonb_path_query_array('["a\nb", "b\na"]', '$[*] ? (@ like_regex "^a" flag "m")'), jsonb_path_query_array('["a\nb", "b\na"]', '$[*] ? (@ like_regex "^a.b" flag "ms")');
SELECT jsonb_path_query_array('[{"a": [1, 2]}, {"a": [3]}]', '$[*] ? (@.a[*] > 2)'), jsonb_path_query_array('[{"a": [1, 2]}, {"a": [3]}]', '$[*] ? (@.a.size() > 1)'), jsonb_path_query_array('[{"a": {"b": 1}}, {"a": {"b": 2}}]', '$[*].a ? (@.b > 1) .b'), jsonb_path_query_array('[[1, 2], [3]]', '$[*] ? (@[*] ? (@ > 2) == 3)'), jsonb_path_query_array('{"a": [1, "x"]}', 'strict $.a ? (@[*] > 0)');
-- arithmetic and methods
SELECT jsonb_path_query_array('{"a": 7, "b": 2}', '$.a + $.b * 2'), jsonb_path_query_array('{"a": 7, "b": 2}', '($.a + $.b) * 2'), jsonb_path_query_array('{"a": 7, "b": 2}', '$.a / $.b'), jsonb_path_query_array('{"a": 7, "b": 2}', '$.a % $.b'), jsonb_path_query_array('{"a": 7, "b": 3}', '-$.a / $.b'), jsonb_path_query_array('[1, 2]', '-$[*]'), jsonb_path_query_array('{"a": 1.50}', '$.a * 2.0 - 1');
SELECT jsonb_path_query('[1, 2]', '$[*] + 1');
SELECT jsonb_path_query('["a"]', '$[*] + 1');
SELECT jsonb_path_query_first('["a"]', '-$[*]');
SELECT jsonb_path_query_first('1', '$ / 0');
SELECT jsonb_path_query_array('1', '$ / 0', '{}', true), jsonb_path_query_array('[0, 1]', '$[*] ? (1 / @ > 0)');
SELECT jsonb_path_query_array('[1, "a", null, true, [], {}]', '$[*].type()'), jsonb_path_query_array('[1, 2, 3]', '$.size()'), jsonb_path_query_array('5', '$.size()'), jsonb_path_query_array('[-1.5, 2.5]', '$[*].abs()'), jsonb_path_query_array('[-1.5, 2.5]', '$.floor()'), jsonb_path_query_array('[-1.5, 2.5]', '$.ceiling()'), jsonb_path_query_array('["1.50", 2.50, "1e3"]', '$.double()'), jsonb_path_query_array('{"a": 1, "b": [2]}', '$.keyvalue()');
SELECT jsonb_path_query_first('"x"', '$.abs()');
SELECT jsonb_path_query_first('"x"', '$.double()');
SELECT jsonb_path_query_first('true', '$.double()');
SELECT jsonb_path_query_first('[1]', 'strict $.floor()');
SELECT jsonb_path_query_first('1', '$.keyvalue()');
SELECT jsonb_path_query_array('{"a": 1}', '$.a > 0'), jsonb_path_query_array('{"a": "x"}', '$.a > 0'), jsonb_path_query_array('{"a": 1}', '($.a > 0).type()'), jsonb_path_query_array('{"a": 1}', 'exists($.b)'), jsonb_path_query_array('{"a": 1}', '!exists($.b) && $.a == 1'), jsonb_path_query_array('{"a": 1}', '$.a == "x" || $.a == 1'), jsonb_path_query_array('{}', '1 == 1 && $.a == "x"');
SELECT jsonb_path_query_array('{}', '"a\u00e4\x41\u{42}\n\"x"'), jsonb_path_query_array('{}', '0x1F'), jsonb_path_query_array('{}', '.5'), jsonb_path_query_array('{}', '1e2'), jsonb_path_query_array('{}', '1_000'), jsonb_path_query_array('{"a": 1}', '$ /* a comment */ .a'), jsonb_path_query_array('{}', 'null'), jsonb_path_query_array('{}', 'true'), jsonb_path_query_array('{}', '- 1.20'), jsonb_path_query_array('{}', 'LAX 1');
-- functions and operators
SELECT id, jsonb_path_query_array(jb, '$.*'), jsonb_path_query_first(jb, '$.a'), jsonb_path_exists(jb, '$.a'), jb @? '$.list[*].x', jb @@ '$.a == 1' FROM docs ORDER BY id;
SELECT id, x FROM docs, jsonb_path_query(jb, '$.**') AS x WHERE id < 4 ORDER BY id, x;
SELECT id, jsonb_path_query(jb, '$.list[*]') FROM docs ORDER BY id;
SELECT count(*) FROM docs WHERE jb @? '$.a ? (@ > 0)';
SELECT '{"a": [1, 2]}'::jsonb @? '$.a[*] ? (@ > 1)', '{"a": [1, 2]}'::jsonb @@ '$.a[*] > 2', '{"a": 1}'::jsonb @@ '$.a', '{}'::jsonb @@ 'strict $.a == 1', '{}'::jsonb @? 'strict $.a', NULL::jsonb @? '$', '1'::jsonb @? NULL;
SELECT jsonb_path_match('{"a": 1}', '$.a == 1'), jsonb_path_match('{"a": 1}', 'exists($.b)'), jsonb_path_match('{"a": "x"}', '$.a > 1'), jsonb_path_match('{"a": 1}', '$.a', '{}', true);
SELECT jsonb_path_match('{"a": 1}', '$.a');
SELECT jsonb_path_exists('{"a": 1}', '$.a ? (@ == $v)', '{"v": 1}'), jsonb_path_exists('{"a": 1}', '$.b'), jsonb_path_exists(NULL, '$.b'), jsonb_path_exists('{"a": 1}', '$.a', NULL), jsonb_path_exists_tz('{"a": 1}', '$.a'), jsonb_path_match_tz('1', '$ == 1'), jsonb_path_query_array_tz('[1]', '$[*]'), jsonb_path_query_first_tz('[1]', '$[*]');
SELECT x FROM jsonb_path_query_tz('[1, 2]', '$[*]') AS x;
SELECT x, n FROM jsonb_path_query('[3, 2]', '$[*]') WITH ORDINALITY AS t (x, n);
SELECT jsonb_path_query_first('{"a": 1}', '$.a ? (@ == $v)');
SELECT jsonb_path_query('{"a": 1}', '$.a', '[]');
-- errors of syntax
SELECT jsonb_path_query_first('{}', '');
SELECT jsonb_path_query_first('{}', '$.');
SELECT jsonb_path_query_first('{}', '$.a b');
SELECT jsonb_path_query_first('{}', '$[');
SELECT jsonb_path_query_first('{}', '@.a');
SELECT jsonb_path_query_first('{}', '$.a + last');
SELECT jsonb_path_query_first('{}', '$ ? (@.a)');
SELECT jsonb_path_query_first('{}', '$.a && $.b');
SELECT jsonb_path_query_first('{}', '$.nope()');
SELECT jsonb_path_query_first('{}', '1a');
SELECT jsonb_path_query_first('{}', '$ ? (@ like_regex "(")');
SELECT jsonb_path_query_first('{}', '$ ? (@ like_regex "a" flag "z")');
SELECT jsonb_path_query_first('{}', '$ ? (@ like_regex "a" flag "x")');
SELECT jsonb_path_query_first('{}', '"abc');
SELECT jsonb_path_query_first('{}', '! 1');
-- all signatures
SELECT jsonb_path_match('1', '$ == $x', '{"x": 1}'), jsonb_path_match_tz('1', '$ == $x', '{"x": 1}'), jsonb_path_match_tz('1', '$ == $x', '{"x": 1}', false), jsonb_path_exists('1', '$', '{}', false), jsonb_path_exists_tz('1', '$', '{}'), jsonb_path_exists_tz('1', '$', '{}', true);
SELECT jsonb_path_query_array_tz('1', '$', '{}'), jsonb_path_query_array_tz('1', '$', '{}', true), jsonb_path_query_first('1', '$', '{}'), jsonb_path_query_first('1', '$', '{}', true), jsonb_path_query_first_tz('1', '$', '{}'), jsonb_path_query_first_tz('1', '$', '{}', true);
SELECT jsonb_path_query('[1, 2]', 'strict $[*] + $x', '{"x": 1}', true), jsonb_path_query_tz('[1, 2]', '$[*]', '{}'), jsonb_path_query_tz('[1, 2]', '$[*]', '{}', true);
SELECT jsonb_path_query('{}', '$ /* a comment');
SELECT jsonb_path_query('{}', '$ /* one */ .a /* two');
