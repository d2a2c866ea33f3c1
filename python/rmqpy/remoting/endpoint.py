"""Endpoint: dispatches requests of the native server to handlers, and returns their replies.

Owns one server's table from request codes to handlers, and the asyncio reader on the native file descriptor. A wakeup
takes `TAKE_MAX` requests at a time, few of one connection, until its time is over or work is left to the loop's next
turn. Replies that need no waiting are returned as one batch.

Invariants: every two-way request gets exactly one reply, a one-way request none, whatever the handler does. No handler
sees an unauthorized request: once a request is parsed, the native module checks the permissions it needs. Requests
that follow a large body on the same connection wait until it was answered, unless an `async def` handler takes the body
unparsed. Threads: the event loop's; large bodies are parsed in `large_bodies`. Handlers may be `def` (answered within
the wakeup, in order of arrival) or `async def` (a task each, bounded by `pending_requests`).
"""

import asyncio
import functools
import inspect
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, get_args

from rmqpy.protocol import access
from rmqpy.protocol.codes import RequestCode, ResponseCode
from rmqpy.protocol.declare import decode, encode, is_raw, utf8
from rmqpy.remoting.large_bodies import is_large, read_aside
from rmqpy.remoting.pending_requests import PendingRequests
from rmqpy.remoting.server import (
    ClientAnswered,
    ConnectionClosed,
    Event,
    GroupWanted,
    Handler,
    Refused,
    RequestContext,
    TopicWanted,
    marked,
    refusal,
)

if TYPE_CHECKING:
    from rmqpy._native import Request as Upcall
    from rmqpy._native import Server, _Answer

log = logging.getLogger(__name__)

#: Upcalls taken together: enough to make the crossing cheap, few enough that others wait little even if these are
#: expensive.
TAKE_MAX: Final = 8
#: The time limit of a wakeup, after which timers and tasks run.
_WAKE_SECONDS_MAX: Final = 0.001
_KNOWN_CODES: Final = frozenset(map(int, RequestCode))
#: The most characters of a remark, which may quote long input.
REMARK_CHARS_MAX: Final = 2_000


