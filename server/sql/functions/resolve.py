"""Function and operator resolution by PostgreSQL's rules (manual, chapter 10; parse_func.c, parse_oper.c)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import TEXT, UNKNOWN, PgType, array_of, with_dimensions
from server.sql.casts import Coercion, find_cast
from server.sql.functions.table import (
    ANY,
    ANYARRAY,
    ANYCOMPATIBLE,
    ANYCOMPATIBLEARRAY,
    ANYELEMENT,
    ANYENUM,
    FUNCTIONS,
    OPERATORS,
    SET_ARRAYS,
    Function,
    refused_dimensions,
)

_CATEGORIES: dict[str, str] = {
    "bool": "B",
    **dict.fromkeys(("int2", "int4", "int8", "numeric", "float4", "float8"), "N"),
    **dict.fromkeys(("text", "varchar", "bpchar"), "S"),
    **dict.fromkeys(("date", "time", "timestamp", "timestamptz"), "D"),
    "interval": "T",
    **dict.fromkeys(("inet", "cidr"), "I"),
    "unknown": "X",
}
_PREFERRED = frozenset(("bool", "float8", "text", "timestamptz", "interval", "inet"))


def category(type: PgType) -> str:
    """pg_type.typcategory."""
    if type.enum is not None:
        return "E"
    return "A" if type.element is not None else _CATEGORIES.get(type.name, "U")


def is_preferred(type: PgType) -> bool:
    """pg_type.typispreferred."""
    return type.name in _PREFERRED


@dataclass(frozen=True, slots=True)
class Resolved:
    """The chosen row with its argument and result types: pseudo-types replaced, variadic arguments expanded."""

    function: Function
    arguments: tuple[PgType, ...]
    result: PgType


@lru_cache(10_000)  # user-defined types have no bound
def resolve_function(name: str, types: tuple[PgType, ...]) -> Resolved | None:
    """The row for a call; None if none matches, 42725 if several match equally well. `types` are without modifiers.

    0A000 for arrays of several dimensions, unless the row has a rule for them.
    """
    return _choose(FUNCTIONS.get(name, ()), types, "function", f"{name}({', '.join(t.display for t in types)})")


@lru_cache(10_000)  # user-defined types have no bound
def resolve_set_array(name: str, types: tuple[PgType, ...]) -> Resolved | None:
    """The row that computes a column of a set-returning function's result, as an array."""
    rows = SET_ARRAYS.get(name) or FUNCTIONS.get(name) or []
    return _choose(rows, types, "function", f"{name}({', '.join(t.display for t in types)})")


@lru_cache(10_000)  # user-defined types have no bound
def resolve_operator(name: str, types: tuple[PgType, ...]) -> Resolved | None:
    """Like `resolve_function`. A prefix operator has one argument, LIKE with ESCAPE three."""
    rows = OPERATORS.get(name, [])
    known = tuple(type for type in types if type != UNKNOWN)
    if len(types) == 2 and len(known) == 1:
        same = known + known
        for row in rows:  # rule 2a: an unknown operand is first assumed to have the other's type
            if row.arguments == same:
                return Resolved(row, row.arguments, row.result)
    if name == "||" and len(types) == 2 and (plain := _concatenation(types)) is not None:
        return Resolved(rows[0], plain, rows[0].result)
    return _choose(rows, types, "operator", operator_text(name, types))


def _concatenation(types: tuple[PgType, ...]) -> tuple[PgType, ...] | None:
    """text || anything and anything || text convert the other operand to text."""
    texts = [category(t) in ("S", "X") for t in types]
    others = [category(t) not in ("S", "A", "X") for t in types]
    return (TEXT, TEXT) if any(texts) and any(others) else None


def operator_text(name: str, types: Sequence[PgType]) -> str:
    """`integer + text` or `- text`, as in error messages."""
    shown = [t.display for t in types]
    return f"{name} {shown[0]}" if len(shown) == 1 else f"{shown[0]} {name} {shown[1]}"


