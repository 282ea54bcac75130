"""Statements that apply to several kinds of object: databases, schemas, and ALTER, DROP and COMMENT of any kind."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from protocol.pgwire.types import PgType
from server.sql.grammar.statements.parts import Definition, Ident, Name, Parsed
from server.sql.grammar.statements.roles import RoleName


class ObjectKind(StrEnum):
    """The kinds of object in CREATE, DROP, ALTER and SHOW CREATE. Catalog objects have the same `kind`."""

    DATABASE = "database"
    SCHEMA = "schema"
    TABLE = "table"
    VIEW = "view"
    MATERIALIZED_VIEW = "materialized view"
    INDEX = "index"
    HOLD = "hold"
    SOURCE = "source"
    CONNECTION = "connection"
    SECRET = "secret"
    SINK = "sink"
    SEQUENCE = "sequence"
    TYPE = "type"
    DOMAIN = "domain"


@dataclass(frozen=True, slots=True)
class DatabaseOption:
    """An option of CREATE DATABASE, with its name in lower case. value None: DEFAULT."""

    name: str
    value: str | None
    position: int


@dataclass(frozen=True, slots=True)
class CreateDatabase(Definition):
    tag = "CREATE DATABASE"

    name: Ident
    if_not_exists: bool
    options: tuple[DatabaseOption, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateSchema(Definition):
    """`name` None: the schema has the name of its owner. `owner`: AUTHORIZATION."""

    tag = "CREATE SCHEMA"

    name: Name | None
    if_not_exists: bool
    owner: RoleName | None = None


@dataclass(frozen=True, slots=True)
class CreateExtension(Parsed):
    """CREATE EXTENSION. Its options have no effect."""

    name: Ident
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class CommentOnExtension(Parsed):
    """COMMENT ON EXTENSION. The comment has no effect."""

    name: Ident


@dataclass(frozen=True, slots=True)
class DropObjects(Definition):
    """Database names have one part, schema names one or two.

    `restrict`: RESTRICT was written. It is the default, except that DROP DATABASE drops what is in the database, as in
    PostgreSQL. `force`: DROP DATABASE ... WITH (FORCE).
    """

    kind: ObjectKind
    names: tuple[Name, ...]
    if_exists: bool
    cascade: bool
    restrict: bool = False
    force: bool = False
    concurrently: bool = False

    @property
    def tag(self) -> str:
        return f"DROP {self.kind.upper()}"


@dataclass(frozen=True, slots=True)
class SignatureType:
    """A type in the signature of a function, operator or cast. `spelling`: as PostgreSQL's notices show it.

    `type` is a `NamedType` if it is not one of Tidewire's types; None: there is none, in `(NONE, integer)`.
    """

    type: PgType | None
    spelling: str


@dataclass(frozen=True, slots=True)
class NamedBuiltIn:
    """An object that DropBuiltIn names.

    `signature`: the types after the name; None if there are none. `on`: the table of a trigger, the access method of
    an operator class, or the language of a transform. A cast and a transform have no name.
    """

    name: Name | None
    signature: tuple[SignatureType, ...] | None = None
    on: Name | None = None


@dataclass(frozen=True, slots=True)
class DropBuiltIn(Parsed):
    """DROP of a kind of object that users cannot create, such as FUNCTION or TRIGGER.

    `kind` is in lower case. All objects of such a kind, if there are any, are built in.
    """

    kind: str
    objects: tuple[NamedBuiltIn, ...]
    if_exists: bool

    @property
    def tag(self) -> str:
        return f"DROP {self.kind.upper()}"


@dataclass(frozen=True, slots=True)
class AlterRename(Definition):
    kind: ObjectKind
    name: Name
    new_name: Ident
    if_exists: bool

    @property
    def tag(self) -> str:
        return f"ALTER {self.kind.upper()}"


@dataclass(frozen=True, slots=True)
class AlterSchema(Definition):
    """ALTER ... SET SCHEMA."""

    kind: ObjectKind
    name: Name
    schema: Ident
    if_exists: bool

    @property
    def tag(self) -> str:
        return f"ALTER {self.kind.upper()}"


@dataclass(frozen=True, slots=True)
class AlterOwner(Definition):
    """ALTER ... OWNER TO role."""

    kind: ObjectKind
    name: Name
    owner: RoleName
    if_exists: bool

    @property
    def tag(self) -> str:
        return f"ALTER {self.kind.upper()}"


@dataclass(frozen=True, slots=True)
class AlterRetention(Definition):
    """ALTER ... SET (RETAIN HISTORY FOR interval) or RESET (RETAIN HISTORY); `retain` None: RESET."""

    kind: ObjectKind
    name: Name
    retain: str | None
    if_exists: bool

    @property
    def tag(self) -> str:
        return f"ALTER {self.kind.upper()}"


@dataclass(frozen=True, slots=True)
class CommentOnConstraint(Definition):
    """COMMENT ON CONSTRAINT constraint ON table IS comment."""

    tag = "COMMENT"

    if_exists: ClassVar[bool] = False

    constraint: Ident
    table: Name
    comment: str | None


@dataclass(frozen=True, slots=True)
class CommentOn(Definition):
    """COMMENT ON kind name IS comment. `kind` None: a column; `name` is the relation's name and the column's."""

    tag = "COMMENT"

    if_exists: ClassVar[bool] = False

    kind: ObjectKind | None
    name: Name
    comment: str | None
