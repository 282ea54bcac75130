"""The parser of JSON paths (PostgreSQL's jsonpath_scan.l and jsonpath_gram.y), by recursive descent."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import NamedTuple, NoReturn

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.scalars import DECIMAL_DIGITS, digits_pattern, parse_text
from protocol.pgwire.types import INT4
from server.sql.cached_texts import cached_by_length
from server.sql.json_path.tree import (
    LAST,
    PREDICATES,
    Accessor,
    AnyElement,
    AnyLevel,
    AnyMember,
    Binary,
    Chain,
    Comparison,
    Current,
    Exists,
    Filter,
    IsUnknown,
    Last,
    LikeRegex,
    Logical,
    Member,
    Method,
    Negation,
    Node,
    Path,
    Root,
    StartsWith,
    Subscripts,
    Unary,
    Value,
    Variable,
)
from server.sql.regex.regex import compiled

_METHODS = frozenset(("abs", "size", "type", "floor", "double", "ceiling", "keyvalue", "datetime"))
_COMPARISONS = {"==": "==", "=": "==", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_KEYWORDS = frozenset(
    (*("is", "to", "lax", "last", "flag", "with", "exists", "strict", "starts", "unknown", "like_regex"),
     *_METHODS)
)  # fmt: skip
"""Keywords in any case. `true`, `false` and `null` are keywords in lower case only."""
_SPECIAL = r"""\s?%$.\[\]{}()|&!=<>@#,*:\-+/"\\"""
_ESCAPE = re.compile(r"\\(?:u\{[0-9a-fA-F]{1,6}\}|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[^ux]|)", re.DOTALL)
_DIGITS = rf"(?:{DECIMAL_DIGITS})"
_HEXADECIMAL, _OCTAL, _BINARY = map(digits_pattern, ("[0-9a-fA-F]", "[0-7]", "[01]"))
# A match keeps a hundred bytes for each repetition of a group, so the number of escapes in a match is limited.
_CONTENTS = re.compile(r'[^"\\]*+(?>(?:\\.[^"\\]*+){0,1000})', re.DOTALL)
_NAME = rf"(?:[^{_SPECIAL}]|\\.)[^{_SPECIAL}]*+(?>(?:\\.[^{_SPECIAL}]*+){{0,10000}})"
_TOKEN = re.compile(
    rf"""
    (?P<blank>\s++|/\*.*?\*/)
  | (?P<number>(?:0[xX]{_HEXADECIMAL}|0[oO]{_OCTAL}|0[bB]{_BINARY}
      |(?:(?:0|(?!0){_DIGITS})(?:\.{_DIGITS}?)?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?))(?P<junk>[^{_SPECIAL}])?
  | (?P<quote>\$?")
  | (?P<variable>\${_NAME})
  | (?P<name>{_NAME})
  | (?P<symbol>&&|\|\||==|!=|<>|<=|>=|\*\*|[?%$.\[\]{{}}()!=<>@,*:\-+/])
    """,
    re.VERBOSE | re.DOTALL,
)
_FRACTION = re.compile(r"(?!0[xX])[^.eE]*[.eE].*")  # not an integer
_BITS = {"0x": 4, "0o": 3, "0b": 1}  # of a digit
_BITS_MAX = 435_412  # of 131,072 decimal digits, and a few more
_CHUNK_DIGITS = 1_000
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
_LETTERS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class _Token(NamedTuple):
    """`kind`: number, variable, string, name, keyword, symbol or end. `shown`: its text in error messages."""

    kind: str
    text: str
    shown: str


def _syntax_error(token: _Token) -> PgError:
    where = "end" if token.kind == "end" else f'or near "{token.shown}"'
    return PgError(SqlState.SYNTAX_ERROR, f"syntax error at {where} of jsonpath input")


