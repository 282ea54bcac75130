"""The numbered migrations that bring a catalog file to the current format.

Each step is SQL, independent of the rest of the code, and is never changed. The missing steps and the format number
commit in one transaction, so a failing step leaves the file unchanged, and a new file waits for the disk once. A file
of a later format is refused.
"""

from __future__ import annotations

import sqlite3

MIGRATIONS: tuple[tuple[str, str], ...] = (
    (
        "catalog, log and oracle",
        """
        CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
        INSERT INTO meta VALUES ('epoch', 0), ('reserved_until', 0), ('next_id', 4), ('catalog_version', 0);

        CREATE TABLE databases (id TEXT PRIMARY KEY, name TEXT NOT NULL) WITHOUT ROWID;
        CREATE TABLE schemas (id TEXT PRIMARY KEY, database_id TEXT NOT NULL, name TEXT NOT NULL) WITHOUT ROWID;
        CREATE TABLE items (
            id TEXT PRIMARY KEY,
            schema_id TEXT NOT NULL,
            name TEXT NOT NULL,
            kind TEXT NOT NULL,
            definition TEXT NOT NULL  -- JSON, without the columns: see catalog/objects/
        ) WITHOUT ROWID;
        CREATE TABLE columns (
            item_id TEXT NOT NULL,
            position INTEGER NOT NULL,
            name TEXT NOT NULL,
            type TEXT NOT NULL,
            nullable INTEGER NOT NULL,
            default_text TEXT,
            PRIMARY KEY (item_id, position)
        ) WITHOUT ROWID;
        CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

        -- The durable frontiers of collections: see catalog/log.py.
        CREATE TABLE collections (id TEXT PRIMARY KEY, since INTEGER NOT NULL, upper INTEGER) WITHOUT ROWID;
        CREATE TABLE batches (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            collection TEXT NOT NULL,
            time INTEGER NOT NULL,
            rows INTEGER NOT NULL,
            bytes INTEGER NOT NULL,
            payload BLOB,                -- an Arrow IPC stream, if it is small
            file TEXT,                   -- otherwise the name of an Arrow IPC file in payloads/
            CHECK ((payload IS NULL) <> (file IS NULL))
        );
        CREATE INDEX batches_by_collection ON batches (collection, id);

        INSERT INTO databases VALUES ('u1', 'materialize');
        INSERT INTO schemas VALUES ('u2', 'u1', 'public');
        """,
    ),
    (
        "roles and privileges",
        """
        CREATE TABLE roles (
            id TEXT PRIMARY KEY,
            name TEXT NOT NULL,
            superuser INTEGER NOT NULL,
            inherit INTEGER NOT NULL,
            login INTEGER NOT NULL,
            create_db INTEGER NOT NULL
        ) WITHOUT ROWID;
        CREATE TABLE memberships (id TEXT NOT NULL, member_of TEXT NOT NULL, PRIMARY KEY (id, member_of)) WITHOUT ROWID;
        CREATE TABLE owners (id TEXT PRIMARY KEY, role_id TEXT NOT NULL) WITHOUT ROWID;  -- except materialize
        CREATE TABLE privileges (
            id TEXT NOT NULL,
            role_id TEXT NOT NULL,       -- 'p' is PUBLIC
            privileges TEXT NOT NULL,    -- the letters of PostgreSQL's aclitem
            PRIMARY KEY (id, role_id)
        ) WITHOUT ROWID;

        -- PUBLIC has USAGE on the schemas public, as in PostgreSQL. Role materialize, s1000, owns all objects.
        INSERT INTO privileges SELECT id, 's1000', 'UC' FROM schemas WHERE name = 'public';
        INSERT INTO privileges SELECT id, 'p', 'U' FROM schemas WHERE name = 'public';
        """,
    ),
    (
        "holds and comments",
        """
        -- The time and status of holds: see catalog/holds.py.
        CREATE TABLE holds (id TEXT PRIMARY KEY, at INTEGER NOT NULL, status TEXT NOT NULL) WITHOUT ROWID;
        -- The milliseconds without a server that do not count as lag of the holds yet.
        INSERT INTO meta VALUES ('downtime', 0);

        CREATE TABLE comments (
            object_id TEXT NOT NULL,
            position INTEGER NOT NULL,   -- the column's number, from 1; 0: the object itself
            comment TEXT NOT NULL,
            PRIMARY KEY (object_id, position)
        ) WITHOUT ROWID;
        """,
    ),
    (
        "checksums, and batches of several times",
        """
        -- The payload is the last column, so that SQLite reads the other columns without reading the payload's pages.
        CREATE TABLE batches_4 (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            collection TEXT NOT NULL,
            time INTEGER NOT NULL,       -- the greatest time of its rows
            rows INTEGER NOT NULL,
            bytes INTEGER NOT NULL,
            times BLOB,                  -- times of the rows: see catalog/spans.py; NULL: all rows are at `time`
            file TEXT,                   -- the name of an Arrow IPC file in payloads/
            payload_crc INTEGER,         -- CRC-32 of the payload; NULL: written before format 4
            row_crc INTEGER,             -- CRC-32 of this row's other columns except the payload; NULL with payload_crc
            payload BLOB,                -- an Arrow IPC stream, if it is small
            CHECK ((payload IS NULL) <> (file IS NULL))
        );
        INSERT INTO batches_4 (id, collection, time, rows, bytes, file, payload)
            SELECT id, collection, time, rows, bytes, file, payload FROM batches;
        -- Ids of deleted batches are never used again.
        DELETE FROM sqlite_sequence WHERE name = 'batches_4';
        INSERT INTO sqlite_sequence (name, seq) SELECT 'batches_4', seq FROM sqlite_sequence WHERE name = 'batches';
        DROP TABLE batches;
        ALTER TABLE batches_4 RENAME TO batches;
        CREATE INDEX batches_by_collection ON batches (collection, id);
        """,
    ),
    (
        "state of sources",
        """
        -- The position of a source in its external system, by partition or another key: see catalog/source_state.py.
        CREATE TABLE source_state (
            id TEXT NOT NULL,
            key TEXT NOT NULL,
            value BLOB NOT NULL,
            PRIMARY KEY (id, key)
        ) WITHOUT ROWID;
        """,
    ),
    (
        "sources",
        """
        -- Items can be of the kinds secret, connection, source, subsource and source table, which earlier versions do
        -- not know. The tables are the same.
        """,
    ),
    (
        "errors of collections",
        """
        -- Why a collection cannot be read, from a time on: see catalog/collection_errors.py.
        CREATE TABLE collection_errors (
            id TEXT NOT NULL,
            time INTEGER NOT NULL,
            message TEXT,                -- NULL: the collection can be read
            detail TEXT,
            hint TEXT,
            PRIMARY KEY (id, time)
        ) WITHOUT ROWID;
        """,
    ),
    (
        "changes of collections",
        """
        -- Sources can have the envelope materialize, and items can be of the kind sink, which earlier versions do not
        -- know. The table source_state also has the state of sinks. The tables are the same.
        """,
    ),
    (
        "sinks into PostgreSQL",
        """
        UPDATE items SET definition = json_set(definition, '$.connection', NULL, '$.key', json('[]'), '$.identity', '')
            WHERE kind = 'sink';
        """,
    ),
    (
        "passwords",
        """
        -- How roles log in. A role without a row has the defaults. Role materialize can have a row, too.
        CREATE TABLE logins (
            id TEXT PRIMARY KEY,
            verifier TEXT,               -- a SCRAM verifier in PostgreSQL's form
            valid_until INTEGER,         -- microseconds since 1970; NULL: the password does not expire
            connection_limit INTEGER NOT NULL
        ) WITHOUT ROWID;
        -- The key from which the salts of roles without a password follow: they must not change with a restart.
        CREATE TABLE keys (name TEXT PRIMARY KEY, key BLOB NOT NULL) WITHOUT ROWID;
        INSERT INTO keys VALUES ('salts', randomblob(32));
        """,
    ),
    (
        "enforced keys",
        """
        -- Tables can have keys with a name that are enforced, and indexes can be unique, which earlier versions do not
        -- know. Existing keys stay as they are: lists of columns, not enforced. See catalog/keys.py.
        """,
    ),
    (
        "privileges on columns",
        """
        -- Positions are counted from 1. The letters are those of the table privileges.
        CREATE TABLE column_privileges (
            id TEXT NOT NULL,
            position INTEGER NOT NULL,
            role_id TEXT NOT NULL,
            privileges TEXT NOT NULL,
            PRIMARY KEY (id, position, role_id)
        ) WITHOUT ROWID;
        -- Owners of relations have REFERENCES, as of new ones.
        UPDATE privileges SET privileges = replace(privileges, 'D', 'Dx')
            WHERE id IN (SELECT id FROM items WHERE kind IN ('table', 'view', 'materialized view'))
            AND role_id = coalesce((SELECT owners.role_id FROM owners WHERE owners.id = privileges.id), 's1000');
        """,
    ),
    (
        "grant options",
        """
        ALTER TABLE roles ADD COLUMN create_role INTEGER NOT NULL DEFAULT 0;

        CREATE TABLE memberships_13 (
            role_id TEXT NOT NULL,
            member TEXT NOT NULL,
            grantor TEXT NOT NULL,
            admin INTEGER NOT NULL,
            inherit INTEGER NOT NULL,
            may_set INTEGER NOT NULL,
            PRIMARY KEY (role_id, member, grantor)
        ) WITHOUT ROWID;
        -- Superusers granted all memberships. The member's attribute had the effect that the option has now.
        INSERT INTO memberships_13 SELECT member_of, memberships.id, 's1000', 0, roles.inherit, 1
            FROM memberships JOIN roles ON roles.id = memberships.id;
        DROP TABLE memberships;
        ALTER TABLE memberships_13 RENAME TO memberships;

        -- The privileges on an object (position 0) or on a column, counted from 1. The list is JSON, and each entry
        -- [grantee, grantor, letters of PostgreSQL's aclitem].
        CREATE TABLE acls (
            id TEXT NOT NULL,
            position INTEGER NOT NULL,
            acl TEXT NOT NULL,
            PRIMARY KEY (id, position)
        ) WITHOUT ROWID;
        -- The owner has granted all privileges. Its entry is the first. The owner of a part is that of the whole.
        CREATE TEMPORARY TABLE owned AS
            SELECT id, position, role_id, privileges, coalesce(
                (SELECT owners.role_id FROM owners WHERE owners.id = coalesce(
                    (SELECT coalesce(json_extract(definition, '$.owner_table'), json_extract(definition, '$.source'))
                        FROM items WHERE items.id = granted.id AND kind IN ('sequence', 'subsource')),
                    granted.id)),
                's1000') AS owner
            FROM (
                SELECT id, 0 AS position, role_id, privileges FROM privileges
                UNION ALL SELECT id, position, role_id, privileges FROM column_privileges
            ) AS granted;
        INSERT INTO acls
            SELECT id, position,
                coalesce(json_group_array(json_array(role_id, owner, privileges)) FILTER (WHERE privileges <> ''), '[]')
            FROM (SELECT * FROM owned ORDER BY id, position, role_id <> owner, role_id)
            GROUP BY id, position;
        DROP TABLE owned;
        DROP TABLE privileges;
        DROP TABLE column_privileges;

        -- ALTER DEFAULT PRIVILEGES. The schema is '' for all of the database; the kind is defaclobjtype.
        CREATE TABLE default_acls (
            role_id TEXT NOT NULL,
            database_id TEXT NOT NULL,
            schema_id TEXT NOT NULL,
            kind TEXT NOT NULL,
            acl TEXT NOT NULL,
            PRIMARY KEY (role_id, database_id, schema_id, kind)
        ) WITHOUT ROWID;
        """,
    ),
    (
        "TRIGGER and MAINTAIN",
        """
        -- Owners of relations have TRIGGER and MAINTAIN, as of new ones. The order of the letters has no meaning.
        UPDATE acls SET acl = (
            SELECT json_group_array(json_array(
                json_extract(value, '$[0]'), json_extract(value, '$[1]'),
                json_extract(value, '$[2]') || CASE
                    WHEN json_extract(value, '$[0]') = coalesce(
                        (SELECT owners.role_id FROM owners WHERE owners.id = acls.id), 's1000')
                    AND instr(json_extract(value, '$[2]'), 'x') THEN 'tm' ELSE '' END))
            FROM (SELECT value FROM json_each(acls.acl) ORDER BY key))
            WHERE position = 0 AND id IN (SELECT id FROM items WHERE kind IN ('table', 'view', 'materialized view'));
        UPDATE default_acls SET acl = (
            SELECT json_group_array(json_array(
                json_extract(value, '$[0]'), json_extract(value, '$[1]'),
                json_extract(value, '$[2]') || CASE
                    WHEN json_extract(value, '$[0]') = role_id AND instr(json_extract(value, '$[2]'), 'x') THEN 'tm'
                    ELSE '' END))
            FROM (SELECT value FROM json_each(default_acls.acl) ORDER BY key))
            WHERE kind = 'r' AND schema_id = '';
        """,
    ),
    (
        "times that a backup lacks",
        """
        -- The times in [lower, upper) whose changes may be missing: from a backup to the first start with it.
        CREATE TABLE lost_times (
            lower INTEGER PRIMARY KEY,
            upper INTEGER  -- NULL until this start
        );
        """,
    ),
)


class TooNew(Exception):
    """The file was written by a later version of Tidewire in a format that this version does not know."""

    def __init__(self, found: int) -> None:
        super().__init__(f"it has format {found}; this version of Tidewire reads formats up to {len(MIGRATIONS)}")
        self.found = found


def migrate(connection: sqlite3.Connection) -> int:
    """Applies the missing steps. Returns the format found, 0 for a new file. TooNew if the format is unknown."""
    (applied,) = connection.execute("PRAGMA user_version").fetchone()
    if applied > len(MIGRATIONS):
        raise TooNew(applied)
    if missing := MIGRATIONS[applied:]:
        steps = "\n".join(f"{script};" for _, script in missing)
        # executescript() commits a pending transaction before it starts, so the script contains BEGIN and COMMIT.
        try:
            connection.executescript(f"BEGIN IMMEDIATE; {steps} PRAGMA user_version = {len(MIGRATIONS)}; COMMIT;")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    return int(applied)
