"""The page of errors names codes that the server sends, by PostgreSQL's names."""

from __future__ import annotations

import re

from protocol.pgwire.errors import SqlState
from tests.docs.pages import PAGES


def test_codes_and_names_agree() -> None:
    rows = re.findall(r"^\| (\w{5}(?:, \w{5})*) \| ([\w, ]+) \|", (PAGES / "errors.md").read_text(), re.MULTILINE)
    assert len(rows) > 20
    for codes, names in rows:
        for code, name in zip(codes.split(", "), names.removesuffix(" and others").split(", "), strict=False):
            assert SqlState(code).name.lower() == name


def test_every_code_is_explained_once() -> None:
    codes = re.findall(
        r"\b[0-9A-Z]{5}\b", "\n".join(re.findall(r"^\|([^|]*)\|", (PAGES / "errors.md").read_text(), re.M))
    )
    assert len(codes) == len(set(codes))
