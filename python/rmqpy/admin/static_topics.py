"""Static topics of a cluster: logical queues that keep their numbers and offsets when they move to other brokers.

Every change is planned first. A change that stopped halfway is finished by repeating the call.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from rmqpy.admin.connection import LOOK_SECONDS, Part
from rmqpy.admin.static_plan import StaticLayout, decided, grown, layout_of, moved
from rmqpy.errors import ConfigError, ConnectError, RequestTimeout, TopicExists, TopicNotFound
from rmqpy.protocol import names
from rmqpy.protocol.declare import read_tree
from rmqpy.protocol.requests.brokers import GetBrokerRuntimeInfo
from rmqpy.protocol.requests.offsets import GetTopicStatsInfo
from rmqpy.protocol.requests.routes import GetRoute
from rmqpy.protocol.requests.topics import (
    GetTopicConfig,
    MappedTopicConfig,
    UpdateAndCreateStaticTopic,
)
from rmqpy.protocol.static_topics import TopicMappingInfo, fault
from rmqpy.protocol.topics import TopicConfig
from rmqpy.remoting.backoff import Backoff

#: Time for sends in progress at a broker that stops leading a queue, and for its messages to become visible.
_IN_PROGRESS_SECONDS: Final = 0.2
_VISIBLE_SECONDS: Final = 10.0
#: Interval between checks whether name servers know a mapping.
_LOOK_AGAIN: Final = Backoff(0.02, 0.5)


class LogicalSegment(NamedTuple):
    """One part of a logical queue."""

    queue: int
    #: The generation, which grows with each move.
    generation: int
    broker: str
    #: The queue of that broker.
    local_queue: int
    #: The first logical offset; -1 while the queue moves.
    begin: int
    #: Whether the broker leads the queue, which grows here.
    is_leader: bool


class _Known(NamedTuple):
    """A static topic as its brokers know it."""

    layout: StaticLayout
    #: Broker → address of its master.
    masters: dict[str, str]
    #: Brokers that have the topic.
    configs: dict[str, MappedTopicConfig]


class StaticTopics(Part):
    """The static topics of one cluster, or of several."""

    async def describe(self, name: str) -> list[LogicalSegment]:
        """List the segments of all logical queues. Raises `TopicNotFound`, also for an ordinary topic."""
        known = await self._known(name, None)
        if not known.layout.total:
            raise _absent(name)
        return _rows(known.layout)

    async def create(
        self,
        name: str,
        queues: int,
        *,
        brokers: Sequence[str] | None = None,
        cluster: str | None = None,
        is_plan: bool = False,
    ) -> list[LogicalSegment]:
        """Create a static topic with this number of logical queues in total, or add queues to one. Returns its
        segments; with `is_plan` changes nothing.

        New queues go to `brokers`, by default to all of the cluster, evenly. Raises `TopicExists` for an ordinary topic
        of this name, and `ConfigError` for fewer queues than there are.
        """
        if wrong := names.topic_fault(name):
            raise ConfigError(f"topic {name!r}: {wrong}")
        known = await self._known(name, cluster)
        layout = known.layout
        if known.configs and not any(config.mapping_detail for config in known.configs.values()):
            raise TopicExists(f"topic {name!r} exists and is not static", topic=name)
        if queues < layout.total:
            raise ConfigError(f"static topic {name!r} has {layout.total} queues and cannot have fewer")
        plan = grown(layout, queues, _chosen(brokers, known), self._now_ms())
        if not is_plan:
            # Brokers without queues learn of the topic, so that they know what they do not lead.
            await self._put(known, plan, sorted(known.masters))
            await self._routed(known, plan)
        return _rows(plan)

    async def remap(
        self,
        name: str,
        *,
        brokers: Sequence[str] | None = None,
        cluster: str | None = None,
        is_plan: bool = False,
    ) -> list[LogicalSegment]:
        """Spread the logical queues of a static topic evenly over `brokers`, by default all of the cluster, with as few
        moves as possible. Returns its segments; with `is_plan` changes nothing, and moved queues begin at -1.

        Messages stay where they are, and consumers read on. A moved queue refuses sends for a moment, and its offsets
        continue at a multiple of 10,000. Raises `TopicNotFound`.
        """
        known = await self._known(name, cluster)
        if not known.layout.total:
            raise _absent(name)
        missing = [number for number in range(known.layout.total) if not known.layout.queues.get(number)]
        if missing:
            raise ConfigError(
                f"queues {missing[:10]} of static topic {name!r} have no broker",
                hint=f"finish its creation: rmqpy topic static {name} --queues {known.layout.total}",
            )
        plan = moved(known.layout, _chosen(brokers, known), self._now_ms())
        if is_plan:
            return _rows(plan)
        moving = plan.undecided()
        leaders = sorted({plan.queues[number][-1].bname for number in moving})
        former = sorted({plan.queues[number][-2].bname for number in moving} - set(leaders))
        # The new leader first: from then on, the old one may refuse.
        await self._put(known, plan, leaders)
        await self._put(known, plan, former)
        plan = decided(plan, await self._ends(known, plan, moving))
        await self._put(known, plan, leaders)
        await self._put(known, plan, [broker for broker in sorted(known.masters) if broker not in leaders])
        await self._routed(known, plan)
        return _rows(plan)

    async def _ends(self, known: _Known, plan: StaticLayout, moving: Sequence[int]) -> dict[int, int]:
        """Return the local ends of the old segments of moved queues, with all their messages visible."""
        ends: dict[int, int] = {}
        for broker in sorted({plan.queues[number][-2].bname for number in moving}):
            address = _master(broker, known)
            await self._all_visible(broker, address)
            stats = (await self._cluster.ask(address, GetTopicStatsInfo(topic=plan.topic))).offset_table
            limits = {queue.queue_id: held.max_offset for queue, held in stats.items()}
            for number in moving:
                segment = plan.queues[number][-2]
                if segment.bname == broker:
                    ends[number] = limits.get(segment.queue_id, 0)
        return ends

    async def _all_visible(self, broker: str, address: str) -> None:
        """Wait until consumers can see every message that a broker has stored by now. Sends in progress when it stopped
        leading its queues are stored first."""
        await self._cluster.caller.sleep(_IN_PROGRESS_SECONDS)
        deadline = time.monotonic() + _VISIBLE_SECONDS
        target: int | None = None
        while True:
            table = (await self._cluster.ask(address, GetBrokerRuntimeInfo())).table
            end = int(table.get("commitLogMaxOffset", 0))
            target = end if target is None else target
            if end - int(table.get("dispatchBehindBytes", 0)) >= target:
                return
            if time.monotonic() > deadline:
                raise RequestTimeout(
                    f"messages of broker {broker!r} do not become visible", broker=broker, hint="run it again"
                )
            await self._cluster.caller.sleep(LOOK_SECONDS)

    async def _put(self, known: _Known, plan: StaticLayout, brokers: Sequence[str]) -> None:
        for broker in brokers:
            mapping = plan.mapping(broker)
            if wrong := fault(mapping, broker):
                raise ConfigError(f"static topic {plan.topic!r}: {wrong}")
            config = known.configs.get(broker) or TopicConfig(
                topic_name=plan.topic, read_queue_nums=0, write_queue_nums=0
            )
            count = plan.local.get(broker, 0)
            ask = UpdateAndCreateStaticTopic(
                topic=plan.topic,
                read_queue_nums=max(count, config.read_queue_nums),
                write_queue_nums=max(count, config.write_queue_nums),
                perm=config.perm,
                topic_filter_type=config.topic_filter_type,
                topic_sys_flag=config.topic_sys_flag,
                order=config.order,
                force=False,
                body=mapping,
            )
            await self._cluster.ask(_master(broker, known), ask)

    async def _routed(self, known: _Known, plan: StaticLayout) -> None:
        """Wait until the name servers that answer know the mappings, or for the timeout: brokers register them
        themselves."""
        deadline = time.monotonic() + self._cluster.timeout
        for name_server in self._cluster.name_servers.addresses:
            looks = 0
            while not await self._is_routed(name_server, known, plan):
                if (left_s := deadline - time.monotonic()) <= 0:
                    return
                looks += 1
                await self._cluster.caller.sleep(min(_LOOK_AGAIN.pause_s(looks), left_s))

    async def _is_routed(self, name_server: str, known: _Known, plan: StaticLayout) -> bool:
        ask = GetRoute(topic=plan.topic, accept_standard_json_only=True)
        try:
            route = (await self._cluster.ask(name_server, ask)).body
        except TopicNotFound:
            return False
        except (ConnectError, RequestTimeout):
            return True
        mappings = route.topic_queue_mapping_by_broker or {}
        found = {broker: read_tree(TopicMappingInfo, each).epoch for broker, each in mappings.items()}
        return all(found.get(broker, 0) >= plan.epoch for broker in known.masters)

    async def _known(self, name: str, cluster: str | None) -> _Known:
        masters = await self._cluster.masters(cluster, is_change=True)
        configs: dict[str, MappedTopicConfig] = {}
        for broker, address in sorted(masters.items()):
            with suppress(TopicNotFound):
                ask = GetTopicConfig(topic=name, lo=True)
                configs[broker] = await self._cluster.ask(address, ask)
        local = {
            broker: max(config.read_queue_nums, config.write_queue_nums) for broker, config in configs.items()
        }
        mappings = [config.mapping_detail for config in configs.values() if config.mapping_detail]
        return _Known(layout_of(name, mappings, local), masters, configs)

    @staticmethod
    def _now_ms() -> int:
        return time.time_ns() // 1_000_000


def _chosen(brokers: Sequence[str] | None, known: _Known) -> list[str]:
    if brokers is None:
        return sorted(known.masters)
    if unknown := sorted(set(brokers) - known.masters.keys()):
        raise ConfigError(
            f"no master of broker {unknown[0]!r} is registered",
            hint=f"known brokers: {', '.join(sorted(known.masters))}",
        )
    if not brokers:
        raise ConfigError("name a broker")
    return sorted(set(brokers))


def _master(broker: str, known: _Known) -> str:
    if broker not in known.masters:
        raise ConfigError(f"broker {broker!r} has a part of the topic and is not registered")
    return known.masters[broker]


def _rows(layout: StaticLayout) -> list[LogicalSegment]:
    return [
        LogicalSegment(
            number,
            segment.gen,
            segment.bname,
            segment.queue_id,
            segment.logic_offset,
            segment is segments[-1],
        )
        for number, segments in sorted(layout.queues.items())
        for segment in segments
    ]


def _absent(name: str) -> TopicNotFound:
    return TopicNotFound(
        f"static topic {name!r} does not exist",
        topic=name,
        hint=f"create it: rmqpy topic static {name} --queues N",
    )
