-- LIKE
SELECT 'abc' LIKE 'abc', 'abc' LIKE 'a%', 'abc' LIKE '_b_', 'abc' LIKE 'c', 'abc' NOT LIKE 'a%', 'abc' ILIKE 'A%', 'ABC' NOT ILIKE 'a_c', '' LIKE '', '' LIKE '%', 'a' LIKE '', E'a\nb' LIKE 'a%b', 'É' ILIKE 'é', '日本' LIKE '_本', NULL LIKE 'a', 'a' LIKE NULL;
SELECT 'a%b' LIKE 'a\%b', 'axb' LIKE 'a\%b', 'a_b' LIKE 'a#_b' ESCAPE '#', 'a\b' LIKE 'a\\b', 'a\b' LIKE 'a\b' ESCAPE '', 'a%' LIKE 'a!%' ESCAPE '!', 'ab' LIKE 'a!b' ESCAPE '!', 'abc' LIKE '%%c', 'abcabc' LIKE '%b%b_', 'aaa' LIKE 'a%a%a%a', 'x' LIKE NULL ESCAPE '!', 'a' LIKE 'a' ESCAPE NULL;
SELECT 'abc' LIKE 'abc\';
SELECT 'x' LIKE 'abc\';
SELECT 'abc' LIKE 'abc' ESCAPE 'ab';
SELECT 'a' ~~ 'a', 'a' !~~ 'b', 'A' ~~* 'a', 'A' !~~* 'a';
SELECT id, s LIKE '%b%', s NOT LIKE 'a%', s ILIKE '%C%', s LIKE v, s ILIKE v, v LIKE s, s LIKE '%' || v || '%', s LIKE '%!%%' ESCAPE '!', c LIKE 'a%', s LIKE E'%\n%' FROM strs;
SELECT id, s LIKE v ESCAPE '#', s LIKE '%' || left(v, 1) || '%' ESCAPE '%', 'abc' LIKE s FROM strs WHERE id <> 7;
SELECT id, 'a%b_c\d' LIKE s, s LIKE s, s ILIKE upper(s) FROM strs;
SELECT 1 LIKE '1';
-- SIMILAR TO
SELECT 'abc' SIMILAR TO 'abc', 'abc' SIMILAR TO 'a', 'abc' SIMILAR TO '%(b|d)%', 'abc' SIMILAR TO '(b|c)%', 'xabcx' SIMILAR TO '%abc%', 'abc' NOT SIMILAR TO 'a_c', 'aaa' SIMILAR TO 'a{2,3}', 'a.c' SIMILAR TO 'a.c', 'abc' SIMILAR TO 'a.c', 'a%' SIMILAR TO 'a\%', 'a%' SIMILAR TO 'a#%' ESCAPE '#', 'abc' SIMILAR TO '[a-c]+', 'b' SIMILAR TO 'a|b|c', '^a$' SIMILAR TO '^a$', 'abc' SIMILAR TO '';
SELECT id, s SIMILAR TO '[a-z]*', s SIMILAR TO '%(a|A)%', v SIMILAR TO '_+', s NOT SIMILAR TO '%[0-9]%', s SIMILAR TO v FROM strs WHERE id <> 7;
SELECT 'a' SIMILAR TO 'a' ESCAPE '##';
SELECT 'a' SIMILAR TO '(a';
SELECT substring('foobar' from '%#"o_b#"%' for '#'), substring('foobar' from '#"o_b#"%' for '#'), substring('abcdefg' from 'a#"(b_d)#"%' for '#'), substring('abcdefg' from '#"%#"x' for '#'), substring('abcdefg' from 'a#"%#"g' for '#'), substring('abcdefg' from 'a*#"%#"g*' for '#'), substring('abcdefg' from '%' for '#'), substring('abcdefg' from NULL for '#');
SELECT substring('abc' from 'a#"b#"c#"' for '#');
-- POSIX: whether
SELECT 'thomas' ~ 't.*ma', 'thomas' ~* 'T.*ma', 'thomas' !~ 't.*max', 'thomas' !~* 'T.*ma', 'abcd' ~ 'bc', 'abcd' ~ 'a.c', 'abcd' ~ '^abc', 'abcd' ~ '(b|d)', 'abcd' ~ '^(b|c)', 'a' ~ '', '' ~ '^$', E'a\nb' ~ 'a.b', E'a\nb' ~ '^b', 'é' ~ '\w', 'É' ~* 'é', '日' ~ '^.$';
SELECT 'a1' ~ '\d', 'a ' ~ '\s', 'a_' ~ '^\w+$', 'ab' ~ '\Dx|b', 'foo bar' ~ '\mbar', 'foobar' ~ '\mbar', 'foo bar' ~ 'foo\M', 'foobar' ~ 'foo\M', 'foo' ~ '\yfoo\y', 'foo' ~ 'f\Yo', 'abc' ~ '\Aabc\Z', 'foo bar' ~ '[[:<:]]bar[[:>:]]', 'a' ~ '[[:alpha:]]', '5' ~ '[[:digit:]]', ' ' ~ '[[:space:]]', '.' ~ '[[:punct:]]', 'é' ~ '[[:alpha:]]', 'F' ~ '[[:xdigit:]]';
SELECT 'abab' ~ '^(ab)\1$', 'abac' ~ '(a)(b)\1\2', 'xyz' ~ '(?i)XYZ', E'a\nb' ~ '(?n)^b', E'a\nb' ~ '(?n)a.b', 'a.b' ~ '***=a.b', 'axb' ~ '***=a.b', 'a b' ~ '(?x)a\ b', 'foobar' ~ 'foo(?=bar)', 'foobar' ~ 'foo(?!bar)', 'foobar' ~ '(?<=foo)bar', 'foobar' ~ '(?<!foo)bar', 'a{' ~ 'a{', 'aa' ~ '^a{2}$', 'aaa' ~ '^a{1,2}$', 'a]' ~ '[]]', 'a-' ~ '[a-]$', '\' ~ '[\\]', 'tab	' ~ '\t', 'é' ~ '\u00e9', 'A' ~ '\x41', '*' ~ '\*';
SELECT 'a' ~ '(';
SELECT 'a' ~ ')';
SELECT 'a' ~ '[';
SELECT 'a' ~ '*';
SELECT 'a' ~ 'a**';
SELECT 'a' ~ 'a{2,1}';
SELECT 'a' ~ 'a{256}';
SELECT 'a' ~ '[b-a]';
SELECT 'a' ~ '[[:nope:]]';
SELECT 'a' ~ '\';
SELECT 'a' ~ '\q';
SELECT 'a' ~ '\1';
SELECT 'a' ~ '(?z)a';
SELECT 'a' ~ NULL, NULL ~ 'a', 'a' !~ NULL;
SELECT id, s ~ 'b', s ~ '^[a-z]+$', s ~* '^[A-Z]+$', s !~ '\d', s ~ '\s', s !~* 'ONE', v ~ '^.{3}$', s ~ '[^[:alnum:]]', s ~ '[^\w\s]', s ~ 'ö|日' FROM strs;
SELECT id, s ~ v, v !~ s, s ~* v, v ~ ('^' || left(v, 1)) FROM strs WHERE id NOT IN (7);
SELECT s ~ ('[' || v) FROM strs WHERE id = 2;
-- POSIX: what
SELECT substring('foobar' from 'o.b'), substring('foobar' from 'o(.)b'), substring('foobar', 'x'), substring('foobar', '(x)?foo'), substring('abcd' from '(a|ab)(c|bcd)'), substring('XY1234Z' from 'Y*([0-9]{1,3})'), substring('XY1234Z' from 'Y*?([0-9]{1,3})'), substring('foobar' from 'o+?'), substring('foobar' from '(?:o+?)b'), substring('xabcy' from 'a|ab|abc'), substring('aaa' from 'a{2}?'), substring('aaa' from 'a{1,2}?'), substring('' from ''), substring('日本語' from '本.');
SELECT regexp_match('foobarbequebaz', '(bar)(beque)'), regexp_match('foobarbequebaz', 'bar.*que'), regexp_match('foobarbequebaz', 'bar(x)?beque'), regexp_match('abc', 'X', 'i'), regexp_match('ABC', 'b', 'i'), regexp_match('abc', 'x'), regexp_match('abcd', '(a|ab)(c|bcd)(d*)'), regexp_match('abab', '(ab)*'), regexp_match('abac', '((a)|b|c)*'), regexp_match('aaa', '(a*)(a*)'), regexp_match('aaa', '(a*?)(a*)'), regexp_match('xyz', '(x|xy)(z|yz)?'), regexp_match('', '(a*)*'), regexp_match('abc', '()(abc)');
SELECT regexp_match('a', 'a', 'g');
SELECT regexp_match('a', 'a', 'z');
SELECT regexp_like('Hello World', 'world$', 'i'), regexp_like('Hello World', 'world'), regexp_like('abc', 'a.c'), regexp_count('ABCABCAXYaxy', 'A.'), regexp_count('ABCABCAXYaxy', 'A.', 1, 'i'), regexp_count('123123123', '\d{3}', 2), regexp_count('abc', ''), regexp_count('', ''), regexp_count('aaa', 'a*'), regexp_count('abc', 'x', 100);
SELECT regexp_count('a', 'a', 0);
SELECT regexp_count('a', 'a', 1, 'g');
SELECT regexp_like('a', 'a', 'g');
SELECT regexp_instr('number of your street, town zip, FR', '[^,]+', 1, 2), regexp_instr('ABCDEFGHI', '(c..)(...)', 1, 1, 0, 'i', 2), regexp_instr('ABCDEFGHI', '(c..)(...)', 1, 1, 1, 'i', 2), regexp_instr('abc', 'x'), regexp_instr('abcabc', 'b', 3), regexp_instr('abc', 'b', 1, 1, 1), regexp_instr('abc', 'b', 1, 1, 0, '', 3);
SELECT regexp_instr('abc', 'b', 1, 0);
SELECT regexp_instr('abc', 'b', 1, 1, 2);
SELECT regexp_instr('abc', 'b', 1, 1, 0, '', -1);
SELECT regexp_substr('number of your street, town zip, FR', '[^,]+', 1, 2), regexp_substr('ABCDEFGHI', '(c..)(...)', 1, 1, 'i', 2), regexp_substr('abc', 'x'), regexp_substr('abcabc', 'b.', 3), regexp_substr('abc', 'b', 1, 2), regexp_substr('abc', '(x)?b', 1, 1, '', 1);
SELECT regexp_replace('foobarbaz', 'b..', 'X'), regexp_replace('foobarbaz', 'b..', 'X', 'g'), regexp_replace('foobarbaz', 'b(..)', 'X\1Y', 'g'), regexp_replace('A PostgreSQL function', 'a|e|i|o|u', 'X', 1, 0, 'i'), regexp_replace('A PostgreSQL function', 'a|e|i|o|u', 'X', 1, 3, 'i'), regexp_replace('abc', 'b', '[\&]'), regexp_replace('abc', 'b', 'x\\y'), regexp_replace('abc', 'b', '\q'), regexp_replace('abc', '', '-', 'g'), regexp_replace('abc', 'x*', '-', 'g'), regexp_replace('Thomas', '.[mN]a.', 'M'), regexp_replace('hello', 'L', 'x', 'gi'), regexp_replace('abcabc', 'b', 'X', 3), regexp_replace('abc', '(x)?b', '<\1>'), regexp_replace('aaa', 'a', 'b', 1, 2), regexp_replace('日本語', '本', 'x'), regexp_replace('abc', 'b', '\');
SELECT regexp_replace('a', 'a', 'b', '1');
SELECT regexp_replace('a', 'a', 'b', 0);
SELECT regexp_replace('a', 'a', 'b', 1, -1);
SELECT regexp_replace('a', 'a', 'b', 'z');
SELECT regexp_split_to_array('the quick brown fox', '\s+'), regexp_split_to_array('the quick', ''), regexp_split_to_array('', ','), regexp_split_to_array(',a,', ','), regexp_split_to_array('aXbxc', 'x', 'i'), regexp_split_to_array('abc', 'x'), regexp_split_to_array('abc', 'b*');
SELECT regexp_split_to_array('a', 'a', 'g');
SELECT id, substring(s from '[a-z]+'), substring(s from '(.)$'), regexp_match(s, '(\w)(\W)'), regexp_replace(s, '[aeiou]', '*', 'g'), regexp_replace(s, '(.)(.)', '\2\1'), regexp_count(s, '[[:alpha:]]'), regexp_like(s, 'B', 'i'), regexp_instr(s, '\s'), regexp_substr(s, '[^a]+'), regexp_split_to_array(s, ',') FROM strs;
SELECT id, regexp_match(s, '^(.)([^a]*)'), (regexp_match(s, '(.)'))[1], regexp_match(s, 'a'), regexp_match(s, '(a)(.*)'), regexp_substr(s, ' [^ ]*'), substring(s from '([^o])o'), substring(s from 'o.*'), s ~ 'a.*' FROM strs;
SELECT id, regexp_replace(s, left(v, 1), '#'), regexp_count(s, coalesce(substring(v from '[a-z]'), 'x')), substring(s from substring(v from '\w')) FROM strs WHERE id <> 4;
SELECT substring('foobar' from '(o)\1'), regexp_replace('aabb', '(.)\1', 'x', 'g');
SELECT regexp_match(NULL, 'a'), regexp_replace('a', NULL, 'b'), regexp_count('a', NULL), substring(NULL from 'a'), regexp_split_to_array('a', NULL);
SELECT id, (regexp_match(s, '(.)(.*)'))[2], (regexp_match(s, '(\w+)\W+(\w)'))[1], (regexp_match(s, '(a|ab)(c|bcd)?'))[2], (regexp_match(s, '()(x)?'))[2], (regexp_match(s, 'b'))[1], (regexp_match(s, '(b)'))[2], (regexp_match(s, '(b)'))[0], (regexp_match(s, '(^|,)(t[a-z]*)'))[2] FROM strs;
SELECT id, substring(s from '(.)$'), substring(s from 'n(.*)'), substring(s from '(\s)'), substring(s from '(,*)'), substring(s from '(,+)'), substring(s from '(.*)(n)'), substring(s from '(.*?)n'), substring(s from '(\n.*)') FROM strs;
SELECT id, (regexp_match(s, '(', 'g'))[1] FROM strs WHERE id < 0;

-- a char(n) is matched with its padding
SELECT 'a'::char(3) LIKE 'a', 'a'::char(3) LIKE 'a%', 'a'::char(3) LIKE 'a  ', 'a'::char(3) NOT LIKE 'a';
SELECT id, c LIKE 'ab%', c LIKE '%c', c ILIKE 'ABC', c ~ 'c$', c !~ 'c$' FROM strs;
SELECT id, c LIKE 'a!%%' ESCAPE '!', c NOT LIKE '!%%' ESCAPE '!', c ILIKE 'A!_' ESCAPE '!', c NOT ILIKE 'A%' ESCAPE '!' FROM strs;
-- operators bind like ||, from left to right; a prefix operator takes what + and * make
SELECT 'ab' ~ '^a' || 'b', ~ 1 + 2, @ -5 + 2, |/ 25 + 11;
SELECT '{"a": "x"}'::jsonb || '{"b": "y"}'::jsonb ->> 'b';

-- operators that are negations, with ANY and ALL
SELECT '4' !~ ALL ('{4,6}'), '4' !~ ANY ('{4,6}'), 'a' !~* ALL ('{A,b}'), 'a' !~* ANY ('{A,b}'), NOT 'a' ~ ALL ('{a,b}');
SELECT '4' NOT LIKE ALL ('{4,6}'), '4' NOT LIKE ANY ('{4,6}'), '4' !~~ ALL ('{4,6}'), '4' !~~* ANY ('{4,6}');
SELECT x FROM (VALUES ('a'), ('b'), (NULL)) v(x) WHERE x !~ ALL (ARRAY['a', 'c']);
SELECT '4' !~ ALL (SELECT '4' UNION SELECT '6'), '4' !~* ANY (SELECT '4' UNION SELECT '6');
SELECT 1 !~ 2;
SELECT 'Ab'::char(4) ~* 'ab', 'Ab'::char(4) ~* 'ab$', 'Ab'::char(4) !~* 'b  $';
