"""Every statement that Tidewire knows: a closed set of frozen dataclasses, `Statement` at the end names them all.

`parse.py` makes them; the session and the planner `match` on their classes and end with `assert_never`.
A statement holds what was written and nothing that must be looked up: names are not resolved, columns not checked.

- Names are folded (unquoted: lower case), unquoted and cut to 63 bytes, as PostgreSQL's lexer gives them.
- `position` is an error position: the 1-based index, in characters, into the whole text the client sent.
- `text` and `offset` (0-based) are a node's own slice of that text: `whole[offset:offset + len(text)] == text`.
- The query or expression inside is sqlglot's tree. Its identifiers are folded already, and
  `position_of(identifier)` gives where in the whole text they stand.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from sqlglot import exp

from protocol.pgwire.types import PgType
from server.sql.literal_rows import LiteralRows


def position_of(node: exp.Expr) -> int | None:
    """Where the first token of `node` that has a position stands in the whole text, as `PgError.position` counts."""
    first: int | None
    if isinstance(node, exp.Literal):
        first = node.meta.get("start")
    else:
        first = min((found.meta["start"] for found in node.find_all(exp.Expr) if "start" in found.meta), default=None)
    return None if first is None else first + 1


class ObjectKind(StrEnum):
    """What CREATE, DROP, ALTER and SHOW CREATE name; the catalog's nouns have the same `kind`."""

    DATABASE = "database"
    SCHEMA = "schema"
    TABLE = "table"
    VIEW = "view"
    MATERIALIZED_VIEW = "materialized view"
    INDEX = "index"
    HOLD = "hold"


class ShowKind(StrEnum):
    """What `SHOW <kind>` lists."""

    DATABASES = "databases"
    SCHEMAS = "schemas"
    TABLES = "tables"
    VIEWS = "views"
    MATERIALIZED_VIEWS = "materialized views"
    INDEXES = "indexes"
    HOLDS = "holds"
    CLUSTERS = "clusters"
    OBJECTS = "objects"
    ROLES = "roles"
    PRIVILEGES = "privileges"
    SOURCES = "sources"
    SINKS = "sinks"


# -- parts of statements --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ident:
    """One name that cannot be qualified: a column, a cursor, a new name."""

    name: str
    position: int


@dataclass(frozen=True, slots=True)
class Name:
    """A name of one to three parts, `[[database.]schema.]name`."""

    parts: tuple[str, ...]
    position: int

    def __str__(self) -> str:
        """As PostgreSQL's messages write it inside their quotes: `relation "s.t" does not exist`."""
        return ".".join(self.parts)


class SpecialRole(StrEnum):
    """Words that stand for a role. CURRENT_ROLE is CURRENT_USER."""

    CURRENT_USER = "current_user"
    SESSION_USER = "session_user"
    PUBLIC = "public"


@dataclass(frozen=True, slots=True)
class RoleName:
    """A role by its name, or by a word."""

    name: str
    position: int
    special: SpecialRole | None = None


@dataclass(frozen=True, slots=True)
class RoleAttributes:
    """Of CREATE ROLE and ALTER ROLE. None: not said."""

    superuser: bool | None = None
    inherit: bool | None = None
    login: bool | None = None
    create_db: bool | None = None


class GrantKind(StrEnum):
    """What privileges are granted on. A table may be any relation."""

    TABLE = "table"
    TABLES_IN_SCHEMA = "all tables in schema"
    SCHEMA = "schema"
    DATABASE = "database"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class Query:
    """A SELECT, VALUES, WITH or set operation; `TABLE t` has become `SELECT * FROM t`."""

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


@dataclass(frozen=True, slots=True)
class AsOf:
    """AS OF [AT LEAST] time."""

    time: Expr
    at_least: bool


@dataclass(frozen=True, slots=True)
class Assignment:
    """`column = value` of UPDATE; value None is DEFAULT."""

    column: Ident
    value: Expr | None


@dataclass(frozen=True, slots=True)
class RowAssignment:
    """`(columns) = (query)` of UPDATE."""

    columns: tuple[Ident, ...]
    query: Query


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """A column of CREATE TABLE. `not_null` is also set by a PRIMARY KEY over the column, wherever that is written."""

    name: Ident
    type: PgType
    not_null: bool
    default: Expr | None


