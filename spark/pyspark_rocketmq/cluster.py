"""The driver's view of a cluster: the queues of a read, their offsets, and the start and end of the read.

Owns a `rmqpy.Catalog`. Retries requests that may succeed later, because an exception in planning ends the query. A
broker that does not answer delays only its own queues.
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import ParamSpec, Self, TypeVar

import rmqpy
from pyspark_rocketmq.offsets import EARLIEST, GROUP, LATEST, Begin, Bound, Queue
from pyspark_rocketmq.options import Options
from pyspark_rocketmq.plan import Held, settle
from rmqpy.errors import ConfigError, DataLoss, RocketMQError
from rmqpy.message import Filter
from rmqpy.remoting.backoff import FAILING, Backoff

P = ParamSpec("P")
R = TypeVar("R")

#: Maximum age of the lists of topics and queues.
QUEUES_REFRESH_S = 1.0
#: The last millisecond of the year 9999, the last of `datetime`.
_LAST_MS = 253_402_300_799_999


def client_config(options: Options, *, route_refresh_s: float = 30.0) -> rmqpy.ClientConfig:
    """Return the configuration of clients on executors and the driver."""
    return rmqpy.ClientConfig(
        namesrv=options.nameserver,
        namespace=options.namespace,
        credentials=rmqpy.Credentials.of(options.access_key, options.secret_key),
        tls=_tls(options),
        request_timeout=options.request_timeout_ms / 1000,
        route_refresh=route_refresh_s,
    )


def _tls(options: Options) -> rmqpy.TLS | None:
    if not options.tls:
        return None
    return rmqpy.TLS(
        ca=options.tls_ca_file or None,
        cert=options.tls_cert_file or None,
        key=options.tls_key_file or None,
        server_name=options.tls_server_name or None,
        verify=not options.tls_skip_verify,
    )


class Cluster:
    """Requests of a query to a cluster. Not thread-safe."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._catalog = rmqpy.Catalog(client_config(options, route_refresh_s=QUEUES_REFRESH_S))
        self._topics: tuple[str, ...] = ()
        self._topics_at = float("-inf")
        #: The filters that a broker is known to evaluate.
        self._filtering: set[tuple[str, Filter]] = set()

    def queues(self, *, skip_missing: bool = False) -> list[Queue]:
        """Return the current queues to read, sorted. Raises `TopicNotFound` for a topic in `subscribe`, unless
        `skip_missing`."""
        options = self._options
        if options.assign:
            return sorted(options.assign)
        if options.subscribe_pattern is not None:
            # A listed topic may have been deleted since.
            topics, skip_missing = self._matching(options.subscribe_pattern), True
        else:
            topics = options.topics
        return [*map(_ours, self._again(self._catalog.queues, *topics, skip_missing=skip_missing))]

    def is_wanted(self, queue: Queue) -> bool:
        """Return whether the options select this queue, which may not exist."""
        options = self._options
        if options.assign:
            return queue in options.assign
        if options.subscribe_pattern is not None:
            return re.fullmatch(options.subscribe_pattern, queue.topic) is not None
        return queue.topic in options.topics

    def brokers(self) -> frozenset[str]:
        """Return the names of the registered brokers."""
        return self._again(self._catalog.brokers)

    def held(self, queues: Iterable[Queue]) -> dict[Queue, Held]:
        """Return the offsets that brokers hold of each existing queue. Raises an error that names a silent broker, and
        `ConfigError` for an assigned queue that does not exist."""
        offsets = self.offsets(queues)
        for queue in sorted(offsets):
            if offsets[queue] is None and self._options.assign:
                raise ConfigError(f"queue {queue} does not exist")
        return existing(offsets)

    def offsets(
        self, queues: Iterable[Queue], *, skip_unreachable: bool = False, is_patient: bool = False
    ) -> dict[Queue, Held | None]:
        """Return the offsets that brokers hold of each queue, or `None` for a queue that does not exist. Leaves out the
        queues of brokers that do not answer if `skip_unreachable`, else raises. `is_patient` retries those brokers."""
        named = {_named(queue) for queue in queues}
        found: dict[Queue, Held | None] = {}
        for failures in range(1 + (self._options.fetch_retries if is_patient else 0)):
            if named and failures:
                self._pause(failures)
            answered = self._again(self._catalog.offsets, named, skip_unreachable=skip_unreachable)
            found |= {_ours(queue): held and Held(*held) for queue, held in answered.items()}
            named -= answered.keys()
        return found

    def check_filter(self, queues: Iterable[Queue], wanted: Filter) -> None:
        """Check once that the brokers of these queues evaluate a filter. Skips brokers that do not answer.

        Raises `Unsupported` if a broker has filters switched off, and `BrokerError` if it cannot parse this one.
        """
        unasked = [queue for queue in queues if (queue.broker, wanted) not in self._filtering]
        self._again(self._catalog.check_filter, map(_named, unasked), wanted, skip_unreachable=True)
        self._filtering.update((queue.broker, wanted) for queue in unasked)

    def wait(self, offsets: Mapping[Queue, int], timeout_s: float) -> None:
        """Wait until a queue has a message at its offset or later, or until the timeout."""
        self._catalog.wait({_named(queue): offset for queue, offset in offsets.items()}, timeout_s)

    def first(self, held: Mapping[Queue, Held], default: int) -> dict[Queue, int]:
        """Return the offset of each queue at which the options start."""
        options = self._options
        self._check_answers(options.starting_offsets, held)
        if options.starting_timestamp is not None:
            return self._since(held, dict.fromkeys(held, options.starting_timestamp), is_start=True)
        if options.starting_offsets_by_timestamp is not None:
            offsets = self._since(held, options.starting_offsets_by_timestamp, is_start=True)
            return settle(offsets, held, EARLIEST)
        bound: Bound = default if options.starting_offsets is None else options.starting_offsets
        if bound == GROUP:
            bound = self._committed(held)
        return settle(bound, held, EARLIEST)

    def begin(self, brokers: Iterable[str], now_ms: int) -> Begin:
        """Return the state to record for a stream that begins now. `brokers` listed their queues."""
        options = self._options
        if options.starting_timestamp is not None:
            return Begin((), options.starting_timestamp)
        is_latest = options.starting_offsets in (None, LATEST) and not options.starting_offsets_by_timestamp
        return Begin(tuple(sorted(brokers)), now_ms if is_latest else None)

    def late(self, held: Mapping[Queue, Held], begin: Begin) -> dict[Queue, int]:
        """Return the start of queues whose broker was missing when the stream began. Leaves out queues of brokers that
        do not answer."""
        try:
            if begin.since_ms is not None:
                offsets = self.since(dict.fromkeys(held, begin.since_ms))
            elif self._options.starting_offsets == GROUP:
                offsets = settle(self._committed(held), held, EARLIEST)
            else:
                offsets = {}
        except RocketMQError as error:
            if not error.retriable:
                raise
            return {}
        return {queue: max(first, offsets.get(queue, first)) for queue, (first, _) in held.items()}

    def last(self, held: Mapping[Queue, Held], default: int) -> dict[Queue, int]:
        """Return the offset of each queue at which the options end."""
        options = self._options
        self._check_answers(options.ending_offsets, held)
        if options.ending_timestamp is not None:
            return self._since(held, dict.fromkeys(held, options.ending_timestamp), is_start=False)
        if options.ending_offsets_by_timestamp is not None:
            offsets = self._since(held, options.ending_offsets_by_timestamp, is_start=False)
            return settle(offsets, held, default)
        return settle(options.ending_offsets, held, default)

    def since(self, moments_ms: Mapping[Queue, int]) -> dict[Queue, int]:
        """Return the first offset of each queue stored at or after a time, or its end."""
        moments = {_named(queue): _moment(ms) for queue, ms in moments_ms.items()}
        return _by_queue(self._again(self._catalog.since, moments))

    def message_bytes(self, offsets: Mapping[Queue, int]) -> dict[Queue, int]:
        """Return the size of a message of each queue, estimated from the next ones. Leaves out queues of silent
        brokers."""
        named = {_named(queue): offset for queue, offset in offsets.items()}
        return _by_queue(self._again(self._catalog.message_bytes, named, skip_unreachable=True))

    def commit(self, offsets: Mapping[Queue, int]) -> None:
        """Commit offsets under the consumer group of the options."""
        self._catalog.commit(
            self._options.consumer_group, {_named(queue): offset for queue, offset in offsets.items()}
        )

    def close(self) -> None:
        """Release the connections."""
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
                # Use the known topics while no name server answers.
                if not (error.retriable and self._topics):
                    raise
            else:
                self._topics = tuple(name for name in names if re.fullmatch(pattern, name))
            self._topics_at = time.monotonic()
        return self._topics

    def _check_answers(self, named: object, held: Mapping[Queue, Held]) -> None:
        """Raise an error that names the missing broker of a queue in the options."""
        if isinstance(named, Mapping):
            self.offsets(named.keys() - held.keys())

    def _committed(self, queues: Iterable[Queue]) -> dict[Queue, int]:
        named = [_named(queue) for queue in queues]
        return _by_queue(self._again(self._catalog.committed, self._options.consumer_group, named))

    def _since(
        self, held: Mapping[Queue, Held], times_ms: Mapping[Queue, int], *, is_start: bool
    ) -> dict[Queue, int]:
        settle(times_ms, held, 0)
        offsets = self.since(times_ms)
        if is_start and self._options.starting_offsets_by_timestamp_strategy == "error":
            # A queue may be idle. A topic without any newer message indicates a wrong time.
            topics = {queue.topic for queue in offsets}
            new = {queue.topic for queue, offset in offsets.items() if offset < held[queue].end}
            if topics - new:
                raise ConfigError(
                    f"topic {min(topics - new)} has no message stored at or after the starting time",
                    hint="set startingOffsetsByTimestampStrategy=latest to start at its end",
                )
        return offsets

    def _again(self, ask: Callable[P, R], *arguments: P.args, **named: P.kwargs) -> R:
        """Call `ask`, and retry it while its error is retriable."""
        for failures in range(1, self._options.fetch_retries + 1):
            try:
                return ask(*arguments, **named)
            except RocketMQError as error:
                if not error.retriable:
                    raise
                self._pause(failures)
        return ask(*arguments, **named)

    def _pause(self, failures: int) -> None:
        first_s = self._options.retry_interval_ms / 1000
        time.sleep(Backoff(first_s, max(first_s, FAILING.longest_s)).pause_s(failures))


def existing(offsets: Mapping[Queue, Held | None]) -> dict[Queue, Held]:
    """Leave out queues that do not exist."""
    return {queue: held for queue, held in offsets.items() if held is not None}


def lost(losses: Iterable[str], options: Options, warn: Callable[[str], None]) -> None:
    """Raise `DataLoss` for losses, or warn of them, by the options."""
    losses = list(losses)
    if losses and options.fail_on_data_loss:
        raise DataLoss("; ".join(losses), hint="set failOnDataLoss=false to read the rest")
    for loss in losses:
        warn(loss)


def _moment(ms: int) -> datetime:
    """Convert a time for rmqpy, limited to the range of `datetime`."""
    return datetime.fromtimestamp(min(max(ms, 0), _LAST_MS) / 1000, UTC)


def _named(queue: Queue) -> rmqpy.MessageQueue:
    return rmqpy.MessageQueue(*queue)


def _ours(queue: rmqpy.MessageQueue) -> Queue:
    return Queue(*queue)


def _by_queue(offsets: Mapping[rmqpy.MessageQueue, int]) -> dict[Queue, int]:
    return {_ours(queue): offset for queue, offset in offsets.items()}
