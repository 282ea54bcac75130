"""The durable state of a server: the catalog and the log of updates, in one SQLite file with one writer.

- `objects`: the kinds of object (databases, schemas, tables, views, indexes, holds, sources, sinks) and their
  capabilities; `ids`: the types of ids, timestamps and diffs. `keys`, `foreign_keys`: constraints. `enum_positions`:
  labels of enumerated types. `roles`: roles and privileges. `acls`: access control lists.
- `source_definition`: the formats, envelopes and tables of a CREATE SOURCE statement.
- `source_state`: the position of each source, and the frontier of each sink, in its external system. `sequence_state`:
  the values of sequences.
- `holds`: the time of each hold. `collection_errors`: the errors of collections, by time.
- `state`: `CatalogState`, an immutable snapshot of all objects. DDL computes a new one. `drops`: a state without some
  objects, and what depends on them. `references`: the foreign keys of a state, and the keys on which they rely.
  `rebasing`: the changes of two transactions together.
- `store`: the SQLite file: one writer thread, one transaction per commit, an epoch fence, numbered `migrations`.
- `oracle`: timestamps. Each is reserved on disk before use, so that none is issued twice, even after a crash or when
  the clock steps back.
- `persistence`: reads and writes a `CatalogState`. `builtin`: the system schemas and tables.
  `pg_catalog`: PostgreSQL's.
- `updates`: (row, diff) as Arrow tables: consolidation, difference, multiplicities.
- `log`: reads and writes of every collection's batches; their frontiers and compaction. `batches`: the stored form of a
  batch. `payloads`: the files of large batches. `layout`: the columns of payloads. `spans`: the times of a batch.
  `merge_runs`: which batches are merged. `merging`: the sum of batches. `table_cache`: tables of batches in memory.
  `shared_list`: a sequence with cheap appends.
- `spill`: consolidation of changes that exceed memory; `ranges`: without partitions on disk where possible.
  `free_space`: what temporary files leave to commits.
- `directory`: creates durable files. `check`: verifies a data directory. `backup`: copies one that is in use.
  `lost_times`: the times that a restored server lacks.

A change is committed here before the server acts on it. After a restart all other server state is rebuilt from here.
"""
