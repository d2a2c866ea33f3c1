"""Registration of the broker and of each change to its topics, at every name server.

Owns a task for each name server, which registers everything at the start and every 30 s, changed topics at once, and
tries again soon after a failure, or the end of a connection. Name servers do not know each other, and neither do the
tasks: one that is down does not delay the others. Invariants: the first registration at a name server, and the first
after any failure, is the complete table, as a lone topic from an unknown broker is refused; changes are told topic by
topic, as a name server may take what a registration does not list for deleted.
Threads: the event loop's; large tables are encoded in a worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from rmqpy.control.identity import Identity
from rmqpy.control.topics.table import Topics
from rmqpy.errors import AuthError, ConnectError, RocketMQError, StoreError, Unsupported
from rmqpy.protocol.requests.registration import (
    PackedBody,
    RegisterBroker,
    Registered,
    UnregisterBroker,
    pack,
)
from rmqpy.protocol.requests.routes import QueueData, RegisterTopic, TopicRoute
from rmqpy.protocol.topics import DataVersion, Permission, TopicConfig, TopicTable
from rmqpy.remoting.client import Peer

log = logging.getLogger(__name__)

R = TypeVar("R")

#: Changed topics that are told one by one; more are told with the complete table.
CHANGES_MAX: Final = 16
#: First wait after a failure; it doubles up to the registration period.
RETRY_SECONDS_MIN: Final = 1.0
#: Pause after the end of a connection, by chance.
LOST_SECONDS: Final = (0.2, 1.0)
#: The longest one while no connection to a name server can be made.
AWAY_SECONDS_MAX: Final = 4.0
#: A topic that is made again within that time after its deletion is told again after these.
REMOVED_SECONDS: Final = 60.0
REPEAT_SECONDS: Final = (0.5, 1.0, 2.0, 4.0, 8.0)
#: Deleted topics that are remembered.
REMOVED_MAX: Final = 4_096
#: Bound of a stop's wait for the name servers.
UNREGISTER_SECONDS: Final = 3.0


class Registration:
    """The registrations at all name servers."""

    def __init__(
        self,
        identity: Identity,
        topics: Topics,
        peers: Mapping[str, Peer],
        *,
        permission: Callable[[], int],
        interval_seconds: float,
        timeout_seconds: float,
        on_answer: Callable[[Registered], bool] = lambda answer: True,
    ) -> None:
        """`on_answer` is called with what a name server says to a complete registration; where that will not do, as a
        slave has no master yet, the next one comes soon."""
        self._identity = identity
        self.on_answer = on_answer
        self._topics = topics
        self._permission = permission
        self._packed: tuple[object, PackedBody] | None = None
        #: Topics that were deleted a short time ago, and when.
        self._removed: dict[str, float] = {}
        self._name_servers = [
            _NameServer(address, peer, self, interval_seconds, timeout_seconds)
            for address, peer in peers.items()
        ]

    def start(self) -> None:
        """Begin on the running loop."""
        for name_server in self._name_servers:
            name_server.start()

    @property
    def fault(self) -> str | None:
        """The reason why no name server sends clients here; None when one does, or where there is none."""
        faults = [name_server.fault for name_server in self._name_servers if not name_server.is_known]
        if not self._name_servers or len(faults) < len(self._name_servers):
            return None
        return f"no name server knows this broker: {faults[0] or 'no answer yet'}"

    async def first_round(self, seconds: float) -> dict[str, str | None]:
        """Wait until each name server has been asked once, or the time is up: what went wrong, by address."""
        waits = [asyncio.ensure_future(name_server.asked_once.wait()) for name_server in self._name_servers]
        if waits:
            _, late = await asyncio.wait(waits, timeout=seconds)
            for wait in late:
                wait.cancel()
        return {
            name_server.address: name_server.fault if name_server.asked_once.is_set() else "no answer yet"
            for name_server in self._name_servers
        }

    def changed(self, topics: Iterable[TopicConfig]) -> None:
        """Tell every name server about these topics now."""
        for topic in topics:
            for name_server in self._name_servers:
                name_server.pending[topic.topic_name] = topic
            if self._removed.pop(topic.topic_name, None) is not None:
                loop = asyncio.get_running_loop()
                for seconds in REPEAT_SECONDS:
                    loop.call_later(seconds, self._repeat, topic.topic_name)
        for name_server in self._name_servers:
            name_server.wake()

    def _repeat(self, name: str) -> None:
        topic = self._topics.table.get(name)
        if topic is not None:
            self.changed([topic])

    def removed(self, topic: str) -> None:
        """A topic is gone. Who deleted it makes name servers forget it some time later; one that is made again before
        that is told to them several times."""
        now = asyncio.get_running_loop().time()
        self._removed = {name: at for name, at in self._removed.items() if at + REMOVED_SECONDS > now}
        if len(self._removed) < REMOVED_MAX:
            self._removed[topic] = now

    def lost(self, address: str) -> None:
        """A connection has ended. A name server that started again knows no broker: it is told now, and until it
        answers."""
        for name_server in self._name_servers:
            if name_server.address == address:
                name_server.lost()

    def everything_changed(self) -> None:
        """Register the complete table now."""
        for name_server in self._name_servers:
            name_server.is_outdated = True
            name_server.wake()

    async def abandon(self) -> None:
        """Register no more, and leave what is registered: another broker takes this one's place."""
        await asyncio.gather(*(name_server.abandon() for name_server in self._name_servers))

    async def stop(self) -> None:
        """Take the broker off every name server that knows it and answers in time."""
        await asyncio.gather(*(name_server.stop() for name_server in self._name_servers))

    async def full(self) -> RegisterBroker:
        """The complete registration; one encoding serves all name servers."""
        version, permission = self._topics.version, self._permission()
        if self._packed is None or self._packed[0] != (version, permission):
            table = list(self._topics.table.values())
            body = await asyncio.to_thread(self._pack, version, table, permission)
            self._packed = ((version, permission), body)
        return self._ask(self._packed[1])

    def partial(self, topic: TopicConfig) -> RegisterBroker:
        """A registration of one changed topic, for name servers that do not know `single`."""
        return self._ask(self._pack(self._topics.version, [topic], self._permission()))

    def single(self, topic: TopicConfig) -> RegisterTopic:
        """The queues of one changed topic."""
        queues = QueueData(
            broker_name=self._identity.broker,
            read_queue_nums=topic.read_queue_nums,
            write_queue_nums=topic.write_queue_nums,
            perm=topic.perm & self._permission(),
            topic_sys_flag=topic.topic_sys_flag,
        )
        return RegisterTopic(topic=topic.topic_name, body=TopicRoute(queue_datas=[queues]))

    async def take_order(self, table: Mapping[str, str]) -> None:
        """The order topics of a name server are ours as well: what tools keep there holds for every broker."""
        try:
            await self._topics.mark_ordered(table)
        except StoreError as error:
            log.warning("order topics of a name server could not be marked: %s", error)

    def leave(self) -> UnregisterBroker:
        """The request that ends a registration."""
        return UnregisterBroker(
            cluster_name=self._identity.cluster,
            broker_name=self._identity.broker,
            broker_addr=self._identity.address,
            broker_id=self._identity.broker_id,
        )

    @staticmethod
    def _pack(version: DataVersion, topics: Sequence[TopicConfig], permission: int) -> PackedBody:
        # The broker's own permission reaches clients only as a mask over every topic's.
        if permission != Permission.READ_WRITE:
            topics = [dataclasses.replace(topic, perm=topic.perm & permission) for topic in topics]
        return pack(
            TopicTable(
                data_version=version,
                topic_config_table={topic.topic_name: topic for topic in topics},
                mapping_data_version=version,
                topic_queue_mapping_detail_map={},
                topic_queue_mapping_info_map={},
            )
        )

    def _ask(self, packed: PackedBody) -> RegisterBroker:
        return RegisterBroker(
            cluster_name=self._identity.cluster,
            broker_name=self._identity.broker,
            broker_addr=self._identity.address,
            broker_id=self._identity.broker_id,
            ha_server_addr=self._identity.replica_address,
            enable_acting_master=self._identity.may_act,
            heartbeat_timeout_millis=self._identity.silence_ms,
            zone_name=self._identity.zone,
            **packed._asdict(),
        )


