"""A file as a sink: messages of CDCv2 as lines of JSON, or in an Avro container file; or the changes of rows.

`kind`          CREATE SINK: checks the definition, returns the downstream
`output`        the interface to the task
`changes_file`  the file: lines, or blocks of a container
`rows_file`     ENVELOPE UPSERT and DEBEZIUM: lines of JSON, and frontiers between them
"""
