"""The grammar rules: a module for each family of statements, as in `server.sql.grammar.statements`.

A rule is a function that parses one statement. It starts at the statement's first token and stops after its last.
A function with the parameter `start` continues a statement whose first token, at that index, was already read.
EXPLAIN, PREPARE, COPY and DECLARE contain another statement; their rules are given the function that parses it.
"""

from __future__ import annotations

from collections.abc import Callable

from server.sql.grammar.statements import Statement
from server.sql.grammar.token_reader import TokenReader

Rule = Callable[[TokenReader], Statement]
