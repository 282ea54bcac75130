"""Roles and privileges.

`privileges` makes all access decisions. `privilege_functions` answers has_table_privilege and similar SQL functions.
"""
