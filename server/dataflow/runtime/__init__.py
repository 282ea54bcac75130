"""Running dataflows: hydration, steps, and the dataflows of views and indexes."""
