"""Roles and privileges: access decisions, and the SQL functions that return them."""
