"""Listener: dispatches requests of servers to handlers of a client, and returns their replies.

Owns one client's table from request codes to handlers, and the reader of its queue: a `Listener` in an event loop, a
`ThreadListener` in a separate thread. Handlers are marked like those of a server. Invariant: a waiting server gets
exactly one reply, whatever the handler does.

Threads: the event loop it was started on. Handlers may be `def`, or `async def`: a task each, `TASKS_MAX` at most.
Those of a `ThreadListener` are `def`, and called one at a time.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from rmqpy import errors
from rmqpy._native import Client, Completions, ServerRequest
from rmqpy.protocol import namespaces
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.declare import decode, encode
from rmqpy.remoting.client import BURST_COUNT_MAX
from rmqpy.remoting.server import Handler, marked, refusal

log = logging.getLogger(__name__)

#: The most handlers that wait concurrently.
TASKS_MAX: Final = 64


class _Requests(ABC):
    """Requests of servers on the connections of one client, and their handlers."""

    def __init__(self, client: Client, handlers: Sequence[object], closed: Callable[[str], None]) -> None:
        self._client = client
        self._closed = closed
        self._handlers: dict[int, Handler] = {
            handler.ask.code: handler for holder in handlers for handler in marked(holder)
        }
        self._requests = Completions()

    def _take(self, count_max: int) -> None:
        for _, request in self._requests.take(count_max):
            if not isinstance(request, ServerRequest):
                continue
            try:
                self._serve_one(request)
            except Exception:
                # Later requests are still served.
                log.exception("request %s of %s failed", request.code, request.address)

    def _serve_one(self, request: ServerRequest) -> None:
        if request.code is None:
            self._closed(request.address)
        elif handler := self._handlers.get(request.code):
            self._handle(request, handler)
        else:
            remark = f"request {request.code} is not served by this client"
            _answer(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)

    @abstractmethod
    def _handle(self, request: ServerRequest, handler: Handler) -> None: ...

    def _asked(self, handler: Handler, request: ServerRequest) -> object:
        """The declared request, with the names of the client's namespace."""
        ask = decode(handler.ask, request.ext, request.body)
        return ask if self._client.namespace is None else namespaces.inward(self._client.namespace, ask)

    def _reply(self, request: ServerRequest, reply: object) -> None:
        if self._client.namespace is not None:
            reply = namespaces.outward(self._client.namespace, reply)
        _answer(request, reply=reply)


class Listener(_Requests):
    """Serves the requests of servers in an event loop. The last listener of a client receives them."""

    def __init__(self, client: Client, handlers: Sequence[object], closed: Callable[[str], None]) -> None:
        """Created inside the loop that uses it. `closed` receives the address of an ended connection."""
        super().__init__(client, handlers, closed)
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Serve from now on."""
        self._client.listen(self._requests)
        self._loop.add_reader(self._requests.fileno(), self._take, BURST_COUNT_MAX)

    def close(self) -> None:
        """Serve no more requests. Idempotent."""
        if not self._requests.is_closed():
            if not self._loop.is_closed():
                self._loop.remove_reader(self._requests.fileno())
            self._requests.close()
            for task in self._tasks:
                task.cancel()

    def _handle(self, request: ServerRequest, handler: Handler) -> None:
        if len(self._tasks) >= TASKS_MAX and inspect.iscoroutinefunction(handler.call):
            _answer(request, ResponseCode.SYSTEM_BUSY, "[OVERLOAD]too many concurrent requests")
            return
        try:
            result = handler.call(self._asked(handler, request))
        except Exception as error:
            _refuse(request, error)
            return
        if inspect.isawaitable(result):
            task = self._loop.create_task(self._finish(request, result))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._reply(request, result)

    async def _finish(self, request: ServerRequest, result: Awaitable[object]) -> None:
        try:
            reply = await result
        except Exception as error:
            _refuse(request, error)
        else:
            self._reply(request, reply)


class ThreadListener(_Requests):
    """Serves them in a separate thread, for clients without an event loop.

    A handler with a second argument gets the address of the server. Requests for a slow handler wait in the native
    module, which bounds them. Each code of a client has one such listener.
    """

    def __init__(
        self,
        client: Client,
        handlers: Sequence[object],
        name: str,
        closed: Callable[[str], None] = lambda address: None,
    ) -> None:
        """`name` is that of the thread; `closed` as in `Listener`."""
        super().__init__(client, handlers, closed)
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)

    def start(self) -> None:
        """Serve from now on."""
        self._client.listen(self._requests, codes=list(self._handlers))
        self._thread.start()

    def close(self) -> None:
        """Stop serving, without waiting for the current request. Idempotent."""
        self._requests.close()

    def _serve(self) -> None:
        while not self._requests.is_closed():
            self._requests.wait()
            self._take(1)

    def _handle(self, request: ServerRequest, handler: Handler) -> None:
        try:
            ask = self._asked(handler, request)
            result = handler.call(ask, request.address) if handler.wants_context else handler.call(ask)
        except Exception as error:
            _refuse(request, error)
        else:
            self._reply(request, result)


def _refuse(request: ServerRequest, error: Exception) -> None:
    if isinstance(error, errors.DecodeError):
        log.warning("request %s of %s cannot be read: %s", request.code, request.address, error)
    _answer(request, *refusal(error, f"request {request.code} of {request.address}"))


def _answer(
    request: ServerRequest, code: int = ResponseCode.SUCCESS, remark: str | None = None, reply: object = None
) -> None:
    ext, body = encode(reply)
    try:
        request.answer(int(code), remark, ext, body)
    except errors.ConnectError as error:
        log.debug("cannot send a reply to %s: %s", request.address, error)
