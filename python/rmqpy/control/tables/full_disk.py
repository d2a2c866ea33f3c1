"""Full disk: tolerance for files that a start or stop has no room to write.

A client's or administrator's change is refused if it cannot be written. A broker's own progress, written at its start
or stop, is different: without it the next start repeats some work and loses nothing.

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
    """Return whether a full disk is the only reason of the failure."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in _NO_ROOM


def unless_full(save: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
    """Wrap a `save` so that a full disk causes only a warning. Other `StoreError`s propagate."""

    async def saved() -> None:
        try:
            await save()
        except StoreError as error:
            if not lacks_space(error):
                raise
            log.warning("%s; the next start repeats some work", error)

    return saved
