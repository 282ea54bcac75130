"""Timestamps of collections: which times are complete and which can still be read."""
