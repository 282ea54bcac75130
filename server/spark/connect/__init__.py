"""A Spark Connect server that runs outside of this process."""
