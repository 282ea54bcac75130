"""Parser: PostgreSQL text to statements. Recursive descent for the statements, sqlglot for the queries inside them.

`parse(text)` reads a whole Query message before any of it is executed. It returns a list of statements or raises the
first error, with its position and PostgreSQL's message (`syntax error at or near "x"`, 42601). For a PostgreSQL
feature that Tidewire lacks, the error is 0A000 and names the feature. For syntax that only Materialize has, such as
SUBSCRIBE, the messages are Materialize's (`Expected one of PROGRESS or SNAPSHOT, found ...`).

lexer.py makes the list of tokens, reader.py reads it, and trees.py calls sqlglot. This module contains the grammar:
one method per statement, in the order of statements.py. The only nesting of statements is EXPLAIN, PREPARE, COPY or
DECLARE around another statement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from catalog.objects import QUICKSTART
from protocol.pgwire.errors import PgError, SqlState
from server.sql.grammar import trees
from server.sql.grammar.lexer import RESERVED_WORDS, Kind, Token, words
from server.sql.grammar.literal_rows import split
from server.sql.grammar.reader import QUERY_HEADS, Reader
from server.sql.grammar.roles import RoleGrammar
from server.sql.grammar.statements import (
    AdvanceHold,
    AlterOwner,
    AlterRename,
    AlterRetention,
    AlterRole,
    AlterSystem,
    AsOf,
    Assignment,
    Begin,
    CloseCursor,
    ColumnDefinition,
    CommentOn,
    Commit,
    CopyFrom,
    CopyRelation,
    CopyTo,
    CreateDatabase,
    CreateHold,
    CreateIndex,
    CreateMaterializedView,
    CreateSchema,
    CreateTable,
    CreateView,
    Deallocate,
    Declare,
    Delete,
    Discard,
    DropObjects,
    DropOwned,
    DropRoles,
    EnvelopeDebezium,
    EnvelopeUpsert,
    Execute,
    Explain,
    Explained,
    ExplainStage,
    Expr,
    Fetch,
    Ident,
    Insert,
    Key,
    Name,
    ObjectKind,
    Options,
    Output,
    Prepare,
    Query,
    RenameRole,
    ResetVariable,
    Rollback,
    RowAssignment,
    Savepoint,
    Select,
    SetRole,
    SetTransaction,
    SetVariable,
    ShowColumns,
    ShowCreate,
    ShowKind,
    ShowObjects,
    ShowStatement,
    ShowVariable,
    Statement,
    StoredQuery,
    Subscribe,
    TransactionModes,
    Truncate,
    Unlisten,
    Update,
    WithinTimestampOrderBy,
)

# Object kinds of CREATE, ALTER and DROP in PostgreSQL or Materialize that Tidewire lacks.
_OTHER_KINDS = words(
    """access aggregate cast cluster collation connection constraint conversion default domain event extension foreign
    function group language large operator policy procedure publication routine rule secret sequence server
    sink source statistics subscription system tablespace text transform trigger type"""
)
# Statements that Tidewire lacks, with the hint for each.
_OTHER_HEADS: dict[str, str | None] = {
    "analyze": "There are no statistics to collect.",
    "call": None,
    "checkpoint": None,
    "cluster": None,
    "do": None,
    "import": None,
    "listen": "SUBSCRIBE tells a client of every change.",
    "load": None,
    "lock": "Transactions are serializable without locks.",
    "merge": "Use INSERT, UPDATE and DELETE.",
    "move": "Use FETCH.",
    "notify": "SUBSCRIBE tells a client of every change.",
    "refresh": "A materialized view is always up to date.",
    "reindex": None,
    "security": None,
    "vacuum": "The log is compacted in the background.",
}
# Constraints that Tidewire lacks, with the hint for each.
_UNENFORCED = {
    "check": "Leave it out; a view can show the rows that break the rule.",
    "references": "Leave it out; a view can show the rows that refer to nothing.",
    "foreign": "Leave it out; a view can show the rows that refer to nothing.",
    "generated": "Compute the column in a view; numbers are given by clients.",
}
_ISOLATION_LEVELS = (
    "serializable",
    "repeatable read",
    "read committed",
    "read uncommitted",
    "strict serializable",
    "strong session serializable",
)
_STAGES = ("raw", "decorrelated", "locally", "optimized", "physical", "spark")
_SPARK_MODES = ("extended", "formatted", "codegen", "cost")  # the modes of Spark's own EXPLAIN
_EXPLAIN_SWITCHES = words("analyze verbose costs settings generic_plan buffers wal timing summary memory")
_STAGE_SWITCHES = {ExplainStage.PHYSICAL: frozenset(("verbose",)), ExplainStage.SPARK: frozenset(_SPARK_MODES)}
_CREATES = (CreateView, CreateMaterializedView, CreateIndex)
_TRUE, _FALSE = ("true", "on", "1", "t", "yes"), ("false", "off", "0", "f", "no")


def parse(text: str) -> list[Statement]:
    """Returns the statements of a Query message; an empty list if the text is blank.

    Raises PgError 42601 (syntax), 0A000 (not supported), 42704 (unknown type), 54001 (nested too deeply), 22xxx
    (invalid string or number), and no other exception. The time is linear in the length of the text.
    """
    rows = split(text)
    if rows is None:
        return parse_each(text)
    first, _ = rows.row(0)
    match parse_each(first):
        case [Insert(source=Query(tree=exp.Values(expressions=[_]))) as statement]:
            return [replace(statement, text=text, rows=rows)]
    return parse_each(text)


def parse_each(text: str) -> list[Statement]:
    """As `parse`, but always with a tree for each value of an INSERT (no `LiteralRows`)."""
    grammar = _Grammar(text)
    statements: list[Statement] = []
    while not grammar.at_end:
        if not grammar.take(";"):
            statements.append(grammar.statement())
            if not grammar.at_end:
                grammar.expect(";")
    return statements


def parse_query(text: str) -> Query:
    """Parses a single query, as stored in the catalog for a view."""
    reader = Reader(text)
    query = reader.query()
    reader.expect_end()
    return query


def parse_expression(text: str) -> Expr:
    """Parses a single scalar expression, as stored in the catalog for a default or an index key."""
    reader = Reader(text)
    expression = reader.expression()
    reader.expect_end()
    return expression


class _Grammar(RoleGrammar):
    """One method per statement. It starts at the statement's first token and stops after its last."""

    def statement(self) -> Statement:
        head = self.word
        method = _HEADS.get(head)
        if method is not None:
            return method(self)
        if head in _OTHER_HEADS:
            raise self.refused(head.upper(), _OTHER_HEADS[head])
        raise self.fault()

    # -- queries and writes -----------------------------------------------------------------------------------------

    def select(self) -> Select:
        start = self.index
        if self.at("with"):
            self.refuse_with_write()
        query = self.query()
        as_of = self.as_of() if self.at("as") else None
        return Select(*self.located(start), query, as_of)

    def refuse_with_write(self) -> None:
        """0A000 for WITH ... INSERT, UPDATE, DELETE or MERGE. Leaves the reading position unchanged otherwise.

        The statement after WITH starts with the first keyword of a query or write outside parentheses.
        """
        mark = self.index, self.token
        self.advance()
        span = self.span("select", "values", "table", "insert", "update", "delete", "merge")
        if self.at("insert", "update", "delete", "merge") and span[-2].value == ")":
            hint = "Write WITH in front of the SELECT." if self.at("insert") else None
            raise self.refused(f"WITH in front of {self.token.value.upper()}", hint)
        self.index, self.token = mark

    def as_of(self) -> AsOf:
        self.expect("as")
        if not self.take("of"):
            raise self.expected("OF")
        at_least = self.take("at", "least")
        if self.ended or self.at(")"):
            if self.at(";"):
                self.advance()  # the message names the token after the semicolon
            raise self.expected(f"a timestamp value after 'AS OF{' AT LEAST' if at_least else ''}'")
        return AsOf(self.expression("up", "envelope", "within", "as"), at_least)

    def insert(self) -> Insert:
        start = self.index
        self.expect("insert", "into")
        table = self.name()
        alias = self.ident() if self.take("as") else None
        columns = () if self.at("(") and self.ahead().value in QUERY_HEADS else self.column_list()
        self.refuse_at("OVERRIDING", "overriding")
        source: Query | None = None
        if self.take("default"):
            self.expect("values")
        else:
            source = self.query("returning", "on")
        if self.at("on"):
            raise self.refused("INSERT ... ON CONFLICT", "Keys are not enforced, so nothing conflicts.")
        returning = self.returning()
        return Insert(*self.located(start), table, alias, columns, source, returning)

    def update(self) -> Update:
        start = self.index
        self.expect("update")
        table = self.written_table()
        alias = self.alias("set")
        self.expect("set")
        assignments = tuple(part for parts in self.comma_list(self.assignment) for part in parts)
        others = self.other_tables() if self.at("from") else None
        where = self.where()
        returning = self.returning()
        return Update(*self.located(start), table, alias, assignments, where, returning, others)

    def assignment(self) -> tuple[Assignment | RowAssignment, ...]:
        """column = value; (columns) = [ROW] (values), which gives an Assignment per column; (columns) = (query)"""
        if self.at("("):
            return self.row_assignment()
        return (self.column_assignment(),)

    def row_assignment(self) -> tuple[Assignment | RowAssignment, ...]:
        columns = self.column_list()
        self.expect("=")
        is_row = self.take("row")
        self.expect("(")
        if not is_row and self.at(*QUERY_HEADS):
            query = self.query()
            self.expect(")")
            return (RowAssignment(columns, query),)
        values = self.comma_list(lambda: None if self.take("default") else self.expression(","))
        self.expect(")")
        if len(values) != len(columns):
            message = "number of columns does not match number of values"
            raise PgError(SqlState.SYNTAX_ERROR, message, position=columns[0].position)
        return tuple(map(Assignment, columns, values))

    def column_assignment(self) -> Assignment:
        column = self.ident()
        self.expect("=")
        if self.take("default"):
            return Assignment(column, None)
        return Assignment(column, self.expression(",", "from", "where", "returning"))

    def delete(self) -> Delete:
        start = self.index
        self.expect("delete", "from")
        table = self.written_table()
        alias = self.alias()
        others = self.other_tables() if self.at("using") else None
        where = self.where()
        returning = self.returning()
        return Delete(*self.located(start), table, alias, where, returning, others)

    def written_table(self) -> Name:
        """[ONLY] name [*]. ONLY and * have no effect, because there is no table inheritance."""
        self.take("only")
        name = self.name()
        self.take("*")
        return name

    def where(self) -> Expr | None:
        if not self.take("where"):
            return None
        if self.at_all("current", "of"):
            raise self.refused("WHERE CURRENT OF")
        return self.expression("returning")

    def truncate(self) -> Truncate:
        start = self.index
        self.expect("truncate")
        self.take("table")
        tables = self.comma_list(self.written_table)
        if self.at("restart", "continue"):
            self.advance()
            self.expect("identity")
        self.drop_behavior()
        return Truncate(*self.located(start), tables)

    # -- COPY -------------------------------------------------------------------------------------------------------

    def copy(self) -> CopyFrom | CopyTo:
        start = self.index
        self.expect("copy")
        if self.take("("):
            if not self.at(*QUERY_HEADS, "insert", "update", "delete", "subscribe"):
                raise self.fault()
            source = self.statement()
            assert isinstance(source, Select | Insert | Update | Delete | Subscribe)
            self.expect(")", "to")
            options = self.copy_options("to")
            return CopyTo(*self.located(start), source, options)
        binary: Options = (("format", "binary"),) if self.take("binary") else ()
        relation = self.name()
        columns = self.column_list()
        direction = self.choose("from", "to")
        options = binary + self.copy_options(direction)
        if direction == "to":
            return CopyTo(*self.located(start), CopyRelation(relation, columns), options)
        self.refuse_at("COPY FROM ... WHERE", "where")
        return CopyFrom(*self.located(start), relation, columns, options)

    def copy_options(self, direction: str) -> Options:
        """STDIN or STDOUT, then options in the new syntax (in parentheses) or the old syntax (without)."""
        if not (self.take("stdin") or self.take("stdout")):
            if self.token.kind is Kind.STRING or self.at("program"):
                what = "a program" if self.at("program") else "a file"
                raise self.refused(
                    f"COPY {direction} {what}",
                    "COPY FROM STDIN and TO STDOUT work for anyone, and so does psql's \\copy.",
                )
            raise self.fault()
        self.take("using")
        delimiters: Options = (("delimiter", self.string()),) if self.take("delimiters") else ()
        if self.take("with") and self.ended:
            raise self.fault()
        if self.at("("):
            return delimiters + self.in_parentheses(self.copy_option)
        older: Options = delimiters
        while not (self.ended or self.at(")", "where")):
            older += (self.older_copy_option(),)
        return older

    def copy_option(self) -> tuple[str, str | tuple[str, ...] | None]:
        name = self.ident(refused=frozenset()).name
        if self.at("("):
            return name, self.in_parentheses(lambda: self.ident(refused=RESERVED_WORDS).name)
        if self.take("*"):
            return name, "*"
        return name, None if self.at(",", ")") else self.setting_value()

    def older_copy_option(self) -> tuple[str, str | tuple[str, ...] | None]:
        word = self.choose(
            "binary", "csv", "freeze", "header", "delimiter", "null", "quote", "escape", "encoding", "force"
        )
        if word in ("binary", "csv"):
            return "format", word
        if word in ("freeze", "header"):
            return word, "true"
        if word != "force":
            if word != "encoding":
                self.take("as")
            return word, self.string()
        forced = "force_quote" if self.take("quote") else "force_not_null" if self.take("not") else "force_null"
        if forced != "force_quote":
            self.expect("null")
        return forced, "*" if self.take("*") else self.comma_list(lambda: self.ident().name)

    # -- objects ----------------------------------------------------------------------------------------------------

    def create(self) -> Statement:
        start = self.index
        self.expect("create")
        or_replace = self.take("or", "replace")
        if self.at("temp", "temporary", "local", "global", "unlogged"):
            raise self.refused("CREATE TEMPORARY" if not self.at("unlogged") else "CREATE UNLOGGED")
        self.refuse_at("CREATE UNIQUE INDEX", "unique", hint="Keys are not enforced.")
        if self.take("materialized"):
            self.expect("view")
            return self.create_materialized_view(start, or_replace)
        if self.take("view"):
            return self.create_view(start, or_replace)
        if or_replace:
            raise self.refused_kind("CREATE OR REPLACE", "table", "schema", "database", "index", "hold")
        if self.at_all("default", "index") or self.at("index"):
            return self.create_index(start)
        if self.take("table"):
            return self.create_table(start)
        if self.take("hold"):
            return self.create_hold(start)
        if self.take("schema"):
            exists = self.if_not_exists()
            self.refuse_at("CREATE SCHEMA AUTHORIZATION", "authorization")
            schema = self.name(parts_max=2)
            self.refuse_at("CREATE SCHEMA AUTHORIZATION", "authorization")
            self.refuse_at("CREATE SCHEMA with its objects", "create", hint="Create them by statements of their own.")
            return CreateSchema(*self.located(start), schema, exists)
        if self.take("database"):
            exists = self.if_not_exists()
            database = self.ident()
            if not self.ended:
                raise self.refused("CREATE DATABASE with options")
            return CreateDatabase(*self.located(start), database, exists)
        if self.at("role", "user"):
            return self.create_role(start)
        raise self.refused_kind("CREATE")

    def refused_kind(self, verb: str, *kinds: str) -> PgError:
        if self.at(*kinds, *_OTHER_KINDS):
            return self.refused(f"{verb} {self.token.value.upper()}")
        return self.fault()

    def create_table(self, start: int) -> CreateTable:
        exists = self.if_not_exists()
        name = self.name()
        self.refuse_at(
            "CREATE TABLE AS", "as", hint="Use CREATE MATERIALIZED VIEW, or CREATE TABLE and INSERT ... SELECT."
        )
        self.refuse_at("CREATE TABLE OF a type", "of")
        self.refuse_at("a partitioned table", "partition")
        self.expect("(")
        columns: list[ColumnDefinition] = []
        keys: list[Key] = []
        if not self.take(")"):
            self.table_element(name, columns, keys)
            while self.take(","):
                self.table_element(name, columns, keys)
            self.expect(")")
        self.refuse_at("INHERITS", "inherits")
        self.refuse_at("a partitioned table", "partition")
        retain = self.retain_option("CREATE TABLE with storage options")
        self.refuse_at("CREATE TABLE with storage options", "using", "tablespace", "without", "on")
        primary = {column.name for key in keys if key.primary for column in key.columns}
        defined = tuple(
            ColumnDefinition(c.name, c.type, c.not_null or c.name.name in primary, c.default) for c in columns
        )
        return CreateTable(*self.located(start), name, defined, tuple(keys), exists, retain)

    def table_element(self, table: Name, columns: list[ColumnDefinition], keys: list[Key]) -> None:
        """A column or a constraint, added to `columns` or `keys`."""
        if self.take("constraint"):
            self.ident()
            if not self.at("primary", "unique", "check", "foreign", "exclude"):
                raise self.fault()
        if self.at("primary", "unique"):
            self.key(table, keys, columns=None)
        elif self.at("check", "foreign", "exclude") and (self.ahead().value in ("(", "key", "using")):
            raise self.refused(f"a {self.token.value.upper()} constraint", _UNENFORCED.get(self.token.value))
        elif self.at("like"):
            raise self.refused("CREATE TABLE LIKE")
        else:
            columns.append(self.column_definition(table, keys))

    def key(self, table: Name, keys: list[Key], columns: tuple[Ident, ...] | None) -> None:
        """PRIMARY KEY or UNIQUE, as a table constraint (`columns` None: the list follows) or a column constraint."""
        token = self.token
        primary = self.choose("primary", "unique") == "primary"
        if primary:
            self.expect("key")
            if any(key.primary for key in keys):
                raise PgError(
                    SqlState.INVALID_TABLE_DEFINITION,
                    f'multiple primary keys for table "{table.parts[-1]}" are not allowed',
                    position=token.start + 1,
                )
        self.refuse_at("UNIQUE NULLS NOT DISTINCT", "nulls")
        keys.append(Key(self.in_parentheses(self.ident) if columns is None else columns, primary))
        self.refuse_at("a deferrable or indexed constraint", "deferrable", "initially", "using", "include", "with")

    def column_definition(self, table: Name, keys: list[Key]) -> ColumnDefinition:
        name = self.ident()
        type_ = self.type()
        not_null: bool | None = None
        default: Expr | None = None
        while not (self.ended or self.at(",", ")")):
            token = self.token
            if self.take("constraint"):
                self.ident()
            elif self.take("not") or self.at("null"):
                self.expect("null")
                wanted = token.value == "not"
                if not_null is not None and not_null != wanted:
                    raise self.conflicting("NULL/NOT NULL declarations", name, table, token.start)
                not_null = wanted
            elif self.take("default"):
                if default is not None:
                    raise self.conflicting("default values", name, table, token.start, "multiple")
                default = self.expression(
                    *(",", "not", "null", "primary", "unique", "check", "references", "constraint", "generated"),
                    *("collate", "default", "deferrable", "initially"),
                )
            elif self.at("primary", "unique"):
                self.key(table, keys, columns=(name,))
            elif self.at("collate"):
                raise self.refused("COLLATE", 'Text is compared by its bytes, as under the collation "C".')
            elif self.at("check", "references", "generated", "deferrable", "initially", "storage", "compression"):
                raise self.refused(f"a column with {self.token.value.upper()}", _UNENFORCED.get(self.token.value))
            else:
                raise self.fault()
        return ColumnDefinition(name, type_, bool(not_null), default)

    def conflicting(self, what: str, column: Ident, table: Name, start: int, how: str = "conflicting") -> PgError:
        return PgError(
            SqlState.SYNTAX_ERROR,
            f'{how} {what} {"specified " if how == "multiple" else ""}for column "{column.name}" '
            f'of table "{table.parts[-1]}"',
            position=start + 1,
        )

    def create_view(self, start: int, or_replace: bool) -> CreateView:
        exists = self.if_not_exists()
        name = self.name()
        columns = self.column_list()
        self.refuse_at("CREATE VIEW with options", "with")
        self.expect("as")
        query = self.query("with")
        self.refuse_at("WITH CHECK OPTION", "with")
        return CreateView(*self.located(start), name, columns, query, or_replace, exists)

    def create_materialized_view(self, start: int, or_replace: bool) -> CreateMaterializedView:
        exists = self.if_not_exists()
        name = self.name()
        columns = self.column_list()
        self.in_cluster()
        retain = self.retain_option("CREATE MATERIALIZED VIEW with options")
        self.refuse_at("CREATE MATERIALIZED VIEW with options", "using", "tablespace")
        self.expect("as")
        query = self.query("with")
        if self.take("with") and not self.take("data"):
            raise self.refused("WITH NO DATA")
        return CreateMaterializedView(*self.located(start), name, columns, query, or_replace, exists, retain)

    def in_cluster(self) -> None:
        """Materialize's IN CLUSTER name. There is one cluster; 42704 for any other name."""
        if self.take("in"):
            if not self.take("cluster"):
                raise self.expected("CLUSTER")
            cluster = self.ident()
            if cluster.name != QUICKSTART.name:
                raise PgError(
                    SqlState.UNDEFINED_OBJECT,
                    f'unknown cluster "{cluster.name}"',
                    hint=f"There is one cluster, {QUICKSTART.name}.",
                    position=cluster.position,
                )

    def retain_option(self, refused: str) -> str | None:
        """WITH (RETAIN HISTORY [=] FOR interval), or nothing. 0A000 naming `refused` for other options."""
        if not self.at("with"):
            return None
        if not (self.ahead().value == "(" and self.ahead(2).value == "retain"):
            raise self.refused(refused)
        self.expect("with")
        return self.retain_history()

    def retain_history(self) -> str:
        """(RETAIN HISTORY [=] FOR interval)"""
        for word in ("(", "retain", "history"):
            self.expect_one_of(word)
        self.take("=")
        self.expect_one_of("for")
        self.take("interval")
        retain = self.number() if self.token.kind is Kind.NUMBER else self.option_string()
        self.take(",")
        self.expect_one_of(")")
        return retain

    def option_string(self) -> str:
        if self.token.kind is not Kind.STRING:
            raise self.expected("option value")
        return self.string()

    def create_hold(self, start: int) -> CreateHold:
        exists = self.if_not_exists()
        name = self.name()
        self.expect("on")
        on = self.comma_list(self.name)
        at = self.expression("with") if self.take("at") else None
        max_lag = self.max_lag() if self.take("with") else None
        return CreateHold(*self.located(start), name, on, at, max_lag, exists)

    def max_lag(self) -> Expr:
        """(MAX LAG [=] interval)"""
        for word in ("(", "max", "lag"):
            self.expect_one_of(word)
        self.take("=")
        if self.ended or self.at(",", ")"):
            raise self.expected("option value")
        lag = self.expression(",")
        self.take(",")
        self.expect_one_of(")")
        return lag

    def create_index(self, start: int) -> CreateIndex:
        default = self.take("default")
        self.expect("index")
        self.refuse_at("CREATE INDEX CONCURRENTLY", "concurrently")
        exists = self.if_not_exists()
        name = None if self.at("on", "in") else self.ident()
        self.in_cluster()
        self.expect("on")
        self.take("only")
        relation = self.name()
        if self.take("using"):
            self.ident()  # the access method has no effect: every index is an arrangement
        keys = () if default else self.in_parentheses(self.index_key)
        retain = self.retain_option("CREATE INDEX ... WITH")
        if not self.ended and self.at("include", "where", "tablespace", "nulls"):
            raise self.refused(f"CREATE INDEX ... {self.token.value.upper()}")
        return CreateIndex(*self.located(start), name, relation, keys, exists, retain)

    def index_key(self) -> Expr:
        key = self.expression(",", "asc", "desc", "nulls")
        self.refuse_at("an index with an order", "asc", "desc", "nulls", hint="An index finds rows by equal keys.")
        return key

    def object_kind(self, verb: str) -> ObjectKind:
        if self.take("materialized"):
            self.expect("view")
            return ObjectKind.MATERIALIZED_VIEW
        for kind in ObjectKind:
            if self.take(kind.value):
                return kind
        raise self.refused_kind(verb)

    def drop(self) -> DropObjects | DropRoles | DropOwned:
        start = self.index
        self.expect("drop")
        if self.at("role", "user"):
            return self.drop_roles(start)
        if self.take("owned"):
            return self.drop_owned(start)
        kind = self.object_kind("DROP")
        self.refuse_at("DROP INDEX CONCURRENTLY", "concurrently")
        exists = self.if_exists()
        parts_max = {ObjectKind.DATABASE: 1, ObjectKind.SCHEMA: 2}.get(kind, 3)
        names = self.comma_list(lambda: self.name(parts_max))
        cascade = self.drop_behavior()
        return DropObjects(*self.located(start), kind, names, exists, cascade)

    def alter(self) -> AlterRename | AlterOwner | AlterRetention | AlterSystem | AdvanceHold | AlterRole | RenameRole:
        start = self.index
        self.expect("alter")
        if self.at("role", "user"):
            return self.alter_role(start)
        if self.take("system"):
            return self.alter_system(start)
        kind = self.object_kind("ALTER")
        exists = self.if_exists()
        parts_max = {ObjectKind.DATABASE: 1, ObjectKind.SCHEMA: 2}.get(kind, 3)
        self.take("only")
        name = self.name(parts_max)
        if self.ended:
            raise self.fault()
        if kind is ObjectKind.HOLD and self.take("advance"):
            to = self.expression() if self.take("to") else None
            return AdvanceHold(*self.located(start), name, to, exists)
        if self.at("set", "reset") and self.ahead().value == "(" and self.ahead(2).value == "retain":
            return self.alter_retention(start, kind, name, exists)
        if self.take("owner"):
            self.expect("to")
            owner = self.role()
            return AlterOwner(*self.located(start), kind, name, owner, exists)
        if not self.at("rename") or (self.ahead().value != "to" and self.ahead().kind is not Kind.END):
            known = "ADVANCE, RENAME TO" if kind is ObjectKind.HOLD else "RENAME TO"
            raise self.refused(f"ALTER {kind.upper()} other than {known} and OWNER TO")
        self.expect("rename", "to")
        new_name = self.ident()
        return AlterRename(*self.located(start), kind, name, new_name, exists)

    def alter_retention(self, start: int, kind: ObjectKind, name: Name, exists: bool) -> AlterRetention:
        """SET (RETAIN HISTORY [=] FOR interval) or RESET (RETAIN HISTORY)"""
        retain = None
        if self.choose("set", "reset") == "set":
            retain = self.retain_history()
        else:
            self.expect("(", "retain", "history", ")")
        return AlterRetention(*self.located(start), kind, name, retain, exists)

    def alter_system(self, start: int) -> AlterSystem:
        if self.choose("set", "reset") == "reset":
            shown = self.shown_variable()
            return AlterSystem(*self.located(start), shown, None)
        name = self.variable()
        self.choose("=", "to")
        values = None if self.take("default") else self.comma_list(self.setting_value)
        return AlterSystem(*self.located(start), name, values)

    def comment(self) -> CommentOn:
        start = self.index
        self.expect("comment", "on")
        kind = None if self.take("column") else self.object_kind("COMMENT ON")
        parts_max = {None: 4, ObjectKind.DATABASE: 1, ObjectKind.SCHEMA: 2}.get(kind, 3)
        name = self.name(parts_max)
        if kind is None and len(name.parts) == 1:
            raise PgError(SqlState.SYNTAX_ERROR, "column name must be qualified", position=name.position)
        self.expect("is")
        comment = None if self.take("null") else self.string()
        return CommentOn(*self.located(start), kind, name, comment)

    # -- transactions -----------------------------------------------------------------------------------------------

    def begin(self) -> Begin:
        start = self.index
        if self.take("start"):
            self.expect("transaction")
            tag = "START TRANSACTION"
        else:
            self.expect("begin")
            self.work()
            tag = "BEGIN"
        modes = TransactionModes() if self.ended else self.transaction_modes()
        return Begin(*self.located(start), modes, tag)

    def work(self) -> None:
        _ = self.take("work") or self.take("transaction")

    def transaction_modes(self) -> TransactionModes:
        isolation: str | None = None
        read_only: bool | None = None
        deferrable: bool | None = None
        while True:
            if self.take("isolation"):
                self.expect("level")
                isolation = self.isolation_level()
            elif self.take("read"):
                read_only = self.choose("only", "write") == "only"
            elif self.take("not"):
                self.expect("deferrable")
                deferrable = False
            else:
                self.expect("deferrable")
                deferrable = True
            if not self.take(",") and self.ended:
                return TransactionModes(isolation, read_only, deferrable)

    def isolation_level(self) -> str:
        for level in _ISOLATION_LEVELS:
            if self.take(*level.split()):
                return level
        for head in ("read", "repeatable", "strict", "strong", "session"):
            self.take(head)
        raise self.fault()

    def commit(self) -> Commit:
        start = self.index
        self.choose("commit", "end")
        self.refuse_at("COMMIT PREPARED", "prepared")
        self.work()
        self.no_chain()
        return Commit(*self.located(start))

    def rollback(self) -> Rollback | Savepoint:
        start = self.index
        head = self.choose("rollback", "abort")
        self.refuse_at("ROLLBACK PREPARED", "prepared")
        self.work()
        if head == "rollback" and self.take("to"):
            self.take("savepoint")
            name = self.ident()
            return Savepoint(*self.located(start), "ROLLBACK TO SAVEPOINT", name)
        self.no_chain()
        return Rollback(*self.located(start))

    def no_chain(self) -> None:
        if self.take("and"):
            if self.at("chain"):
                raise self.refused("AND CHAIN")
            self.expect("no", "chain")

    def savepoint(self) -> Savepoint:
        start = self.index
        verb = "SAVEPOINT" if self.take("savepoint") else "RELEASE SAVEPOINT"
        if verb != "SAVEPOINT":
            self.expect("release")
            self.take("savepoint")
        name = self.ident()
        return Savepoint(*self.located(start), verb, name)

    # -- prepared statements ----------------------------------------------------------------------------------------

    def prepare(self) -> Prepare:
        start = self.index
        self.expect("prepare")
        if self.at_all("transaction") and self.ahead().kind is Kind.STRING:
            raise self.refused("PREPARE TRANSACTION")
        name = self.ident()
        types = self.in_parentheses(self.type) if self.at("(") else ()
        self.expect("as")
        if not self.at(*QUERY_HEADS, "insert", "update", "delete"):
            raise self.fault()
        statement = self.statement()
        assert isinstance(statement, Select | Insert | Update | Delete)
        return Prepare(*self.located(start), name, types, statement)

    def execute(self) -> Execute:
        start = self.index
        self.expect("execute")
        name = self.ident()
        arguments = self.in_parentheses(lambda: self.expression(",")) if self.at("(") else ()
        return Execute(*self.located(start), name, arguments)

    def deallocate(self) -> Deallocate:
        start = self.index
        self.expect("deallocate")
        self.take("prepare")
        name = None if self.take("all") else self.ident()
        return Deallocate(*self.located(start), name)

    # -- variables --------------------------------------------------------------------------------------------------

    def set(self) -> SetVariable | SetTransaction | SetRole:
        start = self.index
        self.expect("set")
        if self.take("session", "characteristics"):
            self.expect("as", "transaction")
            modes = self.transaction_modes()
            return SetTransaction(*self.located(start), modes, True)
        if self.take("transaction"):
            self.refuse_at("SET TRANSACTION SNAPSHOT", "snapshot")
            modes = self.transaction_modes()
            return SetTransaction(*self.located(start), modes, False)
        local = self.take("local")
        if not local and self.at("session") and self.ahead().value not in ("=", "to", "."):
            self.advance()
        self.refuse_at("SET CONSTRAINTS", "constraints")
        if self.at("authorization") and self.ahead().value not in ("=", "to", "."):
            raise self.refused("SET SESSION AUTHORIZATION", "Use SET ROLE, or connect as the other role.")
        if self.take("role"):
            return self.set_role(start, local)
        if self.take("time", "zone"):
            if self.take("local") or self.take("default"):
                return SetVariable(*self.located(start), "timezone", (), local, True)
            self.refuse_at("SET TIME ZONE with an interval", "interval")
            values: tuple[str, ...] = (self.setting_value(),)
            return SetVariable(*self.located(start), "timezone", values, local, False)
        if self.at("names", "schema") and self.ahead().value not in ("=", "to", "."):
            name = "client_encoding" if self.choose("names", "schema") == "names" else "search_path"
            if name == "client_encoding" and (self.ended or self.take("default")):
                return SetVariable(*self.located(start), name, (), local, True)
            values = (self.string(),)
            return SetVariable(*self.located(start), name, values, local, False)
        name = self.variable()
        if self.at_all("from", "current"):
            raise self.refused("SET ... FROM CURRENT")
        self.choose("=", "to")
        if self.take("default"):
            return SetVariable(*self.located(start), name, (), local, True)
        values = self.comma_list(self.setting_value)
        return SetVariable(*self.located(start), name, values, local, False)

    def variable(self) -> str:
        """A setting's name in lower case. Names of settings are case-insensitive, even if quoted."""
        parts = [self.ident().name]
        while self.take("."):
            parts.append(self.ident().name)
        return ".".join(parts).lower()

    def setting_value(self) -> str:
        """A string, a word or a signed number, in SET and in the options of COPY and EXPLAIN."""
        token = self.token
        if token.kind is Kind.SYMBOL and token.value in ("-", "+"):
            self.advance()
            sign = "-" if token.value == "-" else ""
            return sign + self.number()
        if token.kind is Kind.NUMBER:
            return self.number()
        if token.kind is Kind.STRING:
            return self.string()
        if self.at("true", "false", "on"):
            self.advance()
            return token.value
        return self.ident(refused=RESERVED_WORDS).name

    def reset(self) -> ResetVariable:
        start = self.index
        self.expect("reset")
        name = self.shown_variable()
        return ResetVariable(*self.located(start), name)

    def shown_variable(self) -> str | None:
        if self.take("all"):
            return None
        if self.take("time", "zone"):
            return "timezone"
        if self.take("transaction"):
            self.expect("isolation", "level")
            return "transaction_isolation"
        if self.take("session", "authorization"):
            return "session_authorization"
        return self.variable()

    def show(self) -> ShowStatement:
        start = self.index
        self.expect("show")
        if self.take("create"):
            kind = self.object_kind("SHOW CREATE")
            name = self.name()
            return ShowCreate(*self.located(start), kind, name)
        if self.take("columns"):
            self.choose("from", "in")
            relation = self.name()
            like = self.like()
            return ShowColumns(*self.located(start), relation, like)
        for shown in ShowKind:
            if self.take(*shown.value.split()):
                on = self.name() if shown is ShowKind.INDEXES and self.take("on") else None
                if shown in (ShowKind.ROLES, ShowKind.PRIVILEGES) and self.at("from", "in"):
                    raise self.fault()
                schema = self.name(2) if self.at("from", "in") and self.choose("from", "in") else None
                like = self.like()
                return ShowObjects(*self.located(start), shown, schema, on, like)
        variable = self.shown_variable()
        return ShowVariable(*self.located(start), variable)

    def like(self) -> str | None:
        self.refuse_at("SHOW ... WHERE", "where", hint="Query the tables of mz_catalog.")
        return self.string() if self.take("like") else None

    def discard(self) -> Discard:
        start = self.index
        self.expect("discard")
        target = self.choose("all", "plans", "sequences", "temp", "temporary").upper()
        return Discard(*self.located(start), "TEMP" if target == "TEMPORARY" else target)

    # -- SUBSCRIBE --------------------------------------------------------------------------------------------------

    def subscribe(self) -> Subscribe:
        """SUBSCRIBE [TO] source [output] [WITH (...)] [AS OF ...] [UP TO ...] [output]; at most one output."""
        start = self.index
        self.expect("subscribe")
        self.take("to")
        source: Name | Query | ShowStatement
        if self.take("("):
            source = self.show() if self.at("show") else self.query()
            if not self.take(")"):
                raise self.expected("right parenthesis")
        else:
            source = self.name()
        output = self.output()
        options = self.subscribe_options() if self.take("with") else {}
        as_of = self.as_of() if self.at("as") else None
        up_to: Expr | None = None
        if self.take("up"):
            if not self.take("to"):
                raise self.expected("TO")
            if self.ended or self.at(")"):
                raise self.expected("an expression")
            up_to = self.expression("as", "up", "envelope", "within")
        if output is None:
            output = self.output()
        if not (self.ended or self.at(")")):
            raise self.expected("end of statement")
        progress, snapshot = options.get("progress", False), options.get("snapshot", True)
        return Subscribe(*self.located(start), source, output, progress, snapshot, as_of, up_to)

    def output(self) -> Output | None:
        if self.take("envelope"):
            envelope = self.expect_one_of("upsert", "debezium")
            self.expect_one_of("(")
            self.expect_one_of("key")
            self.expect_one_of("(")
            keys = self.comma_list(self.ident)
            self.expect_one_of(")")
            self.expect_one_of(")")
            return EnvelopeUpsert(keys) if envelope == "upsert" else EnvelopeDebezium(keys)
        if self.take("within"):
            for word in ("timestamp", "order", "by"):
                self.expect_one_of(word)
            return WithinTimestampOrderBy(self.comma_list(self.order_term))
        return None

    def order_term(self) -> Expr:
        span = self.span(",", "with", "as", "up", "envelope", "within")
        text, offset = self.sliced(span)
        return Expr(trees.parse_order_term(self.source, span), text, offset)

    def subscribe_options(self) -> dict[str, bool]:
        self.expect_one_of("(")
        options: dict[str, bool] = {}
        while True:
            token = self.token
            option = self.expect_one_of("progress", "snapshot")
            if option in options:
                raise PgError(
                    SqlState.SYNTAX_ERROR, f"{option.upper()} specified more than once", position=token.start + 1
                )
            has_value = self.take("=") or not (self.ended or self.at(",", ")"))
            options[option] = self.boolean(option.upper()) if has_value else True
            if not self.take(","):
                break
        self.expect_one_of(")")
        return options

    def boolean(self, option: str) -> bool:
        token = self.token
        if self.ended or self.at(",", ")"):
            raise self.expected("option value")
        value = self.setting_value().lower()
        if value not in _TRUE and value not in _FALSE:
            raise PgError(
                SqlState.INVALID_PARAMETER_VALUE,
                f"invalid {option}: cannot use value as boolean",
                position=token.start + 1,
            )
        return value in _TRUE

    # -- around other statements ------------------------------------------------------------------------------------

    def explain(self) -> Explain:
        """PostgreSQL's EXPLAIN [ANALYZE] [VERBOSE], EXPLAIN (options), and Materialize's EXPLAIN stage PLAN ... FOR."""
        start = self.index
        self.expect("explain")
        stage: ExplainStage | None = None
        options: dict[str, str] = {}
        if self.take("timestamp"):
            self.expect("for")
            stage = ExplainStage.TIMESTAMP
        elif self.at("plan") or (self.at(*_STAGES) and self.ahead().value in ("plan", "optimized")):
            stage = self.explain_stage()
            if self.take("with"):
                options = self.explain_options(stage)
            if self.take("as"):
                options["format"] = self.choose("text", "json")
            self.expect("for")
        elif self.at("(") and self.ahead().value not in (*QUERY_HEADS, "("):
            options = self.explain_options(stage)
        else:
            for word in ("analyze", "verbose"):
                if self.take(word) or (word == "analyze" and self.take("analyse")):
                    options[word] = "true"
        on = {name for name, value in options.items() if value == "true"}
        statement = self.explained(start, analyze="analyze" in on)
        return Explain(
            *self.located(start),
            statement,
            stage,
            analyze="analyze" in on,
            verbose="verbose" in on,
            no_timing=options.get("timing") == "false",
            summary=options.get("summary", options.get("analyze")) == "true",
            json=options.get("format") == "json",
            spark_mode=next((mode for mode in _SPARK_MODES if mode in on), None),
        )

    def explain_stage(self) -> ExplainStage | None:
        """`RAW PLAN` and so on. None for `PLAN` alone, which is the summary."""
        if self.at("decorrelated", "locally"):
            what = "DECORRELATED" if self.at("decorrelated") else "LOCALLY OPTIMIZED"
            raise self.refused(f"EXPLAIN {what} PLAN", "EXPLAIN OPTIMIZED PLAN shows the plan after all passes.")
        stage = None if self.at("plan") else ExplainStage(self.choose(*_STAGES))
        self.expect("plan")
        return stage

    def explained(self, start: int, *, analyze: bool) -> Explained:
        if self.at("view", "index") or self.at_all("materialized", "view"):
            if self.at("view") and analyze:
                raise self.refused("EXPLAIN ANALYZE VIEW", "Write EXPLAIN ANALYZE SELECT ... FROM the view.")
            return StoredQuery(self.object_kind("EXPLAIN"), self.name())
        if not self.at(*QUERY_HEADS, "insert", "update", "delete", "subscribe", "create", "execute"):
            raise self.fault()
        token = self.token
        statement = self.statement()
        if not isinstance(statement, Explained) or (analyze and isinstance(statement, _CREATES)):
            creates = isinstance(statement, _CREATES)
            raise self.refused(
                "EXPLAIN ANALYZE of CREATE" if creates else "EXPLAIN of a statement that has no plan",
                "Create it, and write EXPLAIN ANALYZE MATERIALIZED VIEW and its name." if creates else None,
                at=token,
            )
        return statement

    def explain_options(self, stage: ExplainStage | None) -> dict[str, str]:
        """The options by name; Boolean options are `true` or `false`. `stage` None: PostgreSQL's options."""
        known = _EXPLAIN_SWITCHES if stage is None else _STAGE_SWITCHES.get(stage, frozenset())
        options: dict[str, str] = {}
        for token, name, value in self.in_parentheses(self.explain_option):
            if name in ("format", "serialize") and stage is None:
                options[name] = self.explain_format(token, name, value)
            elif name not in known:
                message = f'unrecognized EXPLAIN option "{name}"'
                raise PgError(SqlState.SYNTAX_ERROR, message, position=token.start + 1)
            elif value in (None, "true", "on", "1"):
                options[name] = "true"
            elif value in ("false", "off", "0"):
                options[name] = "false"
            else:
                raise PgError(SqlState.SYNTAX_ERROR, f"{name} requires a Boolean value")
        for name in ("wal", "timing", "serialize"):
            if options.get(name, "false") not in ("false", "none") and options.get("analyze") != "true":
                message = f"EXPLAIN option {name.upper()} requires ANALYZE"
                raise PgError(SqlState.INVALID_PARAMETER_VALUE, message)
        if options.get("generic_plan") == options.get("analyze") == "true":
            message = "EXPLAIN options ANALYZE and GENERIC_PLAN cannot be used together"
            raise PgError(SqlState.INVALID_PARAMETER_VALUE, message)
        return options

    def explain_format(self, token: Token, name: str, value: str | None) -> str:
        known = {"format": ("text", "xml", "json", "yaml"), "serialize": ("none", "off", "text", "binary")}[name]
        if value is None and name == "serialize":
            return "text"
        if value not in known:
            if value is None:
                raise PgError(SqlState.SYNTAX_ERROR, f"{name} requires a parameter")
            message = f'unrecognized value for EXPLAIN option "{name}": "{value}"'
            raise PgError(SqlState.INVALID_PARAMETER_VALUE, message, position=token.start + 1)
        if value in ("xml", "yaml"):
            raise self.refused(f"EXPLAIN (FORMAT {value.upper()})", "There are TEXT and JSON.", at=token)
        return value

    def explain_option(self) -> tuple[Token, str, str | None]:
        token = self.token
        name = self.ident(refused=RESERVED_WORDS - {"analyze", "analyse"}).name
        value = None if self.at(",", ")") else self.setting_value().lower()
        return token, "analyze" if name == "analyse" else name, value

    def declare(self) -> Declare:
        start = self.index
        self.expect("declare")
        name = self.ident()
        while not self.at("cursor"):
            self.refuse_at("a BINARY cursor", "binary", hint="Ask for binary results when FETCH is bound.")
            self.refuse_at("a SCROLL cursor", "scroll")
            if not (self.take("no", "scroll") or self.take("insensitive") or self.take("asensitive")):
                raise self.fault()
        self.expect("cursor")
        if self.at_all("with", "hold"):
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "WITH HOLD is unsupported for cursors",
                position=self.token.start + 1,
            )
        self.take("without", "hold")
        self.expect("for")
        if not self.at(*QUERY_HEADS, "subscribe", "show"):
            raise self.fault()
        statement = self.statement()
        assert isinstance(statement, Select | Subscribe | ShowStatement)
        return Declare(*self.located(start), name, statement)

    def fetch(self) -> Fetch:
        start = self.index
        self.expect("fetch")
        count = self.fetch_count()
        _ = self.take("from") or self.take("in")
        cursor = self.ident()
        timeout: str | None = None
        if self.take("with"):
            self.expect_one_of("(")
            self.expect_one_of("timeout")
            self.take("=")
            self.take("interval")
            if self.token.kind is not Kind.STRING:
                raise self.expected("option value")
            timeout = self.string()
            self.expect_one_of(")")
        return Fetch(*self.located(start), cursor, count, timeout)

    def fetch_count(self) -> int | None:
        """The number of rows; None for ALL. A direction keyword at the end of the statement is the cursor's name."""
        after = self.ahead()
        if not self.at("all") and (after.kind is Kind.END or after.value == ";"):
            return 1
        self.refuse_at("FETCH in that direction", "prior", "first", "last", "absolute", "relative", "backward", "-")
        if self.take("next"):
            return 1
        self.take("forward")
        self.refuse_at("FETCH in that direction", "-")
        if self.take("all"):
            return None
        return int(self.integer()) if self.token.kind is Kind.NUMBER else 1

    def close(self) -> CloseCursor:
        start = self.index
        self.expect("close")
        name = None if self.take("all") else self.ident()
        return CloseCursor(*self.located(start), name)

    def unlisten(self) -> Unlisten:
        start = self.index
        self.expect("unlisten")
        if not self.take("*"):
            self.ident()
        return Unlisten(*self.located(start))


