"""to_char and to_number over numbers: PostgreSQL's templates (formatting.c), locale C.

    parse(format) -> Template        the nodes and their combined properties (signs, digits, fill mode)
    format_*(value, text)            to_char: rounds to the template's digits, then iterates over the nodes (`_Writer`)
    read(text, format)               to_number: iterates over the nodes and consumes the text (`_Reader`)

The iteration has the same variables as PostgreSQL's, so that the results for unusual templates are the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import ROUND_HALF_UP, Context, Decimal
from math import isfinite
from typing import Literal

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.scalars import parse_text
from protocol.pgwire.types import NUMERIC
from server.sql.cached_texts import cached_by_length

_KEYWORDS = (
    *(",", ".", "0", "9", "B", "C", "D", "EEEE", "FM", "G", "L", "MI", "PL", "PR", "RN", "SG", "SP", "S", "TH", "V"),
    *("b", "c", "d", "eeee", "fm", "g", "l", "mi", "pl", "pr", "rn", "sg", "sp", "s", "th", "v"),
)
_EXACT = Context(prec=2000, rounding=ROUND_HALF_UP)
_THOUSANDS, _CURRENCY = ",", " "  # in locale C
_ROMAN = (
    *((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL")),
    *((10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")),
)
_NOT_EATEN = "0123456789.,+-"


@dataclass(slots=True)
class Template:
    """`nodes`: (keyword, "") or ("", character). `pre`, `post`: digits before and after the point; `multi`: after V.

    `zero_start`: the 1-based position from which zeros are written; `sign_position`: where S is.
    """

    nodes: list[tuple[str, str]] = field(default_factory=list)
    pre: int = 0
    post: int = 0
    multi: int = 0
    zero_start: int = 0
    zero_end: int = 0
    sign_position: Literal["", "before", "after"] = ""
    digits_before_sign: int = 0
    flags: set[str] = field(default_factory=set)

    def has(self, flag: str) -> bool:
        return flag in self.flags


def _syntax(message: str) -> PgError:
    return PgError(SqlState.SYNTAX_ERROR, message)


@cached_by_length((100, 1_024), (10_000, 16), (100_000, 2), length=len)
def parse(text: str) -> Template:
    """42601 for patterns that exclude each other. The result is cached and shared: copy it before changing it."""
    template, at = Template(), 0
    while at < len(text):
        keyword = next((k for k in _KEYWORDS if text.startswith(k, at)), None)
        if keyword is not None:
            at += len(keyword)
            keyword = keyword if keyword in ("rn", "th") else keyword.upper()
            template.nodes.append((keyword, ""))
            _take(template, keyword)
        elif text[at] == '"':
            at += 1
            while at < len(text) and text[at] != '"':
                at += text[at] == "\\" and at + 1 < len(text)
                template.nodes.append(("", text[at]))
                at += 1
            at += 1
        else:
            at += text.startswith('\\"', at)
            template.nodes.append(("", text[at]))
            at += 1
    return template


def _take(template: Template, keyword: str) -> None:
    """Adds the effect of one keyword to the template."""
    has, flags = template.has, template.flags
    if has("EEEE") and keyword != "EEEE":
        raise _syntax('"EEEE" must be the last pattern used')
    match keyword:
        case "9" | "0" if has("PR"):
            raise _syntax(f'"{keyword}" must be ahead of "PR"')
        case "9":
            if has("V"):
                template.multi += 1
            elif has("."):
                template.post += 1
            else:
                template.pre += 1
        case "0":
            if not has("0") and not has("."):
                flags.add("0")
                template.zero_start = template.pre + 1
            if has("."):
                template.post += 1
            else:
                template.pre += 1
            template.zero_end = template.pre + template.post
        case "B":
            if not template.pre and not template.post and not has("0"):
                flags.add("B")
        case "D" | ".":
            if has("."):
                raise _syntax("multiple decimal points")
            if has("V"):
                raise _syntax('cannot use "V" and decimal point together')
            flags.add(".")
        case "S":
            if has("S"):
                raise _syntax('cannot use "S" twice')
            if has("PL") or has("MI") or has("PR"):
                raise _syntax('cannot use "S" and "PL"/"MI"/"SG"/"PR" together')
            flags.add("S")
            template.sign_position = "after" if has(".") else "before"
            template.digits_before_sign = template.pre
        case "MI" | "PL" | "SG":
            if has("S"):
                raise _syntax(f'cannot use "S" and "{keyword}" together')
            flags.update(("MI", "PL") if keyword == "SG" else (keyword,))
        case "PR":
            if has("S") or has("PL") or has("MI"):
                raise _syntax('cannot use "PR" and "S"/"PL"/"MI"/"SG" together')
            flags.add("PR")
        case "RN" | "rn":
            flags.add("RN")
        case "V":
            if has("."):
                raise _syntax('cannot use "V" and decimal point together')
            flags.add("V")
        case "EEEE":
            if has("EEEE"):
                raise _syntax('cannot use "EEEE" twice')
            if flags & {"B", "FM", "S", "PR", "MI", "PL", "RN", "V"}:
                raise _syntax('"EEEE" is incompatible with other formats')
            flags.add("EEEE")
        case "FM":
            flags.add("FM")


# -- to_char: digits --------------------------------------------------------------------------------------------------


def format_integer(value: int, text: str, *, bits: int = 31) -> str:
    """to_char(int4 or int8, text). `bits`: of the type, without its sign."""
    template = parse(text)
    if not text:
        return ""
    if template.has("RN"):
        return _written(template, _roman(_int4(value)), "", 0)
    if template.has("EEEE"):
        return format_float(float(value), text) if bits == 31 else _scientific(Decimal(value), template.post)
    if template.has("V"):
        value *= 10**template.multi
        if bits == 31:
            value = (value + (1 << 31)) % (1 << 32) - (1 << 31)  # wraps around, as in PostgreSQL
        elif not -(1 << bits) <= value < 1 << bits:
            raise PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, "bigint out of range")
    digits = str(abs(value)) + ("." + "0" * template.post if template.post else "")
    return _placed(template, digits, "-" if value < 0 else "+")


def format_numeric(value: Decimal, text: str) -> str:
    template = parse(text)
    if not text:
        return ""
    if template.has("RN"):
        return _written(template, _roman(_int4(int(value.quantize(Decimal(1), context=_EXACT)))), "", 0)
    if template.has("EEEE"):
        return _scientific(value, template.post)
    if template.has("V"):
        value = value.scaleb(template.multi, _EXACT)
    rounded = value.quantize(Decimal(1).scaleb(-template.post), context=_EXACT)
    return _placed(template, f"{abs(rounded):f}", "-" if rounded < 0 else "+")


def format_float(value: float, text: str, *, certain_digits: int = 15) -> str:
    """to_char(float8, text). `certain_digits`: 15, or 6 for float4."""
    template = parse(text)
    if not text:
        return ""
    if template.has("RN"):
        whole = round(value) if isfinite(value) and abs(value) < 1 << 31 else -1
        return _written(template, _roman(whole), "", 0)
    if template.has("EEEE"):
        if not isfinite(value):
            return " " + "#" * template.pre + "." + "#" * (template.post + 4)
        return f"{value:+.{template.post}e}".replace("+", " ", 1) if value >= 0 else f"{value:.{template.post}e}"
    if template.has("V"):
        value *= 10.0**template.multi
    room = certain_digits - len(_fixed(abs(value), 0))
    template = replace(template, post=max(min(template.post, room), 0))
    digits = _fixed(value, template.post)
    return _placed(template, digits.removeprefix("-"), "-" if digits.startswith("-") else "+")


def _fixed(value: float, decimals: int) -> str:
    if isfinite(value):
        return f"{value:.{decimals}f}"
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def _int4(value: int) -> int:
    if not -(1 << 31) <= value < 1 << 31:
        raise PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, "integer out of range")
    return value


def _roman(value: int) -> str:
    if not 1 <= value <= 3999:
        return "#" * 15
    out = []
    for worth, letters in _ROMAN:
        count, value = divmod(value, worth)
        out.append(letters * count)
    return "".join(out)


def _scientific(value: Decimal, decimals: int) -> str:
    """Like PostgreSQL, determines the exponent before rounding: 9.9 can become 10e+00."""
    exponent = value.adjusted() if value else 0
    mantissa = value.scaleb(-exponent, _EXACT).quantize(Decimal(1).scaleb(-decimals), context=_EXACT)
    return f"{'-' if value < 0 else ' '}{abs(mantissa):f}e{'-' if exponent < 0 else '+'}{abs(exponent):02}"


def _placed(template: Template, digits: str, sign: str) -> str:
    whole = len(digits.partition(".")[0])
    width = template.pre + (template.multi if template.has("V") else 0)
    template = replace(template, pre=width)
    if whole > width:
        digits = "#" * width + "." + "#" * template.post
    return _written(template, digits, sign, max(width - whole, 0))


# -- to_char: output --------------------------------------------------------------------------------------------------


def _written(template: Template, number: str, sign: str, spaces: int) -> str:
    """Writes `number`. `spaces`: how many more integral digits the template has than the number."""
    return _Writer(template, number, sign, spaces).text()


class _Writer:
    """NUM_processor and NUM_numpart_to_char."""

    def __init__(self, template: Template, number: str, sign: str, spaces: int) -> None:
        flags = set(template.flags)
        if template.has("RN"):
            flags &= {"FM", "RN"}
        self.flags, self.number, self.sign, self.spaces = flags, number, sign, spaces
        self.nodes = template.nodes
        self.post = 0 if "RN" in flags else template.post
        pre = 0 if "RN" in flags else template.pre
        self.zero_start = template.zero_start - 1 if template.zero_start else 0
        self.sign_position = template.sign_position if "RN" not in flags else ""
        self.fill = "FM" in flags
        if "PL" in flags or "MI" in flags:
            self.sign_done = "MI" in flags
        else:
            if sign != "-" and self.fill:
                flags.discard("PR")
            self.sign_done = sign == "+" and self.fill and "S" not in flags
            if self.sign_position == "before" and pre == template.digits_before_sign:
                self.sign_position = "after"
        self.count = self.post + pre - 1
        self.relevant = -1  # the last digit that fill mode keeps; -1: all
        if self.fill and "." in flags and "." in number:
            point = number.index(".")
            self.relevant = max([point, *(i for i in range(point + 1, len(number)) if number[i] != "0")])
            if template.zero_end > spaces:
                self.relevant = max(self.relevant, min(len(number) - 1, template.zero_end - spaces))
        if not self.sign_done and not spaces:
            self.count += 1
        self.at = self.current = 0
        self.inside = False
        self.out: list[str] = []

    def text(self) -> str:
        for keyword, character in self.nodes:
            self.out.append(character or self._action(keyword))
        return "".join(self.out).partition("\0")[0]

    def _action(self, keyword: str) -> str:
        sign = self.sign
        match keyword:
            case "9" | "0" | "." | "D":
                self._digit(keyword)
                return ""
            case "," | "G":
                return (_THOUSANDS if keyword == "G" else ",") if self.inside else "" if self.fill else " "
            case "L":
                return _CURRENCY
            case "RN" | "rn":
                roman = self.number if self.fill else self.number.rjust(15)
                return roman if keyword == "RN" else roman.lower()
            case "TH" | "th":
                if "RN" in self.flags or self.number.startswith("#") or sign == "-" or "." in self.flags:
                    return ""
                return ordinal(self.number, keyword)
            case "MI":
                return "-" if sign == "-" else "" if self.fill else " "
            case "PL":
                return "+" if sign == "+" else "" if self.fill else " "
            case "SG":
                return sign or "\0"
        return ""

    def _begins_with_zero(self) -> bool:
        """0.1 in template 9.9 is written ` .1`."""
        return "0" not in self.flags and not self.at and self.number.startswith("0") and self.post != 0

    def _digit(self, keyword: str) -> None:
        if "RN" in self.flags:
            return
        out, flags = self.out, self.flags
        self.inside = False
        ends_at_point = self.relevant >= 0 and self.number[self.relevant] == "."
        starts = self.current >= self.spaces or ("0" in flags and self.zero_start == self.current)
        if not self.sign_done and starts and (not self._begins_with_zero() or ends_at_point):
            self._sign_before()
        if self.current < self.spaces and (self.zero_start > self.current or "0" not in flags):
            out.append("" if self.fill else " ")
        elif "0" in flags and self.current < self.spaces:
            out.append("0")
            self.inside = True
        else:
            character = self.number[self.at] if self.at < len(self.number) else "\0"
            if character == ".":
                out.append(".")
            elif self.relevant >= 0 and self.at > self.relevant and keyword != "0":
                pass
            elif self._begins_with_zero():
                out.append(" " if not self.fill else "0" if ends_at_point else "")
            else:
                out.append(character)
                self.inside = True
            self.at += self.at < len(self.number)
        end = self.count + (self.spaces > 0) + ("." in flags)
        if self.relevant >= 0 and self.relevant == self.at:
            end = self.current
        if self.current + 1 == end:
            if self.sign_done and "PR" in flags:
                out.append(" " if self.sign == "+" else ">")
            elif "S" in flags and self.sign_position == "after":
                out.append(self.sign)
        self.current += 1

    def _sign_before(self) -> None:
        if "S" in self.flags:
            if self.sign_position == "before":
                self.out.append(self.sign)
                self.sign_done = True
            return
        if "PR" in self.flags:
            self.out.append(" " if self.sign == "+" else "<")
        elif self.sign == "+":
            self.out.append("" if self.fill else " ")
        else:
            self.out.append(self.sign)
        self.sign_done = True


def ordinal(digits: str, style: str) -> str:
    """The suffix st, nd, rd or th of a number. `style` is TH or th."""
    if not digits[-1:].isdigit():
        raise PgError(SqlState.INVALID_TEXT_REPRESENTATION, f'"{digits}" is not a number')
    last = "" if digits[-2:-1] == "1" else digits[-1]
    suffix = {"1": "st", "2": "nd", "3": "rd"}.get(last, "th")
    return suffix.upper() if style == "TH" else suffix


# -- to_number ------------------------------------------------------------------------------------------------------


def read(text: str, format: str) -> Decimal | None:
    """to_number; None for an empty format, as in PostgreSQL."""
    if not format:
        return None
    template = parse(format)
    if template.has("EEEE"):
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, '"EEEE" not supported for input')
    if template.has("RN"):
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, '"RN" not supported for input')
    reader = _Reader(template, text)
    number = reader.number()
    value = Decimal(parse_text(NUMERIC, number))
    scale = reader.post_read
    value = value.quantize(Decimal(1).scaleb(-scale), context=_EXACT)
    if value and value.adjusted() >= template.pre + template.multi:
        raise PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow")
    return value.scaleb(-template.multi, _EXACT) if template.has("V") else value


class _Reader:
    """NUM_processor and NUM_numpart_from_char."""

    def __init__(self, template: Template, text: str) -> None:
        self.template, self.text = template, text
        self.at = 0
        self.sign = " "
        self.digits: list[str] = []
        self.pre_read = self.post_read = 0
        self.point_read = False

    @property
    def _next(self) -> str:
        return self.text[self.at : self.at + 1]

    def number(self) -> str:
        for keyword, character in self.template.nodes:
            if self.at >= len(self.text):
                break
            if character or self._action(keyword):
                self.at += 1
        return self.sign + "".join(self.digits).removesuffix(".")

    def _action(self, keyword: str) -> bool:
        """Whether the caller must consume one more character."""
        following, fill = self._next, self.template.has("FM")
        match keyword:
            case "9" | "0" | "." | "D":
                self._part(keyword)
                return True
            case "," | "G":  # no digit has been written yet, so fill mode never skips one
                return not fill and following == ","
            case "L":
                self._eat(1)
            case "TH" | "th":
                if self.sign != "-" and not self.template.has("."):
                    self._eat(2)
            case "MI" | "PL" | "SG":
                wanted = {"MI": "-", "PL": "+", "SG": "+-"}[keyword]
                if following in wanted:
                    self.sign = following
                    return True
                self._eat(1)
        return False

    def _eat(self, count: int) -> None:
        while count and self._next and self._next not in _NOT_EATEN:
            self.at += 1
            count -= 1

    def _part(self, keyword: str) -> None:
        template, is_read = self.template, False
        self.at += self._next == " "
        if not self._next:
            return
        if self.sign == " " and keyword in "09" and not self.pre_read + self.post_read:
            if template.has("S") and template.sign_position == "before":
                signs = "-+"
            else:
                signs = "-+<" if template.has("PR") and not template.has("S") else "-+"
            if template.has("S") and template.sign_position != "before":
                signs = "-+" + ("<" if template.has("PR") else "")
            if self._next in signs:
                self.sign = "-" if self._next in "-<" else "+"
                self.at += 1
        if not self._next:
            return
        if self._next in "0123456789":
            if self.point_read and self.post_read == template.post:
                return
            self.digits.append(self._next)
            self.post_read += self.point_read
            self.pre_read += not self.point_read
            is_read = True
        elif template.has(".") and not self.point_read and self._next == ".":
            self.digits.append(".")
            self.point_read = is_read = True
        if self.sign == " " and self.pre_read + self.post_read > 0:
            after = self.text[self.at + 1 : self.at + 2]
            if template.has("S") and is_read and after and after not in "0123456789":
                if after in "-+":
                    self.sign = after
                    self.at += 1
            elif not is_read and not template.has("S") and template.flags & {"PL", "MI"} and self._next in "-+":
                self.sign = self._next
