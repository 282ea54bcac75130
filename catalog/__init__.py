"""What exists, and what was written: the catalog and the log, in one SQLite file with one writer.

- `objects`: the nouns (databases, schemas, tables, views, indexes) and `CatalogState`, an immutable picture.
- `store`: the SQLite file: one writer thread, one transaction a commit, epoch fence, numbered `migrations`.
- `oracle`: timestamps, reserved ahead on disk, so that none is given twice, whatever crashes or the clock does.
- `persistence`: how a `CatalogState` lies in the file. `builtin`: the system schemas and tables.
- `updates`: (row, diff) as Arrow tables: consolidation, difference, multiplicities.
- `log`: every collection's batches, their payloads, frontiers and compaction.

Commit first, act afterwards: whatever the server does with an object is derived again from here after a restart.
"""
