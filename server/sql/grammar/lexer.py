"""Lexer: text to tokens, by the rules of PostgreSQL's scanner (src/backend/parser/scan.l, version 16).

`tokenize(text) -> list[Token]`; the last token has kind END. Positions are indices into the client's text, in
characters. The text is tokenized only here: statements are split and parsed from this list, and sqlglot's tokens are
made from it. All parts of the parser therefore agree on where a string or a comment ends.

One regular expression matches the next token. Its repetitions are possessive, so an unterminated string fails in linear
time and is never split into shorter strings. Nested comments and dollar quotes, which are not regular, are scanned by
separate code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.scalars import BASED_DIGITS, DECIMAL_DIGITS
from server.sql.grammar.checkpoint import checkpoint

TARGETS_MAX = 1_664  # entries of a select list and columns of a result: MaxTupleAttributeNumber
STATEMENT_TOKENS_MAX = 250_000  # the tree of such a statement takes a few hundred megabytes
TEXT_TOKENS_MAX = 1_000_000  # in all statements of one text; the tokens take about 200 MB
CHECKED_TOKENS = 1_000  # tokens between two checks of the limits; reading them takes less than a millisecond
NAME_BYTES_MAX = 63  # NAMEDATALEN - 1: longer names are truncated, as PostgreSQL does
PARAMETER_CHARS_MAX = 100  # a statement has at most 65,535 parameters, but their numbers may begin with zeros
NUMBER_DIGITS_MAX = 4000  # below Python's own limit for reading integers (4300); numeric ends at 38 digits here


def words(text: str) -> frozenset[str]:
    """The set of the whitespace-separated words of `text`."""
    return frozenset(text.split())


class Kind(IntEnum):
    WORD = 1  # unquoted: a keyword or a name
    IDENT = 2  # "quoted"
    STRING = 3
    NUMBER = 4
    PARAMETER = 5
    SYMBOL = 6  # punctuation and operators
    END = 7


class Token(NamedTuple):
    """`value`: a folded and truncated name, a decoded string, a number in decimal, or a parameter's digits."""

    kind: Kind
    value: str
    start: int
    end: int


_NAME = r"[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_$\x80-\U0010ffff]*+"
_DIGITS = DECIMAL_DIGITS
_HEXADECIMAL, _OCTAL, _BINARY = BASED_DIGITS
# A match keeps a hundred bytes for each repetition of a group, so the repetitions are limited. `_end` finds the end of
# strings and names with more quotes.
_IN_STRING = r"[^']*+(?>(?:''[^']*+){0,1000})"
_IN_NAME = r'[^"]*+(?>(?:""[^"]*+){0,1000})'
_IN_ESCAPE_STRING = r"[^'\\]*+(?>(?:(?:''|\\.)[^'\\]*+){0,1000})"
STRING = rf"'{_IN_STRING}'(?!')"
_NAME_IN_QUOTES = rf'"{_IN_NAME}"(?!")'
_ESCAPE_STRING = rf"'{_IN_ESCAPE_STRING}'(?!')"
# Strings that are separated by whitespace with a newline are one string (whitespace_with_newline in scan.l).
_COMMENTS = r"(?>(?:--[^\n\r]*+[\n\r][ \t\n\r\f\v]*+){0,10000})"
_CONTINUED = rf"[ \t\f\v]*+(?:--[^\n\r]*+)?[\n\r][ \t\n\r\f\v]*+{_COMMENTS}"

