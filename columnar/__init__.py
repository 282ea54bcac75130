"""Arrow columns as numpy sees them: what the protocol and the catalog both stand on. Knows neither."""
