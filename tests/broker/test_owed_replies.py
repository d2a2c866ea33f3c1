"""Late replies: each accepted request is answered, however many wait, or its connection ends."""

import socket
from collections import Counter
from contextlib import suppress

from broker.test_hot_path import exchange, pull_frame, send_frame
from rmqpy.server import Standalone
from wire import Frame

#: Above the parked requests that one connection may have, and below the mailbox's bound for other entries.
PULLS = 7_000
#: Longer than anything here takes.
SUSPEND_MS = 60_000


def connect(server: Standalone) -> socket.socket:
    return socket.create_connection(server.broker.rsplit(":", 1), timeout=30)


def parked_pull(offset: int, opaque: int, suspend_ms: int = SUSPEND_MS, **changes: str) -> bytes:
    """A pull that waits for a message."""
    frame = Frame.unpack(pull_frame(offset)[4:])
    assert frame.ext is not None
    frame.opaque = opaque
    frame.ext |= {"sysFlag": "6", "suspendTimeoutMillis": str(suspend_ms)} | changes
    return frame.pack()


def first_offset(server: Standalone) -> int:
    """Where a message that is sent now will be; topic and group are there afterwards."""
    with connect(server) as peer:
        stored = Frame.unpack(exchange(peer, send_frame(), 1)[0])
        assert stored.ext is not None
        exchange(peer, pull_frame(0), 1)
        return int(stored.ext["queueOffset"]) + 1


def answers(peer: socket.socket, count: int) -> list[Frame]:
    """Return this number of replies, or fewer if the peer falls silent."""
    found = []
    peer.settimeout(30)
    with peer.makefile("rb") as stream, suppress(TimeoutError):
        while len(found) < count:
            found.append(Frame.unpack(stream.read(int.from_bytes(stream.read(4), "big"))))
    return found


def answered_once(found: list[Frame], code: int) -> None:
    assert Counter(frame.code for frame in found) == {code: PULLS}
    assert {frame.opaque for frame in found} == set(range(PULLS))


def test_every_pull_that_waits_on_one_connection_is_answered_by_the_message(server: Standalone) -> None:
    offset = first_offset(server)
    with connect(server) as waiting, connect(server) as producer:
        marker = Frame(30, opaque=-1, ext={"topic": "hot", "queueId": "0"})
        pulls = b"".join(parked_pull(offset, opaque) for opaque in range(PULLS))
        # One connection is served in order: after this answer all of them are parked.
        assert Frame.unpack(exchange(waiting, pulls + marker.pack(), 1)[0]).opaque == -1
        exchange(producer, send_frame(), 1)
        answered_once(answers(waiting, PULLS), 0)


def test_every_pull_that_waits_on_one_connection_is_answered_when_its_time_is_up(server: Standalone) -> None:
    offset = first_offset(server)
    with connect(server) as waiting:
        pulls = b"".join(parked_pull(offset, opaque, suspend_ms=1_500) for opaque in range(PULLS))
        waiting.sendall(pulls)
        answered_once(answers(waiting, PULLS), 19)


def test_a_client_that_does_not_read_gets_every_answer_later_and_delays_nobody(server: Standalone) -> None:
    asked, put_kv_config, get_kv_config = 900, 100, 101
    key = {"namespace": "answers", "key": "large"}
    namesrv = server.namesrv.rsplit(":", 1)
    with socket.create_connection(namesrv, timeout=30) as other, socket.socket() as deaf:
        exchange(other, Frame(put_kv_config, ext=key | {"value": "x" * 100_000}).pack(), 1)
        get = [Frame(get_kv_config, opaque=opaque, ext=key).pack() for opaque in range(asked)]
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect((namesrv[0], int(namesrv[1])))
        deaf.sendall(b"".join(get))
        # The ring is served in order: the last of those before it is answered.
        frames = [Frame.unpack(answer) for answer in exchange(other, get[0], 1)]
        assert [frame.code for frame in frames] == [0]
        found = answers(deaf, asked)
    assert {frame.opaque for frame in found} == set(range(asked))
    codes = Counter(frame.code for frame in found)
    # 90 MB of replies. Those that find the mailbox full are refused; how many do depends on who is faster.
    assert codes[0]
    assert codes.keys() <= {0, 2}
