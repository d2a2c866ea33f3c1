"""Puller: reads queues in order, with at most one pull of each in flight, for every kind of consumer.

Owns the pulls in flight and their outcome: the replica to ask next, the pause after a failure, and permanent failures.
Each queue limits its read-ahead (`QueuePull.has_room`), and its consumer sets the next offset. Threads and event loops
share this code, which waits through a `Caller`.

For one thread, or one task, at a time; `pull` for one task per queue.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

from rmqpy import errors
from rmqpy._native import Call, Columns
from rmqpy.client.reports import outages
from rmqpy.client.routes import Route, Routes
from rmqpy.message import Filter, MessageQueue, tags_of
from rmqpy.protocol import names
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.routes import MASTER_ID
from rmqpy.remoting import pulls
from rmqpy.remoting.backoff import BUSY, FAILING, Backoff
from rmqpy.remoting.client import Caller

log = logging.getLogger(__name__)


class PullPlan(NamedTuple):
    """The parameters of one consumer's pulls. Times are seconds."""

    group: str
    messages_max: int = pulls.MESSAGES_MAX
    bytes_max: int = pulls.BYTES_MAX
    #: The time a broker may hold an empty pull, and the time its reply may take beyond that.
    suspend_s: float = pulls.SUSPEND_S
    reply_s: float = pulls.REPLY_S
    #: Pauses after failures in a row, and after refusals of a busy broker.
    failing: Backoff = FAILING
    busy: Backoff = BUSY
    #: Failures of one queue in a row, or one error that is not retriable, after which the queue is given up. With
    #: `None` only errors that a user must fix give it up.
    failures_max: int | None = None


class QueuePull:
    """A queue to read, and the offset of its next pull."""

    __slots__ = (
        "address",
        "end",
        "failures",
        "not_before",
        "offset",
        "queue",
        "suggested",
        "token",
        "wanted",
    )

    def __init__(
        self, queue: MessageQueue, offset: int, wanted: Filter = "*", *, end: int | None = None
    ) -> None:
        """`end`: the offset at which reading ends, not included."""
        self.queue = queue
        self.wanted = wanted
        self.end = end
        self.address = ""
        #: The broker id to pull from.
        self.suggested = MASTER_ID
        self.failures = 0
        self.move(offset)

    def move(self, offset: int) -> None:
        """Continue at this offset; the reply of a pull in flight is dropped."""
        self.offset = offset
        self.not_before = 0.0
        #: The pull in flight, or 0.
        self.token = 0

    def advance(self, pulled: pulls.Pulled) -> None:
        """Continue after the pulled messages."""
        self.offset = pulled.next_offset
        self.failures = 0

    def rest(self, seconds: float) -> None:
        """Pause the queue without counting a failure."""
        self.failures = 0
        self.not_before = time.monotonic() + seconds

    def has_room(self) -> bool:
        """True if the buffer has room for another pull."""
        return True

    @property
    def tags(self) -> str:
        """The tags that pass the filter."""
        return tags_of(self.wanted)

    @property
    def is_due(self) -> bool:
        """True if a pull should start: there is room, no pause, and no pull in flight."""
        return not self.token and self.not_before <= time.monotonic() and self.has_room()

    @property
    def is_at_end(self) -> bool:
        """True if the queue is read to its end."""
        return self.end is not None and self.offset >= self.end


PullT = TypeVar("PullT", bound=QueuePull)


