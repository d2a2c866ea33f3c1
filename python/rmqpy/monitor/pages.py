"""Pages of every server: metrics, liveness, health and readiness."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from rmqpy.monitor.exposition import Exposition

if TYPE_CHECKING:
    from starlette.routing import BaseRoute


class Page(NamedTuple):
    """One response."""

    body: str
    content_type: str = "text/plain; charset=utf-8"
    status: HTTPStatus = HTTPStatus.OK


#: Public: only says that the process runs.
ALIVE: Final = "/livez"
HEALTHY: Final = "/healthz"
READY: Final = "/readyz"
#: Pages for supervisors, served however busy the port is with other pages.
HEALTH: Final = frozenset({ALIVE, HEALTHY, READY})

#: Makes a page for a client that accepts these content types, the value of its header.
MakePage = Callable[[str], Awaitable[Page]]
#: The reason for a failure; None if all is well.
Fault = Callable[[], str | None]


class Site(Protocol):
    """Additional routes, and their open connections."""

    @property
    def routes(self) -> Sequence[BaseRoute]:
        """Created and used only on the HTTP thread."""

    async def close(self) -> None:
        """End: nothing is served any more."""


#: Creates a site served at this address; called at the first connection.
LoadSite = Callable[[str], Site]


def pages(
    metrics: Callable[[str], Awaitable[Exposition]], *, fault: Fault, unready: Fault
) -> Mapping[str, MakePage]:
    """`/metrics`; `/livez`, which responds while the loop runs; `/healthz`, 503 if only a restart helps; `/readyz`,
    503 while clients should use other servers.
    """

    async def figures(accept: str) -> Page:
        return Page(*await metrics(accept))

    async def alive(_accept: str) -> Page:
        return Page("ok\n")

    async def healthy(_accept: str) -> Page:
        return _verdict(fault())

    async def ready(_accept: str) -> Page:
        return _verdict(fault() or unready())

    return {"/metrics": figures, ALIVE: alive, HEALTHY: healthy, READY: ready}


def _verdict(fault: str | None) -> Page:
    if fault is None:
        return Page("ok\n")
    return Page(f"{fault}\n", status=HTTPStatus.SERVICE_UNAVAILABLE)
