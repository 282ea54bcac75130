"""The operators of a delta plan, with their state."""
