"""Metrics of a broker for Prometheus, under the names of RocketMQ 5.

Owns nothing: a scrape reads the counters of the data plane and the tables of the control plane. The loop's tables are
copied on the loop; the rest, which may read queues of many topics, runs in a worker. Every sample has the labels
`cluster`, `node_type` and `node_id`, as in Apache's broker.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, NamedTuple

from rmqpy._native import (
    MESSAGE_SIZE_BOUNDS,
    DueMessages,
    Offsets,
    Server,
    Store,
    Transactions,
)
from rmqpy.clock import Clock
from rmqpy.config.broker import BrokerConfig
from rmqpy.control.clients.registry import Consumers, Producers
from rmqpy.control.clients.replies import REPLY_RESULTS
from rmqpy.control.groups.backlog import Backlog, Bounds, backlogs
from rmqpy.control.groups.table import Groups
from rmqpy.control.plugins import metrics as plugin_metrics
from rmqpy.control.plugins.running import Plugins
from rmqpy.control.statistics import answer_metrics, replica_metrics, timer_metrics, transaction_metrics
from rmqpy.control.statistics.traffic import Statistics, Totals
from rmqpy.control.tiered import metrics as tiered_metrics
from rmqpy.control.tiered.storage import TieredStorage
from rmqpy.control.topics.table import Topics
from rmqpy.errors import StoreError
from rmqpy.monitor import connections, grpc, process
from rmqpy.monitor.exposition import Exposition, Family, Labels, expose, histogram, plain
from rmqpy.protocol import names
from rmqpy.protocol.requests.replicas import HaStatus
from rmqpy.protocol.topics import TopicConfig

_Sample = tuple[Labels, float]

#: Help texts of the data plane's counters. Its other values are gauges, with separate metrics.
_GROWING: Final = {
    "requests": "Requests read.",
    "upcalls": "Requests that Python answered.",
    "sends": "Send requests.",
    "pulls": "Pull requests.",
    "overloads": "Requests refused because there was no room for them.",
    "unauthenticated": "Requests refused because their sender was not known.",
    "unauthorized": "Requests refused because their user lacks a permission.",
    "limited_requests": "Requests refused because their user exceeded its limits.",
    "oneway_drops": "One-way requests among them, which were dropped.",
    "refused_answers": "Replies of clients that were too large.",
    "dropped_notices": "Notices that clients missed because they do not read.",
    "puts": "Messages stored.",
    "put_bytes": "Their bytes in the log.",
    "put_failures": "Messages that could not be stored.",
    "gets": "Reads of a queue.",
    "gets_failed": "Reads of a queue that failed; their consumers retry.",
    "got_messages": "Messages read.",
    "checked_transactions": "Producers asked about a half message.",
    "discarded_transactions": "Half messages given up for lack of a decision.",
    "lost_transactions": "Half messages that became unreadable without a decision.",
    "undelivered": "Delayed, timed and half messages that were not delivered; the log says why.",
}


class _Tables(NamedTuple):
    """The content of the loop's tables at one moment."""

    config: BrokerConfig
    topics: dict[str, TopicConfig]
    group_count: int
    producers: Counter[tuple[str, int]]
    consumers: Counter[tuple[str, str, str, int]]
    arrived: Mapping[str, Mapping[str, Totals]]
    got: Mapping[str, Totals]
    replicas: HaStatus
    #: Subscribed topics by group.
    subscribed: Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True, eq=False)