@dataclass(frozen=True, slots=True)
class Key:
    """A PRIMARY KEY or UNIQUE constraint, of the column or of the table."""

    columns: tuple[Ident, ...]
    primary: bool


@dataclass(frozen=True, slots=True)
class TransactionModes:
    """None: not said. `isolation` is `serializable`, `repeatable read`, `read committed` or `read uncommitted`,
    or Materialize's `strict serializable` or `strong session serializable`."""

    isolation: str | None = None
    read_only: bool | None = None
    deferrable: bool | None = None


@dataclass(frozen=True, slots=True)
class EnvelopeUpsert:
    """ENVELOPE UPSERT (KEY (keys))."""

    keys: tuple[Ident, ...]


@dataclass(frozen=True, slots=True)
class EnvelopeDebezium:
    """ENVELOPE DEBEZIUM (KEY (keys))."""

    keys: tuple[Ident, ...]


@dataclass(frozen=True, slots=True)
class WithinTimestampOrderBy:
    """WITHIN TIMESTAMP ORDER BY terms; each tree is an `exp.Ordered`."""

    terms: tuple[Expr, ...]


Output = EnvelopeUpsert | EnvelopeDebezium | WithinTimestampOrderBy
# Names in lower case, in the order written; None: no value given; a tuple: a list in parentheses, or of column names.
Options = tuple[tuple[str, str | tuple[str, ...] | None], ...]


# -- statements -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parsed:
    """What every statement has: its own slice of the client's text, without the semicolon, and where that begins."""

    text: str
    offset: int


@dataclass(frozen=True, slots=True)
class Select(Parsed):
    """SELECT, VALUES, WITH ... SELECT, TABLE t, [AS OF ...]."""

    query: Query
    as_of: AsOf | None = None


@dataclass(frozen=True, slots=True)
class Insert(Parsed):
    """`columns` empty: all, in order. `source` None is DEFAULT VALUES. DEFAULT inside VALUES is an `exp.Var`.

    `rows`: all rows of a statement that inserts many rows of literals; `source` is then the first of them.
    """

    table: Name
    alias: Ident | None
    columns: tuple[Ident, ...]
    source: Query | None
    returning: tuple[Expr, ...]
    rows: LiteralRows | None = None


@dataclass(frozen=True, slots=True)
class Update(Parsed):
    """UPDATE table SET assignments FROM others WHERE ...; `others` is a SELECT without columns."""

    table: Name
    alias: Ident | None
    assignments: tuple[Assignment | RowAssignment, ...]
    where: Expr | None
    returning: tuple[Expr, ...]
    others: Query | None = None


@dataclass(frozen=True, slots=True)
class Delete(Parsed):
    """DELETE FROM table USING others WHERE ...; `others` is a SELECT without columns."""

    table: Name
    alias: Ident | None
    where: Expr | None
    returning: tuple[Expr, ...]
    others: Query | None = None


@dataclass(frozen=True, slots=True)
class Truncate(Parsed):
    tables: tuple[Name, ...]


@dataclass(frozen=True, slots=True)
class CopyFrom(Parsed):
    """COPY table (columns) FROM STDIN. Options of both of PostgreSQL's syntaxes come in the form of the newer."""

    table: Name
    columns: tuple[Ident, ...]
    options: Options


@dataclass(frozen=True, slots=True)
class CopyRelation:
    """COPY relation (columns) TO STDOUT."""

    relation: Name
    columns: tuple[Ident, ...]


@dataclass(frozen=True, slots=True)
class CopyTo(Parsed):
    """COPY relation or (statement) TO STDOUT."""

    source: CopyRelation | Select | Insert | Update | Delete | Subscribe
    options: Options


class Definition(Parsed):
    """A statement that changes the catalog."""

    __slots__ = ()
    tag: ClassVar[str]
    """The command tag, which is also how messages name the statement."""


