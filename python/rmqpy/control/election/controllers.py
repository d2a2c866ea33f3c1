"""Controllers: the group that this broker belongs to, and its current leader.

Owns the connections to the controllers, which outlive a restart of the broker's parts: a controller takes the end of a
connection for the broker's death. Invariant: every request is bounded, and no controller delays another.
Threads: the event loop's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar

from rmqpy.errors import RocketMQError
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.declare import Request
from rmqpy.protocol.requests.controller import GetControllerMetadata
from rmqpy.remoting.client import Peer

log = logging.getLogger(__name__)

R = TypeVar("R")

#: Timeout of a request. An election waits for the lease of the old master, so it takes longer.
ANSWER_SECONDS: Final = 3.0
#: The time without an answer after which another leader is sought.
SILENT_SECONDS: Final = 0.4
#: Timeout of the question for the leader.
LEADER_SECONDS: Final = 1.0


class NoLeader(Exception):
    """The reason why no controller or no broker leads now, as a sentence."""


class Controllers:
    """The controllers of one broker."""

    def __init__(self, addresses: Sequence[str], peer: Callable[[str], Peer]) -> None:
        self.addresses = tuple(addresses)
        self._peer = peer
        self._leader: str | None = None

    def all(self) -> list[Peer]:
        """Return every controller."""
        return [self._peer(address) for address in self.addresses]

    async def ask(self, ask: Request[R], *, seconds: float = ANSWER_SECONDS) -> R:
        """Send a request to the leader. Raises `NoLeader`, and `RocketMQError` for its refusal."""
        known = self._leader
        if known is not None:
            try:
                return await self._call(known, ask, seconds)
            except RocketMQError as error:
                if error.code not in (None, ResponseCode.CONTROLLER_NOT_LEADER):
                    raise
                self._leader = None
                if error.code is None and isinstance(error, TimeoutError):
                    raise
        self._leader = leader = await self._find()
        try:
            return await self._call(leader, ask, seconds)
        except RocketMQError as error:
            if error.code in (None, ResponseCode.CONTROLLER_NOT_LEADER):
                self._leader = None
            raise

    async def _call(self, leader: str, ask: Request[R], seconds: float) -> R:
        """Send a request to a leader. A machine that is gone closes no connection: a request without an answer is sent
        to the controller that leads instead, as soon as one does."""
        call = asyncio.ensure_future(self._peer(leader).call(ask, timeout=seconds))
        search: asyncio.Future[str | None] | None = None
        try:
            while not (await asyncio.wait((call,), timeout=SILENT_SECONDS))[0]:
                search = asyncio.ensure_future(self._other_leader(leader))
                await asyncio.wait((call, search), return_when=asyncio.FIRST_COMPLETED)
                if search.done() and (other := search.result()) is not None:
                    log.info("the leader of the controllers is %s", other)
                    self._leader = other
                    return await self._peer(other).call(ask, timeout=seconds)
                search.cancel()
            return call.result()
        finally:
            call.cancel()
            if search is not None:
                search.cancel()

    async def _other_leader(self, silent: str) -> str | None:
        """Return the address of another controller that leads; `None` if there is none now."""
        others = [_leader_of(peer) for peer in self.all() if peer.address != silent]
        found = [each.leader for each in await asyncio.gather(*others) if each.is_certain]
        return found[0] if found else None

    async def _find(self) -> str:
        """Return the address of the controller that leads, or that another one names: it may name a lost leader."""
        asking = [asyncio.ensure_future(_leader_of(peer)) for peer in self.all()]
        named: str | None = None
        faults: list[str] = []
        try:
            for answer in asyncio.as_completed(asking):
                found = await answer
                named = found.leader or named
                if found.is_certain:
                    break
                faults.append(found.fault)
        finally:
            for each in asking:
                each.cancel()
        if named is None:
            raise NoLeader(f"no controller knows a leader: {'; '.join(sorted(faults))}")
        if named != self._leader:
            log.info("the leader of the controllers is %s", named)
        return named


class _Answer(NamedTuple):
    """The leader that a controller names; `is_certain` if it is that controller."""

    leader: str | None
    is_certain: bool
    fault: str


async def _leader_of(controller: Peer) -> _Answer:
    """Return the leader that a controller names, or the reason why it names none."""
    try:
        answer = await controller.call(GetControllerMetadata(), timeout=LEADER_SECONDS)
    except (RocketMQError, OSError) as error:
        return _Answer(None, False, str(error))
    leader = answer.controller_leader_address or (controller.address if answer.is_leader else None)
    return _Answer(leader, answer.is_leader, f"{controller.address} knows none")
