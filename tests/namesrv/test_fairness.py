"""A client that floods a name server delays itself: every other one is answered in its turn."""

import asyncio
import selectors
import socket
import time

from rmqpy.namesrv import NameServer
from wire import TIMEOUT_S, Frame

FLOOD = 250


async def test_a_request_is_answered_before_those_that_another_client_had_sent_by_the_hundred(
    server: NameServer,
) -> None:
    with connect(server) as flood, connect(server) as other, selectors.DefaultSelector() as selector:
        selector.register(flood, selectors.EVENT_READ)
        selector.register(other, selectors.EVENT_READ)
        # Without an await, so that the loop that serves them finds all of them there.
        put(server, flood, FLOOD, waiting=FLOOD)
        put(server, other, 1, waiting=FLOOD + 1)
        content = {flood: b"", other: b""}
        arrived: list[tuple[socket.socket, int]] = []
        while len(arrived) < FLOOD + 1:
            await asyncio.sleep(0)
            # What the loop has answered arrives before it goes on, however late the thread that writes it is.
            while len(arrived) < FLOOD + 1 - waiting_now(server):
                readable = [key.fileobj for key, _ in selector.select(TIMEOUT_S)]
                assert readable
                for connection in readable:
                    assert isinstance(connection, socket.socket)
                    opaques, content[connection] = cut(content[connection] + connection.recv(1 << 20))
                    arrived += [(connection, opaque) for opaque in opaques]
        place = arrived.index((other, 0))
        assert place < 20
        assert [opaque for of, opaque in arrived if of is flood] == list(range(FLOOD)), "each in its order"


def connect(server: NameServer) -> socket.socket:
    host, _, port = server.address.rpartition(":")
    return socket.create_connection((host, int(port)), TIMEOUT_S)


def put(server: NameServer, connection: socket.socket, count: int, *, waiting: int) -> None:
    """Send questions for routes, and wait until so many requests wait for the loop."""
    frames = (Frame(105, opaque, ext={"topic": "orders"}).pack() for opaque in range(count))
    connection.sendall(b"".join(frames))
    deadline = time.monotonic() + TIMEOUT_S
    while waiting_now(server) < waiting:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def waiting_now(server: NameServer) -> int:
    return server._server.statistics()["waiting_upcalls"]


def cut(content: bytes) -> tuple[list[int], bytes]:
    """The opaques of whole frames, and the bytes after them."""
    opaques = []
    while len(content) >= 4 and len(content) >= (end := 4 + int.from_bytes(content[:4], "big")):
        opaques.append(Frame.unpack(content[4:end]).opaque)
        content = content[end:]
    return opaques, content
