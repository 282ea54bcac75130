"""The grammar: text to tokens, to statements, and to sqlglot trees for the queries inside statements.

`parse`         the functions that parse a text; selects the rule of a statement by its first keyword
`rules`         one function per statement, in a module for each family
`statements`    the statements, in a module for each family
`token_reader`  a position in the list of tokens that `lexer` makes; names, types and lists
`trees`         queries and expressions, parsed by sqlglot in `dialect` from the tokens of `glot_tokens`
`json_constructors`  JSON_OBJECT(key: value, ...) and similar functions
`refused_types` PostgreSQL's types that are not supported
`literal_rows`  INSERT of many literal rows, without trees; `shared_text`: statements that differ in literals only
`checkpoint`    cancels the parsing and planning of a statement
"""