class Metrics:
    """The metrics of one broker."""

    _config: Callable[[], BrokerConfig]
    _topics: Topics
    _groups: Groups
    _consumers: Consumers
    _producers: Producers
    _statistics: Statistics
    _store: Store
    _offsets: Offsets
    _server: Server
    _due: DueMessages
    _transactions: Transactions
    #: Replies by result.
    _replies: Mapping[str, int]
    _replicas: Callable[[], HaStatus]
    _clock: Clock
    _plugins: Plugins
    _tier: TieredStorage | None

    async def exposition(self, accept: str) -> Exposition:
        """Return all metrics, for a client that accepts these content types."""
        families, common = await self.figures()
        return await asyncio.to_thread(expose, families, common, accept)

    async def figures(self) -> tuple[Iterable[Family], Labels]:
        """Return all metrics, and the common labels. Samples are read in a worker."""
        tables = self._tables()
        return await asyncio.to_thread(self._families, tables), self._common(tables.config)

    def _tables(self) -> _Tables:
        return _Tables(
            self._config(),
            dict(self._topics.table),
            len(self._groups.table),
            Counter(
                (member.language, member.version)
                for members in self._producers.groups.values()
                for member in members.values()
            ),
            Counter(
                (
                    name,
                    group.consume_type.name.removeprefix("CONSUME_").lower(),
                    member.language,
                    member.version,
                )
                for name, group in self._consumers.groups.items()
                for member in group.members.values()
            ),
            self._statistics.arrived(),
            self._statistics.totals("group get"),
            self._replicas(),
            {name: frozenset(group.subscriptions) for name, group in self._consumers.groups.items()},
        )

    def _common(self, config: BrokerConfig) -> Labels:
        return {"cluster": config.cluster, "node_type": "broker", "node_id": config.name}

    def _families(self, tables: _Tables) -> list[Family]:
        return [
            *self._node(tables),
            *self._data_plane(),
            *self._log(tables.config),
            *answer_metrics.families(self._server),
            *self._sizes(),
            *replica_metrics.families(tables.replicas),
            *process.families(),
            *transaction_metrics.families(self._transactions),
            *timer_metrics.families(self._due),
            *plugin_metrics.families(self._plugins.watched()),
            *tiered_metrics.families(self._tier),
            *self._traffic(tables),
            *self._given_up(tables),
            *self._consumption(tables),
        ]

    def _node(self, tables: _Tables) -> Iterator[Family]:
        yield plain(
            "rocketmq_broker_permission", "gauge", "2 lets clients write, 4 read.", tables.config.permission
        )
        yield plain("rocketmq_topic_number", "gauge", "Topics.", len(tables.topics))
        yield plain("rocketmq_consumer_group_number", "gauge", "Consumer groups.", tables.group_count)
        yield Family(
            "rocketmq_producer_connections",
            "gauge",
            "Connected producers.",
            [
                ({"language": language, "version": str(version)}, count)
                for (language, version), count in tables.producers.items()
            ],
        )
        yield Family(
            "rocketmq_consumer_connections",
            "gauge",
            "Connected consumers.",
            [
                (
                    {
                        "consumer_group": group,
                        "consume_mode": _MODES.get(mode, mode),
                        "language": language,
                        "version": str(version),
                        "is_system": _is(names.is_system_group(group)),
                    },
                    count,
                )
                for (group, mode, language, version), count in tables.consumers.items()
            ],
        )

    def _data_plane(self) -> Iterator[Family]:
        counters = {**self._server.statistics(), **self._store.statistics()}
        for name, text in _GROWING.items():
            yield plain(f"rmqpy_{name}_total", "counter", text, counters.get(name, 0))
        yield Family(
            "rocketmq_processor_watermark",
            "gauge",
            "Pending requests to Python.",
            [({"processor": "admin"}, counters.get("waiting_upcalls", 0))],
        )
        refused = "Commits of offsets outside the queues of their topic."
        yield plain("rmqpy_refused_commits_total", "counter", refused, self._offsets.refused)
        yield from connections.families(counters)
        yield from grpc.families(self._server.grpc_calls())
        yield plain(
            "rmqpy_parked_pulls", "gauge", "Pulls that wait for messages.", counters.get("parked_pulls", 0)
        )
        yield Family(
            "rmqpy_replies_total",
            "counter",
            "Replies to requests, by result.",
            [({"result": result}, self._replies.get(result, 0)) for result in REPLY_RESULTS],
        )
        undecided = "Half messages without a decision."
        yield plain("rmqpy_open_transactions", "gauge", undecided, counters.get("open_transactions", 0))
        yield plain(
            "rmqpy_mailbox_bytes",
            "gauge",
            "Bytes in flight to connections, and of pending requests.",
            counters.get("mailbox_bytes", 0),
        )

    def _log(self, config: BrokerConfig) -> Iterator[Family]:
        store = self._store.statistics()
        begin, end = store.get("min_physical", 0), store.get("max_physical", 0)
        oldest = self._store.log_begin_time()
        now_ms = self._clock.wall_ms()
        medium = {"storage_type": "local", "storage_medium": "disk"}
        for name, text, value in (
            ("rocketmq_storage_size", "Bytes of the log.", end - begin),
            (
                "rocketmq_storage_flush_behind_bytes",
                "Bytes that are not durable yet.",
                max(0, end - store.get("durable", end)),
            ),
            (
                "rocketmq_storage_dispatch_behind_bytes",
                "Bytes that consumers do not see yet.",
                max(0, end - store.get("visible", end)),
            ),
            (
                "rocketmq_storage_message_reserve_time",
                "Age of the oldest message, in ms.",
                max(0, now_ms - oldest) if oldest > 0 else 0,
            ),
        ):
            yield Family(name, "gauge", text, [(medium, value)])
        free = shutil.disk_usage(config.store.folders[0]).free
        yield plain("rmqpy_disk_free_bytes", "gauge", "Free bytes on the disk of the log.", free)
        unindexed = store.get("unindexed_bytes", 0)
        text = "Bytes of the log that the key index does not cover yet."
        yield plain("rmqpy_unindexed_bytes", "gauge", text, unindexed)
        is_open = self._store.failure is None and not store.get("is_full", 0)
        yield plain("rmqpy_accepts_messages", "gauge", "1 while the store takes messages.", int(is_open))

    def _sizes(self) -> Iterator[Family]:
        yield Family(
            "rocketmq_message_size",
            "histogram",
            "Bytes of stored messages in the log.",
            histogram(
                {},
                MESSAGE_SIZE_BOUNDS,
                self._store.message_sizes(),
                self._store.statistics().get("put_bytes", 0),
            ),
        )

    def _traffic(self, tables: _Tables) -> Iterator[Family]:
        sent: list[_Sample] = []
        sent_bytes: list[_Sample] = []
        for topic, by_type in tables.arrived.items():
            for message_type, totals in by_type.items():
                labels: Labels = {
                    "topic": topic,
                    "message_type": message_type.lower(),
                    "is_system": _is(self._topics.is_system(topic)),
                }
                sent.append((labels, totals.messages))
                sent_bytes.append((labels, totals.bytes))
        taken: list[_Sample] = []
        taken_bytes: list[_Sample] = []
        for key, totals in tables.got.items():
            topic, _, group = key.partition("@")
            labels = self._consumer(topic, group)
            taken.append((labels, totals.messages))
            taken_bytes.append((labels, totals.bytes))
        yield Family("rocketmq_messages_in_total", "counter", "Messages stored since the start.", sent)
        yield Family("rocketmq_throughput_in_total", "counter", "Their bytes.", sent_bytes)
        yield Family("rocketmq_messages_out_total", "counter", "Messages delivered since the start.", taken)
        yield Family("rocketmq_throughput_out_total", "counter", "Their bytes.", taken_bytes)

    def _given_up(self, tables: _Tables) -> Iterator[Family]:
        yield Family(
            "rocketmq_send_to_dlq_messages_total",
            "counter",
            "Messages a group gave up on.",
            [
                ({"consumer_group": names.group_of(name)}, sum(end for _, end in self._bounds(topic)))
                for name, topic in tables.topics.items()
                if name.startswith(names.DEAD_LETTER_PREFIX)
            ],
        )

    def _consumption(self, tables: _Tables) -> Iterator[Family]:
        """Yield the backlog of each group, and its age."""
        bounds: dict[str, list[Bounds] | None] = {}

        def bounds_of(topic: str) -> list[Bounds] | None:
            if topic not in bounds:
                known = tables.topics.get(topic)
                bounds[topic] = self._bounds(known) if known else None
            return bounds[topic]

        def is_consumed(key: str) -> bool:
            """Return whether members still subscribe to a topic; an abandoned one would show a lag that never ends."""
            topic, _, group = key.partition("@")
            now = tables.subscribed.get(group)
            return not now or topic in now

        reached = self._server.fetch_positions()
        committed = self._offsets.snapshot()[1]
        found = [
            (self._consumer(each.topic, each.group), each)
            for each in backlogs(
                {key: positions for key, positions in committed.items() if is_consumed(key)},
                reached,
                self._server.in_flight(),
                bounds_of,
                self._store_time,
                self._clock.wall_ms(),
            )
        ]
        yield Family(
            "rmqpy_offset_steps_back_total",
            "counter",
            "Commits below the one before.",
            [({"consumer_group": group}, steps) for group, steps in self._offsets.steps_back().items()],
        )
        for name, text, value in _BACKLOG:
            yield Family(name, "gauge", text, [(labels, value(each)) for labels, each in found])

    def _store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Return a store time, or -1 if it cannot be read now, so that the other metrics remain available."""
        try:
            return self._store.store_time(topic, queue_id, offset)
        except StoreError:
            return -1

    def _consumer(self, topic: str, group: str) -> Labels:
        return {
            "topic": topic,
            "consumer_group": group,
            "is_retry": _is(topic.startswith(names.RETRY_PREFIX)),
            "is_system": _is(names.is_system_group(group)),
        }

    def _bounds(self, topic: TopicConfig) -> list[Bounds]:
        """Return the bounds of all queues of a topic, including those that producers do not use any more."""
        queues: Iterable[int] = range(max(topic.read_queue_nums, topic.write_queue_nums))
        low, high = self._store.min_offset, self._store.max_offset
        return [
            (max(0, low(topic.topic_name, queue_id)), high(topic.topic_name, queue_id)) for queue_id in queues
        ]


#: The metrics of each group in each topic.
_BACKLOG: Final[tuple[tuple[str, str, Callable[[Backlog], int]], ...]] = (
    ("rocketmq_consumer_lag_messages", "Unfinished messages of the group.", attrgetter("lag")),
    ("rocketmq_consumer_lag_latency", "Age of the oldest unfinished message, in ms.", attrgetter("lag_ms")),
    ("rocketmq_consumer_inflight_messages", "Messages received and not finished.", attrgetter("in_flight")),
    ("rocketmq_consumer_ready_messages", "Messages not received yet.", attrgetter("ready")),
    (
        "rocketmq_consumer_queueing_latency",
        "Age of the oldest message not received yet, in ms.",
        attrgetter("queueing_ms"),
    ),
)

_MODES: Final = {"actively": "pull", "passively": "push"}


def _is(value: bool) -> str:
    return "true" if value else "false"
