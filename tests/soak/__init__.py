"""Mixed work by many sessions for a long time, after which a server must have its initial level of resources again.

`make soak` runs it for an hour and writes the plot in docs/faults.md.
"""
