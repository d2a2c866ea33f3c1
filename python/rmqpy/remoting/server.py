"""Endpoint: from the native server's upcalls to handler methods, and their answers back down.

Owns the table from request codes to handlers of one server, and the asyncio reader on the native file
descriptor. A wake-up takes up to `TAKE_MAX` requests; everything that is answered without waiting goes down
as one batch.

Invariant: every two-way request gets exactly one answer, a one-way request none, whatever the handler does.
Threads: the event loop's only. Handlers may be `def` (answered within the wake-up, in order of arrival) or
`async def` (a task each, at most `TASKS_MAX` at a time; beyond that the native ring fills and refuses).
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, ParamSpec, Protocol, TypeVar, get_args, overload

from rmqpy.errors import RocketMQError
from rmqpy.protocol.codes import RequestCode, ResponseCode
from rmqpy.protocol.declare import Request, decode, encode, utf8

if TYPE_CHECKING:
    from rmqpy._native import Request as Upcall
    from rmqpy._native import Server, _Answer

log = logging.getLogger(__name__)

#: Upcalls per wake-up: enough to make the crossing cheap, few enough that timers stay punctual.
TAKE_MAX: Final = 256
#: Handlers that wait for something at the same time.
TASKS_MAX: Final = 1024
#: A remark may quote what was sent, and that may be long.
REMARK_CHARS_MAX: Final = 2_000

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The connection a request came on, and its sender. A handler that needs it takes it as second argument."""

    connection: int
    #: `host:port` of the sender.
    address: str
    version: int
    language: str


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """Event: the connection is gone and nothing more comes from it. Any number of handlers may take it."""

    connection: int


@dataclass(frozen=True, slots=True)
class TopicWanted:
    """Event: sends to a topic that does not exist are parked until `Server.release("create_topic", name)`."""

    name: str
    #: Header fields of the first parked request, as they came.
    ext: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GroupWanted:
    """Event: pulls of a group that does not exist are parked until `Server.release("create_group", name)`."""

    name: str


@dataclass(frozen=True, slots=True)
class ClientAnswered:
    """Event: a client answers what `Server.ask` sent it."""

    connection: int
    #: As `Server.ask` returned it.
    token: int
    code: int
    remark: str
    ext: Mapping[str, str]
    body: bytes


Event = ConnectionClosed | TopicWanted | GroupWanted | ClientAnswered


class Refused(Exception):
    """Raised by a handler to answer with another code than 0, and header fields where the code has some."""

    def __init__(self, code: ResponseCode, remark: str, reply: object | None = None) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
        self.reply = reply


class _Handles(Protocol[R]):
    @overload
    def __call__(self, method: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]: ...
    @overload
    def __call__(self, method: Callable[P, R]) -> Callable[P, R]: ...


@overload
def handles(ask: type[Request[R]]) -> _Handles[R]: ...
@overload
def handles(ask: type[Event]) -> _Handles[None]: ...
def handles(ask: Any) -> Any:
    """Mark a method as the handler of a request or event: `(self, ask)` or `(self, ask, context)`."""

    def mark(method: Callable[P, R]) -> Callable[P, R]:
        _, first, *rest = inspect.signature(method).parameters.values()
        # A module may keep its annotations as text.
        if first.annotation not in (ask, ask.__name__, inspect.Parameter.empty) or len(rest) > 1:
            raise TypeError(f"{method.__qualname__} must take (self, ask: {ask.__name__}[, context])")
        method.__rmqpy_handles__ = (ask, bool(rest))  # type: ignore[attr-defined]
        return method

    return mark


class Handler(NamedTuple):
    """A marked method, and the request or event it handles."""

    ask: type[Any]
    call: Callable[..., Any]
    wants_context: bool


