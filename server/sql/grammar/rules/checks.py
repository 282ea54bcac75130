"""CHECK, REFERENCES and generated columns in CREATE TABLE and ALTER TABLE."""

from __future__ import annotations

from dataclasses import replace

from server.sql.grammar.statements.checks import CheckConstraint, Reference
from server.sql.grammar.statements.parts import Expr, Ident
from server.sql.grammar.token_reader import TokenReader


def parse_check(tokens: TokenReader, name: Ident | None) -> CheckConstraint:
    """CHECK (condition) [NO INHERIT] [NOT VALID]."""
    tokens.expect("check", "(")
    expression = tokens.expression()
    tokens.expect(")")
    tokens.take("no", "inherit")
    tokens.reject(
        "a check constraint that is NOT ENFORCED",
        "enforced",
        hint="Declare it NOT VALID: then only new rows are checked.",
    )
    return CheckConstraint(name, expression, not tokens.take("not", "valid"))


def parse_generation(tokens: TokenReader) -> Expr:
    """ALWAYS AS (expression) [STORED | VIRTUAL], after GENERATED."""
    tokens.expect("always", "as", "(")
    expression = tokens.expression()
    tokens.expect(")")
    if tokens.at("stored", "virtual"):
        tokens.advance()
    return expression


_ACTIONS = {"no": "a", "restrict": "r", "cascade": "c", "null": "n", "default": "d"}
_MATCHES = {"full": "f", "simple": "s"}


def parse_reference(tokens: TokenReader, name: Ident | None) -> Reference:
    """[FOREIGN KEY (columns)] REFERENCES table [(columns)] and its options."""
    columns: tuple[Ident, ...] = ()
    if tokens.take("foreign", "key"):
        columns = tokens.in_parentheses(tokens.ident)
    tokens.expect("references")
    reference = Reference(columns, tokens.name(), tokens.column_list(), name)
    while True:
        if tokens.take("match"):
            tokens.reject("MATCH PARTIAL", "partial", hint="Use MATCH SIMPLE or MATCH FULL.")
            reference = replace(reference, match=_MATCHES[tokens.choose("full", "simple")])
        elif tokens.take("on"):
            reference = _with_action(tokens, reference)
        elif tokens.take("initially"):
            deferred = tokens.choose("deferred", "immediate") == "deferred"
            reference = replace(reference, deferred=deferred, deferrable=reference.deferrable or deferred)
        elif tokens.take("deferrable"):
            reference = replace(reference, deferrable=True)
        elif tokens.take("not", "enforced"):
            reference = replace(reference, not_enforced=True)
        elif tokens.at("enforced"):
            raise tokens.not_supported("a foreign key that is ENFORCED", "Declare it NOT ENFORCED.")
        elif not (tokens.take("not", "deferrable") or tokens.take("not", "valid")):
            return reference


def _with_action(tokens: TokenReader, reference: Reference) -> Reference:
    """The action after ON: { DELETE | UPDATE } { NO ACTION | RESTRICT | CASCADE | SET { NULL | DEFAULT } }."""
    on_delete = tokens.choose("delete", "update") == "delete"
    is_set = tokens.take("set")
    action = tokens.choose("null", "default") if is_set else tokens.choose("no", "cascade", "restrict")
    if action == "no":
        tokens.expect("action")
    if not on_delete:
        if is_set:
            tokens.reject(f"a column list with SET {action.upper()} of ON UPDATE", "(", hint="Omit the column list.")
        return replace(reference, on_update=_ACTIONS[action])
    return replace(reference, on_delete=_ACTIONS[action], set_columns=tokens.column_list() if is_set else ())
