"""The kinds of catalog object, one class each. Ids are never reused: `u12` is a user's object, `s3` a built-in one.

The attributes of a class are the names of its kind, its privileges, and how PostgreSQL's catalogs show it.
`catalog_object.Item.stored` converts a definition to JSON, and `catalog_object.Item.restored` from JSON. Some base
classes are capabilities: other modules test for them, so that they need no change for a new kind. A relation can be
named in FROM, a retained item can be held, and a collection has its rows in the log.

- `catalog_object`: the base classes of all objects, and of those in schemas. `relations`: the capabilities.
  `columns`: columns, checks and the use of domains.
- `namespaces`: databases and schemas. `clusters`: the only cluster.
- `tables`, `views`, `indexes`, `holds`, `secrets`, `connections`, `sources`, `sinks`, `sequences`, `types`,
  `system_tables`: the kinds in schemas.
- `kinds`: all kinds in schemas, by name.
"""
