"""Statements that change the catalog. Each is a function from one catalog state to the next."""
