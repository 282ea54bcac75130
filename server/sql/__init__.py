"""SQL: parsing, binding, planning, and rendering to Spark SQL. Nothing in this package executes a query or does IO.

`grammar`      text to statements: Tidewire's own grammar; queries inside statements become sqlglot trees
`plan`         plans queries, and `writes` INSERT, UPDATE, DELETE and MERGE, using the modules below
`bind`         trees to `relations` of typed `expressions`: names (`scope`), types (`coerce`, `casts`, `decimals`;
               `type_names` resolves those of users)
`functions`    the table of functions and operators; `regex` implements LIKE and ~, `json_path` JSON paths;
               `infinities`: infinite dates
`volatile`     calls of which each row gets a value of its own; `waiting`: functions that wait
`decorrelate`  turns subqueries that Spark cannot compute into joins
`rewrite`      rewrites the plans of maintained queries; `versioned_plan` and `temporal` serve their operators
`columns`      the columns that a plan names, and new ones; `conditions`: conjunctions, and what never fails
`render`       relations to Spark SQL, with `group_keys`; `recursion`: the statements of WITH RECURSIVE
`constant`     plans that need no Spark; `direct_scan`: of unchanged rows; `row_expressions`: expressions over one row
`rowwise`      plans over few rows, with constants as columns; `key_conditions` and `index_lookups` select the rows
`row_rules`    CHECK and generated columns of a table; `computed_keys`: unique indexes on expressions; `index_keys`: the
               keys of indexes; `foreign_keys`: foreign keys as text
`stored_query` queries in the catalog; `stored_columns`: their columns after ALTER TABLE; `sequence_names`: sequences in
               texts; `cached_texts`: caches by texts
`row_bounds`   the numbers of LIMIT, OFFSET and FETCH
`outline`      the output of EXPLAIN as a tree
"""
