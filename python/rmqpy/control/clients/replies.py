"""Replies to requests between clients: each is sent on to its requester, on the connection of its client id.

Owns the replies that are on their way, and their counts. A requester that does not answer holds up the replies to
itself alone: so many of one requester are under way at a time, and the others wait for their turn.

Threads: the event loop's.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Final

from rmqpy.control.clients.registry import Producers
from rmqpy.control.clients.relay import ANSWER_SECONDS, Relay
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.replies import PushReplyMessage
from rmqpy.remoting.server import Refused

log = logging.getLogger(__name__)

#: Replies that are under way to one requester, and to all. The data plane takes 4,096 requests to clients, and leaves
#: room for those of administrators.
PER_REQUESTER_MAX: Final = 64
UNDER_WAY_MAX: Final = 3_072
#: Replies that wait for their turn, of one requester.
WAITING_MAX: Final = 1_024
#: Seconds between two looks at what was not delivered.
UNDELIVERED_SECONDS: Final = 10.0


class _Turns:
    """The turns of the replies to one requester."""

    def __init__(self) -> None:
        self.free = asyncio.Semaphore(PER_REQUESTER_MAX)
        #: Under way or waiting.
        self.count = 0


class Replies:
    """Replies of one broker."""

    def __init__(self, producers: Producers, relay: Relay) -> None:
        self._producers = producers
        self._relay = relay
        self._turns: dict[int, _Turns] = {}
        self._under_way = 0
        #: What became of replies, by `REPLY_RESULTS`.
        self.counts: Counter[str] = Counter()
        self._logged: Counter[str] = Counter()
        self._last: dict[str, str] = {}

    async def deliver(self, client_id: str | None, reply: PushReplyMessage) -> str | None:
        """Send a reply to its requester and wait until that has it; the reason where it was not delivered.

        Raises `Refused` where there is no room for it.
        """
        if client_id is None:
            self._note("no_requester", "REPLY_TO_CLIENT is not set")
            return "reply message properties[REPLY_TO_CLIENT] is null"
        connection = self._producers.connection_of(client_id)
        if connection is None:
            self._note("no_requester", client_id)
            return f"push reply message fail, channel of <{client_id}> not found."
        try:
            await self._in_turn(connection, reply)
        except _Overloaded:
            self._note("overloaded", client_id)
            remark = f"[OVERLOAD]too many replies to <{client_id}> are under way"
            raise Refused(ResponseCode.SYSTEM_BUSY, remark) from None
        except Refused as refusal:
            self._note("not_taken", f"{client_id}: {refusal.remark}")
            return f"push reply message to {client_id} fail: {refusal.remark}"
        self.counts["delivered"] += 1
        return None

    def not_stored(self, reason: str) -> None:
        """A reply could not be stored."""
        self._note("not_stored", reason)

    def log(self) -> None:
        """Write down what was not delivered since the last call: a line for each reason."""
        for outcome, last in self._last.items():
            count = self.counts[outcome] - self._logged[outcome]
            if count:
                log.warning("%d replies %s; the last: %s", count, _WORDS[outcome], last)
                self._logged[outcome] = self.counts[outcome]

    async def _in_turn(self, connection: int, reply: PushReplyMessage) -> None:
        turns = self._turns.setdefault(connection, _Turns())
        if turns.count >= PER_REQUESTER_MAX + WAITING_MAX or self._under_way >= UNDER_WAY_MAX:
            raise _Overloaded
        turns.count += 1
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await turns.free.acquire()
            self._under_way += 1
            try:
                await self._relay.ask(connection, reply)
            finally:
                self._under_way -= 1
                turns.free.release()
        except TimeoutError:
            raise _Overloaded from None
        finally:
            turns.count -= 1
            if not turns.count:
                del self._turns[connection]

    def _note(self, outcome: str, of: str) -> None:
        self.counts[outcome] += 1
        self._last[outcome] = of


class _Overloaded(Exception):
    """There is no room for another reply."""


#: What may become of a reply that is not delivered, and of one that is and cannot be kept.
_WORDS: Final = {
    "no_requester": "found no requester, which is gone or connected to other brokers alone",
    "not_taken": "were not taken by their requesters",
    "overloaded": "were refused, for too many are under way",
    "not_stored": "could not be stored",
}
REPLY_RESULTS: Final = ("delivered", *_WORDS)