_TOKEN = re.compile(
    rf"""
      (?P<space> (?: [ \t\n\r\f\v]++ | --[^\n\r]*+ ) (?> (?: --[^\n\r]*+[ \t\n\r\f\v]*+ ){{0,100}} ) )
    | (?P<comment> /\* )
    | (?P<escape> [eE]{_ESCAPE_STRING} )
    | (?P<unicode> [uU]&(?: {STRING} | {_NAME_IN_QUOTES} ) )
    | (?P<refused> [bBxX]' )
    | (?P<string> [nN]?{STRING} )
    | (?P<open> (?:[eEnN]|[uU]&)?' | (?:[uU]&)?" (?! {_IN_NAME}"(?!") ) )
    | (?P<word> {_NAME} )
    | (?P<number>
        (?: 0[xX]{_HEXADECIMAL} | 0[oO]{_OCTAL} | 0[bB]{_BINARY}
          | (?: {_DIGITS}(?>(?:\.(?!\.)(?:{_DIGITS})?)?) | \.{_DIGITS} )(?>(?:[eE][+-]?{_DIGITS})?) )
        (?P<junk> [eE][+-] | {_NAME} )? )
    | (?P<parameter> \$[0-9]++(?P<after>{_NAME})? )
    | (?P<dollar> \$(?:[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_\x80-\U0010ffff]*+)?\$ )
    | (?P<ident> {_NAME_IN_QUOTES} )
    | (?P<operator> (?> (?: (?!--|/\*) [-+*/<>=~!@\#%^&|`?] ){{1,1000}} ) )
    | (?P<symbol> :: | := | \.\. | . )
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_BEFORE_CONTINUATION = frozenset(" \t\n\r\f\v-")
_STRING_CONTENTS, _NAME_CONTENTS = re.compile(_IN_STRING), re.compile(_IN_NAME)
_ESCAPE_STRING_CONTENTS = re.compile(_IN_ESCAPE_STRING, re.DOTALL)
_SPACE = r"[ \t\n\r\f\v]*+(?>(?:--[^\n\r]*+[ \t\n\r\f\v]*+){0,10000})"
_UESCAPE = re.compile(rf"{_SPACE}(?i:uescape)(?![A-Za-z0-9_$\x80-\U0010ffff]){_SPACE}")
_BETWEEN_SEGMENTS = re.compile(_CONTINUED)
_ESCAPE = re.compile(
    r"""''|\\(?:
      u(?P<high>[dD][89abAB][0-9A-Fa-f]{2})\\u(?P<low>[dD][c-fC-F][0-9A-Fa-f]{2})
    | (?:u(?P<u4>[0-9A-Fa-f]{4})|U(?P<u8>[0-9A-Fa-f]{8}))
    | (?P<bad>[uU])
    | x(?P<hex>[0-9A-Fa-f]{1,2})
    | (?P<octal>[0-7]{1,3})
    | (?P<char>.))""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED_CHARS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_UPPER_TO_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_RADIX = {"x": (16, "hexadecimal"), "o": (8, "octal"), "b": (2, "binary")}


def tokenize(text: str) -> list[Token]:
    """Returns all tokens of `text`, then END.

    Raises PgError 42601 for an invalid token, 22021 for text that is not valid UTF-8, 54011 for a select list that is
    too long, and 54000 for a statement of more than STATEMENT_TOKENS_MAX tokens or a text of more than TEXT_TOKENS_MAX.
    The limits are checked during tokenization, so memory is bounded even for a text that exceeds them.
    """
    if "\0" in text or not (text.isascii() or _encodes(text)):
        raise PgError(
            SqlState.CHARACTER_NOT_IN_REPERTOIRE,
            f'invalid byte sequence for encoding "UTF8"{": 0x00" if chr(0) in text else ""}',
        )
    tokens: list[Token] = []
    match_token = _TOKEN.match
    position, size = 0, len(text)
    limits, unchecked_max = _Limits(), CHECKED_TOKENS
    while position < size:
        if len(tokens) >= unchecked_max:
            limits.check(tokens)
            unchecked_max = len(tokens) + CHECKED_TOKENS
        match = match_token(text, position)
        assert match is not None  # the last alternative matches any character
        group, start, position = match.lastgroup, position, match.end()
        if group == "open":
            group, position = _long_quoted(text, start, position)
        if group == "word":
            tokens.append(Token(Kind.WORD, fold(match[0]), start, position))
        elif group == "symbol":
            tokens.append(Token(Kind.SYMBOL, match[0], start, position))
        elif group == "number":
            tokens.append(Token(Kind.NUMBER, _number(match), start, position))
        elif group == "operator":
            tokens.extend(_operators(match[0], start))
        elif group == "string":
            position = _continued(text, position, _STRING_CONTENTS)
            tokens.append(Token(Kind.STRING, _string(text[start:position]), start, position))
        elif group == "ident":
            tokens.append(Token(Kind.IDENT, _ident(text[start:position], start), start, position))
        elif group == "comment":
            position = _comment_end(text, start)
        elif group == "parameter":
            if match["after"]:
                raise syntax_error("trailing junk after parameter", match[0], start)
            if position - start > PARAMETER_CHARS_MAX:
                raise PgError(SqlState.UNDEFINED_PARAMETER, f"there is no parameter {match[0]}", position=start + 1)
            tokens.append(Token(Kind.PARAMETER, match[0][1:], start, position))
        elif group == "dollar":
            tag, body = match[0], position
            position = text.find(tag, body)
            if position < 0:
                raise syntax_error("unterminated dollar-quoted string", text[start:], start)
            tokens.append(Token(Kind.STRING, text[body:position], start, position + len(tag)))
            position += len(tag)
        elif group == "escape":
            position = _continued(text, position, _ESCAPE_STRING_CONTENTS)
            tokens.append(Token(Kind.STRING, _escape_string(text[start:position], start), start, position))
        elif group == "unicode":
            is_string = text[position - 1] == "'"
            end = _continued(text, position, _STRING_CONTENTS) if is_string else position
            escape, position = _uescape(text, end)
            value = _unicode(text[start + 2 : end], escape, start + 2)
            tokens.append(Token(Kind.STRING if is_string else Kind.IDENT, value, start, position))
        elif group == "refused":
            message, hint = "bit strings are not supported", "Use bytea, or an integer with the operators & and |."
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, hint=hint, position=start + 1)
    tokens.append(Token(Kind.END, "", size, size))
    if len(tokens) > TARGETS_MAX:
        limits.check(tokens)
    return tokens


