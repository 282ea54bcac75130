"""Processes without pandas, which pyarrow would import with the first array. That takes half a second."""

from __future__ import annotations

import sys


class _Hider:
    """An import finder that hides pandas."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("the server does not use pandas", name=name)


def hide_pandas() -> None:
    """Makes imports of pandas fail in this process, as if it were not installed."""
    sys.meta_path.insert(0, _Hider)
