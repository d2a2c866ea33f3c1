"""HTTP port of a server: open from the start, served from the first connection on.

Owns the listener and the thread `rmqpy-http`. Until the first connection the port costs one descriptor: then uvicorn
and Starlette are imported and the thread is started. Its separate loop keeps HTTP from delaying the server; pages are
made on the server's loop, where its tables are. A site runs on the HTTP thread and queries servers like any client.
Threads: `start` and `stop` on the server's loop.
"""

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from rmqpy.config.addresses import HostPort, listening
from rmqpy.monitor.pages import LoadSite, MakePage, Site

if TYPE_CHECKING:
    import ssl

    import uvicorn

log = logging.getLogger(__name__)

#: Connections that wait to be accepted, for instance while uvicorn is imported.
BACKLOG: Final = 64


async def claim(host: str, port: int) -> socket.socket:
    """Bind a socket to a port, or to any free one for 0, until a server listens there; connections are refused
    meanwhile. Raises `OSError` for a port in use."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    claimed = socket.socket(family)
    try:
        # As for the server itself, recently closed connections do not block the address.
        claimed.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            claimed.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        claimed.bind((str(address[0]), port))
    except OSError:
        claimed.close()
        raise
    return claimed


class HttpServer:
    """Serves pages by path, and a site."""

    def __init__(
        self,
        pages: Mapping[str, MakePage],
        site: LoadSite | None = None,
        *,
        token: str | None = None,
        tls: "Callable[[], ssl.SSLContext | None] | None" = None,
        is_encrypted: bool = False,
    ) -> None:
        """Pages require the `token`; an empty one allows no access. `tls` has the context for TLS connections; with
        `is_encrypted` others are refused."""
        self._pages = pages
        self._token = token
        self._site = site
        self._tls = tls
        self._is_encrypted = is_encrypted
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None
        # Written by the thread, which then reads the next one; `stop` writes that one and then reads this.
        self._server: uvicorn.Server | None = None
        self._is_over = False

    async def listen(self, host: str, port: int) -> str:
        """Listen on `httpPort`. Returns the address. Raises `AddressError` for a port in use."""
        with listening("httpPort", host, port):
            return str(HostPort(*self.start(await claim(host, port))))

    def start(self, listener: socket.socket) -> tuple[str, int]:
        """Listen on a claimed port. Returns the address. Raises `OSError`."""
        loop = asyncio.get_running_loop()
        listener.listen(BACKLOG)
        listener.setblocking(False)
        self._listener = listener
        loop.add_reader(listener, self._begin, loop)
        bound = listener.getsockname()
        return str(bound[0]), int(bound[1])

    async def stop(self) -> None:
        """Stop listening and end requests in progress. Idempotent."""
        self._is_over = True
        listener, self._listener = self._listener, None
        if listener is None:
            return
        if self._thread is None:
            asyncio.get_running_loop().remove_reader(listener)
        else:
            if self._server is not None:
                self._server.should_exit = True
            # In a worker: a page in progress may wait for this loop.
            await asyncio.to_thread(self._thread.join)
        listener.close()

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the thread at the first connection."""
        assert self._listener is not None, "the reader is removed before the listener goes"
        loop.remove_reader(self._listener)
        self._thread = threading.Thread(
            target=self._run, args=(self._listener, loop), name="rmqpy-http", daemon=True
        )
        self._thread.start()

    def _run(self, listener: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        with contextlib.closing(listener):
            try:
                from rmqpy.monitor.application import uvicorn_server

                host = str(listener.getsockname()[0])
                site = self._site(host) if self._site else None
                self._server = uvicorn_server(
                    self._pages, loop, site.routes if site else (), host=host, token=self._token
                )
                context = self._tls() if self._tls else None
                if not self._is_over:
                    asyncio.run(_serve(self._server, listener, site, context, self._is_encrypted))
            except Exception:
                log.exception("the HTTP server failed")


async def _serve(
    server: "uvicorn.Server",
    listener: socket.socket,
    site: Site | None,
    context: "ssl.SSLContext | None",
    is_encrypted: bool,
) -> None:
    try:
        if context is None:
            await server.serve(sockets=[listener])
        else:
            from rmqpy.monitor.greeting import serve_either

            await serve_either(server, listener, context, is_encrypted=is_encrypted)
    finally:
        if site is not None:
            await site.close()
