"""Members: the brokers of this name that live, as the name servers say; and the signs of life that keep this one
among them.

Owns what each name server said last. Invariants: a name server that does not answer says nothing new, and what none
says is not known; a failure is told once. Threads: the event loop's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from rmqpy.control.identity import Identity
from rmqpy.errors import RocketMQError, Unsupported
from rmqpy.protocol.requests.registration import BrokerHeartbeat, QueryDataVersion
from rmqpy.protocol.requests.routes import GetBrokerMembers
from rmqpy.protocol.topics import DataVersion
from rmqpy.remoting.client import Peer

log = logging.getLogger(__name__)

#: Where a name server does not know this broker, it is told no more often than this: it may have a reason.
FORGOTTEN_SECONDS: Final = 5.0

#: Id to address.
Group = Mapping[int, str]


class Members:
    """The brokers of one name."""

    def __init__(
        self,
        identity: Identity,
        name_servers: Mapping[str, Peer],
        version: Callable[[], DataVersion],
        *,
        interval_seconds: float,
        timeout_seconds: float,
    ) -> None:
        """`version`: of the topics, for name servers that know no heartbeats."""
        self._identity = identity
        self._version = version
        self._interval = interval_seconds
        self._name_servers = [_NameServer(peer, identity, timeout_seconds) for peer in name_servers.values()]
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        #: A name server that does not know this broker is not mentioned again before.
        self._forgotten_until = 0.0
        #: Called after each round.
        self.on_round: Callable[[], Awaitable[None]] = _nothing
        #: Called when a name server that answers does not know this broker.
        self.on_forgotten: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Begin on the running loop."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def wake(self) -> None:
        """Ask now: a name server says that something has changed."""
        self._woken.set()

    async def stop(self) -> None:
        """End it. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    @property
    def now(self) -> Group | None:
        """Who lives at one name server at least; None where none answers."""
        told = [server.members for server in self._name_servers if server.members is not None]
        return {known: where for members in told for known, where in members.items()} if told else None

    async def ask(self) -> Group | None:
        """Ask once, without a sign of life: `now`."""
        await asyncio.gather(*(server.ask() for server in self._name_servers))
        return self.now

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            try:
                await self._beat()
                await self.on_round()
            except Exception:
                log.exception("the change of who acts for the master failed and will be tried again")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), self._interval)

    async def _beat(self) -> None:
        """Send a sign of life, and learn who lives."""
        version = self._version()
        await asyncio.gather(*(server.beat(version) for server in self._name_servers))
        await self.ask()
        own = self._identity.address
        told = (server.members for server in self._name_servers)
        now = asyncio.get_running_loop().time()
        if now >= self._forgotten_until and any(
            members is not None and own not in members.values() for members in told
        ):
            self._forgotten_until = now + FORGOTTEN_SECONDS
            self.on_forgotten()


class _NameServer:
    """What one name server says."""

    def __init__(self, peer: Peer, identity: Identity, timeout: float) -> None:
        #: None where it does not answer.
        self.members: Group | None = None
        self._peer = peer
        self._identity = identity
        self._timeout = timeout
        self._knows_heartbeats = True
        self._fault: str | None = None

    async def beat(self, version: DataVersion) -> None:
        """Say that this broker lives. That it could not be said shows in `ask`."""
        own = self._identity
        try:
            if self._knows_heartbeats:
                await self._peer.call(
                    BrokerHeartbeat(
                        cluster_name=own.cluster, broker_name=own.broker, broker_addr=own.address
                    ),
                    timeout=self._timeout,
                )
            else:
                await self._peer.call(
                    QueryDataVersion(
                        cluster_name=own.cluster,
                        broker_name=own.broker,
                        broker_addr=own.address,
                        broker_id=own.broker_id,
                        body=version,
                    ),
                    timeout=self._timeout,
                )
        except Unsupported:
            # It is of a release before 5.0.
            self._knows_heartbeats = False
        except (RocketMQError, OSError):
            # It may be another one when it is back.
            self._knows_heartbeats = True

    async def ask(self) -> None:
        """Ask who lives."""
        own = self._identity
        try:
            answer = await self._peer.call(
                GetBrokerMembers(cluster_name=own.cluster, broker_name=own.broker), timeout=self._timeout
            )
        except (RocketMQError, OSError) as error:
            if self._fault is None:
                log.warning("name server %s does not say which brokers live: %s", self._peer.address, error)
            self.members, self._fault = None, str(error)
            return
        if self._fault is not None:
            log.info("name server %s says again which brokers live", self._peer.address)
        self.members, self._fault = dict(answer.broker_member_group.broker_addrs), None


async def _nothing() -> None:
    """Where nobody wants to know."""
