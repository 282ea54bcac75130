"""Files of the server as sources: CSV, lines of JSON or text, Avro, Parquet. Files only grow, and new ones can appear.

`file_format`       decodes the part of a file that was not read yet
`avro_files`        the same for Avro object container files
`raw_lines`         the same for lines that another part decodes
`frontier_lines`    the same for lines with frontiers, which sinks write
`row_lines`         decodes these lines
`file_reader`       calls a format in a thread or in a worker process; `reader_service`: the program of the process
`regular_file`      opens them without blocking
`conversion`        the columns of a file as those of the source
`file_source`       the kind of source, and its upstream
`changes_of_files`  the upstream of ENVELOPE MATERIALIZE
`rows_of_files`     the upstream of ENVELOPE UPSERT and DEBEZIUM
"""