async def unregister(identity: Identity, name_servers: Iterable[Peer]) -> None:
    """Take another broker off the name servers, as far as they answer: the one whose place this broker takes."""
    ask = UnregisterBroker(
        cluster_name=identity.cluster,
        broker_name=identity.broker,
        broker_addr=identity.address,
        broker_id=identity.broker_id,
    )
    for peer in name_servers:
        with contextlib.suppress(RocketMQError, OSError):
            await peer.call(ask, timeout=UNREGISTER_SECONDS)


class _NameServer:
    """The registration at one name server."""

    def __init__(
        self, address: str, peer: Peer, registration: Registration, interval: float, timeout: float
    ) -> None:
        self.address = address
        #: Changed topics that are not registered there yet.
        self.pending: dict[str, TopicConfig] = {}
        self.is_known = False
        #: Whether more has changed than single topics.
        self.is_outdated = False
        self.asked_once = asyncio.Event()
        self.fault: str | None = None
        self._peer = peer
        self._registration = registration
        self._interval = interval
        self._timeout = timeout
        self._takes_single = True
        #: How long to wait for another answer; None where the last one will do.
        self._answer_wait: float | None = None
        #: The last attempt found no name server there.
        self._is_away = False
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def wake(self) -> None:
        self._woken.set()

    def lost(self) -> None:
        if self.is_known:
            self.is_known = False
            # Not all brokers at the same moment, and not in a circle where it ends each connection.
            asyncio.get_running_loop().call_later(random.uniform(*LOST_SECONDS), self.wake)

    async def abandon(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
        self.is_known = False

    async def stop(self) -> None:
        is_known = self.is_known
        await self.abandon()
        if is_known:
            with contextlib.suppress(RocketMQError, OSError):
                await self._peer.call(self._registration.leave(), timeout=UNREGISTER_SECONDS)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        retry, due = RETRY_SECONDS_MIN, loop.time()
        while True:
            self._woken.clear()
            is_full = (
                not self.is_known or self.is_outdated or len(self.pending) > CHANGES_MAX or loop.time() >= due
            )
            if await self._register(is_full=is_full):
                retry = RETRY_SECONDS_MIN
                due = loop.time() + (self._answer_wait or self._interval) if is_full else due
                await self._wait(due - loop.time())
            else:
                # The wait is not cut short by changes: the table is complete when its turn comes.
                await asyncio.sleep(retry)
                # One that is away takes little to ask, and has brokers back soon after its return.
                longest = AWAY_SECONDS_MAX if self._is_away else self._interval
                retry = min(2 * retry, longest, self._interval)

    async def _wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), max(seconds, 0))

    async def _register(self, *, is_full: bool) -> bool:
        news, self.pending = self.pending, {}
        try:
            if is_full:
                await self._register_all()
            else:
                for topic in news.values():
                    await self._register_topic(topic)
        except AuthError as error:
            self._failed(
                f"{error}; set innerClientAuthenticationCredentials of this broker and of the name server to one user"
            )
        except (RocketMQError, OSError) as error:
            self._is_away = isinstance(error, ConnectError)
            self._failed(str(error))
        except Exception as error:
            log.exception("registration at name server %s failed and will be tried again", self.address)
            self._failed(f"{type(error).__name__}: {error}")
        self.asked_once.set()
        return self.fault is None

    async def _register_all(self) -> None:
        self.is_outdated = False
        answer = await self._peer.call(await self._registration.full(), timeout=self._timeout)
        if not self.is_known:
            log.info("registered at name server %s", self.address)
        self.is_known, self.fault = True, None
        if self._registration.on_answer(answer):
            self._answer_wait = None
        else:
            self._answer_wait = min(2 * (self._answer_wait or RETRY_SECONDS_MIN / 2), self._interval)
        if answer.body is not None:
            await self._registration.take_order(answer.body.table)

    async def _register_topic(self, topic: TopicConfig) -> None:
        if self._takes_single:
            try:
                await self._peer.call(self._registration.single(topic), timeout=self._timeout)
                return
            except Unsupported:
                # It is of a release before 5.0, which takes nothing for deleted.
                self._takes_single = False
        await self._peer.call(self._registration.partial(topic), timeout=self._timeout)

    def _failed(self, fault: str) -> None:
        if self.fault is None:
            log.warning("cannot register at name server %s, trying again: %s", self.address, fault)
        self.is_known, self.fault, self._takes_single = False, fault, True
