"""The state of a session between two statements, and the results of statements. Execution is built on it."""
