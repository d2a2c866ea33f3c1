"""Full disk: a start and a stop do without what it has no room for.

What a client or an administrator asks for is refused where it cannot be written. What a broker writes by itself, when
it starts or stops, says how far it has got: without it the next start repeats something, and loses nothing.

Threads: any.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from rmqpy.errors import StoreError

_NO_ROOM: Final = {errno.ENOSPC, errno.EDQUOT}

log = logging.getLogger(__name__)


def lacks_space(error: StoreError) -> bool:
    """Whether the disk has no room for what was to be written, and nothing else is wrong."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in _NO_ROOM


def unless_full(save: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
    """A `save` that ends with a warning where the disk has no room. It raises other `StoreError`s."""

    async def saved() -> None:
        try:
            await save()
        except StoreError as error:
            if not lacks_space(error):
                raise
            log.warning("%s; what it would say is repeated after the next start", error)

    return saved
