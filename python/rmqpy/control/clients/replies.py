"""Replies to requests between clients: each is forwarded to its requester, by client id.

Owns the replies in flight, and their counts. The number in flight to one requester is bounded, and further ones wait,
so that a requester that does not answer delays only its own replies. Threads: the event loop's.
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

#: The most replies in flight to one requester, and to all. The data plane allows 4,096 requests to clients, which
#: leaves room for those of administrators.
PER_REQUESTER_MAX: Final = 64
UNDER_WAY_MAX: Final = 3_072
#: The most waiting replies of one requester.
WAITING_MAX: Final = 1_024
#: The interval at which undelivered replies are logged.
UNDELIVERED_SECONDS: Final = 10.0


class _Turns:
    """The waiting replies of one requester."""

    def __init__(self) -> None:
        self.free = asyncio.Semaphore(PER_REQUESTER_MAX)
        #: Replies in flight or waiting.
        self.count = 0


class Replies:
    """The replies of one broker."""

    def __init__(self, producers: Producers, relay: Relay) -> None:
        self._producers = producers
        self._relay = relay
        self._turns: dict[int, _Turns] = {}
        self._under_way = 0
        #: Replies by result, one of `REPLY_RESULTS`.
        self.counts: Counter[str] = Counter()
        self._logged: Counter[str] = Counter()
        self._last: dict[str, str] = {}

    async def deliver(self, client_id: str | None, reply: PushReplyMessage) -> str | None:
        """Send a reply to its requester and wait for the acknowledgement; return the reason if it was not delivered.

        Raises `Refused` if too many replies wait.
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
            remark = f"[OVERLOAD]too many replies to <{client_id}> are in flight"
            raise Refused(ResponseCode.SYSTEM_BUSY, remark) from None
        except Refused as refusal:
            self._note("not_taken", f"{client_id}: {refusal.remark}")
            return f"push reply message to {client_id} fail: {refusal.remark}"
        self.counts["delivered"] += 1
        return None

    def not_stored(self, reason: str) -> None:
        """Count a reply that could not be stored."""
        self._note("not_stored", reason)

    def log(self) -> None:
        """Log the undelivered replies since the last call, a line for each reason."""
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
    """Too many replies wait."""


#: Log texts for the results of replies that were not delivered or not stored.
_WORDS: Final = {
    "no_requester": "found no requester, which is disconnected or connected only to other brokers",
    "not_taken": "were not accepted by their requesters",
    "overloaded": "were refused, because too many are in flight",
    "not_stored": "could not be stored",
}
REPLY_RESULTS: Final = ("delivered", *_WORDS)
