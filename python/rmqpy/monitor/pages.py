"""The pages every server has: its figures, whether it lives, whether it is ready to serve."""

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

from rmqpy.monitor.exposition import CONTENT_TYPE
from rmqpy.monitor.http import Page

#: Why not; None when nothing is wrong.
Fault = Callable[[], str | None]


def pages(
    metrics: Callable[[], Awaitable[str]], *, fault: Fault, unready: Fault
) -> Mapping[str, Callable[[], Awaitable[Page]]]:
    """`/metrics`; `/livez`, which answers while the loop turns; `/healthz`, 503 when only a restart helps; `/readyz`,
    503 while clients are better served elsewhere.
    """

    async def figures() -> Page:
        return Page(await metrics(), CONTENT_TYPE)

    async def alive() -> Page:
        return Page("ok\n")

    async def healthy() -> Page:
        return _verdict(fault())

    async def ready() -> Page:
        return _verdict(fault() or unready())

    return {"/metrics": figures, "/livez": alive, "/healthz": healthy, "/readyz": ready}


def _verdict(fault: str | None) -> Page:
    if fault is None:
        return Page("ok\n")
    return Page(f"{fault}\n", status=HTTPStatus.SERVICE_UNAVAILABLE)
