"""HTTP application: Starlette in uvicorn.

Imported at the first connection, see `rmqpy.monitor.http`. Owns the limits of a client: number of requests, size,
time. Each connection carries one request. A connection without its request does not block others: a new one replaces
the oldest of the client with the most. Health pages have separate slots. A route that needs more time calls
`extend_deadline`. Threads: only `rmqpy-http`; pages are made on the loop of their server.
"""

from __future__ import annotations

import asyncio
import functools
import hmac
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from rmqpy.config.addresses import is_loopback
from rmqpy.monitor.origin import foreign
from rmqpy.monitor.pages import ALIVE, HEALTH, MakePage, Page
from rmqpy.monitor.shares import Shares, peer_name

log = logging.getLogger(__name__)

#: The most bytes of a request's head, and seconds for sending it and reading the response.
HEAD_BYTES_MAX: Final = 16 << 10
PEER_TIMEOUT_S: Final = 10.0
#: The most connections without their request.
WAITING_MAX: Final = 64
#: Concurrent requests, and those of one remote address.
REQUESTS_MAX: Final = 128
REQUESTS_PER_PEER: Final = 64
#: Concurrent requests for health pages, which count separately.
HEALTH_MAX: Final = 16
#: Seconds for requests in progress at a stop.
STOP_TIMEOUT_S: Final = 1
#: Headers of every response: its content type is final, and its connection ends with it.
HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Connection": "close"}
#: Extension of a request's scope: grants its connection more seconds from now on.
DEADLINE: Final = "rmqpy.deadline"
#: The same: its response is endless and not awaited at a stop.
ENDLESS: Final = "rmqpy.endless"

#: A child of our logger. uvicorn warns of each malformed request, which any client can send endlessly.
_protocol_log = logging.getLogger(f"{__name__}.protocol")
_protocol_log.setLevel(logging.ERROR)

Answer = Callable[[Request], Awaitable[Response]]


class Places:
    """The connections of one server, by purpose."""

    def __init__(self) -> None:
        self._waiting: Shares[HttpConnection] = Shares()
        self._requests: Shares[HttpConnection] = Shares()
        self._health: Shares[HttpConnection] = Shares()

    def wait(self, connection: HttpConnection) -> HttpConnection | None:
        """Let a connection wait for its request. Returns the one that it replaces, if any."""
        given_up = None
        if len(self._waiting) >= WAITING_MAX:
            given_up = self._waiting.oldest(self._waiting.largest())
            self._waiting.discard(given_up)
        self._waiting.add(connection, connection.peer)
        return given_up

    def serve(self, connection: HttpConnection, path: str) -> bool:
        """Whether there is a slot for the request of a connection."""
        self._waiting.discard(connection)
        if path in HEALTH:
            places, is_full = self._health, len(self._health) >= HEALTH_MAX
        else:
            places = self._requests
            is_full = len(places) >= REQUESTS_MAX or (
                places.of(connection.peer) >= REQUESTS_PER_PEER and not is_loopback(connection.peer)
            )
        if not is_full:
            places.add(connection, connection.peer)
        return not is_full

    def leave(self, connection: HttpConnection) -> None:
        """Free the slot of an ended connection."""
        for each in (self._waiting, self._requests, self._health):
            each.discard(connection)


class HttpConnection(H11Protocol):
    """A connection with a deadline and a slot."""

    config: _Config

    _end: asyncio.TimerHandle | None = None
    _is_endless = False

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.logger = _protocol_log
        self.access_log = False
        self._application = self.app
        self.app = self._answer

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if (given_up := self.config.places.wait(self)) is not None:
            given_up.transport.abort()
        self._extend(PEER_TIMEOUT_S)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None
        self.config.places.leave(self)
        super().connection_lost(exc)

    @property
    def peer(self) -> str:
        """The client, for limits."""
        return peer_name(self.client[0]) if self.client else ""

    def _extend(self, seconds: float) -> None:
        if self._end is not None:
            self._end.cancel()
        self._end = self.loop.call_later(seconds, self.transport.abort)

    def _mark_endless(self) -> None:
        self._is_endless = True

    def shutdown(self) -> None:
        super().shutdown()
        if self._is_endless:
            self.transport.abort()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self.config.places.serve(self, scope["path"]):
            await _busy()(scope, receive, send)
            return
        scope["extensions"] = {DEADLINE: self._extend, ENDLESS: self._mark_endless}
        try:
            await self._application(scope, receive, send)
        except asyncio.CancelledError:
            # The server stops and cuts off requests in progress.
            self.transport.abort()
            self.cycle.disconnected = True


