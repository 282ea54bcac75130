"""The statements that Tidewire parses: a closed set of frozen dataclasses, in a module for each family.

`Statement` is their union. Code that handles many families, such as the dispatcher, uses the names that this module
exports. Other code imports from the module of the family, and the parts that families share from `parts`.
`server.sql.grammar.rules` has a module of the same name for each family; it creates the statements. The session and the
planner `match` on their classes and end with `assert_never`. A statement holds only what the text says: names are not
resolved and columns are not checked.

- Names are folded to lower case (if unquoted), unquoted and truncated to 63 bytes, as PostgreSQL's lexer does.
- `position` is an error position: the 1-based index, in characters, into the whole text that the client sent.
- `text` and `offset` (0-based) are a node's own slice of that text: `whole[offset:offset + len(text)] == text`.
- Queries and expressions are sqlglot trees. Their identifiers are already folded, and `parts.position_of(identifier)`
  returns their position in the whole text.
"""

from __future__ import annotations

from server.sql.grammar.statements.alter_table import AlterTable, RenameColumn
from server.sql.grammar.statements.blocks import DoBlock
from server.sql.grammar.statements.copy import CopyFrom, CopyTo
from server.sql.grammar.statements.cursors import CloseCursor, Declare, Fetch, Move
from server.sql.grammar.statements.domains import (
    ConstrainDomain,
    CreateDomain,
    DropDomainConstraint,
    RenameDomainConstraint,
    SetDomainDefault,
)
from server.sql.grammar.statements.explain import Explain
from server.sql.grammar.statements.holds import AdvanceHold, AlterHold, CreateHold
from server.sql.grammar.statements.maintenance import Maintain, Refresh, Reindex
from server.sql.grammar.statements.merges import Merge
from server.sql.grammar.statements.notifications import Listen, Notify, Unlisten
from server.sql.grammar.statements.objects import (
    AlterOwner,
    AlterRename,
    AlterRetention,
    AlterSchema,
    CommentOn,
    CommentOnConstraint,
    CommentOnExtension,
    CreateDatabase,
    CreateExtension,
    CreateSchema,
    DropBuiltIn,
    DropObjects,
)
from server.sql.grammar.statements.prepared import Deallocate, Execute, Prepare
from server.sql.grammar.statements.queries import Select
from server.sql.grammar.statements.roles import (
    AlterDefaultPrivileges,
    AlterRole,
    CreateRole,
    DropOwned,
    DropRoles,
    GrantPrivileges,
    GrantRoles,
    ReassignOwned,
    RenameRole,
    SetRole,
)
from server.sql.grammar.statements.sequences import AlterSequence, CreateSequence
from server.sql.grammar.statements.settings import AlterSystem, Discard, ResetVariable, SetVariable
from server.sql.grammar.statements.show import ShowColumns, ShowCreate, ShowObjects, ShowStatement, ShowVariable
from server.sql.grammar.statements.sinks import CreateSink
from server.sql.grammar.statements.sources import (
    AddSubsources,
    AlterConnection,
    AlterSecret,
    CreateConnection,
    CreateSecret,
    CreateSource,
    CreateSourceTable,
    DropSubsources,
    ValidateConnection,
)
from server.sql.grammar.statements.subscribe import Subscribe
from server.sql.grammar.statements.tables import CreateTable, CreateTableAs, RenameConstraint
from server.sql.grammar.statements.transactions import (
    Begin,
    Commit,
    ReleaseSavepoint,
    Rollback,
    RollbackToSavepoint,
    Savepoint,
    SetConstraints,
    SetTransaction,
)
from server.sql.grammar.statements.types import AddEnumValue, CreateEnum, RenameEnumValue, SetTypeSchema
from server.sql.grammar.statements.views import CreateIndex, CreateMaterializedView, CreateView
from server.sql.grammar.statements.with_writes import WithWrites
from server.sql.grammar.statements.writes import Delete, Insert, LockTable, Truncate, Update

