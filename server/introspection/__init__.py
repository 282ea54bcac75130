"""Information about the server: the rows of the system tables, metrics, and the HTTP port."""
