"""The statements that Tidewire parses: a closed set of frozen dataclasses. `Statement` is their union.

`parse.py` creates them. The session and the planner `match` on their classes and end with `assert_never`.
A statement holds only what the text says: names are not resolved and columns are not checked.

- Names are folded to lower case (if unquoted), unquoted and truncated to 63 bytes, as PostgreSQL's lexer does.
- `position` is an error position: the 1-based index, in characters, into the whole text that the client sent.
- `text` and `offset` (0-based) are a node's own slice of that text: `whole[offset:offset + len(text)] == text`.
- Queries and expressions are sqlglot trees. Their identifiers are already folded, and `position_of(identifier)`
  returns their position in the whole text.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from sqlglot import exp

from protocol.pgwire.types import PgType
from server.sql.grammar.literal_rows import LiteralRows


def position_of(node: exp.Expr) -> int | None:
    """The error position (as in `PgError.position`) of the node's first token; None if no token has a position."""
    first: int | None
    if isinstance(node, exp.Literal):
        first = node.meta.get("start")
    else:
        first = min((found.meta["start"] for found in node.find_all(exp.Expr) if "start" in found.meta), default=None)
    return None if first is None else first + 1


class ObjectKind(StrEnum):
    """The kinds of object in CREATE, DROP, ALTER and SHOW CREATE. Catalog objects have the same `kind`."""

    DATABASE = "database"
    SCHEMA = "schema"
    TABLE = "table"
    VIEW = "view"
    MATERIALIZED_VIEW = "materialized view"
    INDEX = "index"
    HOLD = "hold"


class ShowKind(StrEnum):
    """The kinds of object that SHOW lists."""

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


class SpecialRole(StrEnum):
    """Keywords that denote a role. CURRENT_ROLE is parsed as CURRENT_USER."""

    CURRENT_USER = "current_user"
    SESSION_USER = "session_user"
    PUBLIC = "public"


@dataclass(frozen=True, slots=True)
class RoleName:
    """A role, given by its name or by a keyword (`special`)."""

    name: str
    position: int
    special: SpecialRole | None = None


@dataclass(frozen=True, slots=True)
class RoleAttributes:
    """The attributes in CREATE ROLE and ALTER ROLE. None: not specified."""

    superuser: bool | None = None
    inherit: bool | None = None
    login: bool | None = None
    create_db: bool | None = None


class GrantKind(StrEnum):
    """The kinds of object in GRANT ON and REVOKE ON. TABLE includes every kind of relation."""

    TABLE = "table"
    TABLES_IN_SCHEMA = "all tables in schema"
    SCHEMA = "schema"
    DATABASE = "database"
    CLUSTER = "cluster"


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
    """A column of CREATE TABLE. `not_null` is also set by a PRIMARY KEY over it, as column or table constraint."""

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
    """None: not specified. `isolation` is `serializable`, `repeatable read`, `read committed` or `read uncommitted`,
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
# Names are lower case, in the order written. Value None: no value given; a tuple: a parenthesised list or column names.
Options = tuple[tuple[str, str | tuple[str, ...] | None], ...]


# -- statements -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parsed:
    """The base class of statements: the slice of the client's text, without the semicolon, and its offset."""

    text: str
    offset: int


@dataclass(frozen=True, slots=True)
class Select(Parsed):
    """SELECT, VALUES, WITH ... SELECT, TABLE t, [AS OF ...]."""

    query: Query
    as_of: AsOf | None = None


@dataclass(frozen=True, slots=True)
class Insert(Parsed):
    """`columns` empty: all columns, in order. `source` None is DEFAULT VALUES. DEFAULT inside VALUES is an `exp.Var`.

    `rows`: all rows of an INSERT of many literal rows; `source` then holds only the first row.
    """

    table: Name
    alias: Ident | None
    columns: tuple[Ident, ...]
    source: Query | None
    returning: tuple[Expr, ...]
    rows: LiteralRows | None = None


@dataclass(frozen=True, slots=True)
class Update(Parsed):
    """UPDATE table SET assignments FROM others WHERE ...; `others` is a SELECT without a select list."""

    table: Name
    alias: Ident | None
    assignments: tuple[Assignment | RowAssignment, ...]
    where: Expr | None
    returning: tuple[Expr, ...]
    others: Query | None = None


@dataclass(frozen=True, slots=True)
class Delete(Parsed):
    """DELETE FROM table USING others WHERE ...; `others` is a SELECT without a select list."""

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
    """COPY table (columns) FROM STDIN. Options in PostgreSQL's old syntax are converted to those of the new syntax."""

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
    """The command tag. Messages also use it to name the statement."""


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
    """`retain`, here and in other statements, is the text of the interval in RETAIN HISTORY FOR."""

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
    """ALTER HOLD name ADVANCE [TO time]. It advances a hold and does not change a definition."""

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
    """CREATE ROLE, or CREATE USER, which implies LOGIN. `groups`: IN ROLE; `members`: ROLE."""

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
    """COMMENT ON kind name IS comment. `kind` None: a column; `name` is the relation's name and the column's."""

    tag = "COMMENT"

    if_exists: ClassVar[bool] = False

    kind: ObjectKind | None
    name: Name
    comment: str | None


@dataclass(frozen=True, slots=True)
class Begin(Parsed):
    """BEGIN or START TRANSACTION; `tag` is the command tag, which differs between the two."""

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
    """SAVEPOINT, RELEASE SAVEPOINT or ROLLBACK TO SAVEPOINT. Not supported: the session raises 0A000.

    `verb` is `SAVEPOINT`, `RELEASE SAVEPOINT` or `ROLLBACK TO SAVEPOINT`.
    """

    verb: str
    name: Ident


@dataclass(frozen=True, slots=True)
class Prepare(Parsed):
    """`types` are the types of the first parameters; the planner infers the types of the others."""

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

    SET TIME ZONE, SET NAMES and SET SCHEMA set `timezone`, `client_encoding` and `search_path`.
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
    """name None: ALL. SHOW TRANSACTION ISOLATION LEVEL and SHOW TIME ZONE have the names of their variables."""

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
    """SUBSCRIBE [TO] source. The defaults are `progress` false and `snapshot` true."""

    source: Name | Query | ShowStatement
    output: Output | None
    progress: bool
    snapshot: bool
    as_of: AsOf | None
    up_to: Expr | None


class ExplainStage(StrEnum):
    """The stage that EXPLAIN shows. Without a stage, EXPLAIN shows a summary."""

    RAW = "raw"
    OPTIMIZED = "optimized"
    PHYSICAL = "physical"
    SPARK = "spark"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """VIEW, MATERIALIZED VIEW or INDEX name as the object of EXPLAIN."""

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

    `verbose`: includes the Spark SQL of operators. `no_timing`: ANALYZE without the times of steps. `summary`: includes
    the planning time and, with ANALYZE, the execution time.
    `spark_mode`: the mode of Spark's own EXPLAIN; None for the simple mode.
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
    """UNLISTEN. It has no effect, because LISTEN is not supported. Connection pools send it."""


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
