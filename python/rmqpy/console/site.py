"""Site of the console on the HTTP port: its API and pages.

Owns the cluster connection for visitors without a login, made at the first API request, the limits of concurrent
requests, and the cache of lists. Imported at the first HTTP connection. Threads: only that of HTTP.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from importlib.resources import files
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route

from rmqpy import __version__
from rmqpy.admin.client import AsyncAdmin
from rmqpy.admin.connection import Missing, note_missing
from rmqpy.alerts.watch import AlertWatch
from rmqpy.config.addresses import is_loopback
from rmqpy.config.client import ClientConfig
from rmqpy.console.answers import (
    STREAMS_MAX,
    STREAMS_PER_USER,
    ApiRoute,
    Stream,
    json_response,
    refused,
    session_of,
)
from rmqpy.console.api import ENDPOINTS
from rmqpy.console.api.alerts import Watched
from rmqpy.console.bodies import BodyView
from rmqpy.console.guard import PAGE_HEADERS
from rmqpy.console.login import log_in, log_out
from rmqpy.console.openapi import document
from rmqpy.console.request_body import LONG_MAX
from rmqpy.console.sessions import Rights, Sessions, Visitor
from rmqpy.console.turns import Turns
from rmqpy.monitor.shares import Shares

API: Final = "/api/v1"
#: Concurrent API requests, and those of one user or, without a login, of one address.
QUERIES_MAX: Final = 16
QUERIES_PER_USER: Final = 8
#: How long a list is cached, so that its pages cost nothing, and how many lists.
FRESH_S: Final = 2.0
LISTS_MAX: Final = 32

_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}


class Console:
    """API and pages over one cluster."""

    def __init__(
        self,
        config: ClientConfig,
        *,
        host: str,
        allow_changes: bool,
        needs_login: bool,
        bodies: BodyView,
        alerts: AlertWatch | None = None,
        prometheus: str = "",
    ) -> None:
        """`host` is the listen address: beyond loopback a login is always needed."""
        self.config = config
        self.host = host
        self.allow_changes = allow_changes
        self.needs_login = needs_login or not is_loopback(host)
        self.sessions = Sessions(config)
        self._bodies = bodies
        self._alerts = alerts
        self._prometheus = prometheus
        self.queries = Turns(QUERIES_MAX, QUERIES_PER_USER)
        self.long_bodies = Turns(LONG_MAX, 1)
        self.streams: Shares[Stream] = Shares()
        self._anybody: Visitor | None = None
        self._lists: dict[object, tuple[float, asyncio.Future[Any]]] = {}

    @property
    def routes(self) -> Sequence[BaseRoute]:
        """Routes of the page at the root, its files, and the API."""
        api = Starlette(
            routes=[
                *(ApiRoute(each, self).route() for each in ENDPOINTS),
                Route("/openapi.json", self._openapi),
                Route("/session", log_in(self), methods=["POST"]),
                Route("/session", log_out(self), methods=["DELETE"]),
            ],
            exception_handlers={404: _no_such_path, 405: _no_such_method},
        )
        api.router.redirect_slashes = False
        return [
            Route("/", _asset("index.html")),
            Route("/console/about.json", self._about),
            *(Route(f"/console/{name}", _asset(name)) for name in assets() if name != "index.html"),
            Mount(API, app=api),
        ]

    async def visitor(self, token: str | None) -> Visitor | None:
        """The visitor of this session; without one, any visitor if no login is needed. None: a login is needed."""
        if (found := await self.sessions.find(token)) is not None or self.needs_login:
            return found
        if self._anybody is None:
            # Contacts no server, except an address server.
            self._anybody = Visitor(await AsyncAdmin(self.config).__aenter__())
        return self._anybody

    async def rights(self, visitor: Visitor) -> Rights:
        """A visitor's rights, as brokers reported them recently."""
        if visitor.user is not None:
            await self.sessions.renew(visitor)
        return visitor.rights

    def has_place_for_stream(self, owner: Hashable) -> bool:
        """Whether an owner may open one more stream. If all are taken, an owner with more of them loses one."""
        if self.streams.of(owner) >= STREAMS_PER_USER:
            return False
        if len(self.streams) >= STREAMS_MAX:
            largest = self.streams.largest()
            if self.streams.of(largest) <= self.streams.of(owner) + 1:
                return False
            given_up = self.streams.oldest(largest)
            self.streams.discard(given_up)
            given_up.end()
        return True

    def bodies_for(self, visitor: Visitor) -> BodyView:
        """A visitor's visibility of message bodies."""
        return BodyView.SHOWN if visitor.is_super else self._bodies

    def alerts_for(self, visitor: Visitor) -> Watched:
        """The alerts of this process, for a visitor."""
        return Watched(self._alerts, visitor.is_super or not self.needs_login)

    async def remembered(
        self, key: object, make: Callable[[], Awaitable[Any]]
    ) -> tuple[Any, Sequence[Missing]]:
        """Return the result of `make`, or a recent one for the same key, and the brokers without data."""

        async def made() -> tuple[Any, Sequence[Missing]]:
            # In a separate task, and so in a separate context.
            missing = note_missing()
            return await make(), list({each.broker: each for each in missing}.values())

        now = time.monotonic()
        for other in [each for each, (until, _) in self._lists.items() if until < now]:
            del self._lists[other]
        if key not in self._lists:
            while len(self._lists) >= LISTS_MAX:
                del self._lists[next(iter(self._lists))]
            self._lists[key] = (now + FRESH_S, asyncio.ensure_future(made()))
        _, found = self._lists[key]
        try:
            result: tuple[Any, Sequence[Missing]] = await asyncio.shield(found)
        except BaseException:
            # Failures are not cached.
            if found.done() and self._lists.get(key, (0, None))[1] is found:
                del self._lists[key]
            raise
        return result

    def forget(self) -> None:
        """Drop cached lists after a change."""
        self._lists.clear()

    async def close(self) -> None:
        """Close the connections to the cluster."""
        await self.sessions.close()
        anybody, self._anybody = self._anybody, None
        if anybody is not None:
            await anybody.admin.close()

    async def _about(self, request: Request) -> Response:
        """For the pages: the cluster, the visitor, and whether changes are allowed."""
        visitor = await self.visitor(session_of(request))
        facts = {
            "version": __version__,
            "namesrv": list(self.config.namesrv) if visitor else [],
            "allow_changes": self.allow_changes,
            "user": visitor and visitor.user,
            "needs_login": visitor is None,
            "bodies": self.bodies_for(visitor) if visitor else BodyView.HIDDEN,
            "prometheus": self._prometheus if visitor else "",
        }
        return refused(request, self) or json_response(facts)

    async def _openapi(self, request: Request) -> Response:
        return refused(request, self) or json_response(document(ENDPOINTS))


async def _no_such_path(_request: Request, _error: Exception) -> Response:
    return json_response(
        {"error": "unknown API path", "hint": f"{API}/openapi.json lists them", "kind": "NotFound"},
        404,
    )


async def _no_such_method(_request: Request, error: Exception) -> Response:
    allowed = (error.headers or {}) if isinstance(error, HTTPException) else {}
    wrong = {
        "error": "the path does not support this method",
        "hint": f"{API}/openapi.json lists them",
        "kind": "NotAllowed",
    }
    response = json_response(wrong, 405)
    response.headers.update(allowed)
    return response


def assets() -> list[str]:
    """Names of the files that pages are made of."""
    folder = files("rmqpy.console") / "assets"
    return sorted(each.name for each in folder.iterdir() if each.name.rpartition(".")[2] in _TYPES)


def _asset(name: str) -> Callable[[Request], Awaitable[Response]]:
    content = (files("rmqpy.console") / "assets" / name).read_bytes()
    kind = _TYPES[name.rpartition(".")[2]]

    async def answer(_request: Request) -> Response:
        return Response(content, headers=dict(PAGE_HEADERS), media_type=kind)

    return answer
