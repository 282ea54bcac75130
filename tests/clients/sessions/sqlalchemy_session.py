"""A session with sqlalchemy: each step is a function, whose docstring is its title in docs/clients.md."""

import asyncio
import datetime
import decimal
import enum

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship
from steps import URL, run

ENGINE = sa.create_engine(URL.replace("postgresql://", "postgresql+psycopg://"))


class Base(DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "sa_authors"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    name: Mapped[str] = mapped_column(sa.String(40))
    born: Mapped[datetime.date | None]
    balance: Mapped[decimal.Decimal] = mapped_column(sa.Numeric(10, 2), default=decimal.Decimal(0))
    books: Mapped[list["Book"]] = relationship(back_populates="author")


class Book(Base):
    __tablename__ = "sa_books"

    isbn: Mapped[str] = mapped_column(primary_key=True)
    title: Mapped[str]
    author_id: Mapped[int] = mapped_column(sa.ForeignKey("sa_authors.id"))
    author: Mapped[Author] = relationship(back_populates="books")


class Numbered(Base):
    __tablename__ = "sa_numbered"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]


def create_all():
    """`create_all` with keys that the application chooses"""
    Base.metadata.create_all(ENGINE, tables=[Author.__table__])
    Base.metadata.create_all(ENGINE, tables=[Author.__table__])  # it exists


def create_foreign_key():
    """`create_all` with a foreign key"""
    try:
        Base.metadata.create_all(ENGINE, tables=[Book.__table__])
    except sa.exc.DBAPIError:
        with ENGINE.begin() as connection:  # the other steps need the table
            columns = "isbn varchar PRIMARY KEY, title varchar NOT NULL, author_id integer NOT NULL"
            connection.execute(sa.text(f"CREATE TABLE sa_books ({columns})"))
        raise


def orm():
    """ORM session: add, get, change, commit, relationships"""
    with Session(ENGINE) as session:
        session.add(Author(id=1, name="Ursula", born=datetime.date(1929, 10, 21)))
        session.add(Author(id=2, name="Iain"))
        session.flush()
        session.add(Book(isbn="a", title="The Dispossessed", author_id=1))
        session.commit()
    with Session(ENGINE) as session:
        author = session.get(Author, 1)
        author.balance += decimal.Decimal("1.25")
        session.commit()
        assert author.balance == decimal.Decimal("1.25")
        assert [book.title for book in author.books] == ["The Dispossessed"]
        joined = sa.select(Author.name, sa.func.count(Book.isbn)).outerjoin(Book).group_by(Author.name)
        assert sorted(session.execute(joined).all()) == [("Iain", 0), ("Ursula", 1)]
        with session.begin_nested() as nested:
            session.delete(session.get(Author, 2))
            session.flush()
            nested.rollback()
        assert session.scalar(sa.select(sa.func.count()).select_from(Author)) == 2


def core():
    """Core: bulk insert, stream results"""
    with ENGINE.begin() as connection:
        connection.execute(sa.insert(Author), [{"id": n, "name": str(n)} for n in range(10, 200)])
    with ENGINE.connect() as connection:
        rows = connection.execution_options(stream_results=True).execute(sa.select(Author.id).where(Author.id >= 10))
        assert len(rows.fetchall()) == 190


def reflection():
    """Reflection: tables, columns, keys, indexes, comments"""
    metadata = sa.MetaData()
    metadata.reflect(ENGINE)
    assert {"sa_authors", "sa_books"} <= set(metadata.tables)
    inspector = sa.inspect(ENGINE)
    assert [column["name"] for column in inspector.get_columns("sa_authors")] == ["id", "name", "born", "balance"]
    assert inspector.get_pk_constraint("sa_authors")["constrained_columns"] == ["id"]
    inspector.get_indexes("sa_books")
    inspector.get_unique_constraints("sa_books")
    inspector.get_check_constraints("sa_books")
    assert inspector.get_schema_names()
    assert inspector.has_table("sa_books")


def foreign_keys():
    """Reflection of foreign keys"""
    assert sa.inspect(ENGINE).get_foreign_keys("sa_books")[0]["referred_table"] == "sa_authors"


def autocommit():
    """`isolation_level="AUTOCOMMIT"`"""
    with ENGINE.connect() as connection:
        assert connection.default_isolation_level == connection.get_isolation_level() == "SERIALIZABLE"
        connection.execution_options(isolation_level="AUTOCOMMIT")
        connection.execute(sa.insert(Author).values(id=300, name="N. K."))
        with ENGINE.connect() as other:
            assert other.scalar(sa.select(Author.name).where(Author.id == 300)) == "N. K."
    with ENGINE.begin() as connection:  # the pool has restored the connection's isolation level
        assert connection.get_isolation_level() == "SERIALIZABLE"
        connection.execute(sa.delete(Author).where(Author.id == 300))


def asyncpg():
    """asyncio engine (asyncpg)"""

    async def work():
        engine = create_async_engine(URL.replace("postgresql://", "postgresql+asyncpg://"))
        async with engine.begin() as connection:
            assert (await connection.execute(sa.select(Author.name).where(Author.id == 1))).scalar() == "Ursula"
        await engine.dispose()

    asyncio.run(work())


def integer_keys():
    """`create_all` with integer keys that the database assigns"""
    Base.metadata.create_all(ENGINE, tables=[Numbered.__table__])
    with Session(ENGINE) as session:
        numbered = [Numbered(name="a"), Numbered(name="b")]
        session.add_all(numbered)
        session.commit()
        assert [n.id for n in numbered] == [1, 2]


def upsert():
    """`on_conflict_do_update`"""
    from sqlalchemy.dialects.postgresql import insert

    with ENGINE.begin() as connection:
        statement = insert(Author).values(id=1, name="U. K. Le Guin")
        connection.execute(
            statement.on_conflict_do_update(index_elements=["id"], set_={"name": statement.excluded.name})
        )
        assert connection.scalar(sa.select(Author.name).where(Author.id == 1)) == "U. K. Le Guin"


class Status(enum.Enum):
    new = "new"
    done = "done"


def enums():
    """`Enum`: `create_all`, values, reflection, `drop_all`"""
    metadata = sa.MetaData()
    orders = sa.Table(
        "orders", metadata, sa.Column("id", sa.Integer), sa.Column("status", sa.Enum(Status, name="status"))
    )
    metadata.create_all(ENGINE)
    with ENGINE.begin() as connection:
        connection.execute(orders.insert(), [{"id": 1, "status": Status.done}, {"id": 2, "status": Status.new}])
        ordered = connection.execute(sa.select(orders).order_by(orders.c.status)).all()
        assert ordered == [(2, Status.new), (1, Status.done)], ordered
        assert connection.execute(sa.select(orders.c.id).where(orders.c.status == Status.done)).all() == [(1,)]
    reflected = sa.Table("orders", sa.MetaData(), autoload_with=ENGINE)
    assert reflected.c.status.type.enums == ["new", "done"]
    assert [found["name"] for found in sa.inspect(ENGINE).get_enums()] == ["status"]
    metadata.drop_all(ENGINE)
    assert sa.inspect(ENGINE).get_enums() == []


def drop_all():
    """`drop_all`"""
    Base.metadata.drop_all(ENGINE, tables=[Book.__table__, Author.__table__])


run(
    *(create_all, create_foreign_key, orm, core, reflection, foreign_keys, autocommit, asyncpg, integer_keys, upsert),
    *(enums, drop_all),
)
