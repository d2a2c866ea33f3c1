"""Requests of clients and tools of 5.5.0 to a broker, and the answers of Apache's, as captured from the wire."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rmqpy.protocol import fastjson
from rmqpy.protocol.declare import Request, decode, decode_reply, encode
from rmqpy.protocol.requests import brokers, clients, groups, locks, messages, offsets, replies, topics
from wire import Frame

GOLDEN = Path(__file__).parent.parent / "vectors/golden"

DECLARED: dict[int, type[Request[Any]]] = {
    kind.code: kind
    for module in (brokers, clients, groups, locks, messages, offsets, replies, topics)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Request) and kind is not Request
}


class Exchange(NamedTuple):
    """One captured request and its answer."""

    name: str
    request: Frame
    reply: Frame | None


def frames(path: Path) -> Iterator[tuple[str, Frame]]:
    """Return the frames of one capture, without long ones that were truncated, as their length words show."""
    lines = path.read_text().splitlines()
    for title, content in itertools.pairwise(lines):
        if title.startswith(("[request]", "[reply]")):
            frame = bytes.fromhex(content)
            if int.from_bytes(frame[:4], "big") == len(frame) - 4:
                yield title[1:].partition("]")[0], Frame.unpack(frame[4:])


def exchanges() -> Iterator[Exchange]:
    for path in sorted(GOLDEN.glob("*.hex")):
        found = dict(frames(path))
        if "request" in found and found["request"].code in DECLARED:
            yield Exchange(path.stem, found["request"], found.get("reply"))


EXCHANGES = list(exchanges())


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: exchange.name)
def test_golden_requests_get_complete_answers(exchange: Exchange) -> None:
    kind = DECLARED[exchange.request.code]
    decode(kind, exchange.request.ext or {}, exchange.request.body)
    reply = exchange.reply
    if reply is None or reply.code != 0:
        return
    ours = encode(decode_reply(kind, reply.ext or {}, reply.body))
    assert (ours.ext or {}) == (reply.ext or {})
    if kind in (brokers.GetBrokerConfig, messages.QueryMessage, messages.ViewMessageById):
        assert ours.body == reply.body
    elif reply.body:
        assert fastjson.loads(ours.body or b"") == fastjson.loads(reply.body)


def test_the_capture_covers_what_this_broker_serves() -> None:
    assert len({exchange.request.code for exchange in EXCHANGES}) >= 25