__all__ = [
    "AddEnumValue",
    "AddSubsources",
    "AdvanceHold",
    "AlterConnection",
    "AlterDefaultPrivileges",
    "AlterHold",
    "AlterOwner",
    "AlterRename",
    "AlterRetention",
    "AlterRole",
    "AlterSchema",
    "AlterSecret",
    "AlterSequence",
    "AlterSystem",
    "AlterTable",
    "Begin",
    "CloseCursor",
    "CommentOn",
    "CommentOnConstraint",
    "CommentOnExtension",
    "Commit",
    "ConstrainDomain",
    "CopyFrom",
    "CopyTo",
    "CreateConnection",
    "CreateDatabase",
    "CreateDomain",
    "CreateEnum",
    "CreateExtension",
    "CreateHold",
    "CreateIndex",
    "CreateMaterializedView",
    "CreateRole",
    "CreateSchema",
    "CreateSecret",
    "CreateSequence",
    "CreateSink",
    "CreateSource",
    "CreateSourceTable",
    "CreateTable",
    "CreateTableAs",
    "CreateView",
    "Deallocate",
    "Declare",
    "Delete",
    "Discard",
    "DoBlock",
    "DropBuiltIn",
    "DropDomainConstraint",
    "DropObjects",
    "DropOwned",
    "DropRoles",
    "DropSubsources",
    "Execute",
    "Explain",
    "Fetch",
    "GrantPrivileges",
    "GrantRoles",
    "Insert",
    "Listen",
    "LockTable",
    "Maintain",
    "Merge",
    "Move",
    "Notify",
    "Prepare",
    "ReassignOwned",
    "Refresh",
    "Reindex",
    "ReleaseSavepoint",
    "RenameColumn",
    "RenameConstraint",
    "RenameDomainConstraint",
    "RenameEnumValue",
    "RenameRole",
    "ResetVariable",
    "Rollback",
    "RollbackToSavepoint",
    "Savepoint",
    "Select",
    "SetConstraints",
    "SetDomainDefault",
    "SetRole",
    "SetTransaction",
    "SetTypeSchema",
    "SetVariable",
    "ShowColumns",
    "ShowCreate",
    "ShowObjects",
    "ShowStatement",
    "ShowVariable",
    "Statement",
    "Subscribe",
    "Truncate",
    "Unlisten",
    "Update",
    "ValidateConnection",
    "WithWrites",
]

Statement = (
    Select
    | Insert
    | Update
    | Delete
    | Merge
    | WithWrites
    | Truncate
    | LockTable
    | CopyFrom
    | CopyTo
    | CreateDatabase
    | CreateSchema
    | CreateExtension
    | CommentOnExtension
    | DoBlock
    | CreateTable
    | CreateTableAs
    | CreateView
    | CreateMaterializedView
    | CreateIndex
    | CreateHold
    | AdvanceHold
    | AlterHold
    | CreateSecret
    | AlterSecret
    | CreateConnection
    | AlterConnection
    | ValidateConnection
    | CreateSequence
    | AlterSequence
    | CreateDomain
    | ConstrainDomain
    | DropDomainConstraint
    | RenameDomainConstraint
    | SetDomainDefault
    | CreateEnum
    | AddEnumValue
    | RenameEnumValue
    | SetTypeSchema
    | CreateSource
    | CreateSink
    | CreateSourceTable
    | AddSubsources
    | DropSubsources
    | DropBuiltIn
    | DropObjects
    | AlterRename
    | AlterTable
    | RenameColumn
    | AlterOwner
    | AlterRetention
    | AlterSchema
    | RenameConstraint
    | CommentOn
    | CommentOnConstraint
    | AlterSystem
    | CreateRole
    | AlterRole
    | RenameRole
    | DropRoles
    | GrantRoles
    | AlterDefaultPrivileges
    | GrantPrivileges
    | ReassignOwned
    | DropOwned
    | Begin
    | Commit
    | Rollback
    | ReleaseSavepoint
    | RollbackToSavepoint
    | Savepoint
    | Prepare
    | Execute
    | Deallocate
    | SetVariable
    | SetRole
    | SetTransaction
    | SetConstraints
    | ResetVariable
    | ShowStatement
    | Discard
    | Subscribe
    | Explain
    | Declare
    | Fetch
    | Move
    | Maintain
    | Refresh
    | Reindex
    | CloseCursor
    | Listen
    | Unlisten
    | Notify
)
