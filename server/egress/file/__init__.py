"""A file as a sink: messages of CDCv2 as lines of JSON.

`kind`          CREATE SINK: checks the definition, returns the downstream
`changes`       the interface to the task: messages and progress statements
`changes_file`  the file
"""