def extend_deadline(request: Request, seconds: float) -> None:
    """Grant the connection of a request more time to make and send its response."""
    request.scope["extensions"][DEADLINE](seconds)


def mark_endless(request: Request) -> None:
    """Mark the response as endless: its connection is closed when the server stops."""
    request.scope["extensions"][ENDLESS]()


class _Config(uvicorn.Config):
    def configure_logging(self) -> None:
        """Leave the process's loggers alone: the user may run another uvicorn."""

    @functools.cached_property
    def places(self) -> Places:
        """The limits of this server's connections."""
        return Places()


def uvicorn_server(
    pages: Mapping[str, MakePage],
    home: asyncio.AbstractEventLoop,
    routes: Sequence[BaseRoute] = (),
    *,
    host: str,
    token: str | None = None,
) -> uvicorn.Server:
    """A server at `host` for these pages, which are made on `home`, and for more routes. Outside the main thread it
    handles no signals."""
    return uvicorn.Server(
        _Config(
            _application(pages, home, routes, host, token),
            http=HttpConnection,
            headers=list(HEADERS.items()),
            ws="none",
            lifespan="off",
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=STOP_TIMEOUT_S,
        )
    )


def _application(
    pages: Mapping[str, MakePage],
    home: asyncio.AbstractEventLoop,
    routes: Sequence[BaseRoute],
    host: str,
    token: str | None,
) -> Starlette:
    async def not_found(_request: Request, _error: Exception) -> Response:
        return _response(Page("\n".join(pages) + "\n"), 404)

    async def not_allowed(_request: Request, error: Exception) -> Response:
        response = _response(Page("only GET and HEAD\n"), 405)
        if isinstance(error, HTTPException):
            response.headers.update(error.headers or {})
        return response

    application = Starlette(
        routes=[
            *(Route(path, _answer(path, make, home, host, token)) for path, make in pages.items()),
            *routes,
        ],
        exception_handlers={404: not_found, 405: not_allowed},
    )
    # A redirect would name a host that the request made up.
    application.router.redirect_slashes = False
    return application


def _answer(
    path: str, make: MakePage, home: asyncio.AbstractEventLoop, host: str, token: str | None
) -> Answer:
    async def answer(request: Request) -> Response:
        if path not in HEALTH and (no := foreign(request.headers, host=host)) is not None:
            return _response(Page(f"{no.error}: {no.hint}\n"), no.status)
        if token is not None and path != ALIVE and not _has(request, token):
            response = _response(
                Page("a token is required: Authorization: Bearer with the server's httpToken\n"), 401
            )
            response.headers["WWW-Authenticate"] = "Bearer"
            return response
        made = asyncio.run_coroutine_threadsafe(_made(make, request.headers.get("accept", "")), home)
        try:
            return _response(await asyncio.wrap_future(made))
        except Exception:
            log.exception("the page %s cannot be made", path)
            return _response(Page("the page failed; see the log\n"), 500)

    return answer


def _has(request: Request, token: str) -> bool:
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    # Constant-time comparison; an unset token matches nothing.
    is_equal = hmac.compare_digest(given.strip().encode(), token.encode())
    return bool(token) and scheme.lower() == "bearer" and is_equal


def _busy() -> Response:
    response = _response(Page("too many requests are in progress; try again in a second\n"), 503)
    response.headers["Retry-After"] = "1"
    return response


async def _made(make: MakePage, accept: str) -> Page:
    return await make(accept)


def _response(page: Page, status: int | None = None) -> Response:
    return Response(
        page.body,
        status_code=status or page.status,
        media_type=page.content_type,
    )