def with_dimensions_of(resolved: Resolved, types: Sequence[PgType]) -> Resolved:
    """The row for arguments of these types, which may be arrays of several dimensions. 0A000 if it has no rule."""
    given = [type.dimensions if type.element is not None else 0 for type in types]
    most = max(given, default=0)
    rule = resolved.function.dimensions
    if most == 0 or (rule is None and most == 1):
        return resolved
    if rule is None:
        raise refused_dimensions(resolved.function)
    arguments = (with_dimensions(a, count or most) for a, count in zip(resolved.arguments, given, strict=True))
    return Resolved(resolved.function, tuple(arguments), with_dimensions(resolved.result, rule(given)))


def _choose(rows: Sequence[Function], types: tuple[PgType, ...], what: str, shown: str) -> Resolved | None:
    """As in PostgreSQL, the dimensions of an array do not matter for the choice."""
    chosen = _choose_plain(rows, tuple(with_dimensions(type, 1) for type in types), what, shown)
    return None if chosen is None else with_dimensions_of(chosen, types)


def _choose_plain(rows: Sequence[Function], types: tuple[PgType, ...], what: str, shown: str) -> Resolved | None:
    candidates = list(_applicable(rows, types))
    for exact in candidates:
        if exact.function.arguments == types:
            return exact
    if len(candidates) > 1:
        candidates = _best(candidates, types)
    if len(candidates) > 1:
        is_function = what == "function"
        raise PgError(
            SqlState.AMBIGUOUS_FUNCTION,
            f"{what} {shown} is not unique" if is_function else f"operator is not unique: {shown}",
            hint=f"Could not choose a best candidate {what}. You might need to add explicit type casts.",
        )
    if candidates and _is_undetermined(candidates[0].function, types):
        message = "could not determine polymorphic type because input has type unknown"
        raise PgError(SqlState.DATATYPE_MISMATCH, message)
    return candidates[0] if candidates else None


def _is_undetermined(row: Function, types: tuple[PgType, ...]) -> bool:
    """Whether all arguments that would determine anyelement are of type unknown."""
    pseudo = (ANYELEMENT, ANYARRAY, ANYENUM)
    polymorphic = [type for a, type in zip(row.arguments, types, strict=False) if a in pseudo]
    return bool(polymorphic) and all(type == UNKNOWN for type in polymorphic)


def _applicable(rows: Sequence[Function], types: tuple[PgType, ...]) -> Iterator[Resolved]:
    """The rows to whose argument types these types can be cast implicitly."""
    for row in rows:
        arguments = row.arguments
        if row.variadic and len(types) > len(arguments):
            arguments += (arguments[-1],) * (len(types) - len(arguments))
        if len(arguments) != len(types):
            continue
        resolved = _without_pseudo(row, arguments, types)
        if resolved is not None and all(map(_implicit, types, resolved.arguments)):
            yield resolved


def _implicit(source: PgType, target: PgType) -> bool:
    if source in (target, UNKNOWN) or target == ANY:
        return True
    rule = find_cast(source, target)
    return rule is not None and rule.context is Coercion.IMPLICIT


def _without_pseudo(row: Function, arguments: tuple[PgType, ...], types: tuple[PgType, ...]) -> Resolved | None:
    """Replaces anyelement and anyarray by the types of the arguments; None if the arguments disagree."""
    if ANYCOMPATIBLEARRAY in arguments or ANYCOMPATIBLE in arguments:
        return _with_common_type(row, arguments, types)
    if ANYENUM in arguments and not any(type.enum is not None for type in types):
        return None
    if not {ANYELEMENT, ANYARRAY, ANYENUM}.intersection(arguments):
        return Resolved(row, arguments, row.result)
    elements: set[PgType] = set()
    for argument, type in zip(arguments, types, strict=True):
        if type == UNKNOWN or argument not in (ANYELEMENT, ANYARRAY, ANYENUM):
            continue
        if (argument == ANYARRAY and type.element is None) or (argument == ANYENUM and type.enum is None):
            return None
        elements.add(type.element if argument == ANYARRAY and type.element is not None else type)
    if len(elements) > 1:
        return None
    element = elements.pop() if elements else TEXT
    if element.element is not None and (ANYARRAY in arguments or row.result == ANYARRAY):
        return None
    swap = {ANYELEMENT: element, ANYENUM: element}
    if ANYARRAY in arguments or row.result == ANYARRAY:
        swap[ANYARRAY] = array_of(element)
    return Resolved(row, tuple(swap.get(a, a) for a in arguments), swap.get(row.result, row.result))


