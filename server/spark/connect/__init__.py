"""A Spark Connect server that runs outside of this process.

`remote` starts a `driver` for the `url`, which has a `path` for each session. `messages` imports Spark's generated
stubs.
"""
