"""Base of both pull consumers: settings, lifetime, membership of a group."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from rmqpy.client.cluster import ClusterConnection
from rmqpy.client.group.checks import check_group, check_start
from rmqpy.client.group.follower import Follower, Notify
from rmqpy.client.group.subscriber import Subscriber
from rmqpy.client.lifetime.client import Lifetime
from rmqpy.client.observers import EVERYWHERE, ReceiveObserver
from rmqpy.client.pull.cursor import AUTO_COMMIT_S, MAX_BATCH, Cursor
from rmqpy.config.arguments import check_types
from rmqpy.config.client import Address, ClientConfig
from rmqpy.config.ends import End
from rmqpy.message import MessageQueue
from rmqpy.remoting.client import Caller

if TYPE_CHECKING:
    from rmqpy.client.trace.consumer import ConsumerTrace


class PullConsumerBase(Lifetime, ABC):
    """The settings and lifetime of both pull consumers."""

    _NOUN = "consumer"

    def __init__(
        self,
        group: str,
        namesrv: Address | ClientConfig | None = None,
        *,
        auto_commit: bool | float = AUTO_COMMIT_S,
        start_from: End | datetime = "latest",
        max_batch: int = MAX_BATCH,
        trace: bool | str = False,
    ) -> None:
        """`max_batch`: the most messages that one `poll` returns. `trace` records each of them in RocketMQ's trace
        topic, or in the topic of this name; columns from `arrow` are not traced."""
        check_types(
            group=(group, str), auto_commit=(auto_commit, bool | float | int), max_batch=(max_batch, int)
        )
        check_types(trace=(trace, bool | str))
        check_group(group)
        start_from = check_start(start_from)
        super().__init__(namesrv)
        self.group = group
        self._auto_commit = auto_commit
        self._start_from = start_from
        self._max_batch = max_batch
        self._follower: Follower | None = None
        self._observers: list[ReceiveObserver] = [each.receives(self.config, group) for each in EVERYWHERE]
        self._trace: ConsumerTrace | None = None
        if trace:
            from rmqpy.client.producer.producer import open_send
            from rmqpy.client.trace.consumer import ConsumerTrace

            self._trace = ConsumerTrace(self.config, trace, group, math.inf, open_send)
            self._observers.append(self._trace)
        self._cluster = ClusterConnection.hold(self.config)
        self.is_closed = False
        self._begin()

    @property
    def dropped_traces(self) -> int:
        """Trace records that were dropped: the queue was full, or no broker accepted them."""
        return 0 if self._trace is None else self._trace.dispatcher.dropped

    def position(self, queue: MessageQueue) -> int:
        """Return the offset after the last message received."""
        return self._now().position(queue)

    def assignment(self) -> frozenset[MessageQueue]:
        """Return the assigned queues."""
        return self._now().assignment()

    def pause(self, *queues: MessageQueue) -> None:
        """Return no messages of these queues until `resume`."""
        self._now().pause(queues, True)

    def resume(self, *queues: MessageQueue) -> None:
        """Resume these queues."""
        self._now().pause(queues, False)

    @abstractmethod
    def _begin(self) -> None:
        """Create what only this kind of consumer needs."""

    @cached_property
    @abstractmethod
    def _caller(self) -> Caller:
        """The caller that waits for brokers."""

    @cached_property
    def _core(self) -> Cursor:
        return Cursor(
            self._cluster,
            self._caller,
            self.group,
            self._auto_commit,
            self._start_from,
            self._max_batch,
            self._observers,
        )

    def _now(self) -> Cursor:
        self._check_open()
        return self._core

    def _close_trace(self) -> None:
        """Send the remaining trace records."""
        if self._trace is not None:
            self._trace.dispatcher.close()

    def _release(self) -> None:
        core: Cursor | None = self.__dict__.get("_core")
        if core is None:
            self._cluster.release()
        else:
            core.let_go()
        if self._trace is not None:
            self._trace.dispatcher.close(0.0)

    def _join(self, topics: Sequence[str], notify: Notify | None) -> Subscriber:
        core = self._now()
        if self._follower is None:
            if core.assignment():
                raise RuntimeError("subscribe() cannot follow assign(): use another consumer")
            subscriber = Subscriber(self.config, self.group, core.beginnings, core.positions)
            self._follower = Follower(subscriber, core, is_committing=bool(self._auto_commit))
            core.follow(self._follower)
        self._follower.listen(topics, notify)
        return self._follower.subscriber


def topics_of(topic: str | Iterable[str]) -> list[str]:
    """Return one or several topics as a list."""
    check_types(topic=(topic, str | Iterable))
    topics = [topic] if isinstance(topic, str) else list(topic)
    for one in topics:
        check_types(topic=(one, str))
    if not topics:
        raise ValueError("topics must not be empty")
    return topics
