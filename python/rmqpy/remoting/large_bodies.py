"""Large bodies: read in a thread of their own, so that the loop that serves everybody goes on meanwhile.

Reading takes a tenth of a second for each MiB as Java writes it, and over half a second of the worst that is accepted.
The thread takes one body after the other: memory for their trees is needed once.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

#: From this size on a body is large; one below takes some milliseconds at most.
LARGE_BODY_BYTES: Final = 4 << 10


def is_large(body: bytes) -> bool:
    """Whether the body is to be read by `read_aside`."""
    return len(body) >= LARGE_BODY_BYTES


async def read_aside(read: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """What `read(*args)` returns or raises, from the thread for large bodies."""
    return await asyncio.get_running_loop().run_in_executor(_thread(), lambda: read(*args, **kwargs))


@cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="rmqpy-bodies")
