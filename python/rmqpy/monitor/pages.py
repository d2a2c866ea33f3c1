"""The pages every server has: its figures, whether it lives, whether it is ready to serve."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from rmqpy.monitor.exposition import Exposition

if TYPE_CHECKING:
    from starlette.routing import BaseRoute


class Page(NamedTuple):
    """One answer."""

    body: str
    content_type: str = "text/plain; charset=utf-8"
    status: HTTPStatus = HTTPStatus.OK


#: Says nothing but that the process runs, to everybody.
ALIVE: Final = "/livez"
HEALTHY: Final = "/healthz"
READY: Final = "/readyz"
#: What a supervisor asks: served however busy the port is with other pages.
HEALTH: Final = frozenset({ALIVE, HEALTHY, READY})

#: Makes a page for a client that accepts these content types, the value of its header.
MakePage = Callable[[str], Awaitable[Page]]
#: Why not; None when nothing is wrong.
Fault = Callable[[], str | None]


class Site(Protocol):
    """More that is served beside the pages: routes, and what they hold open."""

    @property
    def routes(self) -> Sequence[BaseRoute]:
        """Made and used on the thread of HTTP alone."""

    async def close(self) -> None:
        """Nothing is served any more."""


#: Makes a site that is served at this address of the machine; called for the first connection.
LoadSite = Callable[[str], Site]


def pages(
    metrics: Callable[[str], Awaitable[Exposition]], *, fault: Fault, unready: Fault
) -> Mapping[str, MakePage]:
    """`/metrics`; `/livez`, which answers while the loop turns; `/healthz`, 503 when only a restart helps; `/readyz`,
    503 while clients are better served elsewhere.
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
