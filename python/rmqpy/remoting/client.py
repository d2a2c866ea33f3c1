"""Client side of the protocol: requests and replies, in blocking threads and in event loops alike.

Threads and event loops differ only in how they wait, and this module owns that difference. Clients are written as
coroutines that wait through a `Caller`. A `BlockingCaller` never suspends, so `run` can drive such a coroutine to its
end in the calling thread. A `LoopCaller` suspends until its loop is woken, once per burst of replies. The network
itself is native; its threads never enter Python.

A server may still act on a request that was cancelled after it was sent.
"""

# ruff: noqa: ASYNC109 - a timeout travels with its request: the native module enforces it, no task is cancelled
from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from rmqpy import errors
from rmqpy._native import Call, Client, Completions
from rmqpy.protocol import declare, namespaces, refusals
from rmqpy.protocol.codes import ResponseCode

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

#: Completions handled per wakeup, so that a burst of replies does not delay the rest of an event loop.
BURST_COUNT_MAX = 256


class Caller(ABC):
    """Sends requests through one native client and waits for their replies.

    `client` may be shared by callers of other threads and loops; its owner closes it.
    """

    def __init__(self, client: Client, completions: Completions | None = None) -> None:
        """Finished calls are announced to `completions`, if given."""
        self.client = client
        #: Names are within this namespace above, and full names on the wire.
        self.namespace = client.namespace
        self._completions = completions

    def start(
        self,
        address: str,
        code: int,
        ext: dict[str, str] | None = None,
        body: bytes | None = None,
        *,
        timeout: float,
    ) -> Call:
        """Send a request and return immediately. `wait` for the call, or check it later."""
        return self.client.call(
            address,
            code,
            ext,
            body,
            timeout_ms=_milliseconds(timeout),
            completions=self._completions,
            token=self.next_token(),
        )

    def begin(self, address: str, ask: declare.Request[Any], *, timeout: float) -> Call:
        """Send a declared request and return immediately; `read` returns its reply."""
        sent = self.encode(ask)
        return self.start(address, ask.code, sent.ext, sent.body, timeout=timeout)

    def encode(self, ask: declare.Request[Any]) -> declare.EncodedRequest:
        """A declared request in wire form."""
        return declare.encode(ask if self.namespace is None else namespaces.outward(self.namespace, ask))

    def read(self, ask: declare.Request[R], call: Call, address: str) -> R:
        """The declared reply of a finished call."""
        if call.code != ResponseCode.SUCCESS:
            topic = getattr(ask, "topic", None)
            raise refusals.from_response(call.code, call.remark, broker=address, topic=topic)
        reply = declare.decode_reply(type(ask), call.ext, call.body)
        return reply if self.namespace is None else namespaces.inward(self.namespace, reply)

    def wire_name(self, name: str) -> str:
        """A topic or group as brokers know it, for undeclared messages."""
        return name if self.namespace is None else self.namespace.wrap(name)

    def plain_name(self, name: str) -> str:
        """A topic or group as users write it, likewise."""
        return name if self.namespace is None else self.namespace.unwrap(name)

    def next_token(self) -> int:
        """A token for the next request."""
        return 0

    @abstractmethod
    async def wait(self, call: Call, timeout: float | None = None) -> bool:
        """Wait for the outcome of the call: a reply or an error. Returns False after `timeout` seconds."""

    @abstractmethod
    async def sleep(self, seconds: float) -> None:
        """Sleep."""

    @abstractmethod
    async def until(self, done: Future[Any], timeout: float) -> bool:
        """Wait until another thread has finished or failed. Returns False after `timeout` seconds."""

    @abstractmethod
    def inbox(self) -> Inbox:
        """A separate queue for requests that may complete in any order."""

    async def call(
        self,
        address: str,
        code: int,
        ext: dict[str, str] | None = None,
        body: bytes | None = None,
        *,
        timeout: float,
    ) -> Call:
        """Send a request and wait for its reply, whatever its code."""
        call = self.start(address, code, ext, body, timeout=timeout)
        await self.wait(call)
        check_transport(call, address)
        return call

    async def ask(self, address: str, ask: declare.Request[R], *, timeout: float) -> R:
        """Send a declared request. Returns the declared reply, or raises the exception of its code."""
        sent = self.encode(ask)
        began = time.monotonic()
        outcome = "no answer"
        try:
            call = await self.call(address, ask.code, sent.ext, sent.body, timeout=timeout)
            outcome = f"code {call.code}"
        finally:
            log.debug(
                "%s of %s: %s, %.1f ms", ask.code.name, address, outcome, 1_000 * (time.monotonic() - began)
            )
        return self.read(ask, call, address)

    def peer(self, address: str, *, timeout: float = 3.0) -> Peer:
        """The server at `address`."""
        return Peer(self, address, timeout)


