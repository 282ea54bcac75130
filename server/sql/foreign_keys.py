"""FOREIGN KEY constraints as SQL text."""

from __future__ import annotations

from catalog.foreign_keys import ForeignKey
from server.sql.grammar.lexer import quote_identifier

_ACTIONS = {"r": "RESTRICT", "c": "CASCADE", "n": "SET NULL", "d": "SET DEFAULT"}


def foreign_key_text(key: ForeignKey, referenced: str) -> str:
    """The constraint as pg_get_constraintdef returns it. `referenced`: the name of the referenced table."""

    def names(columns: tuple[str, ...]) -> str:
        return f"({', '.join(map(quote_identifier, columns))})"

    parts = [f"FOREIGN KEY {names(key.columns)} REFERENCES {referenced}{names(key.others)}"]
    if key.match == "f":
        parts.append("MATCH FULL")
    if key.on_update in _ACTIONS:
        parts.append(f"ON UPDATE {_ACTIONS[key.on_update]}")
    if key.on_delete in _ACTIONS:
        parts.append(f"ON DELETE {_ACTIONS[key.on_delete]}")
    if key.set_columns:
        parts.append(names(key.set_columns))
    if key.deferrable:
        parts.append("DEFERRABLE")
    if key.deferred:
        parts.append("INITIALLY DEFERRED")
    parts.append("NOT ENFORCED")
    return " ".join(parts)
