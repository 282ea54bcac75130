"""A session with pgbench: each step is a function, whose docstring is its title in docs/clients.md."""

import os
import subprocess

from steps import URL, run

PGBENCH = os.environ["PGBENCH"]


def pgbench(*arguments):
    done = subprocess.run([PGBENCH, *arguments, URL], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr.strip().splitlines()[-1]
    return done.stdout


def initialize():
    """`-i`"""
    pgbench("-i", "-q")


def initialize_steps():
    """`-i -I dtgvp`: without the foreign keys of `f`"""
    pgbench("-i", "-q", "-I", "dtgvp")


def tables():
    """`-i -I dtg`: without VACUUM and keys"""
    pgbench("-i", "-q", "-I", "dtg")


def script(mode):
    def step():
        assert "number of failed transactions: 0" in pgbench(
            "-n", "-T", "3", "-c", "4", "-M", mode, "--max-tries", "100"
        )

    step.__doc__ = f"Default script, `-M {mode}`, 4 clients"
    return step


def selects(mode):
    def step():
        pgbench("-n", "-S", "-T", "2", "-c", "4", "-M", mode)

    step.__doc__ = f"`-S -M {mode}`"
    return step


MODES = ("simple", "extended", "prepared")
run(initialize, initialize_steps, tables, *map(script, MODES), *map(selects, MODES))
