"""TABLESAMPLE: a random part of a table's rows."""

from __future__ import annotations

from zlib import crc32

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import FLOAT4, FLOAT8, INT8, TIMESTAMPTZ, UNKNOWN, PgType
from server.sql.bind.binder import Binder
from server.sql.coerce import EXPLICIT
from server.sql.expressions import Expression, Literal, SessionValue
from server.sql.relations import Relation, Sample, Scan
from server.sql.scope import Scope

METHODS = ("bernoulli", "system")


def sampled(binder: Binder, tree: exp.Expr, relation: Relation) -> Relation:
    """The sampled rows of a table in FROM. 42704, 2202H; 0A000 for arguments that are not constants.

    Both methods choose rows one by one. Without REPEATABLE each execution chooses others.
    """
    sample = tree.args["sample"]
    if binder.maintained:
        raise binder.unsupported(
            "TABLESAMPLE in a query whose result is kept up to date",
            tree,
            hint="Choose rows by a key, such as WHERE k % 100 = 0.",
        )
    if not isinstance(relation, Scan):
        message = "TABLESAMPLE clause can only be applied to tables and materialized views"
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, position=binder.at(tree))
    method = sample.args["method"].name.lower()
    if method not in METHODS:
        message = f"tablesample method {method} does not exist"
        raise PgError(SqlState.UNDEFINED_OBJECT, message, position=binder.at(tree))
    percent = _constant(binder, sample.args.get("percent") or sample.args.get("size"), FLOAT4, "parameter")
    if not 0 <= percent <= 100:
        raise PgError(SqlState.INVALID_TABLESAMPLE_ARGUMENT, "sample percentage must be between 0 and 100")
    seed: Expression = SessionValue("clock_timestamp", TIMESTAMPTZ)
    if sample.args.get("seed") is not None:
        value = _constant(binder, sample.args["seed"], FLOAT8, "REPEATABLE parameter")
        seed = Literal(crc32(repr(value).encode()), INT8)
    return Sample(relation, f"{percent:.9f}", seed)


def _constant(binder: Binder, tree: exp.Expr | None, type: PgType, what: str) -> float:
    if tree is None:
        raise binder.unsupported(
            "this form of TABLESAMPLE", tree, hint="Write TABLESAMPLE BERNOULLI (percent) or SYSTEM (percent)."
        )
    value = binder.expression(tree, Scope())
    if value.type == UNKNOWN or isinstance(value, Literal):
        value = binder.coerce(value, type, EXPLICIT, binder.at(tree))
    if not isinstance(value, Literal):
        raise binder.unsupported(f"a TABLESAMPLE {what} that is not a constant", tree, hint="Write it as a literal.")
    if value.value is None:
        raise PgError(SqlState.INVALID_TABLESAMPLE_ARGUMENT, f"TABLESAMPLE {what} cannot be null")
    return float(value.value)
