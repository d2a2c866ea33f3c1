"""Engine of a push consumer, shared by threads and event loops.

Owns the life of one consumer on one event loop: it takes and releases queues when its share changes, and commits and
renews locks periodically, until it is closed or fails. The parts do not know each other; they meet here.

`start`, `close` and the loops run on the event loop; methods marked so, in any thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final

from rmqpy import errors
from rmqpy.client.consume_result import Reply
from rmqpy.client.group.beginnings import Beginnings
from rmqpy.client.group.membership import Member
from rmqpy.client.group.membership_keeper import MembershipKeeper
from rmqpy.client.group.offset_store import StoredOffsets
from rmqpy.client.group.offsets import (
    BrokerOffsets,
    LocalOffsets,
    Offsets,
    Places,
    begins,
    default_folder,
)
from rmqpy.client.group.rebalance import Rebalance, View
from rmqpy.client.group.subscription import Subscriptions
from rmqpy.client.identity import STABLE_INSTANCE, Claim, client_id
from rmqpy.client.lifetime.closing import Closing
from rmqpy.client.pull.puller import Puller, PullPlan
from rmqpy.client.push.concurrent import Concurrent
from rmqpy.client.push.handlers import ConsumerStats, Handler, Handlers
from rmqpy.client.push.locks import RENEW_S, Locks
from rmqpy.client.push.options import PushOptions
from rmqpy.client.push.ordered import Ordered
from rmqpy.client.push.owned_queues import TAKE_OVER_S, OwnedQueues
from rmqpy.client.push.process_queue import Limits, ProcessQueue
from rmqpy.client.push.queue_reader import QueueReader
from rmqpy.client.push.reply import REPLY_S, ReplySender
from rmqpy.client.push.running_info import PushRunningInfo
from rmqpy.client.push.send_back import SendBack
from rmqpy.client.push.statistics import SAMPLE_S
from rmqpy.client.push.worker_pool import WorkerPool
from rmqpy.client.reports.stderr import Stderr
from rmqpy.clock import running
from rmqpy.message import Filter, MessageQueue, ReceivedMessage
from rmqpy.protocol import names
from rmqpy.protocol.requests.clients import ConsumeType, MessageModel
from rmqpy.remoting import pulls

log = logging.getLogger(__name__)
#: Reports about a slow close reach stderr when logging is not configured.
closing_log = log.getChild("closing")
closing_log.addHandler(Stderr(closing_log))

COMMIT_S: Final = 5.0
#: The interval at which periodic tasks check the clock.
LOOK_S: Final = 1.0
#: Time to confirm the owned queues at close.
CONFIRM_S: Final = 3.0
#: A close that takes longer logs what it waits for.
REPORT_S: Final = 1.0
#: Offsets from the oldest unfinished message to the newest, per message that may be buffered.
SPAN_FACTOR: Final = 2


class Engine:
    """One member of a group that calls handlers."""

    def __init__(
        self,
        options: PushOptions,
        pool: WorkerPool[Any],
        notify: Callable[[Rebalance], Awaitable[None]],
    ) -> None:
        self._options = options
        self._pool = pool
        self._notify = notify
        fixed = () if options.broadcast else (names.retry_topic(options.group),)
        self.subscriptions = Subscriptions(*fixed)
        self.handlers = Handlers(pool, options.batch_size, self.reply)
        self.failure: BaseException | None = None
        self._is_stopping = False
        self._has_ended = asyncio.Event()
        self._closing = Closing()
        #: Set to stop waiting for running handlers.
        self._hurried = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []
        self._returns: set[asyncio.Task[None]] = set()
        self._is_built = False
        #: The claim of a client id that the user chose.
        self._claim: Claim | None = None

    # ---- any thread ------------------------------------------------------------------------------------

    def put(self, topic: str, wanted: Filter, handler: Handler) -> None:
        """Add or replace the handler of a topic."""
        self.handlers.put(topic, handler)
        self.subscriptions.put(topic, wanted)

    def remove(self, topic: str) -> None:
        """Remove the handler of a topic."""
        self.subscriptions.remove(topic)
        self.handlers.remove(topic)

    def stats(self) -> ConsumerStats:
        total = self.handlers.statistics.total()
        owned = self._process_queues()
        waiting = sum(one.count for one in owned)
        lost = self._send_back.lost if self._is_built else 0
        return ConsumerStats(total.consumed, total.failed, total.discarded, waiting, len(owned), lost)

    def queues(self) -> frozenset[MessageQueue]:
        """The owned queues."""
        return frozenset(one.queue for one in self._process_queues())

    def _process_queues(self) -> list[ProcessQueue]:
        return self._owned_queues.process_queues if self._is_built else []

    # ---- life ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join the group and begin. Raises an error that a user must fix, such as a wrong address."""
        options = self._options
        if not self.handlers.topics:
            raise errors.ConfigError("the consumer has no handler", hint="use on(topic) before start")
        self._loop = asyncio.get_running_loop()
        # May be slow, because it resolves a name.
        me = await asyncio.to_thread(client_id, options.config.namesrv, self._instance, options.config.unit)
        if self._is_stopping:
            raise errors.ClosedError("the consumer was closed while it was starting")
        try:
            self._build(me)
        except BaseException:
            if hasattr(self, "_keeper"):
                self._keeper.let_go()
            self._release_claim()
            raise
        try:
            await self._offsets.open()
            self._consumption.start(self.fail)
            await self._keeper.start()
        except BaseException:
            await self.close(0.0)
            raise
        if self._is_stopping:
            return
        self._loops = [
            asyncio.create_task(self._live()),
            asyncio.create_task(self._every(COMMIT_S, self._commit)),
            asyncio.create_task(self._every(RENEW_S, self._renew)),
            asyncio.create_task(self._every(options.consume_timeout / 10, self._expire)),
            asyncio.create_task(self._every(SAMPLE_S, self._sample)),
        ]

    async def wait(self) -> None:
        """Wait until the consumer is closed or has failed."""
        await self._has_ended.wait()

    async def close(self, timeout_s: float) -> None:
        """Let running handlers finish for `timeout_s`, commit, and leave the group. Runs in its own task: a cancelled
        caller only stops waiting, and later callers wait for the same end."""
        if not self._is_built:
            self._is_stopping = True
            return
        await self._closing.once(partial(self._close, timeout_s))

    def begin_close(self, timeout_s: float) -> None:
        """Begin to close without waiting, for callbacks of the consumer. On the event loop."""
        self._is_stopping = True
        if self._is_built:
            self._closing.begin(partial(self._close, timeout_s))

    def hurry(self) -> None:
        """Stop waiting for handlers. On the event loop."""
        self._hurried.set()

    def let_go(self) -> None:
        """Leave the group without waiting, when the loop ends or has ended."""
        self._is_stopping = True
        if not self._is_built:
            return
        if not self._loop.is_closed():
            self._pool.dismiss()
            self._has_ended.set()
        self._keeper.let_go()
        self._release_claim()

    def _release_claim(self) -> None:
        if self._claim is not None:
            self._claim.release()

    async def _close(self, timeout_s: float) -> None:
        self._is_stopping = True
        try:
            await self._keeper.stop()
            for task in self._loops:
                task.cancel()
            await self._settle(timeout_s)
            await self._owned_queues.close(is_committing=await self._is_confirmed())
        finally:
            self._pool.dismiss()
            for task in self._returns:
                task.cancel()
            try:
                await self._keeper.close()
            finally:
                # Also runs if this task was cancelled because its loop ends.
                self.let_go()

    async def _settle(self, timeout_s: float) -> None:
        """Wait up to `timeout_s` for running handlers and the actions they returned."""

        async def settle() -> None:
            await self._owned_queues.stop(timeout_s)
            if self._returns:
                await asyncio.wait(self._returns, timeout=timeout_s)

        async def report() -> None:
            await asyncio.sleep(REPORT_S)
            self._report_wait(timeout_s)

        settling, reporting = asyncio.create_task(settle()), asyncio.create_task(report())
        hurried = asyncio.create_task(self._hurried.wait())
        try:
            await asyncio.wait((settling, hurried), return_when=asyncio.FIRST_COMPLETED)
            if settling.done():
                settling.result()
        finally:
            for task in (settling, reporting, hurried):
                task.cancel()

    def _report_wait(self, timeout_s: float) -> None:
        at_work = [worker.item.queue for worker in self._pool.workers if worker.item is not None]
        if at_work:
            names_of = ", ".join(sorted(map(str, set(at_work))))
            word = "handler" if len(at_work) == 1 else "handlers"
            closing_log.warning(
                "group %s: closing waits up to %g s for %d %s of %s; a second interrupt stops the wait",
                self._options.group, timeout_s, len(at_work), word, names_of,
            )  # fmt: skip

    async def _live(self) -> None:
        """Run the loops of the consumer; close it if one of them ends early."""
        try:
            await self._has_ended.wait()
        except asyncio.CancelledError:
            if not self._closing.has_begun:
                self.let_go()
            raise

    def fail(self, error: BaseException) -> None:
        """End with a permanent failure. On the event loop."""
        if self.failure is None and not self._is_stopping:
            log.error("consumer of group %s stops: %s", self._options.group, error)
            self.failure = error
            self._has_ended.set()

    # ---- changes, on the event loop ----------------------------------------------------------------------

    async def resubscribe(self, topic: str) -> None:
        """Send the changed subscription to brokers, and take or release queues."""
        self._owned_queues.reread(topic)
        await self._keeper.resubscribe()

    def pause(self, queues: Collection[MessageQueue], is_paused: bool) -> None:
        """Stop or resume reading these queues."""
        self._owned_queues.pause(queues, is_paused)

    async def reply(self, message: ReceivedMessage, reply: Reply, timeout_s: float = REPLY_S) -> None:
        """Answer a request; see `ReplySender.send`."""
        await self._replies.send(message, reply, timeout_s)

    # ---- periodic tasks ----------------------------------------------------------------------------------

    async def _every(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            due = running() + seconds
            while (left := due - running()) > 0:  # noqa: ASYNC110 - no event marks the end of a suspension
                # Timers stop while the machine is suspended.
                await asyncio.sleep(min(left, LOOK_S))
            try:
                await work()
            except Exception as error:
                self._keeper.tolerate(error)

    async def _commit(self) -> None:
        await self._keeper.confirm()
        await self._moved(await self._owned_queues.commit())

    async def _renew(self) -> None:
        await self._moved(await self._owned_queues.renew())

    async def _moved(self, queues: frozenset[MessageQueue]) -> None:
        """Begin again at the progress that another member moved."""
        if queues:
            await self._report(Rebalance(queues, frozenset(), queues))

    async def _is_confirmed(self) -> bool:
        """Return whether the owned queues are confirmed at close; unconfirmed ones are not committed."""
        try:
            await asyncio.wait_for(self._keeper.confirm(), CONFIRM_S)
        except Exception as error:
            log.warning("group %s: stopping without a final commit: %s", self._options.group, error)
            return False
        return True

    async def _rebalance(self, view: View, since: float) -> bool:
        """Take and release queues according to the view; return False if a queue could not be taken yet."""
        owned = self._owned_queues
        self._beginnings.see(view.readable)
        self._beginnings.keep(view.readable.keys() | view.unknown)
        given, taken = view.given(owned.queues), view.taken(owned.queues)
        until = since + TAKE_OVER_S
        is_late = running() > until
        revoked = await owned.give(given, until)
        # Another member may have owned these queues in between.
        moved = await owned.compare() if is_late else frozenset()
        had = frozenset() if self._is_stopping else await owned.take(taken, is_alone=view.is_alone)
        change = Rebalance(had | moved, revoked, (frozenset(given) - revoked) | moved)
        if change:
            log.info(
                "group %s: queues assigned=%d revoked=%d owned=%d",
                self._options.group, len(had), len(given), len(owned.queues),
            )  # fmt: skip
            await self._report(change)
        return len(had) == len(taken)

    async def _report(self, change: Rebalance) -> None:
        try:
            await self._notify(change)
        except Exception:
            log.exception("group %s: on_rebalance failed", self._options.group)

    async def _expire(self) -> None:
        self._consumption.expire(self._options.consume_timeout)

    async def _sample(self) -> None:
        self.handlers.statistics.sample()

    def _reset(self, moved: Mapping[MessageQueue, int]) -> None:
        for queue, offset in moved.items():
            self._owned_queues.restart(queue, offset)

    # ---- failed messages -----------------------------------------------------------------------------------

    def _give_back(
        self, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage], level: int, error: str
    ) -> None:
        async def give_back() -> None:
            for message in messages:
                await self._send_back.send_back(message, level, error)
                process_queue.release(message)

        self._loop.call_soon_threadsafe(self._keep, give_back)

    def _bury_all(self, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage], error: str) -> None:
        async def bury() -> None:
            for message in messages:
                # This attempt is the last one, whatever the group's limit.
                await self._send_back.bury(message, message.delivery_attempt - 1, error)
                process_queue.release(message)

        self._loop.call_soon_threadsafe(self._keep, bury)

    def _bury(
        self,
        process_queue: ProcessQueue,
        message: ReceivedMessage,
        error: str,
        then: Callable[[ProcessQueue], None],
    ) -> None:
        async def bury() -> None:
            # In order, a message fails after its last attempt by the handler; it was delivered once.
            await self._send_back.bury(message, (self._options.max_attempts or 1) - 1, error)
            then(process_queue)

        self._loop.call_soon_threadsafe(self._keep, bury)

    def _later(
        self, seconds: float, then: Callable[[ProcessQueue], None], process_queue: ProcessQueue
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.call_later, seconds, then, process_queue)

    def _keep(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = self._loop.create_task(work())
        self._returns.add(task)
        task.add_done_callback(self._kept)

    def _kept(self, task: asyncio.Task[None]) -> None:
        self._returns.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # The queue would wait for this message indefinitely.
            self.fail(error)

    # ---- building ------------------------------------------------------------------------------------------

    @property
    def _instance(self) -> str | None:
        return self._options.instance or (STABLE_INSTANCE if self._options.broadcast else None)

    def _build(self, me: str) -> None:
        options, group = self._options, self._options.group
        if self._instance is not None:
            self._claim = Claim(options.config, group, me, self._instance)
        running_info = PushRunningInfo(
            options, self._pool, self.subscriptions, self.handlers, self._process_queues
        )
        member = Member(
            group,
            me,
            self.subscriptions,
            ConsumeType.CONSUME_PASSIVELY,
            MessageModel.BROADCASTING if options.broadcast else MessageModel.CLUSTERING,
            begins(options.start_from),
        )
        self._keeper = MembershipKeeper(
            options.config,
            member,
            options.allocate,
            apply=self._rebalance,
            reset=self._reset,
            fail=self.fail,
            queried=running_info,
        )
        cluster, caller = self._keeper.cluster, self._keeper.caller
        places = Places(cluster, caller)
        self._offsets: Offsets = BrokerOffsets(places, group)
        if options.offset_store is not None:
            self._offsets = StoredOffsets(options.offset_store)
        elif options.broadcast:
            self._offsets = LocalOffsets(
                options.offset_folder or default_folder(), me, group, caller.namespace
            )
        self._beginnings = Beginnings(options.start_from, self._offsets.has_any)
        self._send_back = SendBack(cluster, caller, group, _retries(options.max_attempts))
        self._replies = ReplySender(cluster, caller, group)
        self._consumption: Concurrent | Ordered
        if options.ordered:
            self._consumption = Ordered(
                self._pool,
                self.handlers,
                self._later,
                None if options.broadcast else self._bury,
                suspend_s=options.suspend,
                attempts_max=options.max_attempts,
            )
        else:
            self._consumption = Concurrent(
                self._pool, self.handlers, self._give_back, self._bury_all, is_broadcast=options.broadcast
            )
        limits = Limits(
            options.prefetch_messages, options.prefetch_bytes, options.prefetch_messages * SPAN_FACTOR
        )
        self._owned_queues = OwnedQueues(
            self._offsets,
            places,
            Locks(cluster, caller, group, me) if options.is_locking else None,
            limits,
            self._beginnings,
            revive=self._consumption.revive,
            fail=self.fail,
        )
        plan = PullPlan(group, messages_max=min(options.prefetch_messages, pulls.MESSAGES_MAX))
        self._owned_queues.reader = QueueReader(
            Puller(caller, cluster.routes, plan, doubt=lambda topic, error: self._keeper.look_again(error)),
            self.subscriptions,
            self._consumption.put,
            self.handlers.statistics,
        )
        self._is_built = True


def _retries(max_attempts: int | None) -> int | None:
    return None if max_attempts is None else max_attempts - 1
