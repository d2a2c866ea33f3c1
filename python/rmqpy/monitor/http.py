"""A small HTTP server: a few pages that are made for each request, on the loop of the server they speak of.

Owns its listener and connections. It reads GET and HEAD, one request a connection, and bounds what a peer may send and
how long it may take. Threads: one event loop.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Final, NamedTuple

log = logging.getLogger(__name__)

#: Bytes of a request's head, and seconds a peer may take for it or for reading the answer.
HEAD_BYTES_MAX: Final = 16 << 10
PEER_TIMEOUT_S: Final = 10.0
CONNECTIONS_MAX: Final = 64


class Page(NamedTuple):
    """One answer."""

    body: str
    content_type: str = "text/plain; charset=utf-8"
    status: HTTPStatus = HTTPStatus.OK


class HttpServer:
    """Serves pages by path."""

    def __init__(self, pages: Mapping[str, Callable[[], Awaitable[Page]]]) -> None:
        self._pages = pages
        self._server: asyncio.Server | None = None
        self._talks: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; where, when the port was 0. Raises `OSError` for a port in use."""
        self._server = await asyncio.start_server(self._accept, host, port, limit=HEAD_BYTES_MAX)
        bound = self._server.sockets[0].getsockname()
        return str(bound[0]), int(bound[1])

    async def stop(self) -> None:
        """Stop listening and end what is under way. Idempotent."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for talk in self._talks:
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.current_task()
        assert talk is not None, "asyncio calls this in a task"
        self._talks.add(talk)
        try:
            if len(self._talks) <= CONNECTIONS_MAX:
                async with asyncio.timeout(PEER_TIMEOUT_S):
                    await self._answer(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the peer left, is too slow, or says too much: no client waits for an answer
        finally:
            self._talks.discard(talk)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        page = await self._page(method, rest.partition(" ")[0].partition("?")[0])
        body = page.body.encode()
        writer.write(
            f"HTTP/1.1 {page.status.value} {page.status.phrase}\r\n"
            f"Content-Type: {page.content_type}\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\nX-Content-Type-Options: nosniff\r\n\r\n".encode("latin-1")
        )
        if method != "HEAD":
            writer.write(body)
        await writer.drain()

    async def _page(self, method: str, path: str) -> Page:
        if method not in ("GET", "HEAD"):
            return Page("only GET and HEAD\n", status=HTTPStatus.METHOD_NOT_ALLOWED)
        make = self._pages.get(path)
        if make is None:
            return Page("\n".join(self._pages) + "\n", status=HTTPStatus.NOT_FOUND)
        try:
            return await make()
        except Exception:
            log.exception("the page %s cannot be made", path)
            return Page("the log says why\n", status=HTTPStatus.INTERNAL_SERVER_ERROR)
