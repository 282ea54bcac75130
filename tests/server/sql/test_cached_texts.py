"""Caches whose entries are limited by the lengths of texts."""

from __future__ import annotations

from server.sql.cached_texts import cached_by_length


def test_fewer_results_are_kept_for_longer_texts() -> None:
    made: list[str] = []

    @cached_by_length((1, 3), (2, 1), length=lambda text, other=0: len(text))
    def make(text: str, other: int = 0) -> tuple[str, int]:
        made.append(text)
        return text, other

    def are_kept(*texts: str) -> bool:
        made.clear()
        for text in texts:
            make(text)
        return not made

    assert make("a", other=1) == ("a", 1)
    assert make("a") == ("a", 0)
    for text in ("a", "b", "c", "aa", "aaa"):
        make(text)
    assert are_kept("a", "b", "c", "aa")
    assert not are_kept("aaa")
    make("bb")
    assert not are_kept("aa")
    make("d")
    assert are_kept("b", "c", "d")
