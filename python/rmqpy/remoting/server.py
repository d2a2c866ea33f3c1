"""Handlers: marks on methods that serve a request or event, their arguments, and refusals.

`endpoint` finds the handlers of a server and calls them on its event loop.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar, overload

from rmqpy.errors import RocketMQError
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.declare import Request

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The connection and sender of a request, passed as an optional second argument."""

    connection: int
    #: `host:port` of the sender.
    address: str
    version: int
    language: str
    #: The user, if access control is on and the request names one.
    user: str | None = None
    #: Whether that user needs a policy.
    is_guarded: bool = False
    #: `host:port` that accepted the connection.
    local: str = ""
    #: Whether the sender expects no reply.
    is_oneway: bool = False


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """Event: the connection has ended. Any number of handlers may take it."""

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
    """Event: a client's response to `Server.ask`."""

    connection: int
    #: As `Server.ask` returned it.
    token: int
    code: int
    remark: str
    ext: Mapping[str, str]
    body: bytes


Event = ConnectionClosed | TopicWanted | GroupWanted | ClientAnswered


class Refused(Exception):
    """Raised by a handler to reply with another code than 0, and its header fields."""

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
    def __call__(self, method: Callable[P, R | Awaitable[R]]) -> Callable[P, R | Awaitable[R]]: ...
    @overload
    def __call__(self, method: Callable[P, bytes]) -> Callable[P, bytes]: ...


@overload
def handles(ask: type[Request[R]]) -> _Handles[R]: ...
@overload
def handles(ask: type[Event]) -> _Handles[None]: ...
def handles(ask: Any) -> Any:
    """Mark a method as the handler of a request or event: `(self, ask)` or `(self, ask, context)`.

    Without `async def` it may return an awaitable only for requests with a large body. It may return the encoded body
    of its reply, if that was cached.
    """

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
    #: Whether it is `async def`.
    waits: bool


def marked(holder: object) -> Iterator[Handler]:
    """The methods of an object that `handles` marked."""
    for name in dir(type(holder)):
        mark = getattr(getattr(type(holder), name), "__rmqpy_handles__", None)
        if mark is not None:
            ask, wants_context = mark
            call = getattr(holder, name)
            yield Handler(ask, call, wants_context, inspect.iscoroutinefunction(call))


def refusal(error: Exception, what: str) -> tuple[int, str, object | None]:
    """Response code, remark and header fields for the error of `what`, a request."""
    if isinstance(error, Refused):
        return error.code, error.remark, error.reply
    if isinstance(error, RocketMQError) and error.code is not None:
        return error.code, str(error), None
    log.error("%s failed", what, exc_info=error)
    return ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}", None
