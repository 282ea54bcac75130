"""Queries kept up to date: from the log's changes to what a subscriber is sent.

- `feed`: the changes of one relation, one timestamp after another, with their history for whoever lags behind.
  A collection's feed is the log's changes as they are; a query's feed is a dataflow, which in this version
  computes the query anew at each timestamp at which an input changed and subtracts. Equal queries share one.
- `view`: the dataflow of a materialized view, which writes its changes to the log like any collection.
- `subscription`: one subscriber's place in a feed: snapshot, changes, progress, bounds.
"""
