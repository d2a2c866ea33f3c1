"""Hot requests: they never enter Python, as counts at the boundary show while messages flow."""

import socket
import struct

from rmqpy import _native, testing
from wire import Frame

MESSAGES = 100_000
BURST = 500


def exchange(peer: socket.socket, requests: bytes, answers: int) -> list[bytes]:
    """Write whole frames and read as many answers."""
    peer.sendall(requests)
    with peer.makefile("rb") as stream:
        return [stream.read(struct.unpack(">i", stream.read(4))[0]) for _ in range(answers)]


def send_frame() -> bytes:
    header = {"a": "senders", "b": "hot", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0"}
    return Frame(310, ext=header | {"i": "KEYS\x01k\x02", "m": "false"}, body=b"x" * 100).pack()


def pull_frame(offset: int) -> bytes:
    header = {
        "consumerGroup": "readers",
        "topic": "hot",
        "queueId": "0",
        "queueOffset": str(offset),
        "maxMsgNums": str(BURST),
        "maxMsgBytes": str(1 << 20),
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
    }
    return Frame(11, ext=header).pack()


def pulled(answer: bytes) -> int:
    """Messages in the answer to a pull."""
    frame = Frame.unpack(answer)
    assert frame.code == 0, frame
    assert frame.ext is not None
    return int(frame.ext["nextBeginOffset"])


def test_hundred_thousand_sends_and_pulls_never_enter_python() -> None:
    with (
        testing.broker(registerNameServerPeriod=60_000, mappedFileSizeCommitLog=64 << 20) as server,
        socket.create_connection(server.broker.rsplit(":", 1), timeout=60) as peer,
    ):
        # The first send creates the topic and the first pull the group: those enter Python.
        exchange(peer, send_frame(), 1)
        exchange(peer, pull_frame(0), 1)
        before = _native.attach_count()
        for _ in range(MESSAGES // BURST):
            answers = exchange(peer, send_frame() * BURST, BURST)
            assert all(Frame.unpack(answer).code == 0 for answer in answers)
        offset = 0
        while offset < MESSAGES:
            offset = pulled(exchange(peer, pull_frame(offset), 1)[0])
        assert _native.attach_count() - before == 0
