"""Worker pools: the threads or tasks that call handlers.

A pool owns the waiting items, which are queues of messages, and its workers. Processing an item is a coroutine for some
of its messages, written once: a thread runs it without suspending, a task awaits it.

Methods belong to the event loop unless they are marked as a worker's.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from time import monotonic
from typing import Any, Final, Generic, TypeVar

from rmqpy.remoting.client import run

T = TypeVar("T")
R = TypeVar("R")

#: Messages per turn of a thread, enough that one loss of the interpreter (5 ms) does not make it look slow.
TURN: Final = 128
#: Messages per turn of a task, so that others run even if its handler never suspends.
TASK_TURN: Final = 16
#: A turn with at most this time per message is brisk: a second thread would only compete for the interpreter.
BRISK_S: Final = 100e-6
#: A worker that spends longer on one message seems blocked, so another one is woken.
STUCK_S: Final = 1e-3

Work = Callable[["Worker[T]", T], Coroutine[Any, Any, None]]
Fail = Callable[[BaseException], None]


class Worker(Generic[T]):
    """One worker, and the item it works on. Others read it; they may write only `revoked`."""

    def __init__(self) -> None:
        #: The item in progress.
        self.item: T | None = None
        #: The start of the current message, on the monotonic clock.
        self.began_at = 0.0
        #: A batch that timed out; the worker no longer owns it.
        self.revoked: object = None
        #: Messages left in its turn.
        self.left = 0
        self._turned_at = 0.0

    def turn(self, count: int) -> None:
        """Begin a turn of this many messages."""
        self.left = count
        self._turned_at = self.began_at = monotonic()

    def pace(self, count: int) -> float | None:
        """Return the seconds per message of an ended turn; `None` if it ended early for lack of messages."""
        return None if self.left > 0 else (monotonic() - self._turned_at) / count

    def is_stuck(self, now: float) -> bool:
        """Return whether the worker seems blocked."""
        return self.began_at < now - STUCK_S


class WorkerPool(ABC, Generic[T]):
    """`size` workers, and the waiting items, each at most once."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.workers: tuple[Worker[T], ...] = tuple(Worker[T]() for _ in range(size))
        self._items: dict[T, None] = {}

    @abstractmethod
    def start(self, work: Work[T], fail: Fail) -> None:
        """Start the workers. `work` is called with an item and processes it for one turn at most. `fail` is called on
        the event loop, with the reason, if a worker ends before it is dismissed."""

    @abstractmethod
    def put(self, item: T) -> None:
        """Add an item at the end of the queue. On the event loop."""

    @abstractmethod
    def put_back(self, item: T) -> None:
        """Add an item again, from a worker: there is more work than this turn or this worker can do."""

    @abstractmethod
    def dismiss(self) -> None:
        """End each worker after its current item, and drop the waiting items."""

    @abstractmethod
    async def settle(self, returned: Any) -> Any:
        """Return the final value of a handler's return value."""

    @abstractmethod
    def ends_worker(self, error: BaseException) -> bool:
        """Return whether an exception is meant for the worker, not a failure of the handler."""

    @abstractmethod
    async def out_of_turn(self, work: Coroutine[Any, Any, R]) -> R:
        """Run `work` now, independent of the waiting items."""

    @abstractmethod
    async def on_loop(self, work: Coroutine[Any, Any, R]) -> R:
        """Run `work` on the event loop and wait for it. From a worker, or from `out_of_turn`."""

    @abstractmethod
    def has_caller(self) -> bool:
        """True if one of the workers is the caller."""


