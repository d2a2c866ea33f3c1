"""Waiting in an event loop for an event, at most for a time."""

import asyncio
from contextlib import suppress


async def wait_at_most(event: asyncio.Event, seconds: float | None) -> None:
    """Return when the event is set, or after `seconds`, without a limit if None."""
    # `asyncio.wait_for` of Python 3.11 swallows a cancellation when the event is set at the same moment.
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
