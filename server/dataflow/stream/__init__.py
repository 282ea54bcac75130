"""Streams of changes: feeds, subscriptions, envelopes, and the encoded bytes that clients receive."""
