"""Attacks on a real server process. Each test states what one hostile client may cost the other clients."""
