"""Ingestion: changes from external systems are written to collections, exactly once.

`source_definition`  what CREATE SOURCE says of a source, and the collections that it fills
`source_kind`  the interface of a kind of source: its outputs at CREATE, and its upstream
`upstream`     the interface of what an ingestion reads: an external system from a stored position
`ingestion`    the task of one source: reads, commits changes and position together, retries
`history`      what CDCv2 messages say of a collection, until their times are closed (ENVELOPE MATERIALIZE)
`keyed_rows`   the committed rows of a collection by key, for a source that replaces rows
`key_join`     finds the rows of keys in them; Spark compares the keys
`decoder_pool`  decodes messages, those that would delay others in worker processes; `decoder_service`: their program
`sources`      starts and ends the ingestions as sources are created, changed and dropped
`kinds`        the kinds by name; `definitions`: the definitions of those in the catalog; `option_values`: their options
`files`, `generators`, `kafka`, `postgres`  the kinds

A source's position (offsets, log sequence numbers, deduplication state) is committed in the transaction that commits
the changes read up to it (`catalog.source_state`). After a crash the source continues at that position:

    committed rows = changes of upstream before the committed position

so a change is neither lost nor written twice, and the external system's own record of what was consumed is never used.
"""
