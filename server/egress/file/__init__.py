"""A file as a sink: messages of CDCv2 as lines of JSON, or in an Avro container file.

`kind`          CREATE SINK: checks the definition, returns the downstream
`output`        the interface to the task
`changes_file`  the file: lines, or blocks of a container
"""
