"""Access to Arrow columns with numpy, used by `pgwire` and by the catalog's hashes."""
