"""SELECT over system relations alone, as a session sees them: planned here, run by `server.pg_catalog.engine`."""