_HEADS: dict[str, Callable[[_Grammar], Statement]] = {
    **dict.fromkeys(QUERY_HEADS, _Grammar.select),
    "abort": _Grammar.rollback,
    "alter": _Grammar.alter,
    "begin": _Grammar.begin,
    "close": _Grammar.close,
    "comment": _Grammar.comment,
    "commit": _Grammar.commit,
    "copy": _Grammar.copy,
    "create": _Grammar.create,
    "deallocate": _Grammar.deallocate,
    "declare": _Grammar.declare,
    "delete": _Grammar.delete,
    "discard": _Grammar.discard,
    "drop": _Grammar.drop,
    "end": _Grammar.commit,
    "execute": _Grammar.execute,
    "explain": _Grammar.explain,
    "fetch": _Grammar.fetch,
    "grant": _Grammar.grant,
    "insert": _Grammar.insert,
    "prepare": _Grammar.prepare,
    "reassign": _Grammar.reassign_owned,
    "release": _Grammar.savepoint,
    "reset": _Grammar.reset,
    "revoke": _Grammar.revoke,
    "rollback": _Grammar.rollback,
    "savepoint": _Grammar.savepoint,
    "set": _Grammar.set,
    "show": _Grammar.show,
    "start": _Grammar.begin,
    "subscribe": _Grammar.subscribe,
    "truncate": _Grammar.truncate,
    "unlisten": _Grammar.unlisten,
    "update": _Grammar.update,
}
