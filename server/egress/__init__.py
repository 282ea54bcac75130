"""Sinks: the changes of collections are written to external systems.

`changes_file`  a file with CDCv2 messages as lines of JSON
`sink_task`     the task of one sink: reads committed changes, writes them, and commits its frontier
`sinks`         starts and ends the tasks as sinks are created and dropped

With F the committed frontier of a sink, all changes at times before F are on the disk of the external system, with the
statement that they are all. What was written after F is written again after a crash: readers of CDCv2 ignore it.
"""
