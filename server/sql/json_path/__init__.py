"""JSON paths (chapter 9.16.2): PostgreSQL 16's dialect of the SQL/JSON path language.

`parser`      text to a tree (`tree`), with PostgreSQL's syntax errors
`evaluation`  the items that a path selects from a value, and the truth of its predicates; `datetimes`: .datetime()

The packages for JSON paths follow other dialects (RFC 9535, Goessner), which have neither lax mode, nor
`like_regex`, nor PostgreSQL's errors.
"""