def _unescaped(text: str) -> str:
    def value(match: re.Match[str]) -> str:
        escape = match[0][1:]
        if not escape:
            raise _syntax_error(_Token("symbol", match[0], match[0]))
        if escape[0] not in "ux" or len(escape) == 1:
            return _LETTERS.get(escape, escape)
        code = int(escape.strip("ux{}"), 16)
        if code > 0x10FFFF:
            message = "invalid Unicode escape value"
            raise PgError(SqlState.SYNTAX_ERROR, f'{message} at or near "{match[0]}" of jsonpath input')
        if code == 0:
            raise PgError(
                SqlState.UNTRANSLATABLE_CHARACTER,
                "unsupported Unicode escape sequence",
                detail="\\u0000 cannot be converted to text.",
            )
        return chr(code)

    plain = _ESCAPE.sub(value, text)
    joined = plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if "\ufffd" in joined and "\ufffd" not in plain:
        detail = "Unicode high surrogate must not follow a high surrogate."
        raise PgError(SqlState.INVALID_TEXT_REPRESENTATION, "invalid input syntax for type jsonpath", detail=detail)
    return joined


def _quoted(text: str, start: int, opened: int) -> tuple[str, int]:
    """The kind and the end of the string or variable in quotes that begins at `start`. `opened`: its contents."""
    end, after = -1, opened
    while after != end:
        end = after
        match = _CONTENTS.match(text, end)
        assert match is not None
        after = match.end()
    if text[end : end + 1] == '"':
        return ("variable" if text[start] == "$" else "string"), end + 1
    if text[start] == "$":
        return "symbol", start + 1
    raise _syntax_error(_Token("symbol", '"', '"'))


