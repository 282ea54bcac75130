"""Regular expressions and patterns of LIKE and SIMILAR TO, with PostgreSQL's meaning.

`regex`     finds matches with the engine that fits the pattern
`parser`    patterns to trees (`tree`); `spelling` writes trees as patterns of other engines
`matcher`   the parts of a match that other engines do not find as PostgreSQL does; `determinism`:
            patterns for which all engines find the same match
`patterns`  LIKE and SIMILAR TO
"""
