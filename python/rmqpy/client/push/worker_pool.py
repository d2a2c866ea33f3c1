"""Worker pools: the threads, or the tasks, that call handlers.

A pool owns the items that wait for work, queues of messages, and its workers. How an item is worked on, a coroutine for
some of its messages, is written once: a thread drives it to its end without suspending, a task awaits it.

What is not said to be a worker's belongs to the event loop.
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

#: Messages of one turn of a thread. Long enough that one loss of the interpreter (5 ms) does not make it look slow.
TURN: Final = 128
#: Messages of one turn of a task: others get theirs after it, should its handler never wait for anything.
TASK_TURN: Final = 16
#: A turn that took no longer for each message is brisk: a second thread would only take the interpreter from the first.
BRISK_S: Final = 100e-6
#: A worker at one message for longer is taken to wait for something, so that another one can go on meanwhile.
STUCK_S: Final = 1e-3

Work = Callable[["Worker[T]", T], Coroutine[Any, Any, None]]
Fail = Callable[[BaseException], None]


class Worker(Generic[T]):
    """One worker, and the item it works on. Others look; only `revoked` is theirs to write."""

    def __init__(self) -> None:
        #: In work now.
        self.item: T | None = None
        #: Begin of the present message, on the monotonic clock.
        self.began_at = 0.0
        #: The batch it had at hand when its time was up: not its to conclude any more.
        self.revoked: object = None
        #: Messages left of its turn.
        self.left = 0
        self._turned_at = 0.0

    def turn(self, count: int) -> None:
        """Begin a turn of so many messages."""
        self.left = count
        self._turned_at = self.began_at = monotonic()

    def pace(self, count: int) -> float | None:
        """Seconds for each message of a turn that has ended; `None` where it was cut short for want of them."""
        return None if self.left > 0 else (monotonic() - self._turned_at) / count

    def is_stuck(self, now: float) -> bool:
        """True when it seems to wait for something."""
        return self.began_at < now - STUCK_S


class WorkerPool(ABC, Generic[T]):
    """`size` workers, and the items that wait for them, each once."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.workers: tuple[Worker[T], ...] = tuple(Worker[T]() for _ in range(size))
        self._items: dict[T, None] = {}

    @abstractmethod
    def start(self, work: Work[T], fail: Fail) -> None:
        """Begin. `work` is called with an item, and works on it for a turn at most. `fail` is called, on the event
        loop, with the reason when a worker ends before it is dismissed."""

    @abstractmethod
    def put(self, item: T) -> None:
        """Have it worked on, behind those that wait. From the event loop."""

    @abstractmethod
    def put_back(self, item: T) -> None:
        """Likewise, by a worker: there is more to it than this worker will do now, or than one worker should."""

    @abstractmethod
    def dismiss(self) -> None:
        """End each worker after what it has at hand; items that wait are forgotten."""

    @abstractmethod
    async def settle(self, returned: Any) -> Any:
        """The final value of what a handler returned."""

    @abstractmethod
    def ends_worker(self, error: BaseException) -> bool:
        """True for what a worker must let through: it is meant for the worker, and not the failure of a handler."""

    @abstractmethod
    async def beside(self, work: Coroutine[Any, Any, R]) -> R:
        """Do this now, beside what waits for its turn."""

    @abstractmethod
    async def on_loop(self, work: Coroutine[Any, Any, R]) -> R:
        """Do this on the event loop, and wait for it. From a worker, or from `beside`."""

    @abstractmethod
    def has_caller(self) -> bool:
        """True when the caller is one of the workers."""


class ThreadWorkerPool(WorkerPool[T]):
    """Handlers run in threads of their own. Not to be awaited: waiters observe what the threads finish.

    As few threads are active as it takes. Handlers that never wait for anything take the interpreter from each other,
    which costs several times what a message does, and are called by one thread. Another one is woken when items wait
    and all active ones seem to wait for something (`STUCK_S`), or when handlers turn out slow (`BRISK_S`), until all
    are active. A thread that finds nothing to do, or is brisk and not alone, parks.
    """

    def __init__(self, size: int, name: str) -> None:
        super().__init__(size)
        self._name = name
        self._is_dismissed = False
        self._threads: list[threading.Thread] = []
        # For the items, and for the sets of parked and active workers. Taken for a turn, not for a message.
        self._lock = threading.Lock()
        #: Each with the lock whose release is its wakeup; the last one to park is the first to wake.
        self._parked: list[tuple[Worker[T], threading.Lock]] = []
        self._active: set[Worker[T]] = set(self.workers)
        self._stuck_check: asyncio.TimerHandle | None = None

    def start(self, work: Work[T], fail: Fail) -> None:
        self._loop = asyncio.get_running_loop()
        for number, worker in enumerate(self.workers):
            # Daemons: a handler that never returns must not keep the process from ending.
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
        # Nobody interrupts or cancels these threads.
        return False

    async def beside(self, work: Coroutine[Any, Any, R]) -> R:
        return await asyncio.to_thread(run, work)

    async def on_loop(self, work: Coroutine[Any, Any, R]) -> R:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def has_caller(self) -> bool:
        return threading.current_thread() in self._threads

    def _serve(self, worker: Worker[T], work: Work[T], fail: Fail) -> None:
        try:
            self._take_turns(worker, work)
        except BaseException as error:
            # The loop may have ended meanwhile.
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
        """After a turn: True when this worker is not needed now. It counts as parked then, and must wait for its
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
                # The workers that stay active may all get stuck.
                with suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._schedule_stuck_check)
            self._active.discard(worker)
            self._parked.append((worker, wakeup))
            return True

    def _unpark_one(self) -> None:
        """Wake the worker that parked last, if there is one. Under the lock."""
        if self._parked:
            worker, wakeup = self._parked.pop()
            # From now on: it may take a while until it runs.
            worker.began_at = monotonic()
            self._active.add(worker)
            wakeup.release()

    def _schedule_stuck_check(self) -> None:
        """Have a worker woken when all active ones are stuck. On the event loop."""
        if self._stuck_check is None and self._items and not self._is_dismissed:
            self._stuck_check = self._loop.call_later(STUCK_S, self._check_stuck)

    def _check_stuck(self) -> None:
        self._stuck_check = None
        now = monotonic()
        with self._lock:
            had_parked = bool(self._parked)
            if self._items and all(worker.is_stuck(now) for worker in self._active):
                self._unpark_one()
        # With none parked there is none to wake: a worker that parks while items wait schedules the next check.
        if had_parked:
            self._schedule_stuck_check()


class TaskWorkerPool(WorkerPool[T]):
    """Handlers run in tasks of the running loop."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._is_dismissed = False
        self._wakeups: deque[asyncio.Future[None]] = deque()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, work: Work[T], fail: Fail) -> None:
        def ended(task: asyncio.Task[None]) -> None:
            if not self._is_dismissed:
                reason = None if task.cancelled() else task.exception()
                fail(reason or RuntimeError("a task that calls handlers was cancelled from outside"))

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
            # Else it comes out of something that the handler awaited.
            task = asyncio.current_task()
            return task is not None and task.cancelling() > 0
        return isinstance(error, KeyboardInterrupt | GeneratorExit)

    async def beside(self, work: Coroutine[Any, Any, R]) -> R:
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
