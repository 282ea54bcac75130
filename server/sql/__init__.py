"""SQL: parsing, binding, planning, and rendering to Spark SQL. Nothing in this package executes a query or does IO.

`grammar`      text to statements: Tidewire's own grammar; queries inside statements become sqlglot trees
`plan`         plans queries, and `write_plan` writes, using the modules below
`bind`         trees to `relations` of typed `expressions`: names (`scope`), types (`coerce`, `casts`, `decimals`;
               `type_names` resolves those of users)
`functions`    the table of functions and operators; `regex` implements LIKE and ~
`decorrelate`  turns subqueries that Spark cannot compute into joins
`rewrite`      rewrites the plans of maintained queries; `versioned_plan` and `temporal` serve their operators
`columns`      the columns that a plan names, and new ones; `conditions`: conjunctions, and what never fails
`render`       relations to Spark SQL; `constant` and `direct_scan` recognise plans that need no Spark
`rowwise`      plans over few rows, with constants as columns; `key_conditions` and `index_lookups` select the rows
"""
