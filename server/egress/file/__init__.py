"""A file as a sink: messages of CDCv2 as lines of JSON, or in an Avro container file; or the changes of rows.

`kind`          CREATE SINK: checks the definition, returns the downstream
`output`        the interface to the task
`appended_file` the file: its lock, and whether another program has removed or changed it
`changes_file`  messages of CDCv2 in it: lines, or blocks of a container
`rows_file`     ENVELOPE UPSERT and DEBEZIUM: lines of JSON, and frontiers between them
"""
