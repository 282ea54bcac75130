"""Streams of changes: feeds, subscriptions, envelopes, and the encoded bytes that clients receive.

`feed`              the changes of one relation; `collection_feed`, `query_feed` and `partitioned_feed` are its kinds
`selection`         the rows with given values, of which a partitioned feed has the changes
`snapshot_stream`   the snapshot of a subscription and the changes up to its position in the feed
`subscription`      snapshot, changes and progress of one subscriber
`accumulated`, `consolidation`, `order`  sums, consolidation and order of the changes of a time
`envelope`          the rows of SUBSCRIBE; `encoding` and `progress_row`: their bytes
`broadcast`         many subscriptions in one task, each with its `transport`
"""
