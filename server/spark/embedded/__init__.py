"""A Spark driver in a JVM that this process starts."""
