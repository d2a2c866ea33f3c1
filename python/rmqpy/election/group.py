"""Group: calls between the controllers of a group.

Owns the connections to the other controllers, made at the first call. The native controller decides what to call, and
takes the replies. With a secret, calls and replies carry a seal that only its owners can make; without one, every
process that reaches a controller can change what the group agrees on. Threads: the event loop's.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import hmac
import logging
from collections.abc import Callable
from typing import Final

from rmqpy._native import Client, ClientTls, ControllerCall
from rmqpy.config.controller import ControllerConfig
from rmqpy.errors import RocketMQError
from rmqpy.protocol.requests.controller import GroupCall, GroupReply
from rmqpy.remoting.client import LoopCaller

log = logging.getLogger(__name__)

_CALL: Final = b"call"
_REPLY: Final = b"reply"


class Seals:
    """The seals of a group; all are empty without a secret."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    def of_call(self, ask: GroupCall) -> str:
        """Return the seal of a call."""
        return self._seal(_CALL, ask.group.encode(), ask.caller.encode(), ask.target.encode(), ask.body)

    def of_reply(self, ask: GroupCall, body: bytes) -> str:
        """Return the seal of the reply to a call."""
        return self._seal(_REPLY, self.of_call(ask).encode(), body)

    @staticmethod
    def are_equal(one: str, other: str) -> bool:
        """Whether two seals are the same, in a time that does not depend on them."""
        return hmac.compare_digest(one.encode(), other.encode())

    def _seal(self, *parts: bytes) -> str:
        if not self._secret:
            return ""
        made = hmac.new(self._secret, digestmod=hashlib.sha256)
        for part in parts:
            made.update(len(part).to_bytes(8, "big") + part)
        return made.hexdigest()


class Group:
    """The other controllers of one controller."""

    def __init__(self, config: ControllerConfig, tls: ClientTls | None) -> None:
        self._name = config.group
        self._own = config.self_id
        self._peers = dict(config.peers)
        self._seals = Seals(config.group_secret)
        user = config.access.configured_inner_user
        self._credentials = None if user is None else (user.name, user.secret, None)
        self._tls = tls
        self._client: Client | None = None
        self._caller: LoopCaller | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        #: The controllers whose last call failed.
        self._lost: set[str] = set()

    @property
    def has_others(self) -> bool:
        """Whether there is another controller."""
        return len(self._peers) > 1

    def call(self, calls: list[ControllerCall], replied: Callable[[int, bytes | None], None]) -> None:
        """Send calls, and hand in the reply of each, or `None`."""
        for each in calls:
            task = asyncio.get_running_loop().create_task(self._call(each, replied))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End the calls, and close the connections. Idempotent."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._caller is not None:
            self._caller.close()
            self._caller = None
        if self._client is not None:
            await asyncio.to_thread(self._client.close)
            self._client = None

    def is_from_member(self, ask: GroupCall) -> bool:
        """Whether a call comes from another controller of this group, for this one."""
        return (
            ask.group == self._name
            and ask.target == self._own
            and ask.caller != self._own
            and ask.caller in self._peers
            and self._seals.are_equal(ask.seal, self._seals.of_call(ask))
        )

    def reply(self, ask: GroupCall, body: bytes) -> GroupReply:
        """Return the reply to a call."""
        return GroupReply(seal=self._seals.of_reply(ask, body), body=body)

    async def _call(self, call: ControllerCall, replied: Callable[[int, bytes | None], None]) -> None:
        address = self._peers[call.target]
        plain = GroupCall(group=self._name, caller=self._own, target=call.target, body=call.body)
        ask = dataclasses.replace(plain, seal=self._seals.of_call(plain))
        body: bytes | None = None
        try:
            reply = await self._connections().ask(address, ask, timeout=call.limit_ms / 1_000)
            if not self._seals.are_equal(reply.seal, self._seals.of_reply(ask, reply.body)):
                raise RocketMQError("its reply has not the seal of controllerGroupSecret")
            body = reply.body
            if call.target in self._lost:
                self._lost.discard(call.target)
                log.info("controller %s at %s replies again", call.target, address)
        except RocketMQError as error:
            if call.target not in self._lost:
                self._lost.add(call.target)
                log.warning("controller %s at %s does not reply: %s", call.target, address, error)
        finally:
            replied(call.number, body)

    def _connections(self) -> LoopCaller:
        if self._caller is None:
            self._client = Client(credentials=self._credentials, tls=self._tls)
            self._caller = LoopCaller(self._client)
        return self._caller
