"""Runs the steps of a session and prints one line of JSON per step: its title and its error, if any.

A session is a program in the language of its client. Its arguments are the host, port and database.
"""

import json
import sys
import traceback

HOST, PORT, DATABASE = sys.argv[1:4]
USER = "materialize"
URL = f"postgresql://{USER}@{HOST}:{PORT}/{DATABASE}"


def run(*steps):
    """Calls the steps. The first line of a step's docstring is its title."""
    for step in steps:
        error = None
        try:
            step()
        except Exception as failure:
            lines = str(failure).strip().splitlines() or [""]
            error = f"{type(failure).__name__}: {lines[0]}"
            traceback.print_exc()
        print(json.dumps({"step": step.__doc__.splitlines()[0].rstrip("."), "error": error}), flush=True)