class Peer:
    """One server: `await peer.call(GetMaxOffset(topic="orders", queue_id=0))`."""

    def __init__(self, caller: Caller, address: str, timeout: float) -> None:
        self._caller = caller
        self._timeout = timeout
        self.address = address

    async def call(self, ask: declare.Request[R], *, timeout: float | None = None) -> R:
        """Send `ask` and read its reply.

        Raises `ConnectError` if the server cannot be reached, `RequestTimeout` if it does not answer in time, and the
        exception of `refusals.from_response` for a code other than 0.
        """
        return await self._caller.ask(self.address, ask, timeout=timeout or self._timeout)

    async def forward(self, ask: declare.Request[Any], *, timeout: float | None = None) -> Call:
        """Send `ask` and return the reply in wire form, whatever its code. Raises without a reply."""
        sent = self._caller.encode(ask)
        return await self._caller.call(
            self.address, ask.code, sent.ext, sent.body, timeout=timeout or self._timeout
        )


class Inbox(ABC):
    """Requests that may complete in any order. For one thread."""

    def __init__(self) -> None:
        self.completions = Completions()

    @abstractmethod
    async def wait(self, timeout: float) -> bool:
        """Wait until a request has completed, or `close`. Returns False after `timeout` seconds."""

    def take(self) -> list[tuple[int, Any]]:
        """Completed requests, oldest first: the token of each, and the call."""
        return self.completions.take(BURST_COUNT_MAX)

    def close(self) -> None:
        """Drop later completions; waiters are woken."""
        self.completions.close()


# ---- in threads ----------------------------------------------------------------------------------------


def run(work: Coroutine[Any, Any, R]) -> R:
    """Drive a coroutine over a `BlockingCaller` to its end. Waits release the interpreter and react to Ctrl-C."""
    try:
        work.send(None)
    except StopIteration as done:
        result: R = done.value
        return result
    work.close()
    raise RuntimeError("a blocking caller never suspends; this coroutine awaited something else")


def blocking(work: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, R]:
    """A function that runs `work`, a coroutine function over a `BlockingCaller`, in the caller's thread."""

    @wraps(work)
    def method(*args: P.args, **kwargs: P.kwargs) -> R:
        return run(work(*args, **kwargs))

    return method


class BlockingCaller(Caller):
    """Waits by blocking the thread. Any thread may use it."""

    async def wait(self, call: Call, timeout: float | None = None) -> bool:
        return call.wait(timeout)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - blocking is what this caller is for

    async def until(self, done: Future[Any], timeout: float) -> bool:
        from concurrent.futures import wait

        return bool(wait([done], timeout).done)

    def inbox(self) -> Inbox:
        return _BlockingInbox()


class _BlockingInbox(Inbox):
    async def wait(self, timeout: float) -> bool:
        return self.completions.wait(timeout)


# ---- in event loops ------------------------------------------------------------------------------------


