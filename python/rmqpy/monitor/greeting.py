"""HTTP and HTTPS on one port, distinguished by the first byte of a connection.

Lets scrapers that speak HTTP keep working with TLS in permissive mode while others move to HTTPS.

Owns the connections that have not sent the byte, bounded in number and time; a new one replaces the oldest of the peer
with the most. Threads: `rmqpy-http`, on its loop.
"""

import asyncio
import logging
import socket
import ssl
from contextlib import suppress
from functools import partial
from typing import Final

import uvicorn

from rmqpy.monitor.application import PEER_TIMEOUT_S, WAITING_MAX, HttpConnection
from rmqpy.monitor.shares import Shares, peer_name

log = logging.getLogger(__name__)

#: The first byte of TLS, which no HTTP method begins with.
HELLO: Final = 0x16
#: Pause after a failed accept, for example without a free descriptor.
ACCEPT_PAUSE_S: Final = 0.1


async def serve_either(
    server: uvicorn.Server, listener: socket.socket, context: ssl.SSLContext, *, is_encrypted: bool
) -> None:
    """Serve until the server exits. With `is_encrypted`, connections that begin otherwise are closed."""
    accepting = asyncio.create_task(_accept(server, listener, context, is_encrypted=is_encrypted))
    try:
        # It has no listening socket; connections are passed to it.
        await server.serve(sockets=[])
    finally:
        accepting.cancel()
        with suppress(asyncio.CancelledError):
            await accepting


async def _accept(
    server: uvicorn.Server, listener: socket.socket, context: ssl.SSLContext, *, is_encrypted: bool
) -> None:
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as greetings:
        waiting: Shares[asyncio.Task[None]] = Shares()
        while True:
            try:
                connection, address = await loop.sock_accept(listener)
            except OSError:
                await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            if len(waiting) >= WAITING_MAX:
                given_up = waiting.oldest(waiting.largest())
                waiting.discard(given_up)
                given_up.cancel()
            connection.setblocking(False)
            greeting = greetings.create_task(_greet(server, connection, context, is_encrypted=is_encrypted))
            waiting.add(greeting, peer_name(str(address[0])))
            greeting.add_done_callback(waiting.discard)


async def _greet(
    server: uvicorn.Server, connection: socket.socket, context: ssl.SSLContext, *, is_encrypted: bool
) -> None:
    """Pass the connection to the server once it has sent a byte."""
    loop = asyncio.get_running_loop()
    make_protocol = partial(
        HttpConnection,
        config=server.config,
        server_state=server.server_state,
        app_state=server.lifespan.state,
    )
    try:
        async with asyncio.timeout(PEER_TIMEOUT_S):
            first = await _first_byte(loop, connection)
            is_tls = first == HELLO
            if first is not None and (is_tls or not is_encrypted):
                await loop.connect_accepted_socket(
                    make_protocol,
                    connection,
                    ssl=context if is_tls else None,
                    ssl_handshake_timeout=PEER_TIMEOUT_S if is_tls else None,
                )
                return
    except (OSError, TimeoutError) as error:
        log.debug("a connection has ended before its first request: %s", error)
    except Exception:
        # An exception would end the greetings of all other connections.
        log.exception("a connection could not be served")
    except asyncio.CancelledError:
        connection.close()
        raise
    connection.close()


async def _first_byte(loop: asyncio.AbstractEventLoop, connection: socket.socket) -> int | None:
    """Return the first byte without consuming it; `None` at the end of the stream."""
    while True:
        try:
            found = connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            is_ready = loop.create_future()
            loop.add_reader(connection, is_ready.set_result, None)
            try:
                await is_ready
            finally:
                loop.remove_reader(connection)
        else:
            return found[0] if found else None
