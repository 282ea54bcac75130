"""CDCv2: changes of a collection, which a reader restores even if messages are repeated and reordered.

`messages`        updates and progress statements
`reader`          restores a history; `open_updates` and `open_counts` are its state
`partial_reader`  the same for partially ordered times, one row at a time; `orders` are the orders of times
`writer`          progress statements for updates
`avro_form`       messages in Avro, with Materialize's names
`json_form`       messages as lines of JSON; `decoded` is what both forms return

docs/cdcv2.md explains the format.
"""
