"""Parts that several statements have, and the base classes of statements."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import PgType
from server.sql.grammar.refused_types import refused_type


def position_of(node: exp.Expr) -> int | None:
    """The error position (as in `PgError.position`) of the node's first token; None if no token has a position."""
    first: int | None
    if isinstance(node, exp.Literal):
        first = node.meta.get("start")
    else:
        first = min((found.meta["start"] for found in node.find_all(exp.Expr) if "start" in found.meta), default=None)
    return None if first is None else first + 1


@dataclass(frozen=True, slots=True)
class Ident:
    """A name that cannot be qualified, for example a column, a cursor or the new name in RENAME TO."""

    name: str
    position: int


@dataclass(frozen=True, slots=True)
class Name:
    """A name of one to three parts, `[[database.]schema.]name`."""

    parts: tuple[str, ...]
    position: int

    def __str__(self) -> str:
        """The name as PostgreSQL's messages quote it: `relation "s.t" does not exist`."""
        return ".".join(self.parts)


@dataclass(frozen=True)
class NamedType(PgType):
    """The name of a type that is not one of PostgreSQL's, before it is resolved. `position`: of the name."""

    parts: tuple[str, ...] = ()
    position: int | None = field(default=None, compare=False)
    is_array: bool = False

    @classmethod
    def of(cls, parts: tuple[str, ...], position: int | None, *, dimensions: int) -> NamedType:
        """`dimensions`: 0 if it is no array."""
        count = max(dimensions, 1)
        return cls("unresolved", 0, -1, dimensions=count, parts=parts, position=position, is_array=dimensions > 0)

    def __str__(self) -> str:
        return f"{'.'.join(self.parts)}{'[]' if self.is_array else ''}"

    def missing(self) -> PgError:
        """The error if there is no such type: 42704, or 0A000 for a type that only PostgreSQL has."""
        if self.parts[:-1] in ((), ("pg_catalog",)):
            refused = refused_type(self.parts[-1], self.position)
            if refused is not None:
                return refused
        return PgError(SqlState.UNDEFINED_OBJECT, f'type "{self}" does not exist', position=self.position)


@dataclass(frozen=True, slots=True)
class Query:
    """A SELECT, VALUES, WITH or set operation. `TABLE t` is parsed as `SELECT * FROM t`."""

    tree: exp.Expr
    text: str
    offset: int


@dataclass(frozen=True, slots=True)
class Expr:
    """A scalar expression; in RETURNING a select item, which may be an `exp.Alias` or an `exp.Star`."""

    tree: exp.Expr
    text: str
    offset: int

    @property
    def position(self) -> int:
        return self.offset + 1


# Names are lower case, in the order written. Value None: no value given; a tuple: a parenthesised list or column names.
Options = tuple[tuple[str, str | tuple[str, ...] | None], ...]


@dataclass(frozen=True, slots=True)
class Parsed:
    """The base class of statements: the slice of the client's text, without the semicolon, and its offset."""

    text: str
    offset: int


class Definition(Parsed):
    """A statement that changes the catalog."""

    __slots__ = ()

    @property
    def tag(self) -> str:
        """The command tag. Messages also use it to name the statement."""
        raise NotImplementedError
