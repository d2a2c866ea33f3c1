"""Link: the clients behind one kombu connection, and the messages that they have received.

Owns a producer, an admin, and a thread with an event loop, in which sources receive and settle messages. Received
messages wait in `ready` until the thread that owns the connection takes them; a socket that is readable meanwhile wakes
it. Invariant: a link belongs to the process that made it, and does nothing in a child. Any thread.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import cached_property
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from rmqpy import errors
from rmqpy._native import ReceivedMessage
from rmqpy.admin.client import Admin
from rmqpy.client.producer.producer import Producer
from rmqpy.config.client import ClientConfig
from rmqpy.contrib.kombu.green import blocking, new_lock, start_thread
from rmqpy.contrib.kombu.settings import Options
from rmqpy.contrib.work import purge
from rmqpy.message import Message

T = TypeVar("T")

#: Messages in `ready` above which broadcasts are read no further.
READY_MAX: Final = 10_000
#: The longest time for which `close` waits for acknowledgements.
CLOSE_S: Final = 10.0
#: A topic that name servers are asked for to see whether they answer.
_PROBE: Final = "TBW102"


class Source(Protocol):
    """A queue from which messages are received."""

    def settle(self, message: ReceivedMessage, outcome: str) -> None:
        """End the delivery of a message: `ack`, `requeue` or `reject`. Any thread."""

    async def close(self) -> None:
        """Stop receiving, settle what is open, and close the client."""


class Delivery(NamedTuple):
    """A received message, and the function that takes it."""

    take: Callable[[Delivery], None]
    queue: str
    payload: dict[str, Any]
    message: ReceivedMessage
    source: Source


class Link:
    """The clients of one connection. Each is created at its first use."""

    def __init__(self, config: ClientConfig, options: Options) -> None:
        self.config = config
        self.options = options
        self.ready: deque[Delivery] = deque()
        self._pid = os.getpid()
        self._lock = new_lock()
        self._topics: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._join: Callable[[], None] | None = None
        self._sources: set[Source] = set()
        self._is_woken = False
        #: The event loop of the sources, once there is one.
        self.loop: asyncio.AbstractEventLoop
        self._wake, self._waker = socket.socketpair()
        self._wake.setblocking(False)
        self._waker.setblocking(False)

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._wake.fileno() < 0

    @property
    def is_forked(self) -> bool:
        """Whether this process inherited the link."""
        return os.getpid() != self._pid

    # ---- from any thread ----

    @blocking
    def check(self) -> None:
        """Ask the name servers for a route. Raises the error of the last one if none answers."""
        with suppress(errors.TopicNotFound):
            self.admin.route(_PROBE)

    @blocking
    def send(self, message: Message) -> None:
        """Send a message and wait until a broker has stored it."""
        self._producer.send(message)

    @blocking
    def recall(self, topic: str, handle: str) -> None:
        """Cancel the delivery of a timed message."""
        self._producer.recall(topic, handle)

    @blocking
    def create_topic(self, topic: str, queues: int) -> None:
        """Create a topic unless it exists."""
        if topic in self._topics:
            return
        with self._lock:
            if not self.has_topic(topic):
                # Users without the permission to create topics rely on those that exist, or that a send creates.
                with suppress(errors.AuthError):
                    self.admin.create_topic(topic, read_queues=queues, write_queues=queues, exist_ok=True)
            self._topics.add(topic)

    @blocking
    def has_topic(self, topic: str) -> bool:
        """Return whether a topic exists."""
        if topic not in self._topics:
            try:
                self.admin.route(topic)
            except errors.TopicNotFound:
                return False
            self._topics.add(topic)
        return True

    @blocking
    def backlog(self, topic: str) -> int:
        """Return the number of messages that no worker has received."""
        progress = self.admin.known_progress(self.options.group, topic)
        if progress:
            return sum(row.lag for row in progress)
        return sum(queue.end - queue.begin for queue in self.admin.topic(topic))

    @blocking
    def purge(self, topic: str) -> int:
        """Receive and acknowledge all messages that no worker has received; return their number."""
        return self.call(purge(topic, self.options.group, self.config)) if self.has_topic(topic) else 0

    def plain_name(self, topic: str) -> str:
        """Return the name of a topic without the namespace of this connection."""
        return topic.removeprefix(f"{self.config.namespace}%") if self.config.namespace else topic

    @blocking
    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the event loop, and wait for it."""
        if self.is_forked:
            work.close()
            raise errors.ForkedError("this connection was created before fork(): create one in the child")
        if self._join is None:
            self._start()
        outcome: list[T] = []
        failure: list[BaseException] = []
        running = new_lock()
        running.acquire()

        async def run() -> None:
            try:
                outcome.append(await work)
            except BaseException as error:
                failure.append(error)
            finally:
                running.release()

        self.loop.call_soon_threadsafe(lambda: self._tasks.add(asyncio.ensure_future(run())))
        running.acquire()
        self._tasks = {task for task in self._tasks if not task.done()}
        if failure:
            raise failure[0]
        return outcome[0]

    def open(self, source: Source) -> None:
        """Include a source in what `close` closes."""
        self._sources.add(source)

    @blocking
    def close_source(self, source: Source) -> None:
        """Close a source before the others."""
        self._sources.discard(source)
        self.call(source.close())

    def deliver(self, delivery: Delivery) -> None:
        """Let the thread that owns the connection take a message."""
        self.ready.append(delivery)
        if not self._is_woken:
            self._is_woken = True
            # A full socket is readable as well.
            with suppress(BlockingIOError, OSError):
                self._waker.send(b"\0")

    @blocking
    def close(self) -> None:
        """Settle open messages, and close all clients. Idempotent."""
        if self.is_forked or self.is_closed:
            return
        if self._join is not None:
            self.call(self._close_sources())
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._join()
            self.loop.close()
            self._join = None
        for name in ("_producer", "admin"):
            client = self.__dict__.pop(name, None)
            if client is not None:
                client.close()
        self._wake.close()
        self._waker.close()

    # ---- from the thread that owns the connection ----

    def fileno(self) -> int:
        """Return the descriptor that is readable while messages are ready."""
        return self._wake.fileno()

    def next(self, timeout: float | None) -> Delivery | None:
        """Return a ready message; None after `timeout` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            if self.ready:
                return self.ready.popleft()
            left = None if until is None else until - time.monotonic()
            with selectors.DefaultSelector() as selector:
                selector.register(self._wake, selectors.EVENT_READ)
                selector.select(None if left is None else max(left, 0.0))
            self.clear()
            if not self.ready and left is not None and left <= 0:
                return None

    def clear(self) -> None:
        """Take the signal that messages are ready. Take the messages after it."""
        with suppress(BlockingIOError):
            while self._wake.recv(4096):
                pass
        self._is_woken = False

    # ---- parts ----

    @cached_property
    def admin(self) -> Admin:
        """Creates topics, and counts messages."""
        return Admin(self.config)

    @cached_property
    def _producer(self) -> Producer:
        return Producer(self.config)

    def _start(self) -> None:
        with self._lock:
            if self._join is None:
                starting = new_lock()
                starting.acquire()

                def run() -> None:
                    # Made in its thread, because a selector of gevent belongs to one.
                    self.loop = asyncio.new_event_loop()
                    self.loop.call_soon(starting.release)
                    self.loop.run_forever()

                self._join = start_thread(run, "rmqpy-kombu")
                starting.acquire()

    async def _close_sources(self) -> None:
        closing = [asyncio.ensure_future(source.close()) for source in self._sources]
        self._sources.clear()
        if closing:
            _, late = await asyncio.wait(closing, timeout=CLOSE_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*closing, return_exceptions=True)
