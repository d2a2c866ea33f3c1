"""Topics of a cluster: names, queues, routes and settings; create, change, delete.

A topic exists on each master of its cluster.
"""

import dataclasses
import functools
import operator
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, Literal, NamedTuple

from rmqpy.admin.connection import Part, master
from rmqpy.errors import (
    ConfigError,
    ConnectError,
    NoBrokerRegistered,
    RequestTimeout,
    RocketMQError,
    TopicExists,
    TopicNotFound,
    Unsupported,
)
from rmqpy.findings import headless
from rmqpy.protocol import names
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.declare import Request
from rmqpy.protocol.order_topics import ORDER_TOPICS, with_queues
from rmqpy.protocol.requests.kv import DeleteKv, GetKv, KvFound, PutKv
from rmqpy.protocol.requests.offsets import GetTopicStatsInfo
from rmqpy.protocol.requests.routes import (
    BrokerData,
    DeleteTopic,
    GetAllTopics,
    GetClusterInfo,
    GetRoute,
    GetSystemTopics,
    TopicRoute,
)
from rmqpy.protocol.requests.topics import (
    DeleteTopicInBroker,
    GetAllTopicConfig,
    GetSystemTopicListFromBroker,
    GetTopicConfig,
    UpdateAndCreateTopic,
)
from rmqpy.protocol.topics import Permission, TopicConfig
from rmqpy.remoting.backoff import Backoff

