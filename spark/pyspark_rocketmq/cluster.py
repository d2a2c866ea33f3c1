"""The driver's view of a cluster: the queues that are read, their begins and ends, the start of a read.

Owns one `rmqpy.Catalog`. Requests that fail for a passing reason are repeated a few times, because an exception
in Spark's planning ends the query. A broker that does not answer holds up its own queues and no others.
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import ParamSpec, Self, TypeVar

import rmqpy
from pyspark_rocketmq.offsets import EARLIEST, GROUP, Bound, Queue
from pyspark_rocketmq.options import Options
from pyspark_rocketmq.plan import Held, settle
from rmqpy.errors import ConfigError, DataLoss, NameServerUnreachable, RocketMQError

P = ParamSpec("P")
R = TypeVar("R")

#: Age at which the driver looks again which topics and queues there are.
QUEUES_REFRESH_S = 1.0


def client_config(options: Options, *, route_refresh_s: float = 30.0) -> rmqpy.ClientConfig:
    """Configuration of the clients of executors and driver."""
    return rmqpy.ClientConfig(
        namesrv=options.nameserver,
        request_timeout=options.request_timeout_ms / 1000,
        route_refresh=route_refresh_s,
    )


class Cluster:
    """Requests of one query to one cluster. For one thread."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._catalog = rmqpy.Catalog(client_config(options, route_refresh_s=QUEUES_REFRESH_S))
        self._topics: tuple[str, ...] = ()
        self._topics_at = float("-inf")

    def queues(self) -> list[Queue]:
        """The queues to read, as they are now, sorted. Raises `TopicNotFound` for a topic asked for by name."""
        options = self._options
        if options.assign:
            topics = sorted({queue.topic for queue in options.assign})
        elif options.subscribe_pattern is not None:
            topics = list(self._matching(options.subscribe_pattern))
        else:
            topics = list(options.topics)
        found = [Queue(*queue) for topic in topics for queue in self._again(self._catalog.queues, topic)]
        return [queue for queue in found if not options.assign or queue in options.assign]

    def check_assignment(self, found: Iterable[Queue]) -> None:
        """Raise `ConfigError` for a queue that was assigned and is not there."""
        if absent := set(self._options.assign) - set(found):
            raise ConfigError(f"queue {min(absent)} does not exist")

    def held(self, queues: Iterable[Queue], *, skip_unreachable: bool = False) -> dict[Queue, Held]:
        """The offsets the brokers hold of each queue."""
        queues = list(queues)
        begins = self.begins(queues, skip_unreachable=skip_unreachable)
        ends = self.ends(queues, skip_unreachable=skip_unreachable)
        return {
            queue: Held(begins[queue], ends[queue]) for queue in queues if queue in begins and queue in ends
        }

    def begins(self, queues: Iterable[Queue], *, skip_unreachable: bool = False) -> dict[Queue, int]:
        """The first offset of each queue."""
        named = [_named(queue) for queue in queues]
        return _ours(self._again(self._catalog.begins, named, skip_unreachable=skip_unreachable))

    def ends(self, queues: Iterable[Queue], *, skip_unreachable: bool = False) -> dict[Queue, int]:
        """The offset after the last message of each queue, asked for freshly: an old answer hides new rows."""
        named = [_named(queue) for queue in queues]
        return _ours(self._again(self._catalog.ends, named, skip_unreachable=skip_unreachable))

    def wait(self, offsets: Mapping[Queue, int], timeout_s: float) -> None:
        """Until a queue has a message at its offset or later, or the time is up."""
        self._catalog.wait({_named(queue): offset for queue, offset in offsets.items()}, timeout_s)

    def first(self, held: Mapping[Queue, Held], default: int) -> dict[Queue, int]:
        """Offset of each queue at which the user wants to begin."""
        options = self._options
        if options.starting_timestamp is not None:
            return self._since(held, dict.fromkeys(held, options.starting_timestamp), is_start=True)
        if options.starting_offsets_by_timestamp is not None:
            offsets = self._since(held, options.starting_offsets_by_timestamp, is_start=True)
            return settle(offsets, held, EARLIEST)
        bound: Bound = default if options.starting_offsets is None else options.starting_offsets
        if bound == GROUP:
            named = [_named(queue) for queue in held]
            bound = _ours(self._again(self._catalog.committed, options.consumer_group, named))
        return settle(bound, held, EARLIEST)

    def last(self, held: Mapping[Queue, Held], default: int) -> dict[Queue, int]:
        """Offset of each queue at which the user wants to end."""
        options = self._options
        if options.ending_timestamp is not None:
            return self._since(held, dict.fromkeys(held, options.ending_timestamp), is_start=False)
        if options.ending_offsets_by_timestamp is not None:
            offsets = self._since(held, options.ending_offsets_by_timestamp, is_start=False)
            return settle(offsets, held, default)
        return settle(options.ending_offsets, held, default)

    def since(self, moments_ms: Mapping[Queue, int]) -> dict[Queue, int]:
        """The first offset of each queue that was stored at or after a time; the end where there is none."""
        moments = {_named(queue): datetime.fromtimestamp(ms / 1000, UTC) for queue, ms in moments_ms.items()}
        return _ours(self._again(self._catalog.since, moments))

    def message_bytes(self, offsets: Mapping[Queue, int]) -> dict[Queue, int]:
        """Bytes of a message of each queue, estimated from the next ones."""
        named = {_named(queue): offset for queue, offset in offsets.items()}
        return _ours(self._again(self._catalog.message_bytes, named))

    def is_away(self, broker: str) -> bool:
        """Whether name servers do not know a broker at present, or do not answer: its queues are expected back."""
        try:
            return broker not in self._catalog.brokers()
        except NameServerUnreachable:
            return True

    def commit(self, offsets: Mapping[Queue, int]) -> None:
        """Store offsets under the group of the query."""
        self._catalog.commit(
            self._options.consumer_group, {_named(queue): offset for queue, offset in offsets.items()}
        )

    def close(self) -> None:
        """Give the connections back."""
        self._catalog.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _matching(self, pattern: str) -> tuple[str, ...]:
        if time.monotonic() - self._topics_at >= QUEUES_REFRESH_S:
            try:
                names = self._again(self._catalog.topics)
            except RocketMQError as error:
                # While no name server answers, those known so far do.
                if not (error.retriable and self._topics):
                    raise
            else:
                self._topics = tuple(name for name in names if re.fullmatch(pattern, name))
            self._topics_at = time.monotonic()
        return self._topics

    def _since(
        self, held: Mapping[Queue, Held], times_ms: Mapping[Queue, int], *, is_start: bool
    ) -> dict[Queue, int]:
        settle(times_ms, held, 0)
        offsets = self.since(times_ms)
        if is_start and self._options.starting_offsets_by_timestamp_strategy == "error":
            # One idle queue is nothing unusual; a whole topic without a message that new is a mistaken time.
            topics = {queue.topic for queue in offsets}
            new = {queue.topic for queue, offset in offsets.items() if offset < held[queue].end}
            if topics - new:
                raise ConfigError(
                    f"topic {min(topics - new)} has no message as new as asked for",
                    hint="startingOffsetsByTimestampStrategy=latest begins at its end",
                )
        return offsets

    def _again(self, ask: Callable[P, R], *arguments: P.args, **named: P.kwargs) -> R:
        """The answer to a request, repeated while it fails for a reason that may pass."""
        for _ in range(self._options.fetch_retries):
            try:
                return ask(*arguments, **named)
            except RocketMQError as error:
                if not error.retriable:
                    raise
                time.sleep(self._options.retry_interval_ms / 1000)
        return ask(*arguments, **named)


def lost(losses: Iterable[str], options: Options, warn: Callable[[str], None]) -> None:
    """Raise `DataLoss` for what is missing, or warn of it and continue, as the user wants."""
    losses = list(losses)
    if losses and options.fail_on_data_loss:
        raise DataLoss("; ".join(losses), hint="failOnDataLoss=false reads what is there")
    for loss in losses:
        warn(loss)


def _named(queue: Queue) -> rmqpy.MessageQueue:
    return rmqpy.MessageQueue(*queue)


def _ours(offsets: Mapping[rmqpy.MessageQueue, int]) -> dict[Queue, int]:
    return {Queue(*queue): offset for queue, offset in offsets.items()}
