-- concatenation and length
SELECT '\x123456'::bytea || '\x789a00bcde'::bytea, length('\x1234'::bytea), octet_length('\x1234'::bytea), bit_length('\x1234'::bytea), bit_count('\x1234567890'::bytea), '\x'::bytea || NULL::bytea, length(''::bytea);
SELECT id, b || '\x00', length(b), octet_length(b), bit_length(b), bit_count(b), md5(b) FROM strs;
-- parts
SELECT substring('\x1234567890'::bytea from 3 for 2), substring('\x1234567890'::bytea, 2), substr('\x1234567890'::bytea, 0, 2), substr('\x1234567890'::bytea, -1, 4), substring('\x1234'::bytea from 5), substr('\x1234'::bytea, 2147483647, 2147483647), substr('\x1234'::bytea, 1, 2147483647);
SELECT substr('\x1234'::bytea, 1, -1);
SELECT overlay('\x1234567890'::bytea placing '\x002003'::bytea from 2 for 3), overlay('\x1234567890'::bytea placing '\x00'::bytea from 2), overlay('\x12'::bytea placing '\x3456'::bytea from 5);
SELECT overlay('\x1234'::bytea placing '\x00'::bytea from 0);
SELECT position('\x5678'::bytea in '\x1234567890'::bytea), position('\x'::bytea in '\x12'::bytea), position('\x99'::bytea in '\x12'::bytea);
SELECT btrim('\x1234567890'::bytea, '\x9012'::bytea), ltrim('\x1234567890'::bytea, '\x9012'::bytea), rtrim('\x1234567890'::bytea, '\x9012'::bytea), trim('\x9012'::bytea from '\x1234567890'::bytea), btrim('\x00'::bytea, '\x'::bytea), btrim('\x0000'::bytea, '\x00'::bytea);
SELECT id, substring(b from 2 for 2), overlay(b placing '\xff' from 1 for 1), position('\x62' in b), btrim(b, '\x20'::bytea), ltrim(b, '\x61'::bytea), rtrim(b, '\x63'::bytea) FROM strs;
-- bits and bytes
SELECT get_bit('\x1234567890'::bytea, 30), get_byte('\x1234567890'::bytea, 4), set_bit('\x1234567890'::bytea, 30, 0), set_byte('\x1234567890'::bytea, 4, 64), set_bit('\x00'::bytea, 0, 1), set_byte('\x00'::bytea, 0, 300), get_bit('\x01'::bytea, 0);
SELECT get_bit('\x12'::bytea, 8);
SELECT get_bit('\x12'::bytea, -1);
SELECT get_byte('\x'::bytea, 0);
SELECT set_bit('\x12'::bytea, 0, 2);
SELECT set_byte('\x12'::bytea, 1, 0);
SELECT id, get_byte(b, 0), set_byte(b, 0, 65), get_bit(b, 7), set_bit(b, 7, 1) FROM strs WHERE length(b) > 0;
SELECT get_byte(b, 0) FROM strs WHERE id = 1;
-- digests
SELECT md5('\x616263'::bytea), sha224('abc'::bytea), sha256('abc'::bytea), sha384('abc'::bytea), sha512('abc'::bytea), sha256(''), sha256(NULL::bytea);
SELECT id, sha224(b), sha256(b), sha384(b), sha512(b) FROM strs;
-- encodings
SELECT encode('\x123456'::bytea, 'hex'), encode('\x123456'::bytea, 'base64'), encode('\x5c27007f80ff'::bytea, 'escape'), encode('\x', 'base64'), encode('\x12', 'HEX'), encode(repeat('x', 100)::bytea, 'base64'), encode(repeat('y', 57)::bytea, 'base64');
SELECT encode('\x12'::bytea, 'nope');
SELECT decode('123456', 'hex'), decode('12 34' || chr(10) || '56', 'hex'), decode('EjRW', 'base64'), decode('MQ==', 'base64'), decode('a\\b\001', 'escape'), decode('', 'hex'), decode('EjRW' || chr(10), 'base64');
SELECT decode('12345', 'hex');
SELECT decode('zz', 'hex');
SELECT decode('MQ', 'base64');
SELECT decode('M=Q=', 'base64');
SELECT decode('é', 'base64');
SELECT decode('\1', 'escape');
SELECT decode('x', 'nope');
SELECT id, encode(b, 'hex'), encode(b, 'base64'), encode(b, 'escape') FROM strs;
SELECT id, decode(encode(b, 'base64'), 'base64') = b, decode(encode(b, 'escape'), 'escape') = b FROM strs;
SELECT id, decode(s, 'hex') FROM strs WHERE id IN (1, 2, 4);
SELECT convert_from('\x746578745f696e5f75746638', 'UTF8'), convert_from('\xe9', 'LATIN1'), convert_to('é', 'UTF8'), convert_to('é', 'LATIN1'), convert_from('\x80', 'WIN1252'), convert('\xe9', 'LATIN1', 'UTF8'), length('\xc3a9'::bytea, 'UTF8'), convert_to('text', 'SQL_ASCII'), convert_from('\xc3bc', 'utf-8');
SELECT convert_from('\xff', 'UTF8');
SELECT convert_to('日', 'LATIN1');
SELECT convert_from('\x61', 'nope');
SELECT convert_from('\x00', 'UTF8');
SELECT id, convert_from(convert_to(s, 'UTF8'), 'UTF8') = s, convert_to(v, 'LATIN1') FROM strs;
SELECT convert_from(b, 'UTF8') FROM strs WHERE id = 9;
-- patterns and input
SELECT '\x616263'::bytea LIKE 'a%'::bytea, '\x616263'::bytea NOT LIKE 'a_'::bytea, '\x61ff'::bytea LIKE 'a_'::bytea;
SELECT id, b LIKE '%b%'::bytea FROM strs;
SELECT 'a\\b'::bytea, '\x00FF'::bytea, E'\\000'::bytea, 'é'::bytea;
SELECT '\x0'::bytea;
SELECT '\xzz'::bytea;
SELECT 'a\b'::bytea;