class LoopCaller(Caller):
    """Waits by suspending. Created inside the running loop that uses it; `close` ends every wait."""

    def __init__(self, client: Client) -> None:
        import asyncio

        #: Reports the end of what `arrival` waits for.
        self.announced = Completions()
        super().__init__(client, self.announced)
        self.loop = asyncio.get_running_loop()
        self._waiting: dict[int, asyncio.Future[bool]] = {}
        self._token = 0
        self.loop.add_reader(self.announced.fileno(), self._complete)

    def next_token(self) -> int:
        self._token += 1
        return self._token

    async def wait(self, call: Call, timeout: float | None = None) -> bool:
        return call.done() or await self.arrival(call.token, timeout)

    async def arrival(self, token: int, timeout: float | None = None) -> bool:
        """Wait until something is announced with this token, a fresh one. Returns False after `timeout` seconds."""
        arrival: asyncio.Future[bool] = self.loop.create_future()
        self._waiting[token] = arrival
        timer = None if timeout is None else self.loop.call_later(timeout, _set, arrival, False)
        try:
            return await arrival
        finally:
            self._waiting.pop(token, None)
            if timer is not None:
                timer.cancel()

    async def sleep(self, seconds: float) -> None:
        import asyncio

        await asyncio.sleep(seconds)

    async def until(self, done: Future[Any], timeout: float) -> bool:
        import asyncio

        return bool((await asyncio.wait([asyncio.wrap_future(done)], timeout=timeout))[0])

    def inbox(self) -> Inbox:
        return _LoopInbox(self.loop)

    def close(self) -> None:
        """Stop listening. Waiters get `ClosedError`. Idempotent."""
        if not self.announced.is_closed():
            if not self.loop.is_closed():
                self.loop.remove_reader(self.announced.fileno())
            self.announced.close()
            for arrival in list(self._waiting.values()):
                if not arrival.done() and not self.loop.is_closed():
                    arrival.set_exception(errors.ClosedError("the client was closed"))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def _complete(self) -> None:
        for token, _ in self.announced.take(BURST_COUNT_MAX):
            arrival = self._waiting.get(token)
            if arrival is not None and not arrival.done():
                arrival.set_result(True)


class _LoopInbox(Inbox):
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self._arrival: asyncio.Future[bool] | None = None

    async def wait(self, timeout: float) -> bool:
        if self.completions.wait(0):
            return True
        arrival: asyncio.Future[bool] = self._loop.create_future()
        self._arrival = arrival
        timer = self._loop.call_later(timeout, _set, arrival, False)
        # The descriptor stays readable until the queue is empty: listening only during a wait keeps an idle consumer
        # with a full queue from spinning the loop.
        self._loop.add_reader(self.completions.fileno(), self._wake)
        try:
            return await arrival
        finally:
            timer.cancel()
            self._arrival = None

    def close(self) -> None:
        if not self.completions.is_closed() and not self._loop.is_closed():
            self._loop.remove_reader(self.completions.fileno())
        super().close()
        if self._arrival is not None and not self._loop.is_closed():
            _set(self._arrival, True)

    def _wake(self) -> None:
        self._loop.remove_reader(self.completions.fileno())
        if self._arrival is not None:
            _set(self._arrival, True)


def _set(arrival: asyncio.Future[bool], value: bool) -> None:
    if not arrival.done():
        arrival.set_result(value)


# ---- transport ----------------------------------------------------------------------------------


def check_transport(call: Call, address: str) -> None:
    """Raise the error of a finished call without a reply."""
    failure = call.failure
    if failure is not None:
        raise transport_error(*failure, address)


def transport_error(kind: str, text: str, address: str) -> errors.RocketMQError:
    """The exception for a request without a reply."""
    match kind:
        case "timeout":
            return errors.RequestTimeout(f"{address} did not answer in time", broker=address)
        case "closed":
            return errors.ClosedError("the client is closed", broker=address)
        case _:
            return errors.ConnectError(f"{text} ({address})", broker=address)


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