class ThreadWorkerPool(WorkerPool[T]):
    """Runs handlers in threads. Not awaitable: waiters observe what the threads finish.

    As few threads as possible are active. Handlers that never block compete for the interpreter,
    which costs several times as much as a message, so one thread runs them. Another thread is woken if items wait
    and all active ones seem blocked (`STUCK_S`), or if handlers turn out slow (`BRISK_S`), until all
    are active. A thread without work parks, and so does a brisk thread that is not alone.
    """

    def __init__(self, size: int, name: str) -> None:
        super().__init__(size)
        self._name = name
        self._is_dismissed = False
        self._threads: list[threading.Thread] = []
        # Guards the items, and the sets of parked and active workers. Taken per turn, not per message.
        self._lock = threading.Lock()
        #: Each with the lock that wakes it when released; the last to park is the first to wake.
        self._parked: list[tuple[Worker[T], threading.Lock]] = []
        self._active: set[Worker[T]] = set(self.workers)
        self._stuck_check: asyncio.TimerHandle | None = None

    def start(self, work: Work[T], fail: Fail) -> None:
        self._loop = asyncio.get_running_loop()
        for number, worker in enumerate(self.workers):
            # Daemon threads, so that a stuck handler cannot prevent the process from ending.
            thread = threading.Thread(
                target=self._serve, args=(worker, work, fail), name=f"{self._name}-{number}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def put(self, item: T) -> None:
        with self._lock:
            self._items[item] = None
            if not self._active:
                self._unpark_one()
        self._schedule_stuck_check()

    def put_back(self, item: T) -> None:
        with self._lock:
            self._items[item] = None

    def dismiss(self) -> None:
        if self._stuck_check is not None:
            self._stuck_check.cancel()
        with self._lock:
            self._is_dismissed = True
            self._items.clear()
            while self._parked:
                self._unpark_one()

    async def settle(self, returned: Any) -> Any:
        if inspect.iscoroutine(returned):
            returned.close()
            raise TypeError("the handler is a coroutine function: use AsyncPushConsumer")
        return returned

    def ends_worker(self, error: BaseException) -> bool:
        # These threads are never interrupted or cancelled.
        return False

    async def out_of_turn(self, work: Coroutine[Any, Any, R]) -> R:
        return await asyncio.to_thread(run, work)

    async def on_loop(self, work: Coroutine[Any, Any, R]) -> R:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def has_caller(self) -> bool:
        return threading.current_thread() in self._threads

    def _serve(self, worker: Worker[T], work: Work[T], fail: Fail) -> None:
        try:
            self._take_turns(worker, work)
        except BaseException as error:
            # The loop may be closed meanwhile.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(fail, error)

    def _take_turns(self, worker: Worker[T], work: Work[T]) -> None:
        wakeup = threading.Lock()
        wakeup.acquire()
        while not self._is_dismissed:
            if self._may_park(worker, wakeup):
                wakeup.acquire()
            worker.turn(TURN)
            while worker.left > 0 and (item := self._next()) is not None:
                worker.item = item
                run(work(worker, item))
            worker.item = None

    def _next(self) -> T | None:
        with self._lock:
            item = next(iter(self._items), None)
            if item is not None:
                del self._items[item]
            return item

    def _may_park(self, worker: Worker[T], wakeup: threading.Lock) -> bool:
        """After a turn, return whether this worker is not needed now. It then counts as parked and must wait for its
        wakeup."""
        pace = worker.pace(TURN)
        with self._lock:
            if self._is_dismissed:
                return False
            if self._items:
                if pace is not None and pace > BRISK_S:
                    self._unpark_one()
                now = monotonic()
                if (
                    pace is None
                    or pace > BRISK_S
                    or all(other is worker or other.is_stuck(now) for other in self._active)
                ):
                    return False
                # All workers that stay active may get stuck.
                with suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._schedule_stuck_check)
            self._active.discard(worker)
            self._parked.append((worker, wakeup))
            return True

    def _unpark_one(self) -> None:
        """Wake the worker that parked last, if any. Called with the lock held."""
        if self._parked:
            worker, wakeup = self._parked.pop()
            # Counted from now, because the thread may start with a delay.
            worker.began_at = monotonic()
            self._active.add(worker)
            wakeup.release()

    def _schedule_stuck_check(self) -> None:
        """Schedule a check that wakes a worker if all active ones are stuck. On the event loop."""
        if self._stuck_check is None and self._items and not self._is_dismissed:
            self._stuck_check = self._loop.call_later(STUCK_S, self._check_stuck)

    def _check_stuck(self) -> None:
        self._stuck_check = None
        now = monotonic()
        with self._lock:
            had_parked = bool(self._parked)
            if self._items and all(worker.is_stuck(now) for worker in self._active):
                self._unpark_one()
        # Without parked workers none can be woken; a worker that parks while items wait schedules the next check.
        if had_parked:
            self._schedule_stuck_check()


class TaskWorkerPool(WorkerPool[T]):
    """Runs handlers in tasks of the running loop."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._is_dismissed = False
        self._wakeups: deque[asyncio.Future[None]] = deque()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, work: Work[T], fail: Fail) -> None:
        def ended(task: asyncio.Task[None]) -> None:
            if not self._is_dismissed:
                reason = None if task.cancelled() else task.exception()
                fail(reason or RuntimeError("a worker task was cancelled by another task"))

        self._tasks = [asyncio.create_task(self._serve(worker, work)) for worker in self.workers]
        for task in self._tasks:
            task.add_done_callback(ended)

    def put(self, item: T) -> None:
        self._items[item] = None
        while self._wakeups:
            wakeup = self._wakeups.popleft()
            if not wakeup.done():
                wakeup.set_result(None)
                return

    def put_back(self, item: T) -> None:
        self.put(item)

    def dismiss(self) -> None:
        self._is_dismissed = True
        for task in self._tasks:
            task.cancel()

    async def settle(self, returned: Any) -> Any:
        return await returned if inspect.isawaitable(returned) else returned

    def ends_worker(self, error: BaseException) -> bool:
        if isinstance(error, asyncio.CancelledError):
            # Otherwise something that the handler awaited has raised it.
            task = asyncio.current_task()
            return task is not None and task.cancelling() > 0
        return isinstance(error, KeyboardInterrupt | GeneratorExit)

    async def out_of_turn(self, work: Coroutine[Any, Any, R]) -> R:
        return await work

    async def on_loop(self, work: Coroutine[Any, Any, R]) -> R:
        return await work

    def has_caller(self) -> bool:
        return asyncio.current_task() in self._tasks

    async def _serve(self, worker: Worker[T], work: Work[T]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while not self._items:
                wakeup = loop.create_future()
                self._wakeups.append(wakeup)
                await wakeup
            worker.item = item = next(iter(self._items))
            del self._items[item]
            worker.turn(TASK_TURN)
            await work(worker, item)
            worker.item = None
            await asyncio.sleep(0)