def _tokens(text: str) -> Iterator[_Token]:
    """The tokens, then the end. A faulty path is not read beyond its first fault."""
    at = 0
    last_end = text.rfind("*/")
    while at < len(text):
        if text.startswith("/*", at) and last_end < at + 2:  # else the search for its end would be repeated
            raise PgError(SqlState.SYNTAX_ERROR, "unexpected end of comment at end of jsonpath input")
        match = _TOKEN.match(text, at)
        if match is None:
            raise _syntax_error(_Token("symbol", text[at], text[at]))
        start, at = at, match.end()
        kind, found = match.lastgroup or "", match[0]
        if kind == "quote":
            kind, at = _quoted(text, start, at)
            found = text[start:at]
        if match["blank"]:
            continue
        if match["junk"]:
            message = f'trailing junk after numeric literal at or near "{found}" of jsonpath input'
            raise PgError(SqlState.SYNTAX_ERROR, message)
        if match["name"]:
            plain = _unescaped(found)
            is_keyword = plain.lower() in _KEYWORDS or plain in ("true", "false", "null")
            yield _Token("keyword" if is_keyword else "name", plain, found)
        elif kind == "string":
            yield _Token(kind, _unescaped(found[1:-1]), found)
        elif kind == "variable":
            name = found[1:]
            yield _Token(kind, _unescaped(name[1:-1] if name[0] == '"' else name), found)
        else:
            yield _Token(kind, found, found)
    yield _Token("end", "", "")


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._next = next(self._tokens)
        self._filters = self._subscripts = 0  # the nesting at the current token, which decides where @ and last may be

    def _advance(self) -> _Token:
        token = self._next
        self._next = next(self._tokens, token)
        return token

    def _is(self, text: str) -> bool:
        """Whether the next token is this symbol or keyword."""
        token = self._next
        return (token.kind == "symbol" and token.text == text) or (
            token.kind == "keyword" and token.text.lower() == text
        )

    def _match(self, text: str) -> bool:
        if not self._is(text):
            return False
        self._advance()
        return True

    def _expect(self, text: str) -> None:
        if not self._match(text):
            self._fail()

    def _fail(self) -> NoReturn:
        raise _syntax_error(self._next)

    def path(self) -> Path:
        is_lax = not self._match("strict")
        if is_lax:
            self._match("lax")
        root = self._either()
        if self._next.kind != "end":
            self._fail()
        return Path(root, is_lax)

    # -- predicates and expressions, from the lowest to the highest precedence ------------------------------------

    def _either(self) -> Node:
        left = self._both()
        while self._is("||"):
            left = Logical("||", self._checked(left, True), self._operand(self._both))
        return left

    def _both(self) -> Node:
        left = self._negated()
        while self._is("&&"):
            left = Logical("&&", self._checked(left, True), self._operand(self._negated))
        return left

    def _operand(self, parse: Callable[[], Node]) -> Node:
        self._advance()
        return self._checked(parse(), True)

    def _checked(self, node: Node, is_predicate: bool) -> Node:
        """The node, if it is a predicate or an expression as required. Else the next token is a syntax error."""
        if isinstance(node, PREDICATES) != is_predicate:
            self._fail()
        return node

    def _negated(self) -> Node:
        if not self._match("!"):
            return self._comparison()
        if not (self._is("(") or self._is("exists")):
            self._fail()
        return Negation(self._checked(self._primary(), True))

    def _comparison(self) -> Node:
        left = self._sum()
        token = self._next
        if token.kind == "symbol" and token.text in _COMPARISONS:
            self._checked(left, False)
            self._advance()
            return Comparison(_COMPARISONS[token.text], left, self._checked(self._sum(), False))
        if self._is("starts"):
            self._checked(left, False)
            self._advance()
            self._expect("with")
            prefix = self._next
            if prefix.kind not in ("string", "variable"):
                self._fail()
            self._advance()
            return StartsWith(left, Value(prefix.text) if prefix.kind == "string" else Variable(prefix.text))
        if self._is("like_regex"):
            self._checked(left, False)
            self._advance()
            return self._like_regex(left)
        return left

    def _like_regex(self, operand: Node) -> Node:
        pattern, letters = self._string(), ""
        if self._match("flag"):
            letters = self._string()
        for letter in letters:
            if letter not in "ismxq":
                raise PgError(
                    SqlState.SYNTAX_ERROR,
                    "invalid input syntax for type jsonpath",
                    detail=f'Unrecognized flag character "{letter}" in LIKE_REGEX predicate.',
                )
        if "x" in letters and "q" not in letters:
            message = 'XQuery "x" flag (expanded regular expressions) is not implemented'
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message)
        flags = "i" if "i" in letters else ""
        if "q" in letters:
            flags += "q"
        elif "s" not in letters:
            flags += "n" if "m" in letters else "p"
        elif "m" in letters:
            flags += "w"
        compiled(pattern, flags)  # reports an invalid pattern
        return LikeRegex(operand, pattern, flags)

    def _string(self) -> str:
        if self._next.kind != "string":
            self._fail()
        return self._advance().text

    def _sum(self) -> Node:
        left = self._product()
        while self._is("+") or self._is("-"):
            self._checked(left, False)
            left = Binary(self._advance().text, left, self._checked(self._product(), False))
        return left

    def _product(self) -> Node:
        left = self._signed()
        while self._is("*") or self._is("/") or self._is("%"):
            self._checked(left, False)
            left = Binary(self._advance().text, left, self._checked(self._signed(), False))
        return left

    def _signed(self) -> Node:
        if not (self._is("+") or self._is("-")):
            return self._primary()
        symbol = self._advance().text
        return Unary(symbol, self._checked(self._signed(), False))

    # -- operands -------------------------------------------------------------------------------------------------

    def _primary(self) -> Node:
        if self._match("exists"):
            self._expect("(")
            operand = self._checked(self._either(), False)
            self._expect(")")
            return Exists(operand)
        if self._match("("):
            inner = self._either()
            self._expect(")")
            if self._is("is") and isinstance(inner, PREDICATES):
                self._advance()
                self._expect("unknown")
                return IsUnknown(inner)
        else:
            inner = self._start()
        accessors = []
        while (accessor := self._accessor()) is not None:
            accessors.append(accessor)
        return Chain(inner, tuple(accessors)) if accessors else inner

    def _start(self) -> Node:
        token = self._advance()
        match token.kind:
            case "number":
                return Value(_number(token.text))
            case "string":
                return Value(token.text)
            case "variable":
                return Variable(token.text)
            case "keyword" if token.text in ("true", "false", "null"):
                return Value({"true": True, "false": False, "null": None}[token.text])
            case "keyword" if token.text.lower() == "last":
                if not self._subscripts:
                    raise PgError(SqlState.SYNTAX_ERROR, "LAST is allowed only in array subscripts")
                return Last()
            case "symbol" if token.text == "$":
                return Root()
            case "symbol" if token.text == "@":
                if not self._filters:
                    raise PgError(SqlState.SYNTAX_ERROR, "@ is not allowed in root expressions")
                return Current()
        raise _syntax_error(token)

    def _accessor(self) -> Accessor | None:
        if self._match("["):
            return self._subscript()
        if self._match("?"):
            self._expect("(")
            self._filters += 1
            predicate = self._checked(self._either(), True)
            self._filters -= 1
            self._expect(")")
            return Filter(predicate)
        return self._member() if self._match(".") else None

    def _member(self) -> Accessor:
        if self._match("*"):
            return AnyMember()
        if self._match("**"):
            return self._levels()
        token = self._next
        if token.kind not in ("name", "keyword", "string"):
            self._fail()
        self._advance()
        if not self._is("(") or token.kind == "string":
            return Member(token.text)
        if token.kind != "keyword" or token.text.lower() not in _METHODS:
            self._fail()
        self._advance()
        if token.text.lower() == "datetime" and self._next.kind == "string":
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "the template of jsonpath item method .datetime() is not supported",
                hint="Take the value as text, and convert it with to_date() or to_timestamp() in SQL.",
            )
        self._expect(")")
        return Method(token.text.lower())

    def _levels(self) -> AnyLevel:
        if not self._match("{"):
            return AnyLevel(0, 1 << 32)
        first = last = self._level()
        if self._match("to"):
            last = self._level()
        self._expect("}")
        return AnyLevel(first, last)

    def _level(self) -> int:
        if self._match("last"):
            return LAST
        if self._next.kind != "number" or _FRACTION.fullmatch(self._next.text):
            self._fail()
        return int(parse_text(INT4, self._advance().text))

    def _subscript(self) -> Accessor:
        if self._match("*"):
            self._expect("]")
            return AnyElement()
        ranges: list[tuple[Node, Node | None]] = []
        self._subscripts += 1
        while True:
            first = self._checked(self._sum(), False)
            ranges.append((first, self._checked(self._sum(), False) if self._match("to") else None))
            if not self._match(","):
                break
        self._subscripts -= 1
        self._expect("]")
        return Subscripts(tuple(ranges))


