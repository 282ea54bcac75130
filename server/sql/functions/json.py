"""json and jsonb (chapter 9.16).

Both are text: json as received, jsonb in its normal form (`protocol.pgwire.json_values`). A part of either is a
substring, so one scanner (`_items`) serves both and numbers keep their digits. Comparisons use `order_key`,
PostgreSQL's btree order of jsonb. Functions that change values work on trees of Python values.

JSON paths are in `json_paths`. Functions that return rows are bound by `json_records`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import partial
from json import loads
from typing import Any

from protocol.pgwire.datetime_output import DAY_US, INFINITE_TIMESTAMPS
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.json_values import loaded_jsonb, parse_json, printed_jsonb, quoted_json
from protocol.pgwire.scalars import format_text
from protocol.pgwire.types import DATE, TEXT, TIMESTAMP, PgType
from server.sql.casts import numeric_text
from server.sql.functions.table import COMPARISONS, FUNCTIONS, GRAMMAR, OPERATORS, Nulls, independent, row

# -- substrings -------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[][{},:]|[^][{},:"\s]+', re.DOTALL)


def _items(text: str) -> list[str]:
    """The texts of an array's elements, or of an object's keys and values alternately. `text` must be valid JSON."""
    items: list[str] = []
    depth, start, end = 0, -1, 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        if depth == 1 and token in (",", ":"):
            items.append(text[start:end])
            start = -1
            continue
        if token in ("]", "}"):
            depth -= 1
            if not depth:
                break
        if depth and start < 0:
            start = match.start()
        if token in ("[", "{"):
            depth += 1
        end = match.end()
    if start >= 0:
        items.append(text[start:end])
    return items


def kind_of(text: str) -> str:
    """json_typeof."""
    first = text.lstrip()[0]
    return {"{": "object", "[": "array", '"': "string", "t": "boolean", "f": "boolean", "n": "null"}.get(
        first, "number"
    )


def json_elements(text: str) -> list[str]:
    """The elements of a JSON array as texts."""
    return _items(text)


def json_pairs(text: str) -> list[tuple[str, str]]:
    """The keys of a JSON object, as plain strings, and the texts of their values."""
    items = _items(text)
    return [(_unquoted(key), value) for key, value in zip(items[::2], items[1::2], strict=True)]


def json_text(text: str) -> str | None:
    """The result of ->>: a string without quotes, NULL for null, the unchanged text of any other value."""
    text = text.strip()
    if text.startswith('"'):
        return _unquoted(text)
    return None if text == "null" else text


def _unquoted(text: str) -> str:
    value: str = loads(text, strict=False)
    if "\0" in value:
        raise PgError(
            SqlState.UNTRANSLATABLE_CHARACTER,
            "unsupported Unicode escape sequence",
            detail="\\u0000 cannot be converted to text.",
        )
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise PgError(SqlState.INVALID_TEXT_REPRESENTATION, "invalid input syntax for type json")
    return value


def _field(text: str, key: str) -> str | None:
    if kind_of(text) != "object":
        return None
    return next((value for name, value in reversed(json_pairs(text)) if name == key), None)


def _element(text: str, index: int) -> str | None:
    if kind_of(text) != "array":
        return None
    items = _items(text)
    return items[index] if -len(items) <= index < len(items) else None


ADDED_MAX = 100_000  # null elements that an assignment behind the end of an array can add
_INDEX = re.compile(r"[ \t\n\v\f\r]*[+-]?\d+", re.ASCII)


def _element_b(text: str, index: int) -> str | None:
    """An element of jsonb. A scalar is treated as an array of one element."""
    return text if index in (0, -1) and kind_of(text) not in ("array", "object") else _element(text, index)


def _at_path(text: str, path: Sequence[str | None]) -> str | None:
    current: str | None = text.strip()
    for step in path:
        if step is None or current is None:
            return None
        if kind_of(current) == "array":
            current = _element(current, int(step)) if _INDEX.fullmatch(step) else None
        else:
            current = _field(current, step)
    return current


def _as_text(value: str | None) -> str | None:
    return None if value is None else json_text(value)


# -- values -----------------------------------------------------------------------------------------------------------

_RANKS = {type(None): 0, str: 1, Decimal: 2, bool: 3, list: 16, dict: 17}


def order_key(text: str) -> tuple[Any, ...]:
    """A key in the order of jsonb: objects > arrays > booleans > numbers > strings > null; longer > shorter."""
    value = loaded_jsonb(text)
    is_container = isinstance(value, (list, dict))
    return tuple(_tokens(value)) if is_container else ((16, 1, 0), *_tokens(value))


def _tokens(value: Any) -> Iterator[tuple[Any, ...]]:
    rank = _RANKS[type(value)]
    if isinstance(value, list):
        yield (rank, len(value), 1)
        for item in value:
            yield from _tokens(item)
    elif isinstance(value, dict):
        yield (rank, len(value))
        for key in _ordered(value):
            yield (1, key.encode())
            yield from _tokens(value[key])
    else:
        yield (rank, value.encode() if isinstance(value, str) else value or 0)


def _sort_key(text: str) -> bytes:
    """`order_key` encoded in bytes with the same order, for sorting in Spark."""
    key = bytearray()
    for rank, value, *more in order_key(text):
        key.append(rank)
        if isinstance(value, bytes):
            key += value + b"\0"  # a jsonb string cannot contain it
        elif rank == _RANKS[Decimal]:
            key += _number_key(value)
        else:
            key += int(value).to_bytes(4) + bytes(more)
    return bytes(key)


def _number_key(value: Decimal) -> bytes:
    if not value:
        return b"\1"
    digits = "".join(map(str, value.as_tuple().digits)).strip("0")
    size = (value.adjusted() + (1 << 31)).to_bytes(4) + digits.encode() + b"\0"
    return b"\2" + size if value > 0 else bytes((0, *(255 - byte for byte in size)))


def _ordered(value: dict[str, Any]) -> list[str]:
    return sorted(value, key=lambda key: (len(encoded := key.encode()), encoded))


def _equal(a: Any, b: Any) -> bool:
    return type(a) is type(b) and a == b


def _contains(whole: Any, part: Any) -> bool:
    if isinstance(whole, dict) and isinstance(part, dict):
        return all(
            key in whole and (_contains(whole[key], item) if _is_container(item) else _equal(whole[key], item))
            for key, item in part.items()
        )
    if isinstance(whole, list) and isinstance(part, list):
        return all(
            any(_contains(mine, item) if _is_container(item) else _equal(mine, item) for mine in whole) for item in part
        )
    return False


def _is_container(value: Any) -> bool:
    return isinstance(value, (list, dict))


def _contained(whole: str, part: str) -> bool:
    """@>: an array contains a scalar that is one of its elements."""
    a, b = loaded_jsonb(whole), loaded_jsonb(part)
    if not _is_container(b) and not isinstance(a, dict):
        return any(_equal(mine, b) for mine in (a if isinstance(a, list) else [a]))
    return _contains(a, b)


def _has(text: str, key: str) -> bool:
    value = loaded_jsonb(text)
    return key in value if isinstance(value, dict) else any(_equal(i, key) for i in _listed(value))


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _bad(message: str) -> PgError:
    return PgError(SqlState.INVALID_PARAMETER_VALUE, message)


def _concatenated(left: str, right: str) -> str:
    a, b = loaded_jsonb(left), loaded_jsonb(right)
    if isinstance(a, dict) and isinstance(b, dict):
        return printed_jsonb(a | b)
    return printed_jsonb(_listed(a) + _listed(b))


def _container(text: str, verb: str = "delete from") -> Any:
    value = loaded_jsonb(text)
    if not _is_container(value):
        raise _bad(f"cannot {verb} scalar")
    return value


def _without_keys(text: str, keys: Sequence[str | None]) -> str:
    value = _container(text)
    if isinstance(value, dict):
        return printed_jsonb({k: v for k, v in value.items() if k not in keys})
    return printed_jsonb([v for v in value if not (isinstance(v, str) and v in keys)])


def _without_index(text: str, index: int) -> str:
    value = _container(text)
    if isinstance(value, dict):
        raise _bad("cannot delete from object using integer index")
    if -len(value) <= index < len(value):
        del value[index]
    return printed_jsonb(value)


# Functions that set a path: `change(container, position, exists)` alters the innermost container.
_Change = Callable[[Any, Any, bool], None]


def _changed(text: str, path: Sequence[str | None], verb: str, change: _Change, *, creates: bool = True) -> str:
    """The value with a change at a path. Without `creates`, an empty container remains, whatever the path is."""
    value = _container(text, verb)
    if path and (value or creates):
        _change_at(value, path, 0, change)
    return printed_jsonb(value)


def _change_at(value: Any, path: Sequence[str | None], level: int, change: _Change) -> None:
    step, last = path[level], level == len(path) - 1
    if step is None:
        raise PgError(SqlState.NULL_VALUE_NOT_ALLOWED, f"path element at position {level + 1} is null")
    if isinstance(value, dict):
        if last:
            change(value, step, step in value)
        elif _is_container(value.get(step)):
            _change_at(value[step], path, level + 1, change)
        return
    index = _index(step, level)
    position = max(len(value) + index, -1) if index < 0 else min(index, len(value))
    exists = 0 <= position < len(value)
    if last:
        change(value, position, exists)
    elif exists and _is_container(value[position]):
        _change_at(value[position], path, level + 1, change)


def _index(step: str, level: int) -> int:
    """A step of a path as the number of an element of an array."""
    if not _INDEX.fullmatch(step) or not -(1 << 31) <= int(step) < 1 << 31:
        message = f'path element at position {level + 1} is not an integer: "{step}"'
        raise PgError(SqlState.INVALID_TEXT_REPRESENTATION, message)
    return int(step)


def _delete_path(text: str, path: Sequence[str | None]) -> str:
    def change(container: Any, position: Any, exists: bool) -> None:
        if exists:
            del container[position]

    return _changed(text, path, "delete path in", change, creates=False)


def _set(text: str, path: Sequence[str | None], new: str, create: bool = True) -> str:
    item = loaded_jsonb(new)

    def change(container: Any, position: Any, exists: bool) -> None:
        if exists or (create and isinstance(container, dict)):
            container[position] = item
        elif create:
            container.insert(max(position, 0), item)

    return _changed(text, path, "set path in", change, creates=create)


def _insert(text: str, path: Sequence[str | None], new: str, after: bool = False) -> str:
    item = loaded_jsonb(new)

    def change(container: Any, position: Any, exists: bool) -> None:
        if isinstance(container, dict):
            if exists:
                raise PgError(
                    SqlState.INVALID_PARAMETER_VALUE,
                    "cannot replace existing key",
                    hint="Try using the function jsonb_set to replace key value.",
                )
            container[position] = item
        else:
            container.insert(max(position + (after and exists), 0), item)

    return _changed(text, path, "set path in", change)


def _set_element(text: str | None, path: Sequence[str | None], is_integer: bool, new: str | None) -> str:
    """The value after `value[path] = new`. What the path lacks is added, also elements before a new one.

    `is_integer`: whether the first subscript is an integer, so that NULL becomes an array instead of an object.
    """
    steps = [step for step in path if step is not None]
    if len(steps) < len(path):
        raise PgError(SqlState.NULL_VALUE_NOT_ALLOWED, "jsonb subscript in assignment must not be null")
    value = ([] if is_integer else {}) if text is None else loaded_jsonb(text)
    item = None if new is None else loaded_jsonb(new)
    container = value
    for level, step in enumerate(steps):
        if not _is_container(container):
            raise PgError(
                SqlState.INVALID_PARAMETER_VALUE,
                "cannot replace existing key",
                detail="The path assumes key is a composite object, but it is a scalar value.",
            )
        key: Any = step
        if isinstance(container, list):
            key = _index(step, level)
            if key < -len(container):
                message = f"path element at position {level + 1} is out of range: {key}"
                raise PgError(SqlState.INVALID_PARAMETER_VALUE, message)
            if key > len(container) + ADDED_MAX:
                message = "number of jsonb array elements exceeds the maximum allowed"
                detail = f"An assignment to an element can add at most {ADDED_MAX} null elements."
                raise PgError(SqlState.PROGRAM_LIMIT_EXCEEDED, message, detail=detail)
            is_new = key >= len(container)
            container += [None] * (key + 1 - len(container))
        else:
            is_new = key not in container
        if level == len(steps) - 1:
            container[key] = item
        elif is_new:
            container[key] = [] if _INDEX.fullmatch(steps[level + 1]) else {}
        container = container[key]
    return printed_jsonb(value)


def _set_lax(
    text: str | None,
    path: list[str | None] | None,
    new: str | None,
    create: bool | None = True,
    treatment: str | None = "use_json_null",
) -> str | None:
    if text is None or path is None or create is None:
        return None
    if treatment is None:
        raise _bad(_TREATMENTS)
    if new is not None:
        return _set(text, path, new, create)
    match treatment:
        case "raise_exception":
            raise PgError(SqlState.NULL_VALUE_NOT_ALLOWED, "JSON value must not be null")
        case "use_json_null":
            return _set(text, path, "null", create)
        case "delete_key":
            return _delete_path(text, path)
        case "return_target":
            return text
    raise _bad(_TREATMENTS)


_TREATMENTS = 'null_value_treatment must be "delete_key", "return_target", "use_json_null", or "raise_exception"'


def _pretty(text: str) -> str:
    return _indented(loaded_jsonb(text), 0)


def _indented(value: Any, level: int) -> str:
    if not _is_container(value):
        return printed_jsonb(value)
    inner, outer = "\n" + "    " * (level + 1), "\n" + "    " * level
    if isinstance(value, list):
        return "[" + ",".join(inner + _indented(item, level + 1) for item in value) + outer + "]"
    members = (f"{inner}{quoted_json(key)}: {_indented(value[key], level + 1)}" for key in _ordered(value))
    return "{" + ",".join(members) + outer + "}"


def _strip_json(text: str) -> str:
    match kind_of(text):
        case "object":
            kept = (
                f"{quoted_json(key)}:{_strip_json(value)}"
                for key, value in json_pairs(text)
                if kind_of(value) != "null"
            )
            return "{" + ",".join(kept) + "}"
        case "array":
            return "[" + ",".join(map(_strip_json, _items(text))) + "]"
        case "string":
            return quoted_json(_unquoted(text))
    return text.strip()


def _strip(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _strip(item) for key, item in value.items() if item is not None}
    return [_strip(item) for item in value] if isinstance(value, list) else value


def _length(text: str) -> int:
    kind = kind_of(text)
    if kind != "array":
        raise _bad(f"cannot get array length of a {'non-array' if kind == 'object' else 'scalar'}")
    return len(_items(text))


# -- construction -----------------------------------------------------------------------------------------------------


def json_of(type: PgType, value: Any, separator: str = ",") -> str:
    """to_json of a value."""
    if value is None:
        return "null"
    if type.element is not None:
        return "[" + separator.join(json_of(type.item, item) for item in value) + "]"
    if type.fields is not None:
        pairs = zip(type.fields, value, strict=True)
        return "{" + separator.join(f"{quoted_json(name)}:{json_of(field, v)}" for (name, field), v in pairs) + "}"
    match type.name:
        case "json" | "jsonb":
            return str(value)
        case "bool":
            return "true" if value else "false"
        case "int2" | "int4" | "int8":
            return str(value)
        case "numeric":
            return numeric_text(type, value)
        case "float4" | "float8":
            text = format_text(type, value)
            return text if value - value == 0 else f'"{text}"'
        case "text" | "varchar" | "bpchar" | "uuid" | "unknown":
            return quoted_json(value)
        case "timestamp" if value not in INFINITE_TIMESTAMPS:
            return f'"{_iso(value)}"'
        case "timestamptz" if value not in INFINITE_TIMESTAMPS:
            return f'"{_iso(value, "+00:00")}"'
    return quoted_json(format_text(type, value))


def _iso(us: int, zone: str = "") -> str:
    """A timestamp with T between date and time. The era follows the zone."""
    day, era, _ = format_text(DATE, us // DAY_US).partition(" BC")
    clock = format_text(TIMESTAMP, us % DAY_US).partition(" ")[2]
    return f"{day}T{clock}{zone}{era}"


def _jsonb_of(type: PgType, value: Any) -> str:
    return printed_jsonb(loaded_jsonb(json_of(type, value)))


def _to_json(value: Any, types: Sequence[PgType]) -> str:
    return json_of(types[0], value)


def _to_jsonb(value: Any, types: Sequence[PgType]) -> str:
    return _jsonb_of(types[0], value)


def _array_to_json(value: list[Any], pretty: bool = False, *, types: Sequence[PgType]) -> str:
    return json_of(types[0], value, ",\n " if pretty else ",")


def _build_array(*values: Any, types: Sequence[PgType] = ()) -> str:
    return "[" + ", ".join(map(json_of, types, values)) + "]"


def _array_without_nulls(*values: Any, types: Sequence[PgType] = ()) -> str:
    """JSON_ARRAY(... ABSENT ON NULL)"""
    kept = [(type, value) for type, value in zip(types, values, strict=True) if value is not None]
    return "[" + ", ".join(json_of(*pair) for pair in kept) + "]"


def json_key(type: PgType, value: Any, position: int) -> str:
    """An object key from a value of any scalar type."""
    if type.element is not None or type.fields is not None or type.name in ("json", "jsonb"):
        raise _bad("key value must be scalar, not array, composite, or json")
    text = json_of(type, value)
    return text if text.startswith('"') else f'"{text}"'


def _build_object(*values: Any, types: Sequence[PgType] = (), absent: bool = False, unique: bool = False) -> str:
    """`absent`: without members whose value is NULL. `unique`: 22030 if keys are equal, also those of such members."""
    _even(values)
    keys: set[str] = set()
    members = []
    for i in range(0, len(values), 2):
        if values[i] is None:
            raise PgError(SqlState.NULL_VALUE_NOT_ALLOWED, "null value not allowed for object key")
        key = json_key(types[i], values[i], i + 1)
        if unique:
            add_key(keys, key)
        if not absent or values[i + 1] is not None:
            members.append(f"{key} : {json_of(types[i + 1], values[i + 1])}")
    return "{" + ", ".join(members) + "}"


def add_key(keys: set[str], key: str) -> None:
    """Adds a key, as JSON, to those of an object. 22030 if it is one of them."""
    if key in keys:
        raise PgError(SqlState.DUPLICATE_JSON_OBJECT_KEY_VALUE, f"duplicate JSON object key value: {key}")
    keys.add(key)


def _build_object_b(*values: Any, types: Sequence[PgType] = (), absent: bool = False, unique: bool = False) -> str:
    _even(values)
    for i in range(0, len(values), 2):
        if values[i] is None:
            raise _bad(f"argument {i + 1}: key must not be null")
    return printed_jsonb(loaded_jsonb(_build_object(*values, types=types, absent=absent, unique=unique)))


def _even(values: Sequence[Any]) -> None:
    if len(values) % 2:
        raise PgError(
            SqlState.INVALID_PARAMETER_VALUE,
            "argument list must have even number of elements",
            hint="The arguments of this function must consist of alternating keys and values.",
        )


def _object(pairs: list[str | None]) -> str:
    if len(pairs) % 2:
        raise PgError(SqlState.ARRAY_SUBSCRIPT_ERROR, "array must have even number of elements")
    return _object_of(pairs[::2], pairs[1::2])


def _object_of(keys: list[str | None], values: list[str | None]) -> str:
    if len(keys) != len(values):
        raise PgError(SqlState.ARRAY_SUBSCRIPT_ERROR, "mismatched array dimensions")
    members = []
    for key, value in zip(keys, values, strict=True):
        if key is None:
            raise PgError(SqlState.NULL_VALUE_NOT_ALLOWED, "null value not allowed for object key")
        members.append(f"{quoted_json(key)} : {json_of(TEXT, value)}")
    return "{" + ", ".join(members) + "}"


def _as_jsonb(make: Callable[..., str]) -> Callable[..., str]:
    return lambda *arguments, **typed: printed_jsonb(loaded_jsonb(make(*arguments, **typed)))


# -- table rows -------------------------------------------------------------------------------------------------------


def _array_text(text: str) -> str | None:
    """A JSON array as the text of an array, for the conversion of a member to an array type."""
    kind = kind_of(text)
    if kind == "null":
        return None
    if kind == "string":
        return _unquoted(text.strip())
    if kind != "array":
        message = "expected JSON array"
        raise PgError(SqlState.INVALID_TEXT_REPRESENTATION, message)
    elements: list[str | None] = []
    for item in _items(text):
        kind = kind_of(item)
        if kind == "array":
            elements.append(_array_text(item))
            continue
        value = item if kind == "object" else json_text(item)
        escaped = None if value is None else value.replace("\\", "\\\\").replace('"', '\\"')
        elements.append("NULL" if escaped is None else f'"{escaped}"')
    return "{" + ",".join(map(str, elements)) + "}"


def _compared(test: Callable[[Any, Any], bool]) -> Callable[[str, str], bool]:
    return lambda a, b: test(order_key(a), order_key(b))


def _json_row(name: str, arguments: str, result: str, python: Callable[..., Any], nulls: Nulls = Nulls.STRICT) -> None:
    row(FUNCTIONS, name, arguments, result, nulls=nulls, python=python)


def _operator(name: str, arguments: str, result: str, python: Callable[..., Any]) -> None:
    row(OPERATORS, name, arguments, result, nulls=Nulls.OPTIONAL, python=python)


def _is_json(text: str, kind: str) -> bool:
    try:
        parse_json(text)
    except PgError:
        return False
    found = kind_of(text)
    return kind in ("value", found) or (kind == "scalar" and found not in ("array", "object"))


row(GRAMMAR, "is json", "text text", "bool", python=_is_json)
row(GRAMMAR, "jsonb sort key", "jsonb", "bytea", python=_sort_key)
row(GRAMMAR, "json array text", "text", "text", nulls=Nulls.OPTIONAL, python=_array_text)
row(GRAMMAR, "set json element", "jsonb text[] bool jsonb", "jsonb", nulls=Nulls.MAYBE, python=_set_element)
(SET_JSON_ELEMENT,) = GRAMMAR["set json element"]
(IS_JSON,), (JSONB_SORT_KEY,) = GRAMMAR["is json"], GRAMMAR["jsonb sort key"]
(ARRAY_TEXT,) = GRAMMAR["json array text"]
for _j in ("json", "jsonb"):
    _operator("->", f"{_j} text", _j, _field)
    _at = _element if _j == "json" else _element_b
    _operator("->", f"{_j} int4", _j, _at)
    _operator("->>", f"{_j} text", "text", lambda json, key: _as_text(_field(json, key)))
    _operator("->>", f"{_j} int4", "text", lambda json, index, at=_at: _as_text(at(json, index)))
    _operator("#>", f"{_j} text[]", _j, _at_path)
    _operator("#>>", f"{_j} text[]", "text", lambda json, path: _as_text(_at_path(json, path)))
    row(FUNCTIONS, f"{_j}_extract_path", f"{_j} text", _j, nulls=Nulls.OPTIONAL, variadic=True,
        python=lambda json, *path: _at_path(json, path))  # fmt: skip
    row(FUNCTIONS, f"{_j}_extract_path_text", f"{_j} text", "text", nulls=Nulls.OPTIONAL, variadic=True,
        python=lambda json, *path: _as_text(_at_path(json, path)))  # fmt: skip
    _json_row(f"{_j}_array_length", _j, "int4", _length)
    _json_row(f"{_j}_typeof", _j, "text", kind_of)
_json_row("json_strip_nulls", "json", "json", _strip_json)
_json_row("jsonb_strip_nulls", "jsonb", "jsonb", lambda json: printed_jsonb(_strip(loaded_jsonb(json))))
_json_row("jsonb_pretty", "jsonb", "text", _pretty)

for _symbol, _test in COMPARISONS.items():
    _operator(_symbol, "jsonb jsonb", "bool", _compared(_test))
_operator("@>", "jsonb jsonb", "bool", _contained)
_operator("<@", "jsonb jsonb", "bool", lambda part, whole: _contained(whole, part))
_operator("?", "jsonb text", "bool", _has)
_operator("?|", "jsonb text[]", "bool", lambda json, keys: any(k is not None and _has(json, k) for k in keys))
_operator("?&", "jsonb text[]", "bool", lambda json, keys: all(k is None or _has(json, k) for k in keys))
_operator("-", "jsonb text", "jsonb", lambda json, key: _without_keys(json, [key]))
_operator("-", "jsonb text[]", "jsonb", _without_keys)
_operator("-", "jsonb int4", "jsonb", _without_index)
_operator("#-", "jsonb text[]", "jsonb", _delete_path)
_operator("||", "jsonb jsonb", "jsonb", _concatenated)
for _extra in ("", " bool"):
    _json_row("jsonb_set", f"jsonb text[] jsonb{_extra}", "jsonb", _set)
    _json_row("jsonb_insert", f"jsonb text[] jsonb{_extra}", "jsonb", _insert)
for _extra in ("", " bool", " bool text"):
    _json_row("jsonb_set_lax", f"jsonb text[] jsonb{_extra}", "jsonb", _set_lax, Nulls.MAYBE)

for _j, _one, _built, _object_built in (
    ("json", _to_json, _build_array, _build_object),
    ("jsonb", _to_jsonb, _as_jsonb(_build_array), _build_object_b),
):
    row(FUNCTIONS, f"to_{_j}", "anyelement", _j, typed=True, python=_one, dimensions=independent)
    row(FUNCTIONS, f"{_j}_build_array", "", _j, nulls=Nulls.NEVER, python=lambda: "[]")
    row(FUNCTIONS, f"{_j}_build_array", "any", _j, nulls=Nulls.NEVER, variadic=True, typed=True,
        python=_built, dimensions=independent)  # fmt: skip
    row(FUNCTIONS, f"{_j}_build_object", "", _j, nulls=Nulls.NEVER, python=lambda: "{}")
    row(FUNCTIONS, f"{_j}_build_object", "any", _j, nulls=Nulls.NEVER, variadic=True, typed=True,
        python=_object_built, dimensions=independent)  # fmt: skip
    for _clauses in ("", " absent", " unique", " absent unique"):
        row(GRAMMAR, f"{_j} object{_clauses}", "any", _j, nulls=Nulls.NEVER, variadic=True, typed=True,
            python=partial(_object_built, absent="absent" in _clauses, unique="unique" in _clauses),
            dimensions=independent)  # fmt: skip
    row(GRAMMAR, f"{_j} array", "any", _j, nulls=Nulls.NEVER, variadic=True, typed=True, python=_built,
        dimensions=independent)  # fmt: skip
    row(GRAMMAR, f"{_j} array absent", "any", _j, nulls=Nulls.NEVER, variadic=True, typed=True,
        python=_array_without_nulls if _j == "json" else _as_jsonb(_array_without_nulls),
        dimensions=independent)  # fmt: skip
for _arguments in ("anyarray", "anyarray bool"):
    row(FUNCTIONS, "array_to_json", _arguments, "json", typed=True, python=_array_to_json, dimensions=independent)
_json_row("json_object", "text[]", "json", _object)
_json_row("json_object", "text[] text[]", "json", _object_of)
_json_row("jsonb_object", "text[]", "jsonb", _as_jsonb(_object))
_json_row("jsonb_object", "text[] text[]", "jsonb", _as_jsonb(_object_of))
