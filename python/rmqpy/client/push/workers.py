"""Who calls the handlers: a crew of threads, or of tasks.

Owns the queue of work and those who take from it. What work is, a coroutine over an item, is written once: a
thread drives it to its end without suspending, a task awaits it.

`put` may be called from any thread for `ThreadCrew`, and from its loop for `TaskCrew`.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar

from rmqpy.remoting.client import run

T = TypeVar("T")
R = TypeVar("R")

#: Items a task does before others get their turn, should its handler never wait for anything.
TURN: Final = 16

Work = Callable[[T], Coroutine[Any, Any, None]]


class Crew(ABC, Generic[T]):
    """`size` workers, and the items that wait for them."""

    def __init__(self, size: int) -> None:
        self.size = size

    @abstractmethod
    def start(self, work: Work[T]) -> None:
        """Begin; `work` must not raise."""

    @abstractmethod
    def put(self, item: T) -> None:
        """Have it done, in turn."""

    @abstractmethod
    def dismiss(self) -> None:
        """Let everybody go after the item at hand; items that wait are forgotten."""

    @abstractmethod
    async def invoke(self, handler: Callable[[Any], Any], argument: Any) -> Any:
        """Call a handler the way this crew does."""

    @abstractmethod
    async def beside(self, work: Coroutine[Any, Any, R]) -> R:
        """Do this now, beside what waits for its turn. From the event loop."""

    @abstractmethod
    def has_caller(self) -> bool:
        """Whether it is one of the crew that asks."""


class ThreadCrew(Crew[T]):
    """Handlers run in threads of their own. Not to be awaited: who waits for them watches what they finish."""

    def __init__(self, size: int, name: str) -> None:
        super().__init__(size)
        self._items: SimpleQueue[T | None] = SimpleQueue()
        self._name = name
        self._is_dismissed = False
        self._threads: list[threading.Thread] = []

    def start(self, work: Work[T]) -> None:
        for number in range(self.size):
            # Daemons: a handler that never returns must not keep the process from ending.
            thread = threading.Thread(
                target=self._serve, args=(work,), name=f"{self._name}-{number}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def put(self, item: T) -> None:
        self._items.put(item)

    def dismiss(self) -> None:
        self._is_dismissed = True
        for _ in self._threads:
            self._items.put(None)

    async def invoke(self, handler: Callable[[Any], Any], argument: Any) -> Any:
        answer = handler(argument)
        if inspect.iscoroutine(answer):
            answer.close()
            raise TypeError("the handler is a coroutine function: use AsyncPushConsumer")
        return answer

    async def beside(self, work: Coroutine[Any, Any, R]) -> R:
        return await asyncio.to_thread(run, work)

    def has_caller(self) -> bool:
        return threading.current_thread() in self._threads

    def _serve(self, work: Work[T]) -> None:
        while (item := self._items.get()) is not None and not self._is_dismissed:
            run(work(item))


class TaskCrew(Crew[T]):
    """Handlers run in tasks of the running loop."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._items: asyncio.Queue[T] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, work: Work[T]) -> None:
        self._tasks = [asyncio.create_task(self._serve(work)) for _ in range(self.size)]

    def put(self, item: T) -> None:
        self._items.put_nowait(item)

    def dismiss(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def invoke(self, handler: Callable[[Any], Any], argument: Any) -> Any:
        answer = handler(argument)
        return await answer if inspect.isawaitable(answer) else answer

    async def beside(self, work: Coroutine[Any, Any, R]) -> R:
        return await work

    def has_caller(self) -> bool:
        return asyncio.current_task() in self._tasks

    async def _serve(self, work: Work[T]) -> None:
        done = 0
        while True:
            item = await self._items.get()
            await work(item)
            done += 1
            if done % TURN == 0:
                await asyncio.sleep(0)
