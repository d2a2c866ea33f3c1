"""Large bodies: parsed in a separate thread, so that the server's loop continues.

Parsing takes a tenth of a second per MiB as Java writes it, and over half a second in the worst accepted case. The
thread parses one body at a time: memory for their trees is needed once.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

#: The size from which a body is large; smaller ones take some milliseconds at most.
LARGE_BODY_BYTES: Final = 4 << 10


def is_large(body: bytes) -> bool:
    """Whether the body should be parsed by `read_aside`."""
    return len(body) >= LARGE_BODY_BYTES


async def read_aside(read: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Return or raise the outcome of `read(*args)`, run in the thread for large bodies."""
    return await asyncio.get_running_loop().run_in_executor(_thread(), lambda: read(*args, **kwargs))


@cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="rmqpy-bodies")
