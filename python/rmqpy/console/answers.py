"""Handling of one API request: checks, arguments, work, response, audit.

A change leaves a line in the audit log. Every error becomes a JSON response with its text and a remedy.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import aclosing
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from rmqpy import errors
from rmqpy.admin.connection import Missing, note_missing
from rmqpy.console.api.alerts import ALERTS
from rmqpy.console.bodies import BODIES
from rmqpy.console.endpoints import Endpoint, needs_only_default, page_of
from rmqpy.console.guard import API_HEADERS, LOGIN_NEEDED, refusal
from rmqpy.console.recent import RECENT
from rmqpy.console.request_body import read_body
from rmqpy.console.schema import to_json
from rmqpy.console.sessions import TooManyLogins
from rmqpy.monitor.application import extend_deadline, mark_endless
from rmqpy.monitor.origin import Refusal
from rmqpy.monitor.shares import peer_name

if TYPE_CHECKING:
    from rmqpy.console.sessions import Visitor
    from rmqpy.console.site import Console

log = logging.getLogger(__name__)
audit = logging.getLogger("rmqpy.console.audit")

#: Seconds for an API request, and for a client to take the next event of a stream.
ANSWER_S: Final = 60.0
EVENT_S: Final = 30.0
#: The longest pause of a stream; then a filler is written.
PAUSE_S: Final = 10.0
#: The most event streams, and of one user or, without a login, one address.
STREAMS_MAX: Final = 48
STREAMS_PER_USER: Final = 16
#: The prefix of session cookies.
_COOKIE: Final = "rmqpy_session_"
_NOT_IN_COOKIES: Final = re.compile(r"[^A-Za-z0-9.-]")
_COOKIE_HOST_MAX: Final = 100
#: The most characters of an error in a response, and of arguments, results and users in an audit line.
ERROR_CHARS_MAX: Final = 1_000
_AUDIT_CHARS_MAX: Final = 500
#: Arguments omitted from audit lines: contents of messages.
_UNLOGGED: Final = frozenset({"body", "properties", "find", "replace", "secret"})

_STATUSES: Final[Mapping[type[Exception], HTTPStatus]] = {
    TooManyLogins: HTTPStatus.TOO_MANY_REQUESTS,
    errors.TopicNotFound: HTTPStatus.NOT_FOUND,
    errors.GroupNotFound: HTTPStatus.NOT_FOUND,
    errors.MessageNotFound: HTTPStatus.NOT_FOUND,
    errors.TopicExists: HTTPStatus.CONFLICT,
    errors.GroupExists: HTTPStatus.CONFLICT,
    errors.ConfigError: HTTPStatus.BAD_REQUEST,
    errors.MessageTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    errors.DecodeError: HTTPStatus.BAD_REQUEST,
    errors.AuthError: HTTPStatus.FORBIDDEN,
    errors.FlowControl: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.Unsupported: HTTPStatus.NOT_IMPLEMENTED,
    errors.RequestTimeout: HTTPStatus.GATEWAY_TIMEOUT,
    errors.RocketMQError: HTTPStatus.BAD_GATEWAY,
}


class Stream:
    """One open event stream."""

    def __init__(self, end: Callable[[], None]) -> None:
        self.end = end


class ApiRoute:
    """The route of one endpoint."""

    def __init__(self, endpoint: Endpoint, console: Console) -> None:
        self._endpoint = endpoint
        self._console = console
        self._answer = {
            "value": self._value,
            "rows": self._rows,
            "events": self._events,
            "change": self._change,
        }[endpoint.kind]

    def route(self) -> Route:
        """The Starlette route."""
        return Route(self._endpoint.path, self._checked, methods=[self._endpoint.method])

    async def _checked(self, request: Request) -> Response:
        if (no := refused(request, self._console)) is not None:
            return no
        visitor = await self._console.visitor(session_of(request))
        if visitor is None:
            return refused_as(LOGIN_NEEDED)
        BODIES.set(self._console.bodies_for(visitor))
        ALERTS.set(self._console.alerts_for(visitor))
        RECENT.set(lambda name, make: self._console.remembered((visitor, name), make))
        extend_deadline(request, ANSWER_S)
        try:
            return await self._answer(request, visitor)
        except errors.RocketMQError as error:
            return failed(error)
        except Exception:
            log.exception("%s %s cannot be answered", self._endpoint.method, self._endpoint.path)
            return json_response({"error": "the server failed", "hint": "see its log", "kind": "Error"}, 500)

    async def _value(self, request: Request, visitor: Visitor) -> Response:
        arguments, _ = self._arguments(request)
        async with self._console.queries.turn(owner_of(request, visitor)):
            if self._endpoint.is_remembered:
                found, _ = await self._remembered(visitor, arguments, self._endpoint.work)
            else:
                found = await self._endpoint.work(visitor.admin, **arguments)
        return json_response(to_json(found))

    async def _rows(self, request: Request, visitor: Visitor) -> Response:
        arguments, view = self._arguments(request)
        endpoint = self._endpoint
        work = endpoint.brief if endpoint.brief and needs_only_default(endpoint, view) else endpoint.work
        async with self._console.queries.turn(owner_of(request, visitor)):
            page = page_of(endpoint, *await self._remembered(visitor, arguments, work), view)
            if endpoint.complete is not None:
                missing = note_missing()
                completed = await endpoint.complete(visitor.admin, page.rows, **arguments)
                unreached = {each.broker: each for each in (*missing, *page.missing)}
                page = page._replace(rows=completed, missing=list(unreached.values()))
        return json_response(to_json(page))

    async def _remembered(
        self, visitor: Visitor, arguments: dict[str, Any], work: Callable[..., Awaitable[Any]]
    ) -> tuple[Any, Sequence[Missing]]:
        """Run the work of the endpoint. Returns its result, and the brokers without data."""
        # Brokers return different data to each user.
        key = (visitor, work, tuple(sorted(arguments.items())))
        return await self._console.remembered(key, lambda: work(visitor.admin, **arguments))

    async def _events(self, request: Request, visitor: Visitor) -> Response:
        arguments, _ = self._arguments(request)
        console = self._console
        if not console.has_place_for_stream(owner := owner_of(request, visitor)):
            hint = "close some pages with live data"
            mine = console.streams.of(owner)
            raise errors.FlowControl(
                f"{mine} of your streams are open, and {len(console.streams)} of all", hint=hint
            )
        mark_endless(request)
        items = self._endpoint.work(visitor.admin, **arguments)
        return StreamingResponse(
            self._stream(request, visitor, items), media_type="text/event-stream", headers=dict(API_HEADERS)
        )

    async def _stream(
        self, request: Request, visitor: Visitor, items: AsyncIterator[Any]
    ) -> AsyncIterator[str]:
        console, rights = self._console, visitor.rights
        stream = Stream(lambda: extend_deadline(request, 0))
        console.streams.add(stream, owner_of(request, visitor))
        try:
            yield ": open\n\n"
            async with aclosing(_with_pauses(items)) as every:
                async for item in every:
                    extend_deadline(request, EVENT_S)
                    visitor.used = time.monotonic()
                    if await console.rights(visitor) != rights:
                        raise errors.AuthError(
                            "the session has ended, or the rights of its user have changed"
                        )
                    # A write finds out whether the client has gone.
                    yield ": nothing new\n\n" if item is None else f"data: {_text(to_json(item))}\n\n"
        except errors.RocketMQError as error:
            yield f"event: failed\ndata: {_text(_described(error))}\n\n"
        finally:
            console.streams.discard(stream)

    async def _change(self, request: Request, visitor: Visitor) -> Response:
        endpoint, owner = self._endpoint, owner_of(request, visitor)
        async with read_body(request, endpoint.body_bytes_max, self._console.long_bodies, owner) as body:
            arguments = endpoint.read_path(request.path_params) | endpoint.read_body(body)
            return await self._changed(arguments, peer_of(request, visitor.user), owner, visitor)

    async def _changed(
        self, arguments: dict[str, Any], sender: str, owner: Hashable, visitor: Visitor
    ) -> Response:
        endpoint = self._endpoint
        logged = {name: each for name, each in arguments.items() if name not in _UNLOGGED}
        outcome = "failed"
        try:
            async with self._console.queries.turn(owner):
                result = await endpoint.work(visitor.admin, **arguments)
            outcome = "done"
            return json_response(to_json(result))
        except errors.RocketMQError as error:
            outcome = f"refused: {error}"
            raise
        finally:
            self._console.forget()
            named = endpoint.work.__name__
            audit.info("change %s %s by %s: %s", named, brief(_text(to_json(logged))), sender, brief(outcome))

    def _arguments(self, request: Request) -> tuple[dict[str, Any], Any]:
        found = self._endpoint.read_path(request.path_params)
        asked, view = self._endpoint.read_query(request.query_params)
        return {**found, **asked}, view


def refused(request: Request, console: Console, *, is_login: bool = False) -> Response | None:
    """Return the response if the request may not pass. A login changes nothing in the cluster."""
    may_change = is_login or console.allow_changes
    no: Refusal | None = refusal(request.method, request.headers, host=console.host, allow_changes=may_change)
    return None if no is None else refused_as(no)


def refused_as(no: Refusal) -> Response:
    """The response for a refusal."""
    return json_response({"error": no.error, "hint": no.hint, "kind": "Refused"}, no.status)


def session_of(request: Request) -> str | None:
    """The session secret of a request."""
    return request.cookies.get(cookie_of(request))


def cookie_of(request: Request) -> str:
    """The name of the session cookie. It contains the address, since browsers send cookies of a host to all of its
    ports."""
    host = request.headers.get("host", "").lower()
    return _COOKIE + _NOT_IN_COOKIES.sub("_", host[:_COOKIE_HOST_MAX])


def owner_of(request: Request, visitor: Visitor) -> str:
    """The owner of a request for limits: its user or, without a login, its address."""
    if visitor.user is not None:
        return f"user {visitor.user}"
    return address_of(request)


def address_of(request: Request) -> str:
    """The client address of a request for limits."""
    return peer_name(request.client.host) if request.client else ""


def brief(text: str) -> str:
    """A text for the audit log, shortened."""
    return text if len(text) <= _AUDIT_CHARS_MAX else f"{text[:_AUDIT_CHARS_MAX]}… ({len(text)} characters)"


def peer_of(request: Request, user: str | None) -> str:
    """The sender of a request, for the audit log."""
    peer = request.client
    address = f"{peer.host}:{peer.port}" if peer else "an unknown address"
    return address if user is None else f"{brief(json.dumps(user))} at {address}"


def failed(error: errors.RocketMQError) -> Response:
    status = next(status for kind, status in _STATUSES.items() if isinstance(error, kind))
    return json_response(_described(error), status)


def json_response(value: Any, status: int = 200) -> Response:
    return Response(_text(value).encode(), status, dict(API_HEADERS), media_type="application/json")


def _described(error: errors.RocketMQError) -> dict[str, Any]:
    text = str(error.args[0]) if error.args else type(error).__name__
    is_away = isinstance(error, errors.ConnectError | errors.RequestTimeout)
    hint = error.hint or (
        "the checks on the overview name unreachable servers, with advice" if is_away else None
    )
    if len(text) > ERROR_CHARS_MAX:
        text = f"{text[:ERROR_CHARS_MAX]}…"
    return {"error": text, "hint": hint, "kind": type(error).__name__}


def _text(value: Any) -> str:
    # A lone surrogate, which a message may contain, is written as an escape.
    return json.dumps(value, separators=(",", ":"))


async def _with_pauses(items: AsyncIterator[Any]) -> AsyncGenerator[Any]:
    """Yield the items, and None after a while without one."""
    following: asyncio.Future[Any] | None = None
    try:
        while True:
            following = following or asyncio.ensure_future(anext(items))
            await asyncio.wait({following}, timeout=PAUSE_S)
            if not following.done():
                yield None
                continue
            try:
                item = following.result()
            except StopAsyncIteration:
                return
            finally:
                following = None
            yield item
    finally:
        if following is not None:
            following.cancel()
