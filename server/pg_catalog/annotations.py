"""Annotations of the nodes of a query, which the rewrite reads when it has already changed a node's operands.

They are determined from the types of the unchanged query, and are in `meta` of each node.
"""

from __future__ import annotations

from sqlglot import exp

from server.pg_catalog.outputs import NAME, VECTORS, Types
from server.pg_catalog.types import type_name
from server.sql.grammar.lexer import words

ARRAY, COUNTS_FROM_0, IS_TEXT, IS_XID = "array", "from_0", "text", "xid"
"""The keys of annotations: the type of the array that a node has as an operand, whether the subscripts of that array
begin at 0, whether the operand is a text that names an object, and whether it is a transaction id."""
OF_VECTORS = words("array_lower array_upper array_length array_ndims array_dims array_position")
"""Functions of arrays with another result for a vector."""
OF_RELATIONS = words(
    "pg_relation_filenode pg_get_viewdef "
    "pg_relation_size pg_table_size pg_total_relation_size pg_indexes_size "
    "pg_relation_is_updatable pg_column_is_updatable row_security_active"
)
"""Functions whose first argument is a regclass, so that a string there is the name of a relation."""
TEXT_TYPES = words("text varchar name character_data sql_identifier")
FOUND_BY_NAME = words("regclass regnamespace regrole regtype")
"""Registered types to which a text that is no constant can be cast."""


def annotate(tree: exp.Expr, types: Types) -> None:
    """Annotates all nodes of a tree, which must be unchanged."""
    for node in tree.walk():
        _note_array(node, types)
        _note_text(node, types)
        _note_xid(node, types)


def _note_array(node: exp.Expr, types: Types) -> None:
    """Records the type of the array that a node has as an operand."""
    match node:
        case exp.Bracket() | exp.Cast():
            arrays = [node.this]
        case exp.EQ() | exp.NEQ():
            arrays = [node.this, node.expression]
        case exp.Case():
            arrays = [node]
        case exp.Anonymous() if node.name.lower() == "coalesce":
            arrays = [node]
        case exp.Anonymous() if node.expressions and node.name.lower() in (*OF_VECTORS, "generate_subscripts"):
            arrays = [node.expressions[0]]
        case _:
            return
    for array in arrays:
        type = types.type_of(array)
        if type is not None and (
            type in VECTORS or (type == NAME and isinstance(node, exp.Bracket)) or type.endswith("[]")
        ):
            node.meta[ARRAY] = type
            node.meta[COUNTS_FROM_0] = types.counts_from_0(array)


def _note_text(node: exp.Expr, types: Types) -> None:
    """Records whether the operand is a text that names an object."""
    match node:
        case exp.Cast() if type_name(node.to) in FOUND_BY_NAME:
            node.meta[IS_TEXT] = _is_text(node.this, types)
        case exp.Anonymous() if node.expressions and node.name.lower() in OF_RELATIONS:
            node.meta[IS_TEXT] = _is_text(node.expressions[0], types)


def _note_xid(node: exp.Expr, types: Types) -> None:
    """Records whether the argument of age() is a transaction id."""
    if isinstance(node, exp.Anonymous) and node.name.lower() == "age" and len(node.expressions) == 1:
        node.meta[IS_XID] = types.type_of(node.expressions[0]) == "xid"


def _is_text(tree: exp.Expr, types: Types) -> bool:
    """Whether an expression other than a literal or parameter has a text type."""
    tree = tree.unnest()
    if isinstance(tree, exp.Select) and len(tree.expressions) == 1:  # the only column of a subquery
        selected = tree.expressions[0].unalias()
        return (isinstance(selected, exp.Literal) and selected.is_string) or _is_text(selected, types)
    if isinstance(tree, exp.Cast):
        return type_name(tree.to) in TEXT_TYPES and not isinstance(tree.this, exp.Literal | exp.Parameter)
    if isinstance(tree, exp.Anonymous) and tree.name.lower() in ("concat", "format", "quote_ident"):
        return True
    return isinstance(tree, exp.DPipe) or types.type_of(tree) in TEXT_TYPES