class Endpoint:
    """A native server and the handlers behind it.

    `hot` are the codes the native half answers itself; `role` names the process in refusals, and `unserved` says why
    a code is refused. Usage::

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
    ) -> None:
        self._server = server
        self._role = role
        self._hot = frozenset(hot)
        self._unserved = unserved
        self._requests: dict[int, Handler] = {}
        self._events: dict[type, list[Handler]] = {kind: [] for kind in get_args(Event)}
        self._answers: list[_Answer] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_reading = False
        self._is_flush_due = False
        for handler in handlers:
            self._add(handler)

    def table(self) -> dict[RequestCode, str]:
        """Every request code and what becomes of it: the handler's name, "native" or "not served"."""
        return {
            code: self._requests[code].call.__qualname__
            if code in self._requests
            else ("native" if code in self._hot else "not served")
            for code in RequestCode
        }

    def start(self) -> None:
        """Begin to serve on the running loop. Connections may be accepted before; their requests wait."""
        self._loop = asyncio.get_running_loop()
        self._resume()

    async def stop(self, grace_ms: int = 2_000) -> None:
        """Stop the native server, which lets replies drain; then cancel handlers that still wait."""
        await asyncio.to_thread(self._server.stop, grace_ms)
        self._pause()
        self._loop = None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # ---- taking ----

    def _wake(self) -> None:
        for upcall in self._server.take(TAKE_MAX):
            if upcall.kind == "request":
                self._request(upcall)
            else:
                self._event(upcall)
        self._flush()
        if len(self._tasks) >= TASKS_MAX:
            self._pause()

    def _request(self, upcall: "Upcall") -> None:
        handler = self._requests.get(upcall.code)
        if handler is None:
            remark = self._unsupported(upcall.code)
            self._reply(upcall, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
            return
        try:
            ask = decode(handler.ask, upcall.ext, upcall.body)
            result = handler.call(ask, _context(upcall)) if handler.wants_context else handler.call(ask)
        except Exception as error:
            self._refuse(upcall, error)
            return
        if inspect.isawaitable(result):
            self._spawn(self._finish(upcall, result))
        else:
            self._reply(upcall, ResponseCode.SUCCESS, reply=result)

    async def _finish(self, upcall: "Upcall", result: Awaitable[object]) -> None:
        try:
            reply = await result
        except asyncio.CancelledError:
            self._reply(upcall, ResponseCode.SYSTEM_ERROR, f"the {self._role} is stopping")
            raise
        except Exception as error:
            self._refuse(upcall, error)
        else:
            self._reply(upcall, ResponseCode.SUCCESS, reply=reply)
        finally:
            self._flush_soon()

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
        # In turn: requests that came before it have become tasks, which have not begun. A heartbeat must not
        # register a connection whose end has been heard already.
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

    # ---- answering ----

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
        if code in RequestCode.__members__.values():
            remark += f": {RequestCode(code).name} is not served by this {self._role}"
            reason = self._unserved.get(RequestCode(code))
            remark += f", as {reason}" if reason else ""
        return remark

    # ---- flow ----

    def _spawn(self, work: Any) -> None:
        assert self._loop is not None, "requests are taken between start and stop only"
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not self._is_reading and len(self._tasks) < TASKS_MAX // 2:
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


def marked(holder: object) -> Iterator[Handler]:
    """The methods of an object that `handles` marked."""
    for name in dir(type(holder)):
        mark = getattr(getattr(type(holder), name), "__rmqpy_handles__", None)
        if mark is not None:
            ask, wants_context = mark
            yield Handler(ask, getattr(holder, name), wants_context)


def refusal(error: Exception, what: str) -> tuple[int, str, object | None]:
    """Response code, remark and header fields for the error that `what`, a request, has ended with."""
    if isinstance(error, Refused):
        return error.code, error.remark, error.reply
    if isinstance(error, RocketMQError) and error.code is not None:
        return error.code, str(error), None
    log.error("%s failed", what, exc_info=error)
    return ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}", None


def _context(upcall: "Upcall") -> RequestContext:
    return RequestContext(upcall.connection, upcall.peer, upcall.version, upcall.language)


async def _logged(work: Awaitable[object], event: Event) -> None:
    try:
        await work
    except Exception:
        log.exception("an event handler failed on %r", event)
