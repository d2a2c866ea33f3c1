"""Turns: limits of concurrent work, in all and for each owner.

Of those waiting, the owner with the least in progress goes first. Threads: one event loop.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager


class Turns:
    """A number of turns, with a limit for each owner."""

    def __init__(self, total: int, each: int) -> None:
        self._total = total
        self._each = each
        self._busy: Counter[Hashable] = Counter()
        self._waiting: list[tuple[Hashable, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def turn(self, owner: Hashable) -> AsyncIterator[None]:
        """A turn of an owner, once there is one."""
        await self._begin(owner)
        try:
            yield
        finally:
            self._end(owner)

    async def _begin(self, owner: Hashable) -> None:
        if self._is_free(owner):
            self._busy[owner] += 1
            return
        place = (owner, asyncio.get_running_loop().create_future())
        self._waiting.append(place)
        try:
            await place[1]
        except asyncio.CancelledError:
            if place[1].cancelled():
                self._waiting.remove(place)
            else:
                self._end(owner)
            raise

    def _end(self, owner: Hashable) -> None:
        self._busy[owner] -= 1
        if not self._busy[owner]:
            del self._busy[owner]
        while free := [each for each in self._waiting if self._is_free(each[0])]:
            following = min(free, key=lambda each: self._busy[each[0]])
            self._waiting.remove(following)
            self._busy[following[0]] += 1
            following[1].set_result(None)

    def _is_free(self, owner: Hashable) -> bool:
        return self._busy.total() < self._total and self._busy[owner] < self._each
