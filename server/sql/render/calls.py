"""Spark SQL of calls: filled templates, calls of Python functions, and truncation to a type's length.

`infinite_or_finite` is the one place that applies the rules for infinite dates and timestamps to Spark's functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from protocol.pgwire.errors import SqlState
from protocol.pgwire.types import PgType
from server.sql.expressions import Call, Expression, Literal, Parameter, SessionValue
from server.sql.functions import worker
from server.sql.functions.table import Let, fail, let, quote, refused_infinity
from server.sql.infinities import is_infinite, spark_is_infinite
from server.sql.render.spark_types import spark_type

PYTHON_CALL = "get(transform(array("


def python_call(key: str, texts: Sequence[str], type: PgType, digits: int) -> str:
    """A call of a Python UDF. It returns a value or an error; the error is raised where the value is used."""
    carrier = worker.carrier(type)
    call = f"{carrier.udf}({', '.join([quote(key), *texts])})"
    message = "IF(r.e IS NULL, r.v, raise_error(r.e))"
    value = f"{PYTHON_CALL}{call}), r -> {message}), 0)"  # transform makes the text contain the call only once
    return carrier.restored.replace("{t}", spark_type(type.element or type, digits)).replace("{0}", value)


def fill(template: str, texts: Sequence[str], marks: Mapping[str, str] | None = None) -> str:
    """Fills a template: {0}, {1}, ... are arguments, {*} is all of them joined by commas, {*:AND} joined by AND."""
    out, rest = [], template
    while True:
        before, brace, after = rest.partition("{")
        out.append(before)
        if not brace:
            return "".join(out)
        name, _, rest = after.partition("}")
        if name.isdigit():
            out.append(texts[int(name)])
        elif name.startswith("*"):
            out.append((f" {name[2:]} " if name[1:] else ", ").join(texts))
        else:
            out.append((marks or {})[name])


def plain_call(call: Call, texts: Sequence[str]) -> str:
    """The Spark SQL of a call for finite dates and timestamps; empty if the function has none for these arguments."""
    spark = call.function.spark
    return spark(call.arguments, texts) if callable(spark) else fill(spark or "", texts)


def may_be_infinite(argument: Expression) -> bool:
    """Whether a date or timestamp may be infinite. The clock and other literals are not."""
    if isinstance(argument, Literal):
        return argument.value is not None and is_infinite(argument.type, argument.value)
    return not isinstance(argument, SessionValue)


def infinite_or_finite(call: Call, texts: Sequence[str], guarded: Sequence[int]) -> str:
    """The Spark SQL of a call, in which the arguments at the positions `guarded` may be infinite.

    It evaluates each argument once. Empty if the function has no Spark SQL for these arguments.
    """
    if not plain_call(call, texts):
        return ""
    arguments = zip(call.arguments, texts, strict=True)
    # A lambda must not contain a Python UDF: the arguments are computed outside of it.
    bound = [i for i, (argument, text) in enumerate(arguments) if not _is_short(argument, text)]
    if not bound:
        return _by_rule(call, texts, guarded)

    def with_names(names: Mapping[int, str]) -> str:
        return _by_rule(call, [names.get(i, text) for i, text in enumerate(texts)], guarded)

    if len(bound) == 1:
        return let(texts[bound[0]], lambda name: with_names({bound[0]: name}), "t")
    fields = ", ".join(f"'t{i}', {texts[i]}" for i in bound)
    return let(f"named_struct({fields})", lambda name: with_names({i: f"{name}.t{i}" for i in bound}), "t")


def _is_short(argument: Expression, text: str) -> bool:
    """Whether the argument's text is a constant or the name of a column."""
    return text.isidentifier() or isinstance(argument, (Literal, Parameter, SessionValue))


def _by_rule(call: Call, texts: Sequence[str], guarded: Sequence[int]) -> str:
    function, arguments = call.function, call.arguments
    rule = function.infinite
    tests = [spark_is_infinite(arguments[i].type, texts[i]) for i in guarded]
    is_special = tests[0] if len(tests) == 1 else f"({' OR '.join(tests)})"
    if rule is None:
        refused = refused_infinity(function)
        special = fail(refused.sqlstate, refused.message)
    else:
        assert rule.spark is not None, function
        special = rule.spark(arguments, texts)
    is_absent = [f"{text} IS NULL" for i, text in enumerate(texts) if arguments[i].nullable and [*guarded] != [i]]
    if is_absent:
        special = f"IF({' OR '.join(is_absent)}, NULL, {special})"
    finite = list(texts)
    for i, test in zip(guarded, tests, strict=True):
        finite[i] = f"IF({test}, NULL, {texts[i]})"
    text = plain_call(call, texts)
    if not isinstance(text, Let):
        return f"IF({is_special}, {special}, {text})"
    # The value of a Let is computed for all rows, so that it must not fail for an infinite argument.
    text = plain_call(call, finite)
    assert isinstance(text, Let), text
    form = text.form
    return let(text.value, lambda name: f"IF({is_special}, {special}, {form(name)})")


def fit_length(text: str, type: PgType, assignment: bool) -> str:
    """varchar(n) and char(n): an explicit cast truncates; an assignment truncates only spaces, else raises 22001."""
    length = type.length
    fitted = f"substr({text}, 1, {length})"
    if assignment:
        refusal = fail(SqlState.STRING_DATA_RIGHT_TRUNCATION, f"value too long for type {type.display}")
        fitted = f"IF(rtrim(substr({text}, {(length or 0) + 1})) <> '', {refusal}, {fitted})"  # NULL fits
    if type.name == "bpchar":
        return f"rpad({fitted}, {length}, ' ')"
    return fitted
