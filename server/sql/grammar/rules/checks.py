"""CHECK, REFERENCES and generated columns in CREATE TABLE, and ALTER TABLE for CHECK constraints."""

from __future__ import annotations

from server.sql.grammar.statements.checks import AddCheck, AddReference, CheckConstraint, Reference, ValidateCheck
from server.sql.grammar.statements.parts import Expr, Ident, Name
from server.sql.grammar.token_reader import TokenReader


def parse_check(tokens: TokenReader, name: Ident | None) -> CheckConstraint:
    """CHECK (condition) [NO INHERIT] [NOT VALID]."""
    tokens.expect("check", "(")
    expression = tokens.expression()
    tokens.expect(")")
    tokens.take("no", "inherit")
    tokens.reject("a check constraint that is NOT ENFORCED", "enforced")
    return CheckConstraint(name, expression, not tokens.take("not", "valid"))


def parse_generation(tokens: TokenReader) -> Expr:
    """ALWAYS AS (expression) [STORED | VIRTUAL], after GENERATED."""
    tokens.expect("always", "as", "(")
    expression = tokens.expression()
    tokens.expect(")")
    if tokens.at("stored", "virtual"):
        tokens.advance()
    return expression


def parse_reference(tokens: TokenReader) -> Reference:
    """[FOREIGN KEY (columns)] REFERENCES table [(columns)] and its options."""
    columns: tuple[Ident, ...] = ()
    if tokens.take("foreign", "key"):
        columns = tokens.in_parentheses(tokens.ident)
    tokens.expect("references")
    reference = Reference(columns, tokens.name(), tokens.column_list())
    while True:
        if tokens.take("match"):
            tokens.choose("full", "partial", "simple")
        elif tokens.take("on"):
            tokens.choose("delete", "update")
            if tokens.take("set"):
                tokens.choose("null", "default")
                tokens.column_list()
            elif tokens.take("no"):
                tokens.expect("action")
            else:
                tokens.choose("cascade", "restrict")
        elif tokens.take("initially"):
            tokens.choose("deferred", "immediate")
        elif not (tokens.take("not", "deferrable") or tokens.take("deferrable") or tokens.take("not", "valid")):
            return reference


def at_rule(tokens: TokenReader) -> bool:
    """Whether ALTER TABLE adds a CHECK or FOREIGN KEY constraint: ADD [CONSTRAINT name] CHECK or FOREIGN."""
    if not tokens.at("add"):
        return False
    word = tokens.ahead(3) if tokens.at_all("add", "constraint") else tokens.ahead()
    following = tokens.ahead(4) if tokens.at_all("add", "constraint") else tokens.ahead(2)
    return (word.value, following.value) in (("check", "("), ("foreign", "key"))


def parse_add_rule(tokens: TokenReader, start: int, table: Name, if_exists: bool) -> AddCheck | AddReference:
    """ADD [CONSTRAINT name] CHECK (condition) [NOT VALID], or FOREIGN KEY."""
    tokens.expect("add")
    name = tokens.ident() if tokens.take("constraint") else None
    if tokens.at("foreign"):
        reference = parse_reference(tokens)
        return AddReference(*tokens.text_from(start), table, reference, if_exists)
    check = parse_check(tokens, name)
    return AddCheck(*tokens.text_from(start), table, check, if_exists)


def parse_validate_check(tokens: TokenReader, start: int, table: Name, if_exists: bool) -> ValidateCheck:
    """VALIDATE CONSTRAINT name."""
    tokens.expect("validate", "constraint")
    name = tokens.ident()
    return ValidateCheck(*tokens.text_from(start), table, name, if_exists)
