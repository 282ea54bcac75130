"""A session with dbt: each step is a function, whose docstring is its title in docs/clients.md."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from steps import DATABASE, HOST, PORT, USER, run

DBT = str(Path(sys.executable).parent / "dbt")
PROJECT = Path(tempfile.mkdtemp())
PROFILE = {
    "type": "postgres",
    "host": HOST,
    "port": int(PORT),
    "user": USER,
    "password": "none",
    "dbname": DATABASE,
    "schema": "public",
    "threads": 1,
}
FILES = {
    "dbt_project.yml": "name: p\nprofile: p\nmodel-paths: [models]\nseed-paths: [seeds]\n",
    "profiles.yml": json.dumps({"p": {"target": "dev", "outputs": {"dev": PROFILE}}}),
    "seeds/raw_orders.csv": "id,customer,amount\n1,ann,10\n2,ben,20\n3,ann,5\n",
    "models/orders.sql": "{{ config(materialized='view') }} select id, customer, amount from {{ ref('raw_orders') }}",
    "models/customers.sql":
        "{{ config(materialized='table') }} select customer, sum(amount) as total from {{ ref('orders') }} group by 1",
    "models/schema.yml": "models:\n- name: orders\n  columns:\n  - name: id\n    data_tests: [unique, not_null]\n",
    "models/increments.sql":
        "{{ config(materialized='incremental', unique_key='id') }} select id, amount from {{ ref('orders') }}",
}  # fmt: skip
for name, text in FILES.items():
    (PROJECT / name).parent.mkdir(exist_ok=True)
    (PROJECT / name).write_text(text)


def dbt(*arguments):
    environment = {**os.environ, "DBT_SEND_ANONYMOUS_USAGE_STATS": "false", "NO_COLOR": "1"}
    command = [DBT, "--no-use-colors", *arguments, "--project-dir", str(PROJECT), "--profiles-dir", str(PROJECT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, env=environment)
    lines = [line.split("  ", 1)[-1] for line in done.stdout.splitlines() if "rror" in line and "ERROR=0" not in line]
    assert done.returncode == 0, " ".join(lines[-2:]) or done.stdout + done.stderr


def debug():
    """`debug`"""
    dbt("debug")


def seed():
    """`seed`"""
    dbt("seed")


def views():
    """`run`: a view"""
    dbt("run", "--select", "orders")


def tables():
    """`run`: a table"""
    dbt("run", "--select", "customers")
    dbt("run", "--select", "customers")


def tests():
    """`test`"""
    dbt("test", "--select", "orders")


def incremental():
    """`run`: an incremental model"""
    dbt("run", "--select", "increments")
    dbt("run", "--select", "increments")


run(debug, seed, views, tables, tests, incremental)
