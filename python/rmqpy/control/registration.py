"""Registration of the broker and of each topic change, at every name server.

Owns one task for each name server. It registers everything at the start and every 30 s, changed topics immediately, and
retries soon after a failure or the end of a connection. The tasks are independent, so that an unreachable name server
does not delay the others. Invariants: the first registration, and the first after a failure, is
the complete table, because a name server refuses a single topic of an unknown broker; changes are sent topic by topic,
because a name server may take a topic missing from a registration for deleted.
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
from rmqpy.control.topics.static_topics import StaticTopics
from rmqpy.control.topics.table import Topics
from rmqpy.errors import AuthError, ConnectError, RocketMQError, StoreError, Unsupported
from rmqpy.protocol.declare import json_tree
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
from rmqpy.remoting.waiting import wait_at_most

log = logging.getLogger(__name__)

R = TypeVar("R")

#: The most changed topics that are registered one by one; more are sent as the complete table.
CHANGES_MAX: Final = 16
#: The first pause after a failure; it doubles up to the registration period.
RETRY_SECONDS_MIN: Final = 1.0
#: The range of the random pause after a lost connection.
LOST_SECONDS: Final = (0.2, 1.0)
#: The longest pause while a name server is unreachable.
AWAY_SECONDS_MAX: Final = 4.0
#: A topic created again this soon after its deletion is registered several times, after `REPEAT_SECONDS`.
REMOVED_SECONDS: Final = 60.0
REPEAT_SECONDS: Final = (0.5, 1.0, 2.0, 4.0, 8.0)
#: The most deleted topics that are remembered.
REMOVED_MAX: Final = 4_096
#: The longest time that a stop waits for the name servers.
UNREGISTER_SECONDS: Final = 3.0


class Registration:
    """The registrations at all name servers."""

    def __init__(
        self,
        identity: Callable[[], Identity],
        peers: Mapping[str, Peer],
        *,
        permission: Callable[[], int],
        interval_seconds: float,
        timeout_seconds: float,
        on_answer: Callable[[Registered], bool] = lambda answer: True,
        state_version: int = 0,
    ) -> None:
        """`on_answer` gets a name server's reply to a complete registration. It returns False if the reply does not
        suffice, for example because a slave has no master yet; then the next registration follows soon.
        `state_version` is the epoch of a broker with a controller."""
        self._state_version = state_version
        self._current_identity = identity
        self.on_answer = on_answer
        self._permission = permission
        self._packed: tuple[object, PackedBody] | None = None
        self._is_started = False
        #: The times of recent topic deletions.
        self._removed: dict[str, float] = {}
        self._name_servers = [
            _NameServer(address, peer, self, interval_seconds, timeout_seconds)
            for address, peer in peers.items()
        ]

    def start(self, topics: Topics, static: StaticTopics) -> None:
        """Start on the running loop, with the broker's current identity."""
        self._identity, self._topics, self._static = self._current_identity(), topics, static
        self._is_started = True
        for name_server in self._name_servers:
            name_server.start()

    @property
    def fault(self) -> str | None:
        """The reason why no name server lists this broker; `None` if one does, or none is configured."""
        faults = [name_server.fault for name_server in self._name_servers if not name_server.is_known]
        if not self._name_servers or len(faults) < len(self._name_servers):
            return None
        return f"no name server knows this broker: {faults[0] or 'no answer yet'}"

    async def first_round(self, seconds: float) -> dict[str, str | None]:
        """Wait until each name server was queried once, or for `seconds`. Returns the errors by address."""
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
        """Register these topics at every name server now. The first registration is complete in any case."""
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
        """Note the deletion of a topic. Its deleter also removes it from the name servers, with a delay; a topic that
        is created again before that is registered several times."""
        if not self._is_started:
            return
        now = asyncio.get_running_loop().time()
        self._removed = {name: at for name, at in self._removed.items() if at + REMOVED_SECONDS > now}
        if len(self._removed) < REMOVED_MAX:
            self._removed[topic] = now

    def lost(self, address: str) -> None:
        """Note a lost connection. A restarted name server knows no broker, so it gets a registration until it
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
        """Stop registering without unregistering, because another broker takes this one's place."""
        await asyncio.gather(*(name_server.abandon() for name_server in self._name_servers))

    async def stop(self) -> None:
        """Unregister the broker at every name server that knows it and answers in time."""
        await asyncio.gather(*(name_server.stop() for name_server in self._name_servers))

    async def full(self) -> RegisterBroker:
        """Return the complete registration; one encoding serves all name servers."""
        version, permission = self._topics.version, self._permission()
        state = (version, self._static.version, permission)
        if self._packed is None or self._packed[0] != state:
            table = list(self._topics.table.values())
            body = await asyncio.to_thread(self._pack, version, table, permission)
            self._packed = (state, body)
        return self._ask(self._packed[1])

    def is_static(self, topic: TopicConfig) -> bool:
        """Return whether the registration of a topic has a mapping, which `single` cannot carry."""
        return topic.topic_name in self._static.table

    def partial(self, topic: TopicConfig) -> RegisterBroker:
        """Return a registration of one changed topic: for a static one, and for name servers that do not know
        `single`."""
        return self._ask(self._pack(self._topics.version, [topic], self._permission()))

    def single(self, topic: TopicConfig) -> RegisterTopic:
        """Return a registration of one changed topic's queues."""
        queues = QueueData(
            broker_name=self._identity.broker,
            read_queue_nums=topic.read_queue_nums,
            write_queue_nums=topic.write_queue_nums,
            perm=topic.perm & self._permission(),
            topic_sys_flag=topic.topic_sys_flag,
        )
        return RegisterTopic(topic=topic.topic_name, body=TopicRoute(queue_datas=[queues]))

    async def take_order(self, table: Mapping[str, str]) -> None:
        """Mark the order topics of a name server as ordered here, too: tools set them there for all brokers."""
        try:
            await self._topics.mark_ordered(table)
        except StoreError as error:
            log.warning("cannot mark order topics of a name server: %s", error)

    def leave(self) -> UnregisterBroker:
        """Return the request that unregisters the broker."""
        return UnregisterBroker(
            cluster_name=self._identity.cluster,
            broker_name=self._identity.broker,
            broker_addr=self._identity.address,
            broker_id=self._identity.broker_id,
        )

    def _pack(self, version: DataVersion, topics: Sequence[TopicConfig], permission: int) -> PackedBody:
        if self._state_version:
            version = dataclasses.replace(version, state_version=self._state_version)
        # Clients see the broker's permission only as a mask over the topics' permissions.
        if permission != Permission.READ_WRITE:
            topics = [dataclasses.replace(topic, perm=topic.perm & permission) for topic in topics]
        mappings = self._static.table
        return pack(
            TopicTable(
                data_version=version,
                topic_config_table={topic.topic_name: topic for topic in topics},
                mapping_data_version=self._static.version if mappings else version,
                topic_queue_mapping_detail_map={},
                topic_queue_mapping_info_map={
                    topic.topic_name: json_tree(mappings[topic.topic_name].info())
                    for topic in topics
                    if topic.topic_name in mappings
                },
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
    """Unregister another broker, whose place this one takes, at the name servers that answer."""
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
        #: True if the complete table must be sent.
        self.is_outdated = False
        self.asked_once = asyncio.Event()
        self.fault: str | None = None
        self._peer = peer
        self._registration = registration
        self._interval = interval
        self._timeout = timeout
        self._takes_single = True
        #: The time until the next reply is wanted; `None` if the last one suffices.
        self._answer_wait: float | None = None
        #: True if the name server was unreachable at the last attempt.
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
            # A random pause, so that not all brokers register at once, nor in a cycle of lost connections.
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
                # Changes do not shorten the pause: the next attempt sends the complete table.
                await asyncio.sleep(retry)
                # An unreachable name server is cheap to query, and should get its brokers back soon after its return.
                longest = AWAY_SECONDS_MAX if self._is_away else self._interval
                retry = min(2 * retry, longest, self._interval)

    async def _wait(self, seconds: float) -> None:
        await wait_at_most(self._woken, max(seconds, 0))

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
            log.exception("registration at name server %s failed, retrying", self.address)
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
        if self._takes_single and not self._registration.is_static(topic):
            try:
                await self._peer.call(self._registration.single(topic), timeout=self._timeout)
                return
            except Unsupported:
                # A release before 5.0, which never takes a missing topic for deleted.
                self._takes_single = False
        await self._peer.call(self._registration.partial(topic), timeout=self._timeout)

    def _failed(self, fault: str) -> None:
        if self.fault is None:
            log.warning("cannot register at name server %s, retrying: %s", self.address, fault)
        self.is_known, self.fault, self._takes_single = False, fault, True