class Endpoint:
    """A native server and the handlers behind it.

    `hot` are the codes that the native module answers itself; `role` names the process in refusals; `unserved` has the
    reasons for refused codes; `refusal_of` decides for each request whether it is refused now; `changed` receives
    requests that have created, changed or deleted something, with their needs. Usage::

        endpoint = Endpoint(server, (TopicHandlers(...), OffsetHandlers(...)), role="broker", hot=HOT_CODES)
        endpoint.start()
        ...
        await endpoint.stop()
    """

    def __init__(
        self,
        server: "Server",
        handlers: Sequence[object],
        *,
        role: str,
        hot: Collection[RequestCode] = (),
        unserved: Mapping[RequestCode, str] = MappingProxyType({}),
        refusal_of: Callable[[int], Refused | None] = lambda code: None,
        changed: Callable[[RequestContext, RequestCode, Sequence[access.Needed]], None] | None = None,
    ) -> None:
        self._server = server
        self._refusal_of = refusal_of
        self._changed = changed
        self._role = role
        self._hot = frozenset(hot)
        self._unserved = unserved
        self._requests: dict[int, Handler] = {}
        self._events: dict[type, list[Handler]] = {kind: [] for kind in get_args(Event)}
        self._answers: list[_Answer] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._pending = PendingRequests()
        #: By connection: requests behind an unanswered request with a large body.
        self._behind: dict[int, deque[Upcall]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_reading = False
        self._is_flush_due = False
        #: Whether this wakeup has left work to the loop's next turn.
        self._has_more_to_do = False
        for handler in handlers:
            self._add(handler)
        # Known codes are dispatched, too: their refusal names them and the reason.
        bodies_bytes_max = dict.fromkeys(_KNOWN_CODES, 0)
        served = {code: handler.ask.body_bytes_max for code, handler in self._requests.items()}
        server.declare_requests(bodies_bytes_max | served)

    def table(self) -> dict[RequestCode, str]:
        """Every request code with its handler's name, "native" or "not served"."""
        return {
            code: "native"
            if code in self._hot
            else (self._requests[code].call.__qualname__ if code in self._requests else "not served")
            for code in RequestCode
        }

    def start(self) -> None:
        """Serve on the running loop. Earlier connections may be accepted; their requests wait."""
        self._loop = asyncio.get_running_loop()
        self._resume()

    async def stop(self, grace_ms: int = 2_000) -> None:
        """Stop the native server, which drains replies; then cancel waiting handlers."""
        await asyncio.to_thread(self._server.stop, grace_ms)
        self._pause()
        self._loop = None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # ---- reading ----

    def _wake(self) -> None:
        end = time.monotonic() + _WAKE_SECONDS_MAX
        self._has_more_to_do = False
        while True:
            taken = self._server.take(TAKE_MAX)
            for upcall in taken:
                self._dispatch(upcall)
            self._flush()
            if self._pending.is_full:
                self._pause()
                return
            # The descriptor stays readable while entries wait. Work that was only begun runs before more is taken: it
            # is part of its cost.
            if len(taken) < TAKE_MAX or self._has_more_to_do or time.monotonic() >= end:
                return

    def _dispatch(self, upcall: "Upcall") -> None:
        behind = self._behind.get(upcall.connection)
        if behind is not None and upcall.kind in ("request", "closed"):
            if upcall.kind == "closed" or self._admit(upcall, _size(upcall)):
                behind.append(upcall)
        elif upcall.kind == "request":
            self._request(upcall)
        else:
            self._event(upcall)

    def _request(self, upcall: "Upcall") -> None:
        handler = self._requests.get(upcall.code)
        if handler is None:
            remark = self._unsupported(upcall.code)
            self._reply(upcall, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
            return
        if (refused := self._refusal_of(upcall.code)) is not None:
            self._refuse(upcall, refused)
            return
        body, ext = upcall.body, upcall.ext
        if upcall.body_bytes > handler.ask.body_bytes_max:
            name = RequestCode(upcall.code).name
            remark = (
                f"the body of {name} has {upcall.body_bytes} bytes;"
                f" at most {handler.ask.body_bytes_max} are allowed"
            )
            self._reply(upcall, ResponseCode.INVALID_PARAMETER, remark)
            return
        if is_large(body) and not (handler.waits and is_raw(handler.ask)):
            size = _size_of(ext, body)
            if self._admit(upcall, size):
                self._behind[upcall.connection] = deque()
                self._spawn(self._finish_large(upcall, handler, ext, body, size))
            return
        try:
            ask = decode(handler.ask, ext, body)
            self._authorize(upcall, handler, ask)
            result = None if handler.waits else self._call(handler, ask, upcall)
        except Exception as error:
            self._refuse(upcall, error)
            return
        if not handler.waits:
            self._note_change(upcall, handler, ask)
            self._reply(upcall, ResponseCode.SUCCESS, reply=result)
        elif self._admit(upcall, size := _size_of(ext, body)):
            # Created where it is awaited: a task cancelled before its start leaves nothing behind.
            work = functools.partial(self._wait_for, upcall, handler, ask)
            self._spawn(self._finish(upcall, work, size))

    def _admit(self, upcall: "Upcall", size: int) -> bool:
        is_admitted = self._pending.admit(upcall.connection, size)
        if not is_admitted:
            self._server.count_overload(upcall.is_oneway)
            self._reply(
                upcall, ResponseCode.SYSTEM_BUSY, "[OVERLOAD]too many pending requests of this connection"
            )
        return is_admitted

    def _authorize(self, upcall: "Upcall", handler: Handler, ask: object) -> None:
        """Raise `Refused` if the sender may not do this."""
        if upcall.is_guarded:
            needs = access.needed(handler.ask.needs, ask)
            refusal = self._server.authorize(upcall.code, upcall.user, upcall.peer, needs)
            if refusal is not None:
                raise Refused(ResponseCode.NO_PERMISSION, refusal)

    @staticmethod
    def _call(handler: Handler, ask: object, upcall: "Upcall") -> Any:
        return handler.call(ask, _context(upcall)) if handler.wants_context else handler.call(ask)

    async def _wait_for(self, upcall: "Upcall", handler: Handler, ask: object) -> object:
        result = self._call(handler, ask, upcall)
        reply = await result if inspect.isawaitable(result) else result
        self._note_change(upcall, handler, ask)
        return reply

    def _note_change(self, upcall: "Upcall", handler: Handler, ask: object) -> None:
        if self._changed is not None and access.is_change(handler.ask.needs):
            needed = access.needed(handler.ask.needs, ask)
            self._changed(_context(upcall), RequestCode(upcall.code), needed)

    async def _finish(self, upcall: "Upcall", work: Callable[[], Awaitable[object]], size: int) -> None:
        try:
            reply = await work()
        except asyncio.CancelledError:
            self._stopping(upcall)
            raise
        except Exception as error:
            self._refuse(upcall, error)
        else:
            self._reply(upcall, ResponseCode.SUCCESS, reply=reply)
        finally:
            self._pending.release(upcall.connection, size)
            self._flush_soon()

    async def _finish_large(
        self, upcall: "Upcall", handler: Handler, ext: dict[str, str], body: bytes, size: int
    ) -> None:
        async def answer() -> object:
            ask = await read_aside(decode, handler.ask, ext, body)
            self._authorize(upcall, handler, ask)
            return await self._wait_for(upcall, handler, ask)

        try:
            await self._finish(upcall, answer, size)
        finally:
            self._resume_connection(upcall.connection)

    def _resume_connection(self, connection: int) -> None:
        """Take the requests behind a large body, up to the next one."""
        behind = self._behind.pop(connection)
        while behind and connection not in self._behind:
            upcall = behind.popleft()
            if upcall.kind == "request":
                self._pending.release(connection, _size(upcall))
            if self._loop is not None:
                self._dispatch(upcall)
            elif upcall.kind == "request":
                self._stopping(upcall)
        if behind:
            self._behind[connection].extend(behind)

    def _stopping(self, upcall: "Upcall") -> None:
        self._reply(upcall, ResponseCode.SYSTEM_ERROR, f"the {self._role} is stopping")

    def _event(self, upcall: "Upcall") -> None:
        event: Event
        match upcall.kind:
            case "create_topic":
                event = TopicWanted(upcall.name, upcall.ext)
            case "create_group":
                event = GroupWanted(upcall.name)
            case "answer":
                event = ClientAnswered(
                    upcall.connection, upcall.token, upcall.code, upcall.remark, upcall.ext, upcall.body
                )
            case _:
                event = ConnectionClosed(upcall.connection)
        assert self._loop is not None, "events are taken between start and stop only"
        self._has_more_to_do = True
        # In order: earlier requests have become tasks that have not begun. A heartbeat must not register a connection
        # whose end was already reported.
        self._loop.call_soon(self._deliver, event)

    def _deliver(self, event: Event) -> None:
        for handler in self._events[type(event)]:
            try:
                result = handler.call(event)
            except Exception:
                log.exception("%s failed on %r", handler.call.__qualname__, event)
                continue
            if inspect.isawaitable(result):
                self._spawn(_logged(result, event))

    # ---- replying ----

    def _refuse(self, upcall: "Upcall", error: Exception) -> None:
        self._reply(upcall, *refusal(error, f"request {upcall.code} from {upcall.peer}"))

    def _reply(
        self, upcall: "Upcall", code: int, remark: str | None = None, reply: object | None = None
    ) -> None:
        if upcall.is_oneway:
            return
        try:
            ext, body = encode(reply)
        except Exception as error:
            self._refuse(upcall, error)
            return
        if remark is not None:
            remark = utf8(remark[:REMARK_CHARS_MAX])
        self._answers.append((upcall.token, int(code), remark, ext, body))

    def _flush_soon(self) -> None:
        # Tasks that end in the same turn of the loop share one batch.
        if not self._is_flush_due and self._loop is not None:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        if self._answers:
            batch, self._answers = self._answers, []
            self._server.answer(batch)

    def _unsupported(self, code: int) -> str:
        remark = f" request type {code} not supported"
        if code in _KNOWN_CODES:
            remark += f": {RequestCode(code).name} is not served by this {self._role}"
            reason = self._unserved.get(RequestCode(code))
            remark += f", as {reason}" if reason else ""
        return remark

    # ---- flow ----

    def _spawn(self, work: Any) -> None:
        assert self._loop is not None, "requests are taken between start and stop only"
        self._has_more_to_do = True
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not self._is_reading and self._pending.has_room:
            self._resume()

    def _resume(self) -> None:
        if self._loop is not None and not self._is_reading:
            self._loop.add_reader(self._server.fileno(), self._wake)
            self._is_reading = True

    def _pause(self) -> None:
        if self._loop is not None and self._is_reading:
            self._loop.remove_reader(self._server.fileno())
            self._is_reading = False

    # ---- building ----

    def _add(self, holder: object) -> None:
        for handler in marked(holder):
            if handler.ask in self._events:
                self._events[handler.ask].append(handler)
                continue
            code: RequestCode = handler.ask.code
            if code in self._requests:
                other, method = self._requests[code].call.__qualname__, handler.call.__qualname__
                raise TypeError(f"{code.name} is handled by {other} and by {method}")
            self._requests[code] = handler


def _size(upcall: "Upcall") -> int:
    return _size_of(upcall.ext, upcall.body)


def _size_of(ext: Mapping[str, str], body: bytes) -> int:
    return len(body) + sum(len(name) + len(value) for name, value in ext.items())


def _context(upcall: "Upcall") -> RequestContext:
    return RequestContext(
        connection=upcall.connection,
        address=upcall.peer,
        version=upcall.version,
        language=upcall.language,
        user=upcall.user,
        is_guarded=upcall.is_guarded,
        local=upcall.local,
        is_oneway=upcall.is_oneway,
    )


async def _logged(work: Awaitable[object], event: Event) -> None:
    try:
        await work
    except Exception:
        log.exception("an event handler failed on %r", event)
