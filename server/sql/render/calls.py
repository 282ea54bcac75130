"""Spark SQL of calls: filled templates, calls of Python functions, and truncation to a type's length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from protocol.pgwire.errors import SqlState
from protocol.pgwire.types import PgType
from server.sql.functions import worker
from server.sql.functions.table import fail, quote
from server.sql.render.spark_types import spark_type

PYTHON_CALL = "get(transform(array("


def python_call(key: str, texts: Sequence[str], type: PgType, digits: int) -> str:
    """A call of a Python UDF. It returns a value or an error; the error is raised where the value is used."""
    carrier = worker.carrier(type)
    call = f"{carrier.udf}({', '.join([quote(key), *texts])})"
    message = "IF(r.e IS NULL, r.v, raise_error(r.e))"
    value = f"{PYTHON_CALL}{call}), r -> {message}), 0)"  # transform makes the text contain the call only once
    return carrier.restored.replace("{0}", value).replace("{t}", spark_type(type.element or type, digits))


def fill(template: str, texts: Sequence[str], marks: Mapping[str, str] | None = None) -> str:
    """Fills a template: {0}, {1}, ... are arguments, {*} is all of them joined by commas, {*:AND} joined by AND."""
    if "{*" in template:
        template = template.replace("{*}", ", ".join(texts))
        for word in ("AND", "OR"):
            if f"{{*:{word}}}" in template:
                template = template.replace(f"{{*:{word}}}", f" {word} ".join(texts))
        return template
    out, rest = [], template
    while True:
        before, brace, after = rest.partition("{")
        out.append(before)
        if not brace:
            return "".join(out)
        name, _, rest = after.partition("}")
        out.append(texts[int(name)] if name.isdigit() else (marks or {})[name])


def fit_length(text: str, type: PgType, assignment: bool) -> str:
    """varchar(n) and char(n): an explicit cast truncates; an assignment truncates only spaces, else raises 22001."""
    length = type.length
    fitted = f"substr({text}, 1, {length})"
    if assignment:
        refusal = fail(SqlState.STRING_DATA_RIGHT_TRUNCATION, f"value too long for type {type.display}")
        fitted = f"IF(rtrim(substr({text}, {(length or 0) + 1})) = '', {fitted}, {refusal})"
    if type.name == "bpchar":
        return f"rpad({fitted}, {length}, ' ')"
    return fitted
