"""Timestamps of collections (`frontiers`): which times are complete and which can still be read."""
