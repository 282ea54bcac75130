"""The state that outlives a session: commits, holds, dataflows, compaction, backpressure."""
