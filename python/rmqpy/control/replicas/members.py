"""Members: the live brokers of this name, as name servers report them; sends the heartbeats of this one.

Owns the last answer of each name server. Invariants: an unreachable name server changes nothing, and without any answer
the members are unknown; a failure is logged once. Threads: the event loop's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from rmqpy.control.identity import Identity
from rmqpy.errors import RocketMQError, Unsupported
from rmqpy.protocol.requests.registration import BrokerHeartbeat, QueryDataVersion
from rmqpy.protocol.requests.routes import GetBrokerMembers
from rmqpy.protocol.topics import DataVersion
from rmqpy.remoting.client import Peer
from rmqpy.remoting.waiting import wait_at_most

log = logging.getLogger(__name__)

#: The minimum time between registrations at a name server that does not list this broker, perhaps for a reason.
FORGOTTEN_SECONDS: Final = 5.0

#: Broker ids and addresses.
Group = Mapping[int, str]


class Members:
    """The live brokers of one name."""

    def __init__(
        self,
        identity: Identity,
        name_servers: Mapping[str, Peer],
        version: Callable[[], DataVersion],
        *,
        interval_seconds: float,
        timeout_seconds: float,
        on_round: Callable[[Group | None], Awaitable[None]] | None = None,
        on_forgotten: Callable[[], None] = lambda: None,
    ) -> None:
        """`version` is that of the topics, for name servers without heartbeats. `on_round` gets the live members after
        each round. `on_forgotten` is called when a name server that answers does not list this broker."""
        self._identity = identity
        self._version = version
        self._interval = interval_seconds
        self._name_servers = [_NameServer(peer, identity, timeout_seconds) for peer in name_servers.values()]
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        #: The time before which `on_forgotten` is not called again.
        self._forgotten_until = 0.0
        self._on_round = on_round
        self._on_forgotten = on_forgotten

    def start(self) -> None:
        """Start on the running loop."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def wake(self) -> None:
        """Query now, because a name server reported a change."""
        self._woken.set()

    async def stop(self) -> None:
        """Stop. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    @property
    def now(self) -> Group | None:
        """The members that at least one name server reports as live; `None` if none answers."""
        answers = [server.members for server in self._name_servers if server.members is not None]
        return {known: where for members in answers for known, where in members.items()} if answers else None

    async def ask(self) -> Group | None:
        """Query once, without a heartbeat; return `now`."""
        await asyncio.gather(*(server.ask() for server in self._name_servers))
        return self.now

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            try:
                await self._beat()
                if self._on_round is not None:
                    await self._on_round(self.now)
            except Exception:
                log.exception("cannot start or stop acting for the master, retrying")
            await wait_at_most(self._woken, self._interval)

    async def _beat(self) -> None:
        """Send a heartbeat, then query the live members."""
        version = self._version()
        await asyncio.gather(*(server.beat(version) for server in self._name_servers))
        await self.ask()
        own = self._identity.address
        answers = (server.members for server in self._name_servers)
        now = asyncio.get_running_loop().time()
        if now >= self._forgotten_until and any(
            members is not None and own not in members.values() for members in answers
        ):
            self._forgotten_until = now + FORGOTTEN_SECONDS
            self._on_forgotten()


class _NameServer:
    """The reports of one name server."""

    def __init__(self, peer: Peer, identity: Identity, timeout: float) -> None:
        #: `None` while it does not answer.
        self.members: Group | None = None
        self._peer = peer
        self._identity = identity
        self._timeout = timeout
        self._knows_heartbeats = True
        self._fault: str | None = None

    async def beat(self, version: DataVersion) -> None:
        """Send a heartbeat. A failure shows in `ask`."""
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
            # A release before 5.0.
            self._knows_heartbeats = False
        except (RocketMQError, OSError):
            # Another release may run there after a failure.
            self._knows_heartbeats = True

    async def ask(self) -> None:
        """Query the live members."""
        own = self._identity
        try:
            answer = await self._peer.call(
                GetBrokerMembers(cluster_name=own.cluster, broker_name=own.broker), timeout=self._timeout
            )
        except (RocketMQError, OSError) as error:
            if self._fault is None:
                log.warning("name server %s does not return the live brokers: %s", self._peer.address, error)
            self.members, self._fault = None, str(error)
            return
        if self._fault is not None:
            log.info("name server %s returns the live brokers again", self._peer.address)
        self.members, self._fault = dict(answer.broker_member_group.broker_addrs), None
