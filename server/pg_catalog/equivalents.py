"""Equivalents in DuckDB of single functions, operators, casts and literals."""

from __future__ import annotations

import re

from sqlglot import exp

from protocol.pgwire.scalars import parse_text
from protocol.pgwire.types import array_of
from server.pg_catalog.outputs import VECTORS
from server.pg_catalog.refusals import not_supported
from server.pg_catalog.trees import defined_function, helper
from server.pg_catalog.types import cast_to, duckdb_type, parameter_type, value_tree


def vector_literal(type: str, literal: exp.Expr) -> exp.Expr:
    """The elements of a literal of type int2vector or oidvector."""
    array = array_of(parameter_type(VECTORS[type]))
    return value_tree(array, parse_text(array, "{" + ",".join(literal.name.split()) + "}"))


def cast_with_modifiers(type: exp.DataType, name: str, value: exp.Expr) -> exp.Expr:
    """Casts a value to a type whose modifiers are respected: numeric(p, s), varchar(n) and char(n)."""
    numbers = [int(modifier.name) for modifier in type.expressions if modifier.name.isdigit()]
    if name == "numeric" and numbers:
        return cast_to(value, f"DECIMAL({', '.join(map(str, numbers))})")
    cast = cast_to(value, duckdb_type(name))
    if name in ("varchar", "bpchar") and numbers:
        return exp.Anonymous(this="left", expressions=[cast, exp.Literal.number(numbers[0])])
    return cast


def regexp_replace(call: exp.Anonymous) -> exp.Expr:
    """regexp_replace(text, pattern, replacement [, flags]). 0A000 with a start, or with flags that DuckDB lacks."""
    flags = call.expressions[3] if len(call.expressions) > 3 else exp.Literal.string("")
    if not 3 <= len(call.expressions) <= 4 or not isinstance(flags, exp.Literal) or not set(flags.name) <= set("gic"):
        raise not_supported(
            "this form of regexp_replace()",
            hint="Use regexp_replace(text, pattern, replacement, flags) with a literal of the flags g, i and c.",
        )
    text, pattern, replacement, *_ = call.expressions
    arguments = [cast_to(text, "VARCHAR"), pattern, replacement, exp.Literal.string(f"s{flags.name}")]
    return exp.Anonymous(this="regexp_replace", expressions=arguments)


def substring(node: exp.Expr, text: exp.Expr, *rest: exp.Expr) -> exp.Expr:
    """substring(text, start [, length]), or substring(text from 'pattern') with a literal of a regular expression."""
    text = cast_to(text, "VARCHAR")
    if len(rest) != 1 or not isinstance(rest[0], exp.Literal) or not rest[0].is_string:
        return exp.Anonymous(this="substr", expressions=[text, *rest])
    group = 1 if re.search(r"(?<!\\)\((?!\?)", rest[0].name) else 0
    found = exp.Anonymous(this="regexp_extract", expressions=[text, rest[0], exp.Literal.number(group)])
    matches = exp.Anonymous(this="regexp_matches", expressions=[text.copy(), rest[0].copy()])
    return exp.Case(ifs=[exp.If(this=matches, true=found)])


OF_DOMAINS = {"_pg_truetypid": ("typbasetype", "atttypid"), "_pg_truetypmod": ("typtypmod", "atttypmod")}
"""Functions of rows of pg_attribute and pg_type: the column of pg_type for a domain, and that of pg_attribute."""


def attribute_type(name: str, attribute: exp.Expr, type: exp.Expr) -> exp.Expr:
    """A function of OF_DOMAINS. The arguments are rows of pg_attribute and pg_type: `a` or `a.*`."""
    a, t = (row.args.get("table") or row.this for row in (attribute, type))
    of_domain, of_attribute = OF_DOMAINS[name]
    is_domain = exp.EQ(this=exp.column("typtype", t), expression=exp.Literal.string("d"))
    domain = exp.If(this=is_domain, true=exp.column(of_domain, t))
    return exp.Case(ifs=[domain], default=exp.column(of_attribute, a))


def like_each(like: exp.Expr, quantified: exp.Any | exp.All) -> exp.Expr:
    """LIKE ANY and LIKE ALL. `a NOT LIKE ALL (b)` is `NOT a LIKE ANY (b)`."""
    is_any = isinstance(quantified, exp.Any) is not bool(like.args.get("negate"))
    matches = helper("ilikes" if isinstance(like, exp.ILike) else "likes", like.this, quantified.this)
    found = helper("any_of" if is_any else "all_of", matches)
    return exp.Not(this=found) if like.args.get("negate") else found


def format_call(call: exp.Anonymous) -> exp.Expr:
    """Rewrites format('%s.%I', ...) with a constant pattern to a concatenation."""
    pattern, *arguments = call.expressions
    if not isinstance(pattern, exp.Literal):
        raise not_supported(
            "format() with a pattern that is no constant",
            hint="Write the pattern as a literal, or concatenate with ||.",
        )
    pieces: list[exp.Expr] = []
    literal = ""
    text, place = pattern.name, 0
    while place < len(text):
        if text[place] != "%":
            literal += text[place]
            place += 1
            continue
        kind = text[place + 1 : place + 2]
        place += 2
        if kind == "%":
            literal += "%"
        elif kind in ("s", "I", "L") and arguments:
            pieces += [exp.Literal.string(literal), _formatted(kind, arguments.pop(0))]
            literal = ""
        else:
            raise not_supported(f"format() with %{kind}", hint="Use %s, %I and %L without positions and widths.")
    return exp.Anonymous(this="concat", expressions=[*pieces, exp.Literal.string(literal)])


def _formatted(kind: str, argument: exp.Expr) -> exp.Expr:
    if kind == "s":
        return argument
    return defined_function("quote_ident" if kind == "I" else "quote_literal", argument)
