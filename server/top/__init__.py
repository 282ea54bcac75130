"""`tidewire top`: what a server does, in a terminal. A client like any other: it reads system tables over the wire.

- `reading.py` reads the tables.
- `screen.py` renders two readings as tables of rich.
- `top.py` repeats both until it is interrupted.
"""
