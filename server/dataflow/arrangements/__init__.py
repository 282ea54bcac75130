"""Arrangements: updates sorted by a key, in memory or in files, on the server or in Spark's executors."""