#: Permissions of clients: read, write, both.
Perm = Literal["RW", "R", "W"]
#: Message types. RocketMQ's proxy enforces them, a broker of rmqpy does with `enableTopicMessageTypeCheck`.
TopicType = Literal["NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "LITE", "MIXED"]

#: Interval between checks whether name servers know a new topic.
_LOOK_AGAIN: Final = Backoff(0.02, 0.5)
_TYPE: Final = "message.type"
#: Names in one request: they travel in its header.
_TOGETHER: Final = 100


class QueueState(NamedTuple):
    """One queue of a topic: contents and permissions."""

    broker: str
    address: str
    queue_id: int
    permission: str
    begin: int
    end: int
    #: The time of the last message in ms since the epoch; 0 without one.
    stored_at_ms: int


class TopicSummary(NamedTuple):
    """One topic over all its brokers."""

    name: str
    type: str
    #: Sum over all brokers.
    read_queues: int
    write_queues: int
    #: The fewest permissions on any broker.
    permission: str
    brokers: list[str]


def change_to(name: str, wanted: TopicConfig, attributes: str | None) -> UpdateAndCreateTopic:
    """Return the request that gives a topic these settings, with a change of its attributes."""
    return UpdateAndCreateTopic(
        topic=name,
        read_queue_nums=wanted.read_queue_nums,
        write_queue_nums=wanted.write_queue_nums,
        perm=wanted.perm,
        topic_filter_type=wanted.topic_filter_type,
        topic_sys_flag=wanted.topic_sys_flag,
        order=wanted.order,
        attributes=attributes,
    )


class Topics(Part):
    """The topics of one cluster, found through its name servers."""

    async def names(self, *, with_system: bool = False) -> list[str]:
        """List all topics, sorted; system topics only on request."""
        found = (await self._cluster.look_up(GetAllTopics())).topic_list
        if with_system:
            return sorted(found)
        # Each broker lists its own, and one is asked.
        system = await self._system_names()
        return sorted(
            name
            for name in found
            if name not in system and not names.is_system_topic(name) and not names.is_derived(name)
        )

    async def types(self, *, with_system: bool = False) -> dict[str, str]:
        """Return the message type of each topic, `NORMAL` by default; system topics only on request."""
        return {each.name: each.type for each in await self.summaries(with_system=with_system)}

    async def summaries(
        self, names: Sequence[str] | None = None, *, with_system: bool = False
    ) -> list[TopicSummary]:
        """Return every topic with its settings, by name; system topics only on request. With `names` only these."""
        found: dict[str, dict[str, TopicConfig]] = {}
        servers = await self._cluster.every_master()
        for ask in _tables(
            None if names is None else [self._cluster.caller.wire_name(name) for name in names]
        ):
            for broker, _, reply in await self._cluster.ask_each(servers, ask):
                for name, topic in reply.body.topic_config_table.items():
                    found.setdefault(name, {})[broker] = topic
        wanted = await self.names(with_system=with_system) if names is None else sorted(set(names))
        return [_summary(name, found[name]) for name in wanted if name in found]

    async def describe(self, name: str) -> list[QueueState]:
        """List every readable queue with the offsets of its broker. Raises `TopicNotFound`."""
        route = await self.route(name)
        queues = {data.broker_name: data for data in route.queue_datas}
        known = self._cluster.masters_in(route)
        servers = [(name, address) for name, address in known.items() if name in queues]
        return [
            QueueState(
                broker,
                address,
                queue.queue_id,
                permission(queues[broker].perm),
                held.min_offset,
                held.max_offset,
                held.last_update_timestamp,
            )
            for broker, address, stats in await self._cluster.ask_each(servers, GetTopicStatsInfo(topic=name))
            for queue, held in sorted(stats.offset_table.items(), key=lambda item: item[0].queue_id)
            if queue.queue_id < queues[broker].read_queue_nums
        ]

    async def settings(self, name: str) -> dict[str, TopicConfig]:
        """Return the settings of a topic on each broker. Raises `TopicNotFound`."""
        # A broker that has just lost the topic is still in the route.
        found = await self._settings_at(name, await self._masters_of(name))
        if not found:
            raise await self._absent(name)
        return found

    async def route(self, name: str) -> TopicRoute:
        """Return the route of a topic from a name server. Raises `TopicNotFound`."""
        try:
            return (await self._cluster.look_up(_route(name))).body
        except RocketMQError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                raise await self._absent(name, error.code) from None
            raise

    async def _absent(self, name: str, code: int | None = None) -> RocketMQError:
        """The error for a topic without a route."""
        brokers = (await self._cluster.cluster_info()).broker_addr_table
        if lost := [broker for broker, data in brokers.items() if master(data) is None]:
            # Name servers forget the topics of a broker with its master.
            finding = headless(lost)
            sentence = f"no broker with a master has topic {name!r}, but it may exist: {finding.found}"
            return TopicNotFound(sentence, code=code, topic=name, hint=finding.advice)
        if brokers:
            return _missing(name, code)
        return NoBrokerRegistered(
            f"no broker is registered, so topic {name!r} may exist", code=code, topic=name
        )

    async def create(
        self,
        name: str,
        *,
        read_queues: int = 8,
        write_queues: int = 8,
        perm: Perm = "RW",
        message_type: TopicType = "NORMAL",
        order: bool = False,
        compacted: bool = False,
        lite_minutes: int | None = None,
        cluster: str | None = None,
        exist_ok: bool = False,
        partial: bool = False,
    ) -> list[str]:
        """Create the topic on every master. Returns the brokers that did not have it. If a broker has no master, raises
        `RocketMQError` and does nothing; with `partial` creates it on the others.

        If the topic exists on any of them, raises `TopicExists` and changes nothing. With `exist_ok` it stays unchanged
        there and is created on the others. `update_topic` changes one. Returns once name servers know the topic
        there, or after the timeout: brokers register it themselves.

        A `compacted` topic keeps the newest message of each key, and refuses messages without one; this cannot be
        changed later. A topic of the type LITE has lite topics, each of which is deleted `lite_minutes` after its last
        message; by default it stays.

        The queues of an order topic are listed on every name server, in `ORDER_TOPIC_CONFIG`. If one does not answer,
        its error is raised at the end; repeat the call with `exist_ok` to finish.
        """
        if wrong := names.topic_fault(name):
            raise ConfigError(f"topic {name!r}: {wrong}")
        brokers = await self._cluster.masters(
            cluster, is_change=not partial, instead="; or create it only on the others with --partial"
        )
        if known := await self._settings_at(name, brokers):
            if not exist_ok:
                raise _exists(name, known)
            brokers = {broker: address for broker, address in brokers.items() if broker not in known}
        attributes = [] if message_type == "NORMAL" else [f"+{_TYPE}={message_type}"]
        if compacted:
            attributes.append("+cleanup.policy=COMPACTION")
        if lite_minutes is not None:
            if message_type != "LITE":
                raise ConfigError("lite_minutes needs message_type='LITE'")
            attributes.append(f"+lite.topic.expiration={lite_minutes}")
        ask = UpdateAndCreateTopic(
            topic=name,
            read_queue_nums=read_queues,
            write_queue_nums=write_queues,
            perm=_bits(perm),
            order=order,
            attributes=",".join(attributes) or None,
        )
        await self._cluster.tell(brokers, ask, f"topic {name!r} was created")
        if order:
            listed = {broker: topic.write_queue_nums for broker, topic in known.items() if topic.order}
            await self.list_queues(name, listed | dict.fromkeys(brokers, write_queues))
        if not brokers:
            return []
        deadline = time.monotonic() + self._cluster.timeout
        for name_server in self._cluster.name_servers.addresses:
            looks = 0
            while not await self._is_routed(name_server, name, set(brokers)):
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    break
                looks += 1
                await self._cluster.caller.sleep(min(_LOOK_AGAIN.pause_s(looks), left_s))
        return sorted(brokers)

    async def alter(
        self,
        name: str,
        *,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: Perm | None = None,
        order: bool | None = None,
        message_type: TopicType | None = None,
    ) -> list[str]:
        """Change settings of a topic on the brokers that have it. Returns their names. Raises `TopicNotFound`.

        With fewer queues the messages of the others are hidden: lower `write_queues` first, and `read_queues` when
        they are consumed. The name servers' list of an order topic's queues is updated; without `order` it is removed.
        """
        given: dict[str, Any] = {
            "read_queue_nums": read_queues,
            "write_queue_nums": write_queues,
            "perm": None if perm is None else _bits(perm),
            "order": order,
        }
        changes = {field: value for field, value in given.items() if value is not None}
        if not changes and message_type is None:
            raise ConfigError("nothing to change: name a setting")
        addresses = await self._masters_of(name, is_change=True)
        known = await self.settings(name)
        if order is False:
            # First: when a broker registers, it makes listed topics order topics again.
            for name_server in self._cluster.name_servers.addresses:
                await self._cluster.ask(name_server, self._unlisting(name))
        for broker, topic in known.items():
            new = dataclasses.replace(topic, **changes)
            attributes = None if message_type is None else f"+{_TYPE}={message_type}"
            await self._cluster.ask(addresses[broker], change_to(name, new, attributes))
        if order or (order is None and write_queues is not None):
            listed = {
                broker: write_queues or topic.write_queue_nums
                for broker, topic in known.items()
                if order or topic.order
            }
            await self.list_queues(name, listed)
        return sorted(known)

    async def delete(self, name: str) -> list[str]:
        """Delete the topic from its brokers, then from every name server. Returns the brokers.

        Its messages become unreadable. Raises `TopicNotFound` if it does not exist. A server that does not answer is
        skipped and its error raised at the end; repeat the call to finish.
        """
        failures: list[RocketMQError] = []
        found: dict[str, set[str]] = {}
        # Each name server has its own table: another may still have the topic.
        for name_server in self._cluster.name_servers.addresses:
            with suppress(TopicNotFound), _noting(failures):
                for broker in await self._brokers(name_server, name):
                    # Slaves copy it from their master.
                    address = master(broker)
                    found.setdefault(broker.broker_name, set()).update([address] if address else ())
        without = [broker for broker, addresses in found.items() if not addresses]
        if without:
            finding = headless(without)
            failures.append(
                RocketMQError(f"{finding.found}, and topic {name!r} stays there", hint=finding.advice)
            )
        if not found:
            raise _unfinished(failures) if failures else await self._absent(name)
        is_complete = not without
        for address in sorted({address for addresses in found.values() for address in addresses}):
            is_complete &= await self._forget(address, DeleteTopicInBroker(topic=name), failures)
        # A broker that still has the topic must be found again: its routes stay.
        for name_server in self._cluster.name_servers.addresses if is_complete else ():
            await self._forget(name_server, DeleteTopic(topic=name), failures)
            await self._forget(name_server, self._unlisting(name), failures)
        if failures:
            raise _unfinished(failures)
        return sorted(found)

    async def list_queues(self, name: str, queues: Mapping[str, int]) -> None:
        """Set the number of queues of an order topic for these brokers on every name server."""
        if not queues:
            return
        known: KvFound | None = None
        key = self._cluster.caller.wire_name(name)
        ask = GetKv(namespace=ORDER_TOPICS, key=key)
        for name_server in self._cluster.name_servers.addresses:
            known = known or await self._cluster.ask_unless(ResponseCode.QUERY_NOT_FOUND, name_server, ask)
        listed = with_queues((known and known.value) or "", queues)
        for name_server in self._cluster.name_servers.addresses:
            await self._cluster.ask(name_server, PutKv(namespace=ORDER_TOPICS, key=key, value=listed))

    async def _brokers(self, name_server: str, name: str) -> Iterable[BrokerData]:
        """Return the brokers of a topic by one name server; all that may have it if it is a light queue."""
        if names.is_light(name):
            return (await self._cluster.ask(name_server, GetClusterInfo())).broker_addr_table.values()
        return (await self._cluster.ask(name_server, _route(name))).body.broker_datas

    def _unlisting(self, name: str) -> DeleteKv:
        return DeleteKv(namespace=ORDER_TOPICS, key=self._cluster.caller.wire_name(name))

    async def _forget(self, address: str, ask: Request[None], failures: list[RocketMQError]) -> bool:
        """Notify one server that a topic was deleted, which it may know already. Returns whether it knows now."""
        before = len(failures)
        with suppress(TopicNotFound), _noting(failures):
            await self._cluster.ask(address, ask)
        return len(failures) == before

    async def _masters_of(self, name: str, *, is_change: bool = False) -> dict[str, str]:
        return self._cluster.masters_in(await self.route(name), is_change=is_change)

    async def _settings_at(self, name: str, brokers: Mapping[str, str]) -> dict[str, TopicConfig]:
        """Return the settings of a topic on those of these brokers, name → address, that have it."""
        found = {}
        await self._cluster.notice_silent(brokers.items())
        for broker, address in brokers.items():
            with suppress(TopicNotFound), self._cluster.may_miss(broker):
                found[broker] = await self._settings_of(name, address)
        return found

    async def _settings_of(self, name: str, address: str) -> TopicConfig:
        try:
            return (await self._cluster.ask(address, GetTopicConfig(topic=name))).plain()
        except Unsupported:
            # A broker of 4.x, which returns all topics or none.
            table = (await self._cluster.ask(address, GetAllTopicConfig())).body.topic_config_table
            if name not in table:
                raise _missing(name, None) from None
            return table[name]

    async def _is_routed(self, name_server: str, name: str, brokers: set[str]) -> bool:
        """Whether name servers have the topic on all of these brokers; unreachable ones do not count."""
        try:
            route = (await self._cluster.ask(name_server, _route(name))).body
        except TopicNotFound:
            return False
        except (ConnectError, RequestTimeout):
            return True
        return brokers <= {data.broker_name for data in route.queue_datas}

    async def _system_names(self) -> set[str]:
        """Return topics reserved by servers: name servers know those named like clusters and brokers, a broker the
        others."""
        known = await self._cluster.look_up(GetSystemTopics())
        found = set(known.topic_list)
        if known.broker_addr:
            server = [(known.broker_addr, known.broker_addr)]
            for _, _, answer in await self._cluster.ask_each(server, GetSystemTopicListFromBroker()):
                found.update(answer.topic_list)
        return found


@contextmanager
def _noting(failures: list[RocketMQError]) -> Iterator[None]:
    """Skip a server that does not answer, and keep its error."""
    try:
        yield
    except (ConnectError, RequestTimeout) as error:
        failures.append(error)


def _unfinished(failures: list[RocketMQError]) -> RocketMQError:
    """The first error of a deletion, with advice to finish it."""
    failures[0].hint = "it was deleted from the other servers; delete it again when this one answers"
    return failures[0]


def _tables(names: Sequence[str] | None) -> Iterator[GetAllTopicConfig]:
    """Requests for the settings of these topics, or of all."""
    if names is None:
        yield GetAllTopicConfig()
        return
    for begin in range(0, len(names), _TOGETHER):
        yield GetAllTopicConfig(names="\n".join(names[begin : begin + _TOGETHER]))


def _summary(name: str, topics: Mapping[str, TopicConfig]) -> TopicSummary:
    every = topics.values()
    return TopicSummary(
        name,
        message_type(next(iter(every))),
        sum(topic.read_queue_nums for topic in every),
        sum(topic.write_queue_nums for topic in every),
        permission(functools.reduce(operator.and_, (topic.perm for topic in every))),
        sorted(topics),
    )


def message_type(topic: TopicConfig) -> str:
    return topic.attributes.get(_TYPE, "NORMAL")


@functools.lru_cache(64)
@functools.lru_cache(64)
def permission(bits: int) -> str:
    """Format permission bits.

    >>> permission(6), permission(4)
    ('RW', 'R-')
    """
    return ("R" if bits & Permission.READ else "-") + ("W" if bits & Permission.WRITE else "-")


def _bits(perm: Perm) -> int:
    return (Permission.READ if "R" in perm else 0) | (Permission.WRITE if "W" in perm else 0)


def _route(name: str) -> GetRoute:
    return GetRoute(topic=name, accept_standard_json_only=True)


def _missing(name: str, code: int | None) -> TopicNotFound:
    return TopicNotFound(
        f"topic {name!r} does not exist", code=code, topic=name, hint=f"create it: rmqpy topic create {name}"
    )


def _exists(name: str, known: Mapping[str, TopicConfig]) -> TopicExists:
    queues = ", ".join(f"{broker}: {topic.read_queue_nums} queues" for broker, topic in sorted(known.items()))
    return TopicExists(
        f"topic {name!r} already exists ({queues})",
        topic=name,
        hint=f"keep it with --if-not-exists, or change it with rmqpy topic alter {name}",
    )
