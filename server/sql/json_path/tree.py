"""The tree of a JSON path. `Node` is the union of its nodes; `PREDICATES` are those with a truth value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

LAST = -1  # in `AnyLevel`: the deepest level


@dataclass(frozen=True, slots=True)
class Path:
    """A whole path. `root` is an expression or a predicate."""

    root: Node
    is_lax: bool


@dataclass(frozen=True, slots=True)
class Value:
    """A literal: None, bool, Decimal or str."""

    value: Any


@dataclass(frozen=True, slots=True)
class Variable:
    name: str


@dataclass(frozen=True, slots=True)
class Root:
    """`$`"""


@dataclass(frozen=True, slots=True)
class Current:
    """`@`"""


@dataclass(frozen=True, slots=True)
class Last:
    """`last`, in a subscript."""


@dataclass(frozen=True, slots=True)
class Chain:
    """`start`, followed by accessors."""

    start: Node
    accessors: tuple[Accessor, ...]


@dataclass(frozen=True, slots=True)
class Unary:
    """`+` or `-`."""

    symbol: str
    operand: Node


@dataclass(frozen=True, slots=True)
class Binary:
    """`+`, `-`, `*`, `/` or `%`."""

    symbol: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Logical:
    """`&&` or `||`."""

    symbol: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Negation:
    operand: Node


@dataclass(frozen=True, slots=True)
class IsUnknown:
    operand: Node


@dataclass(frozen=True, slots=True)
class Comparison:
    """`symbol`: ==, !=, <, <=, > or >=."""

    symbol: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Exists:
    operand: Node


@dataclass(frozen=True, slots=True)
class StartsWith:
    operand: Node
    prefix: Node


@dataclass(frozen=True, slots=True)
class LikeRegex:
    """`flags`: those of PostgreSQL's regular expressions, not those that the path has."""

    operand: Node
    pattern: str
    flags: str


@dataclass(frozen=True, slots=True)
class Member:
    """`.key`"""

    key: str


@dataclass(frozen=True, slots=True)
class AnyMember:
    """`.*`"""


@dataclass(frozen=True, slots=True)
class AnyElement:
    """`[*]`"""


@dataclass(frozen=True, slots=True)
class AnyLevel:
    """`.**{first to last}`"""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Subscripts:
    """`[from to upto, ...]`; `upto` is None for a single subscript."""

    ranges: tuple[tuple[Node, Node | None], ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """`?(predicate)`"""

    predicate: Node


@dataclass(frozen=True, slots=True)
class Method:
    """`.name()`"""

    name: str


Accessor = Member | AnyMember | AnyElement | AnyLevel | Subscripts | Filter | Method
Predicate = Logical | Negation | IsUnknown | Comparison | Exists | StartsWith | LikeRegex
Node = Value | Variable | Root | Current | Last | Chain | Unary | Binary | Predicate
PREDICATES = (Logical, Negation, IsUnknown, Comparison, Exists, StartsWith, LikeRegex)