@dataclass(frozen=True, slots=True)
class CreateDatabase(Definition):
    tag = "CREATE DATABASE"

    name: Ident
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class CreateSchema(Definition):
    tag = "CREATE SCHEMA"

    name: Name
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class CreateTable(Definition):
    """`retain`, as of the other statements that have it, is the text of the interval of RETAIN HISTORY FOR."""

    tag = "CREATE TABLE"

    name: Name
    columns: tuple[ColumnDefinition, ...]
    keys: tuple[Key, ...]
    if_not_exists: bool
    retain: str | None = None


@dataclass(frozen=True, slots=True)
class CreateView(Definition):
    tag = "CREATE VIEW"

    name: Name
    columns: tuple[Ident, ...]
    query: Query
    or_replace: bool
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class CreateMaterializedView(Definition):
    tag = "CREATE MATERIALIZED VIEW"

    name: Name
    columns: tuple[Ident, ...]
    query: Query
    or_replace: bool
    if_not_exists: bool
    retain: str | None = None


@dataclass(frozen=True, slots=True)
class CreateIndex(Definition):
    """CREATE INDEX [name] ON relation (keys). `keys` empty: CREATE DEFAULT INDEX."""

    tag = "CREATE INDEX"

    name: Ident | None
    on: Name
    keys: tuple[Expr, ...]
    if_not_exists: bool
    retain: str | None = None


@dataclass(frozen=True, slots=True)
class CreateHold(Definition):
    """CREATE HOLD name ON objects [AT time] [WITH (MAX LAG = interval)]."""

    tag = "CREATE HOLD"

    name: Name
    on: tuple[Name, ...]
    at: Expr | None
    max_lag: Expr | None
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class AdvanceHold(Parsed):
    """ALTER HOLD name ADVANCE [TO time]. It moves a hold and defines nothing."""

    name: Name
    to: Expr | None
    if_exists: bool


@dataclass(frozen=True, slots=True)
class DropObjects(Definition):
    """Database names have one part, schema names one or two."""

    kind: ObjectKind
    names: tuple[Name, ...]
    if_exists: bool
    cascade: bool

    @property
    def tag(self) -> str:  # type: ignore[override]
        return f"DROP {self.kind.upper()}"


@dataclass(frozen=True, slots=True)
class AlterRename(Definition):
    kind: ObjectKind
    name: Name
    new_name: Ident
    if_exists: bool

    @property
    def tag(self) -> str:  # type: ignore[override]
        return f"ALTER {self.kind.upper()}"


@dataclass(frozen=True, slots=True)
class AlterOwner(Definition):
    """ALTER ... OWNER TO role."""

    kind: ObjectKind
    name: Name
    owner: RoleName
    if_exists: bool

    @property
    def tag(self) -> str:  # type: ignore[override]
        return f"ALTER {self.kind.upper()}"


@dataclass(frozen=True, slots=True)
class AlterRetention(Definition):
    """ALTER ... SET (RETAIN HISTORY FOR interval) or RESET (RETAIN HISTORY); `retain` None: RESET."""

    kind: ObjectKind
    name: Name
    retain: str | None
    if_exists: bool

    @property
    def tag(self) -> str:  # type: ignore[override]
        return f"ALTER {self.kind.upper()}"


@dataclass(frozen=True, slots=True)
class CreateRole(Definition):
    """CREATE ROLE, and CREATE USER, which may log in. `groups`: IN ROLE; `members`: ROLE."""

    tag = "CREATE ROLE"

    name: RoleName
    attributes: RoleAttributes
    groups: tuple[RoleName, ...]
    members: tuple[RoleName, ...]
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class AlterRole(Definition):
    tag = "ALTER ROLE"

    name: RoleName
    attributes: RoleAttributes


@dataclass(frozen=True, slots=True)
class RenameRole(Definition):
    tag = "ALTER ROLE"

    name: RoleName
    new_name: RoleName


@dataclass(frozen=True, slots=True)
class DropRoles(Definition):
    tag = "DROP ROLE"

    names: tuple[RoleName, ...]
    if_exists: bool


