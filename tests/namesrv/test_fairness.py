"""Floods at a name server: they delay only their sender, and other clients are served in turn."""

import asyncio
import selectors
import socket

from rmqpy.namesrv import NameServer
from waiting import until
from wire import TIMEOUT_S, Frame

FLOOD = 250


async def test_request_overtakes_hundreds_of_another_client(
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
            # Replies of the loop arrive before it continues, however late the writing thread is.
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
    """Send route queries, and wait until this number of requests waits for the loop."""
    frames = (Frame(105, opaque, ext={"topic": "orders"}).pack() for opaque in range(count))
    connection.sendall(b"".join(frames))
    until(lambda: waiting_now(server) >= waiting)


def waiting_now(server: NameServer) -> int:
    return server._server.statistics()["waiting_upcalls"]


def cut(content: bytes) -> tuple[list[int], bytes]:
    """The opaques of whole frames, and the bytes after them."""
    opaques = []
    while len(content) >= 4 and len(content) >= (end := 4 + int.from_bytes(content[:4], "big")):
        opaques.append(Frame.unpack(content[4:end]).opaque)
        content = content[end:]
    return opaques, content