class Puller(Generic[PullT]):
    """The pulls of one consumer."""

    def __init__(
        self,
        caller: Caller,
        routes: Routes,
        plan: PullPlan,
        *,
        columns: Columns | None = None,
        doubt: Callable[[str, errors.RocketMQError], None] = lambda topic, error: None,
    ) -> None:
        """With `columns`, replies are decoded into columns when they are received: see `Call.rows`. `doubt` is called
        when a broker does not serve a topic, with the topic and whether the broker does not know it."""
        self.plan = plan
        #: The error of the first queue that was given up, until `check` raises it.
        self._failure: errors.RocketMQError | None = None
        self._caller = caller
        self._routes = routes
        self._columns = columns
        self.doubt = doubt
        #: The namespace of topic names and received messages.
        self.namespace = caller.namespace
        # System groups belong to tools in every namespace, and no progress is committed for them.
        self._group = plan.group if plan.group in names.SYSTEM_GROUPS else caller.wire_name(plan.group)
        self._inbox = caller.inbox()
        self._under_way: dict[int, PullT] = {}
        self._token = 0

    # ---- many queues -------------------------------------------------------------------------------------

    async def look_up(self, queues: Iterable[PullT]) -> None:
        """Look up the missing routes of queues that are due."""
        for pull in list(queues):
            if pull.is_due and self._route(pull) is None:
                try:
                    await self._routes.subscribe(pull.queue.topic, self._caller)
                except errors.RocketMQError as error:
                    self._failed(pull, error)

    def start(self, queues: Iterable[PullT], *, under_way_max: int | None = None) -> None:
        """Start a pull of every queue that is due and has a known route. Never suspends."""
        for pull in queues:
            if under_way_max is not None and len(self._under_way) >= under_way_max:
                return
            if not pull.is_due or (route := self._route(pull)) is None:
                continue
            try:
                pull.address = route.reader(route.home(pull.queue), pull.suggested)
            except errors.RocketMQError as error:
                self._failed(pull, error)
            else:
                self._start(pull)

    async def wait(self, queues: Iterable[PullT], timeout_s: float) -> None:
        """Wait until a pull has completed or the first pause is over, for at most `timeout_s`."""
        now = time.monotonic()
        pauses = (pull.not_before - now for pull in queues if pull.not_before > now and pull.has_room())
        await self._inbox.wait(max(0.001, min(timeout_s, min(pauses, default=timeout_s))))

    def completed(self) -> Iterator[tuple[PullT, pulls.Pulled]]:
        """Yield the replies of queues that have not moved since the pull. Failed pulls are retried after a pause, or
        give the queue up; `check` raises that error."""
        for token, call in self._inbox.take():
            pull = self._under_way.pop(token, None)
            if pull is None or pull.token != token:
                continue  # The queue has moved since the pull.
            pull.token = 0
            try:
                pulled = self._read(pull, call)
            except errors.RocketMQError as error:
                self._failed(pull, error)
            else:
                yield pull, pulled

    def check(self) -> None:
        """Raise the error that gave a queue up, or `ClosedError` after `close`."""
        if self._inbox.completions.is_closed():
            raise errors.ClosedError("the consumer was closed")
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def close(self) -> None:
        """Drop the pulls in flight. Idempotent."""
        self._under_way.clear()
        self._inbox.close()

    # ---- one queue ---------------------------------------------------------------------------------------

    async def pull(self, pull: PullT) -> pulls.Pulled | None:
        """Pull a queue once; return `None` after a failure and its pause. Raises the error that gives the queue up."""
        try:
            route = await self._routes.subscribe(pull.queue.topic, self._caller)
            pull.address = route.reader(route.home(pull.queue), pull.suggested)
            timeout = self.plan.suspend_s + self.plan.reply_s
            call = await self._caller.call(pull.address, pulls.PULL, self._request(pull), timeout=timeout)
            return self._read(pull, call)
        except errors.RocketMQError as error:
            if not self._is_tolerated(pull, error):
                raise
        await self._caller.sleep(max(0.0, pull.not_before - time.monotonic()))
        return None

    # ---- failures ----------------------------------------------------------------------------------------

    def pause(self, pull: PullT, *, is_busy: bool = False) -> None:
        """Count a failure of a queue, and pause it."""
        pull.failures += 1
        backoff = self.plan.busy if is_busy else self.plan.failing
        pull.not_before = time.monotonic() + backoff.pause_s(pull.failures)

    def _failed(self, pull: PullT, error: errors.RocketMQError) -> None:
        if not self._is_tolerated(pull, error):
            pull.failures = 0
            self._failure = self._failure or error

    def _is_tolerated(self, pull: PullT, error: errors.RocketMQError) -> bool:
        """Schedule a retry of a failed pull; return False if the queue is given up. The route of an unreachable broker
        is refreshed."""
        is_busy = isinstance(error, errors.FlowControl)
        # Fall back to the master after a slave failed.
        pull.suggested = MASTER_ID
        self.pause(pull, is_busy=is_busy)
        if self._is_final(pull, error):
            return False
        # Do not log flow control while retrying indefinitely; log it if the queue may be given up.
        if not is_busy or self.plan.failures_max is not None:
            outages.warn(log, error, "pull of %s at %d failed, retrying", pull.queue, pull.offset)
        if not is_busy:
            self._routes.doubt(pull.queue.topic, is_gone=isinstance(error, errors.TopicNotFound))
            self.doubt(pull.queue.topic, error)
        return True

    def _is_final(self, pull: PullT, error: errors.RocketMQError) -> bool:
        if self.plan.failures_max is not None:
            return not error.retriable or pull.failures >= self.plan.failures_max
        return error.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED or isinstance(
            error, errors.AuthError | errors.ClosedError | errors.DecodeError | errors.Unsupported
        )

    # ---- pieces ------------------------------------------------------------------------------------------

    def _route(self, pull: PullT) -> Route | None:
        return self._routes.cached(pull.queue.topic, self._caller)

    def _start(self, pull: PullT) -> None:
        self._token += 1
        pull.token = token = self._token
        self._under_way[token] = pull
        client, ext, completions = self._caller.client, self._request(pull), self._inbox.completions
        timeout_ms = round((self.plan.suspend_s + self.plan.reply_s) * 1000)
        if self._columns is None:
            client.call(
                pull.address, pulls.PULL, ext, timeout_ms=timeout_ms, completions=completions, token=token
            )
            return
        assert pull.end is not None, "columns are of ranges"
        client.pull(pull, ext, self._columns, timeout_ms=timeout_ms, completions=completions)

    def _request(self, pull: PullT) -> dict[str, str]:
        count = self.plan.messages_max
        return pulls.request(
            self._group,
            pull.queue,
            pull.offset,
            wanted=pull.wanted,
            messages_max=count if pull.end is None else min(count, pull.end - pull.offset),
            bytes_max=self.plan.bytes_max,
            suspend_s=self.plan.suspend_s,
            namespace=self.namespace,
        )

    def _read(self, pull: PullT, call: Call) -> pulls.Pulled:
        pulled = pulls.read(call, pull.queue, pull.address)
        pull.suggested = pulled.suggested
        log.debug(
            "PULL_MESSAGE of %s: %s at %d: %s, next %d",
            pull.address,
            pull.queue,
            pull.offset,
            pulled.found.name,
            pulled.next_offset,
        )
        return pulled