@dataclass(frozen=True, slots=True)
class GrantRoles(Definition):
    """GRANT roles TO members, or with `revoke` REVOKE roles FROM members."""

    roles: tuple[RoleName, ...]
    members: tuple[RoleName, ...]
    revoke: bool

    @property
    def tag(self) -> str:  # type: ignore[override]
        return "REVOKE ROLE" if self.revoke else "GRANT ROLE"


@dataclass(frozen=True, slots=True)
class GrantPrivileges(Definition):
    """GRANT privileges ON objects TO grantees, or with `revoke` REVOKE ... FROM. `privileges` None: ALL."""

    privileges: tuple[Ident, ...] | None
    kind: GrantKind
    objects: tuple[Name, ...]
    grantees: tuple[RoleName, ...]
    revoke: bool

    @property
    def tag(self) -> str:  # type: ignore[override]
        return "REVOKE" if self.revoke else "GRANT"


@dataclass(frozen=True, slots=True)
class ReassignOwned(Definition):
    """REASSIGN OWNED BY roles TO owner."""

    tag = "REASSIGN OWNED"

    roles: tuple[RoleName, ...]
    owner: RoleName


@dataclass(frozen=True, slots=True)
class DropOwned(Definition):
    """DROP OWNED BY roles."""

    tag = "DROP OWNED"

    roles: tuple[RoleName, ...]
    cascade: bool


@dataclass(frozen=True, slots=True)
class SetRole(Parsed):
    """SET [LOCAL] ROLE name. `name` None: NONE or DEFAULT."""

    name: str | None
    local: bool


@dataclass(frozen=True, slots=True)
class CommentOn(Definition):
    """COMMENT ON kind name IS comment; `kind` None: a column, whose name ends that of its relation."""

    tag = "COMMENT"

    if_exists: ClassVar[bool] = False

    kind: ObjectKind | None
    name: Name
    comment: str | None


@dataclass(frozen=True, slots=True)
class Begin(Parsed):
    """BEGIN or START TRANSACTION; `tag` is the command tag, which differs."""

    modes: TransactionModes
    tag: str


@dataclass(frozen=True, slots=True)
class Commit(Parsed):
    """COMMIT or END."""


@dataclass(frozen=True, slots=True)
class Rollback(Parsed):
    """ROLLBACK or ABORT."""


@dataclass(frozen=True, slots=True)
class Savepoint(Parsed):
    """SAVEPOINT and its family. Tidewire has none; the session says so, in whatever state the transaction is.

    `verb` is `SAVEPOINT`, `RELEASE SAVEPOINT` or `ROLLBACK TO SAVEPOINT`.
    """

    verb: str
    name: Ident


@dataclass(frozen=True, slots=True)
class Prepare(Parsed):
    """`types` are of the first parameters; the planner infers the others."""

    name: Ident
    types: tuple[PgType, ...]
    statement: Select | Insert | Update | Delete


@dataclass(frozen=True, slots=True)
class Execute(Parsed):
    name: Ident
    arguments: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Deallocate(Parsed):
    """name None: ALL."""

    name: Ident | None


@dataclass(frozen=True, slots=True)
class SetVariable(Parsed):
    """SET [LOCAL] name = values; `is_default` is TO DEFAULT, without values.

    SET TIME ZONE, SET NAMES and SET SCHEMA come as `timezone`, `client_encoding` and `search_path`.
    """

    name: str
    values: tuple[str, ...]
    local: bool
    is_default: bool


@dataclass(frozen=True, slots=True)
class AlterSystem(Definition):
    """ALTER SYSTEM SET name = values, or RESET; `values` None: RESET, `name` None: ALL."""

    tag = "ALTER SYSTEM"

    name: str | None
    values: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class SetTransaction(Parsed):
    """SET TRANSACTION modes, or with `session` SET SESSION CHARACTERISTICS AS TRANSACTION modes."""

    modes: TransactionModes
    session: bool


@dataclass(frozen=True, slots=True)
class ResetVariable(Parsed):
    """name None: ALL."""

    name: str | None


@dataclass(frozen=True, slots=True)
class ShowVariable(Parsed):
    """name None: ALL. SHOW TRANSACTION ISOLATION LEVEL and SHOW TIME ZONE come by the names of their variables."""

    name: str | None


