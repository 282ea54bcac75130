"""The grammar: text to tokens, to statements, and to sqlglot trees for the queries inside statements."""
