"""A session with alembic: each step is a function, whose docstring is its title in docs/clients.md."""

import tempfile
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from steps import URL, run

SQLALCHEMY_URL = URL.replace("postgresql://", "postgresql+psycopg://")
DIRECTORY = Path(tempfile.mkdtemp())
CREATE = """
import sqlalchemy as sa
from alembic import op
revision, down_revision = "1", None

def upgrade():
    op.create_table("al_accounts", sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("name", sa.String(50), nullable=False))
    op.create_index("al_by_name", "al_accounts", ["name"])

def downgrade():
    op.drop_table("al_accounts")
"""
ALTER = """
import sqlalchemy as sa
from alembic import op
revision, down_revision = "2", "1"

def upgrade():
    op.add_column("al_accounts", sa.Column("note", sa.Text))
    op.alter_column("al_accounts", "name", new_column_name="title")

def downgrade():
    op.alter_column("al_accounts", "title", new_column_name="name")
    op.drop_column("al_accounts", "note")
"""


def config():
    config = Config(str(DIRECTORY / "alembic.ini"))
    config.set_main_option("script_location", str(DIRECTORY / "migrations"))
    config.set_main_option("sqlalchemy.url", SQLALCHEMY_URL)
    return config


def create():
    """`upgrade`: a table and an index"""
    command.init(config(), str(DIRECTORY / "migrations"))
    versions = DIRECTORY / "migrations" / "versions"
    (versions / "1_create.py").write_text(CREATE)
    environment = DIRECTORY / "migrations" / "env.py"
    environment.write_text(environment.read_text().replace("fileConfig(config.config_file_name)", "pass"))
    command.upgrade(config(), "1")
    engine = sa.create_engine(SQLALCHEMY_URL)
    assert sa.inspect(engine).has_table("al_accounts")


def autogenerate():
    """`autogenerate` finds no difference"""
    metadata = sa.MetaData()
    accounts = sa.Table(
        "al_accounts",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("name", sa.String(50), nullable=False),
    )
    sa.Index("al_by_name", accounts.c.name)
    with sa.create_engine(SQLALCHEMY_URL).connect() as connection:

        def is_ours(name, type, parents):
            return type != "table" or name == "al_accounts"

        context = MigrationContext.configure(connection, opts={"include_name": is_ours})
        assert compare_metadata(context, metadata) == []


def include_schemas():
    """`autogenerate` with `include_schemas`"""
    with sa.create_engine(SQLALCHEMY_URL).begin() as connection:
        connection.execute(sa.text("CREATE SCHEMA al_schema"))
        connection.execute(sa.text("CREATE TABLE al_schema.al_other (id integer PRIMARY KEY)"))
        opts = {
            "include_schemas": True,
            "include_name": lambda name, type_, _: type_ != "schema" or name not in ("mz_catalog", "mz_internal"),
        }
        changes = compare_metadata(MigrationContext.configure(connection, opts=opts), sa.MetaData())
        removed = {(table.schema, table.name) for kind, table in changes if kind == "remove_table"}
        assert removed >= {(None, "al_accounts"), ("al_schema", "al_other")}
        assert not {schema for schema, _ in removed} & {"mz_catalog", "mz_internal"}
        connection.execute(sa.text("DROP SCHEMA al_schema CASCADE"))


def alter():
    """`upgrade`: add and rename columns"""
    (DIRECTORY / "migrations" / "versions" / "2_alter.py").write_text(ALTER)
    command.upgrade(config(), "head")
    with sa.create_engine(SQLALCHEMY_URL).connect() as connection:
        assert [c["name"] for c in sa.inspect(connection).get_columns("al_accounts")] == ["id", "title", "note"]


def downgrade():
    """`downgrade`"""
    command.downgrade(config(), "base")
    assert not sa.inspect(sa.create_engine(SQLALCHEMY_URL)).has_table("al_accounts")


run(create, autogenerate, include_schemas, alter, downgrade)