@dataclass(frozen=True, slots=True)
class ShowObjects(Parsed):
    """SHOW TABLES [FROM schema] [LIKE pattern] and so on; `on` is the relation of SHOW INDEXES ON."""

    kind: ShowKind
    schema: Name | None
    on: Name | None
    like: str | None


@dataclass(frozen=True, slots=True)
class ShowColumns(Parsed):
    relation: Name
    like: str | None


@dataclass(frozen=True, slots=True)
class ShowCreate(Parsed):
    kind: ObjectKind
    name: Name


@dataclass(frozen=True, slots=True)
class Discard(Parsed):
    """target: `ALL`, `PLANS`, `SEQUENCES` or `TEMP`."""

    target: str


@dataclass(frozen=True, slots=True)
class Subscribe(Parsed):
    """SUBSCRIBE [TO] source; without options there are no progress rows, and a snapshot."""

    source: Name | Query | ShowStatement
    output: Output | None
    progress: bool
    snapshot: bool
    as_of: AsOf | None
    up_to: Expr | None


class ExplainStage(StrEnum):
    """What EXPLAIN shows; without one of these a summary."""

    RAW = "raw"
    OPTIMIZED = "optimized"
    PHYSICAL = "physical"
    SPARK = "spark"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """VIEW, MATERIALIZED VIEW or INDEX name, where EXPLAIN takes a query."""

    kind: ObjectKind
    name: Name


Explained = (
    Select
    | Insert
    | Update
    | Delete
    | Subscribe
    | CreateView
    | CreateMaterializedView
    | CreateIndex
    | Execute
    | StoredQuery
)


@dataclass(frozen=True, slots=True)
class Explain(Parsed):
    """EXPLAIN [ANALYZE] [(options)] statement, EXPLAIN stage PLAN [WITH (options)] FOR statement.

    `verbose`: with what operators ask of Spark. `no_timing`: ANALYZE without the times of steps. `summary`: how long
    planning, and with ANALYZE execution, took.
    `spark_mode`: of Spark's own EXPLAIN, None for the simple one.
    """

    statement: Explained
    stage: ExplainStage | None
    analyze: bool
    verbose: bool
    no_timing: bool
    summary: bool
    json: bool
    spark_mode: str | None


@dataclass(frozen=True, slots=True)
class Declare(Parsed):
    """DECLARE name CURSOR [WITHOUT HOLD] FOR statement."""

    name: Ident
    statement: Select | Subscribe | ShowStatement


@dataclass(frozen=True, slots=True)
class Fetch(Parsed):
    """count None: ALL. `timeout` is the text of an interval."""

    cursor: Ident
    count: int | None
    timeout: str | None


@dataclass(frozen=True, slots=True)
class CloseCursor(Parsed):
    """name None: ALL."""

    name: Ident | None


@dataclass(frozen=True, slots=True)
class Unlisten(Parsed):
    """UNLISTEN: nothing to do, since LISTEN is refused; connection pools send it."""


ShowStatement = ShowVariable | ShowObjects | ShowColumns | ShowCreate
Statement = (
    Select
    | Insert
    | Update
    | Delete
    | Truncate
    | CopyFrom
    | CopyTo
    | CreateDatabase
    | CreateSchema
    | CreateTable
    | CreateView
    | CreateMaterializedView
    | CreateIndex
    | CreateHold
    | AdvanceHold
    | DropObjects
    | AlterRename
    | AlterOwner
    | AlterRetention
    | CommentOn
    | AlterSystem
    | CreateRole
    | AlterRole
    | RenameRole
    | DropRoles
    | GrantRoles
    | GrantPrivileges
    | ReassignOwned
    | DropOwned
    | Begin
    | Commit
    | Rollback
    | Savepoint
    | Prepare
    | Execute
    | Deallocate
    | SetVariable
    | SetRole
    | SetTransaction
    | ResetVariable
    | ShowStatement
    | Discard
    | Subscribe
    | Explain
    | Declare
    | Fetch
    | CloseCursor
    | Unlisten
)