class _Limits:
    """Counts the tokens of each statement and the entries of each select list during tokenization."""

    def __init__(self) -> None:
        self._checked = 0  # the number of tokens checked so far
        self._begin = 0  # the index of the statement's first token
        self._has_lists = True  # false in statements such as GRANT SELECT, where `select` starts no list
        self._commas = [-1]  # commas of the select list at each bracket depth, innermost last; -1: not in a list

    def check(self, tokens: list[Token]) -> None:
        """Counts the tokens that were added since the last call. Raises PgError 54000 or 54011."""
        checkpoint()
        if len(tokens) > TEXT_TOKENS_MAX:
            raise too_long("query string", TEXT_TOKENS_MAX, "Send its statements one at a time.")
        commas = self._commas
        for index in range(self._checked, len(tokens)):
            kind, value, start, _ = tokens[index]
            if index == self._begin:
                self._has_lists = value not in ("grant", "revoke", "alter")
            if kind is Kind.SYMBOL:
                if value == ",":
                    if commas[-1] >= 0:
                        commas[-1] += 1
                        if commas[-1] == TARGETS_MAX:
                            raise too_many_targets(start + 1)
                elif value in ("(", "["):
                    commas.append(-1)
                elif value in (")", "]"):
                    if len(commas) > 1:
                        commas.pop()
                elif value == ";":
                    self._begin = index + 1
                    commas[:] = [-1]
            elif kind is Kind.WORD:
                if value == "select":
                    commas[-1] = 0 if self._has_lists else -1
                elif value in _AFTER_SELECT_LIST:
                    commas[-1] = -1
        self._checked = len(tokens)
        if len(tokens) - self._begin > STATEMENT_TOKENS_MAX:
            raise too_long("statement", STATEMENT_TOKENS_MAX, "Load rows with COPY FROM STDIN or several INSERTs.")


def too_long(what: str, tokens_max: int, hint: str) -> PgError:
    """54000 for a text of too many tokens."""
    detail = f"It has more than {tokens_max} words, values and symbols."
    return PgError(SqlState.PROGRAM_LIMIT_EXCEEDED, f"{what} is too long", detail=detail, hint=hint)