def _with_common_type(row: Function, arguments: tuple[PgType, ...], types: tuple[PgType, ...]) -> Resolved | None:
    """Replaces anycompatible by the common type of all such arguments, including the elements of arrays."""
    found: list[PgType] = []
    for argument, type in zip(arguments, types, strict=True):
        if argument == ANYCOMPATIBLEARRAY and type != UNKNOWN:
            if type.element is None:
                return None
            found.append(type.element)
        elif argument == ANYCOMPATIBLE and type != UNKNOWN:
            found.append(type)
    common = _common_type(found) if found else TEXT
    if common is None or (common.element is not None and ANYCOMPATIBLEARRAY in arguments):
        return None
    swap = {ANYCOMPATIBLE: common}
    if ANYCOMPATIBLEARRAY in arguments:
        swap[ANYCOMPATIBLEARRAY] = array_of(common)
    return Resolved(row, tuple(swap.get(a, a) for a in arguments), swap.get(row.result, row.result))


def _common_type(types: Sequence[PgType]) -> PgType | None:
    chosen = types[0]
    for type in types[1:]:
        if category(type) != category(chosen):
            return None
        if not is_preferred(chosen) and _implicit(chosen, type) and not _implicit(type, chosen):
            chosen = type
    return chosen


_PSEUDO = (ANY, ANYELEMENT, ANYARRAY, ANYENUM, ANYCOMPATIBLE, ANYCOMPATIBLEARRAY)


def _best(candidates: list[Resolved], types: tuple[PgType, ...]) -> list[Resolved]:
    """PostgreSQL's func_select_candidate: more exact matches, then preferred types, then guesses for unknowns."""
    known = [i for i, t in enumerate(types) if t != UNKNOWN]
    unknown = [i for i, t in enumerate(types) if t == UNKNOWN]

    def most(score: Callable[[Resolved], int]) -> list[Resolved]:
        top = max(map(score, candidates))
        return [c for c in candidates if score(c) == top]

    def declared(candidate: Resolved, index: int) -> PgType:
        arguments = candidate.function.arguments  # a pseudo-type is not an exact match
        return arguments[min(index, len(arguments) - 1)]

    candidates = most(lambda c: sum(declared(c, i) == types[i] for i in known))
    if len(candidates) > 1:
        candidates = most(
            lambda c: sum(
                declared(c, i) == types[i]
                or (is_preferred(declared(c, i)) and category(declared(c, i)) == category(types[i]))
                for i in known
            )
        )

    def category_of(candidate: Resolved, index: int) -> str:
        """The category of an argument. As in PostgreSQL, all pseudo-types have the same one."""
        return "P" if declared(candidate, index) in _PSEUDO else category(candidate.arguments[index])

    for i in unknown if len(candidates) > 1 else ():
        categories = {category_of(c, i) for c in candidates}
        if "S" not in categories and len(categories) > 1:
            break
        chosen = "S" if "S" in categories else categories.pop()
        inside = [c for c in candidates if category_of(c, i) == chosen]
        preferred = [c for c in inside if chosen != "P" and is_preferred(c.arguments[i])]
        candidates = preferred or inside
    if len(candidates) > 1 and known and len({types[i] for i in known}) == 1:
        same = [c for c in candidates if all(_implicit(types[known[0]], a) for a in c.arguments)]
        exact = [c for c in same if all(c.arguments[i] == types[known[0]] for i in unknown)]
        candidates = same if len(same) == 1 else exact or candidates
    return candidates


def no_such(what: str, shown: str, count: int, position: int | None) -> PgError:
    """42883. `what`: `function` or `operator`."""
    noun = "argument types" if count != 1 else "argument type" if what == "operator" else "argument types"
    casts = "explicit type casts" if noun.endswith("s") else "an explicit type cast"
    return PgError(
        SqlState.UNDEFINED_FUNCTION,
        f"function {shown} does not exist" if what == "function" else f"operator does not exist: {shown}",
        hint=f"No {what} matches the given name and {noun}. You might need to add {casts}.",
        position=position,
    )
