"""Base of both pull consumers, in threads and in event loops: settings, life, membership of a group."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from rmqpy.client.checks import check_group, check_start
from rmqpy.client.cluster import ClusterConnection
from rmqpy.client.cursor import AUTO_COMMIT_S, MAX_BATCH, Cursor
from rmqpy.client.group.follower import Follower, Notify
from rmqpy.client.group.subscriber import Subscriber
from rmqpy.client.lifetime import Lifetime
from rmqpy.client.observers import EVERYWHERE, ReceiveObserver
from rmqpy.config.arguments import check_types
from rmqpy.config.client import Address, ClientConfig
from rmqpy.config.ends import End
from rmqpy.message import MessageQueue
from rmqpy.remoting.client import Caller

if TYPE_CHECKING:
    from rmqpy.client.consumer_trace import ConsumerTrace


class PullConsumerBase(Lifetime, ABC):
    """Settings and life of both pull consumers."""

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
        """`max_batch`: messages that one `poll` returns at most. `trace` notes each of them in RocketMQ's topic of
        traces, or in the one that it names; columns, `arrow`, are not noted."""
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
            from rmqpy.client.consumer_trace import ConsumerTrace

            self._trace = ConsumerTrace(self.config, trace, group, math.inf)
            self._observers.append(self._trace)
        self._cluster = ClusterConnection.hold(self.config)
        self.is_closed = False
        self._begin()

    @property
    def dropped_traces(self) -> int:
        """Notes of the trace that were dropped, for want of room or because no broker took them."""
        return 0 if self._trace is None else self._trace.dispatcher.dropped

    def position(self, queue: MessageQueue) -> int:
        """The offset after the last message received."""
        return self._now().position(queue)

    def assignment(self) -> frozenset[MessageQueue]:
        """The assigned queues."""
        return self._now().assignment()

    def pause(self, *queues: MessageQueue) -> None:
        """Hand nothing out of these queues until `resume`."""
        self._now().pause(queues, True)

    def resume(self, *queues: MessageQueue) -> None:
        """Go on with these queues."""
        self._now().pause(queues, False)

    @abstractmethod
    def _begin(self) -> None:
        """Make what only one kind of consumer has."""

    @cached_property
    @abstractmethod
    def _caller(self) -> Caller:
        """The way to wait for brokers."""

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
        """Let what waits leave."""
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
                raise RuntimeError("a consumer that was assigned queues does not share those of a group")
            subscriber = Subscriber(self.config, self.group, core.beginnings, core.positions)
            self._follower = Follower(subscriber, core, is_committing=bool(self._auto_commit))
            core.follow(self._follower)
        self._follower.listen(topics, notify)
        return self._follower.subscriber


def topics_of(topic: str | Iterable[str]) -> list[str]:
    """One topic, or several of them."""
    check_types(topic=(topic, str | Iterable))
    topics = [topic] if isinstance(topic, str) else list(topic)
    for one in topics:
        check_types(topic=(one, str))
    if not topics:
        raise ValueError("topic must name at least one topic")
    return topics