def too_many_targets(position: int | None = None) -> PgError:
    """PostgreSQL's 54011 for a select list or a result with too many columns."""
    message = f"target lists can have at most {TARGETS_MAX} entries"
    return PgError(SqlState.TOO_MANY_COLUMNS, message, position=position)


def syntax_error(what: str, near: str, start: int) -> PgError:
    """A 42601 with the message `<what> at or near "<near>"`. `start` is the 0-based index of `near`."""
    return PgError(SqlState.SYNTAX_ERROR, f'{what} at or near "{near}"', position=start + 1)


def unexpected(source: str, token: Token) -> PgError:
    """PostgreSQL's 42601 for an unexpected token."""
    if token.kind is Kind.END:
        return PgError(SqlState.SYNTAX_ERROR, "syntax error at end of input", position=len(source) + 1)
    return syntax_error("syntax error", source[token.start : token.end], token.start)


def not_supported(what: str, token: Token, hint: str) -> PgError:
    return PgError(SqlState.FEATURE_NOT_SUPPORTED, f"{what} is not supported", hint=hint, position=token.start + 1)


def fold(name: str) -> str:
    """Folds an unquoted name as PostgreSQL does: only ASCII letters to lower case, truncated to 63 bytes."""
    return _cut(name.lower() if name.isascii() else name.translate(_UPPER_TO_LOWER))


def quote_identifier(name: str) -> str:
    """The SQL spelling of `name`, quoted only if necessary, as by quote_ident()."""
    return name if _PLAIN_NAME.fullmatch(name) and name not in _NEED_QUOTES else quoted(name)


