"""Caches by texts of clients. A tree takes up to 400 bytes for each character of its text, so fewer long ones are kept.

What is kept also delays other sessions: Python's garbage collector visits all of it while no other thread runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Made = TypeVar("Made")


def cached_by_length(
    *limits: tuple[int, int], length: Callable[..., int]
) -> Callable[[Callable[Arguments, Made]], Callable[Arguments, Made]]:
    """Caches the results of a function. `limits`: up to which length of its arguments how many results are kept.

    The lengths increase. Results for longer arguments are not kept.
    """

    def of(make: Callable[Arguments, Made]) -> Callable[Arguments, Made]:
        caches = [(longest, lru_cache(entries)(make)) for longest, entries in limits]

        def cached(*arguments: Arguments.args, **named: Arguments.kwargs) -> Made:
            size = length(*arguments, **named)
            for longest, cache in caches:
                if size <= longest:
                    return cache(*arguments, **named)  # type: ignore[arg-type]
            return make(*arguments, **named)

        return cached

    return of
