"""Reading and planning long texts beside the event loop, so that no other session waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

TEXT_CHARS_MAX = 8_192  # of a text that is read and planned where it came: a few milliseconds

Result = TypeVar("Result")


async def beside(text: str, work: Callable[..., Result], *args: Any) -> Result:
    """`work`, which is about `text`: here, or in a thread if the text is long. It changes nothing that others see."""
    return await asyncio.to_thread(work, *args) if len(text) > TEXT_CHARS_MAX else work(*args)
