"""Patterns of ~, LIKE and SIMILAR TO with PostgreSQL's semantics."""
