"""Arrow columns as numpy sees them: what `pgwire` and the catalog's hashes both stand on. Knows neither."""