def _number(text: str) -> Decimal:
    plain = text.replace("_", "")
    if (bits := _BITS.get(plain[:2].lower())) is not None:
        digits = plain[2:].lstrip("0")
        value = _whole(digits, bits) if len(digits) * bits <= _BITS_MAX else None
    else:
        value = Decimal(plain)
    if value is None or value.adjusted() > 131_071 or int(value.as_tuple().exponent) < -16_383:
        raise PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, "value overflows numeric format")
    return value


def _whole(digits: str, bits: int) -> Decimal:
    """The value of digits of so many bits. Decimal(int) takes quadratic time, in which no other thread runs."""
    if len(digits) <= _CHUNK_DIGITS:
        return Decimal(int(digits or "0", 1 << bits))
    half = len(digits) // 2
    scale = _EXACT.power(1 << bits, half)
    return _EXACT.fma(_whole(digits[:-half], bits), scale, _whole(digits[-half:], bits))


@cached_by_length((1_000, 1_024), (10_000, 64), (100_000, 8), length=len)
def parsed(text: str) -> Path:
    """The tree of a path. 42601 for a syntax error, 22P02 for an empty path, 2201B for a faulty regular expression."""
    if not text.strip():
        raise PgError(SqlState.INVALID_TEXT_REPRESENTATION, f'invalid input syntax for type jsonpath: "{text}"')
    try:
        return _Parser(text).path()
    except RecursionError:
        raise PgError(SqlState.STATEMENT_TOO_COMPLEX, "stack depth limit exceeded") from None
