"""A file as a sink: messages of CDCv2 as lines of JSON.

`kind`          CREATE SINK: checks the definition, returns the downstream
`output`        the interface to the task
`changes_file`  the file
"""