def quoted(name: str) -> str:
    """A name as a quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


def _cut(name: str) -> str:
    if len(name) * 4 <= NAME_BYTES_MAX or (encoded := name.encode())[NAME_BYTES_MAX:] == b"":
        return name
    return encoded[:NAME_BYTES_MAX].decode(errors="ignore")


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True


def _ident(raw: str, start: int) -> str:
    name = raw[1:-1].replace('""', '"')
    if not name:
        raise syntax_error("zero-length delimited identifier", '""', start)
    return _cut(name)


def _number(match: re.Match[str]) -> str:
    digits, junk = match[0], match["junk"]
    if len(digits) - len(junk or "") > NUMBER_DIGITS_MAX:
        raise PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, "value overflows numeric format", position=match.start() + 1)
    if junk:
        radix = _RADIX.get(junk[0].lower())
        if radix is not None and digits[0] == "0" and len(digits.rstrip("_")) == 2:
            raise syntax_error(f"invalid {radix[1]} integer", digits, match.start())
        raise syntax_error("trailing junk after numeric literal", digits, match.start())
    digits = digits.replace("_", "")
    radix = _RADIX.get(digits[1:2].lower())
    return str(int(digits[2:], radix[0])) if radix is not None else digits


def _operators(run: str, start: int) -> Iterator[Token]:
    """Splits a run of operator characters into operators: `=-` is two operators, so `a=-1` is `a = -1`."""
    body = run if any(c in "~!@#^&|`?%" for c in run) else run.rstrip("+-")
    if body:
        yield Token(Kind.SYMBOL, body, start, start + len(body))
    for index in range(len(body), len(run)):
        yield Token(Kind.SYMBOL, run[index], start + index, start + index + 1)


def _comment_end(text: str, start: int) -> int:
    depth = 0
    for number, edge in enumerate(_COMMENT_EDGE.finditer(text, start)):
        if number % CHECKED_TOKENS == 0:
            checkpoint()
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    raise syntax_error("unterminated /* comment", text[start:], start)


def _end(text: str, start: int, contents: re.Pattern[str]) -> int:
    """The end of a string or quoted name whose contents begin at `start`; -1 if it has none."""
    end, after = -1, start
    while after != end:  # a match has a limited number of quotes
        checkpoint()
        end = after
        match = contents.match(text, end)
        assert match is not None
        after = match.end()
    return end + 1 if text[end : end + 1] == text[start - 1] else -1


def _long_quoted(text: str, start: int, opened: int) -> tuple[str, int]:
    """The group and the end of a string or name with many quotes. `opened`: where its contents begin. 42601"""
    quote, first = text[opened - 1], text[start].lower()
    group = "escape" if first == "e" else "unicode" if first == "u" else "ident" if quote == '"' else "string"
    contents = _ESCAPE_STRING_CONTENTS if first == "e" else _STRING_CONTENTS if quote == "'" else _NAME_CONTENTS
    if (end := _end(text, opened, contents)) < 0:
        what = "identifier" if quote == '"' else "string"
        raise syntax_error(f"unterminated quoted {what}", text[start:], start)
    return group, end


def _continued(text: str, end: int, contents: re.Pattern[str]) -> int:
    """The end of a string whose first segment ends at `end`."""
    while text[end : end + 1] in _BEFORE_CONTINUATION:
        between = _BETWEEN_SEGMENTS.match(text, end)
        if between is None or text[between.end() : between.end() + 1] != "'":
            break
        if (after := _end(text, between.end() + 1, contents)) < 0:
            break
        end = after
    return end


def _segments(raw: str, contents: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """The quoted parts of a string token, without the quotes, each with its index in `raw`."""
    start = raw.index("'") + 1
    while True:
        end = _end(raw, start, contents)
        yield start, raw[start : end - 1]
        between = _BETWEEN_SEGMENTS.match(raw, end)
        if between is None:
            return
        start = between.end() + 1


def _string(raw: str) -> str:
    body = raw[raw.index("'") + 1 : -1]
    if "'" not in body:
        return body
    return "".join(part.replace("''", "'") for _, part in _segments(raw, _STRING_CONTENTS))


def _escape_string(raw: str, start: int) -> str:
    decoded = "".join(_unescape(part, start + index) for index, part in _segments(raw, _ESCAPE_STRING_CONTENTS))
    try:
        value = decoded.encode(errors="surrogateescape").decode()
    except UnicodeDecodeError as error:
        wrong = " ".join(f"0x{byte:02x}" for byte in error.object[error.start : error.end])
        raise _not_utf8(wrong) from None
    if "\0" in value:
        raise _not_utf8("0x00")
    return value


def _not_utf8(wrong: str) -> PgError:
    return PgError(SqlState.CHARACTER_NOT_IN_REPERTOIRE, f'invalid byte sequence for encoding "UTF8": {wrong}')


def _unescape(body: str, start: int) -> str:
    """Resolves the escapes of one segment. Bytes above 127 become surrogates, as with `surrogateescape`."""

    def replaced(match: re.Match[str]) -> str:
        checkpoint()
        if match["char"] is not None:
            return _ESCAPED_CHARS.get(match["char"], match["char"])
        if match["octal"] is not None or match["hex"] is not None:
            byte = int(match["octal"], 8) & 0xFF if match["octal"] is not None else int(match["hex"], 16)
            return chr(byte) if byte < 0x80 else chr(0xDC00 + byte)
        if match["high"] is not None:
            return chr(0x10000 + ((int(match["high"], 16) & 0x3FF) << 10) + (int(match["low"], 16) & 0x3FF))
        if match["bad"] is not None:
            raise PgError(
                SqlState.INVALID_ESCAPE_SEQUENCE,
                "invalid Unicode escape",
                hint=r"Unicode escapes must be \uXXXX or \UXXXXXXXX.",
                position=start + match.start() + 1,
            )
        digits = match["u4"] or match["u8"]
        if digits is None:
            return "'"
        code = int(digits, 16)
        if code == 0 or code > 0x10FFFF:
            raise syntax_error("invalid Unicode escape value", match[0], start + match.start())
        if 0xD800 <= code <= 0xDFFF:
            raise syntax_error("invalid Unicode surrogate pair", match[0], start + match.start())
        return chr(code)

    return _ESCAPE.sub(replaced, body)


def _uescape(text: str, position: int) -> tuple[str, int]:
    """The escape character of a Unicode string or name that ends at `position`, and the end of its UESCAPE clause."""
    clause = _UESCAPE.match(text, position)
    if clause is None:
        return "\\", position
    string = _TOKEN.match(text, clause.end())
    if string is None or string.lastgroup not in ("string", "escape"):
        message = "UESCAPE must be followed by a simple string literal"
        if string is None:
            raise PgError(SqlState.SYNTAX_ERROR, f"{message} at end of input", position=len(text) + 1)
        raise syntax_error(message, string[0], clause.end())
    start = string.start()
    if string.lastgroup == "string":
        end = _continued(text, string.end(), _STRING_CONTENTS)
        value = _string(text[start:end])
    else:
        end = _continued(text, string.end(), _ESCAPE_STRING_CONTENTS)
        value = _escape_string(text[start:end], start)
    if len(value) != 1 or not value.isascii() or value in "0123456789abcdefABCDEF+'\" \t\n\r\f\v":
        raise syntax_error("invalid Unicode escape character", text[start:end], start)
    return value, end


def _unicode(raw: str, escape: str, start: int) -> str:
    """The value of U&'...' or U&"...", given with its quotes and its index in the text. 42601 for a wrong escape."""
    character = re.escape(escape)
    quote = "''" if raw[0] == "'" else '""'
    pattern = re.compile(rf"{character}(?:({character})|([0-9A-Fa-f]{{4}})|\+([0-9A-Fa-f]{{6}}))?|{quote}")

    def replaced(match: re.Match[str]) -> str:
        checkpoint()
        position = at + match.start() + 1
        if match[0] == quote:
            return quote[0]
        if match[1]:
            return escape
        digits = match[2] or match[3]
        if digits is None:
            raise PgError(
                SqlState.SYNTAX_ERROR,
                "invalid Unicode escape",
                hint=r"Unicode escapes must be \XXXX or \+XXXXXX.",
                position=position,
            )
        if not 0 < (code := int(digits, 16)) <= 0x10FFFF:
            raise PgError(SqlState.SYNTAX_ERROR, "invalid Unicode escape value", position=position)
        return chr(code)

    if raw == '""':
        raise syntax_error("zero-length delimited identifier", 'U&""', start - 2)
    segments = iter([(1, raw[1:-1])]) if raw[0] == '"' else _segments(raw, _STRING_CONTENTS)
    value = ""
    for index, body in segments:
        at = start + index
        value += pattern.sub(replaced, body)
    try:  # two surrogates encode one character
        value = value.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise PgError(SqlState.SYNTAX_ERROR, "invalid Unicode surrogate pair", position=start - 1) from None
    return _cut(value) if raw[0] == '"' else value


# PostgreSQL 16's keywords by class (pg_get_keywords()). Unquoted, a reserved word is never a name, a type or function
# word is not a name of a column or table, and a column word is not a name of a function. Other keywords can name
# anything and are not listed.
RESERVED_WORDS = words(
    """all analyse analyze and any array as asc asymmetric both case cast check collate column constraint create
    current_catalog current_date current_role current_time current_timestamp current_user default deferrable desc
    distinct do else end except false fetch for foreign from grant group having in initially intersect into lateral
    leading limit localtime localtimestamp not null offset on only or order placing primary references returning select
    session_user some symmetric system_user table then to trailing true union unique user using variadic when where
    window with"""
)
TYPE_FUNCTION_WORDS = words(
    """authorization binary collation concurrently cross current_schema freeze full ilike inner is isnull join left
    like natural notnull outer overlaps right similar tablesample verbose"""
)
COLUMN_NAME_WORDS = words(
    """between bigint bit boolean char character coalesce dec decimal exists extract float greatest grouping inout int
    integer interval json_array json_arrayagg json_object json_objectagg least national nchar none normalize nullif
    numeric out overlay position precision real row setof smallint substring time timestamp treat trim values varchar
    xmlattributes xmlconcat xmlelement xmlexists xmlforest xmlnamespaces xmlparse xmlpi xmlroot xmlserialize
    xmltable"""
)
_AFTER_SELECT_LIST = words("from into where group having window union intersect except order limit offset fetch for")
NOT_NAMES = RESERVED_WORDS | TYPE_FUNCTION_WORDS  # words that are not names of columns or tables unless quoted
_NEED_QUOTES = NOT_NAMES | COLUMN_NAME_WORDS
_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*")
