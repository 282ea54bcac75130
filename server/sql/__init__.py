"""SQL: from a statement's text to what it means, and to Spark SQL. Nothing here runs anything or does IO.

`parse`        text to `statements`: our own grammar, read by `reader` from the tokens of `lexer` (`role_grammar` for
               roles); queries inside become sqlglot's trees (`trees`, `dialect`)
`plan`         a statement to its plan, by the modules below; what is refused is refused here
`bind`         trees to `relations` of typed `expressions`: names (`scope`), types (`coerce`, `casts`, `decimals`)
`functions`    the functions and operators, a row each; `patterns` and `regex` are what LIKE and ~ mean
`decorrelate`  subqueries that Spark does not compute as they stand, to joins
`rewrite`      the plan of a query that is kept up to date; `lift` and `temporal` are of its operators
`render`       relations to Spark SQL; `constant` and `direct` find what needs no Spark
`explain`      plans as people read them
"""
