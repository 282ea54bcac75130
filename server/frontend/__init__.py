"""Connections of clients: the listener, the session of each client, dispatch of statements, portals, COPY."""
