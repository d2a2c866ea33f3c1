"""Requests larger than usual buffers: served ones are read, by whichever half serves them; others are not."""

import pytest

from rmqpy.protocol.codes import RequestCode, ResponseCode
from wire import Frame, Peer

from .conftest import Start

BODY = b"x" * (300 << 10)
UNKNOWN = 9_999
#: Requests that the broker serves on the thread that read them.
HOT = (
    RequestCode.SEND_MESSAGE,
    RequestCode.PULL_MESSAGE,
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.HEART_BEAT,
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.END_TRANSACTION,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.RECALL_MESSAGE,
)


@pytest.mark.parametrize("code", HOT, ids=lambda code: code.name)
async def test_large_request_is_served_like_a_small_one(start: Start, code: RequestCode) -> None:
    cluster = await start()
    async with await Peer.connect(cluster.broker.address) as peer:
        small, large = await peer.call(code, {}, b"x"), await peer.call(code, {}, BODY)
    assert large.code == small.code
    assert large.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED


async def test_unserved_large_request_is_refused_and_the_connection_continues(start: Start) -> None:
    cluster = await start()
    async with await Peer.connect(cluster.broker.address) as peer:
        for _ in range(2):
            assert (await peer.call(UNKNOWN, {}, BODY)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


@pytest.mark.parametrize(
    ("code", "answered"),
    [
        (RequestCode.SEND_MESSAGE_V2, ResponseCode.MESSAGE_ILLEGAL),
        (RequestCode.LOCK_BATCH_MQ, ResponseCode.INVALID_PARAMETER),
        (UNKNOWN, ResponseCode.REQUEST_CODE_NOT_SUPPORTED),
    ],
)
async def test_oversized_request_is_refused_at_its_header(
    start: Start, code: int, answered: ResponseCode
) -> None:
    cluster = await start()
    frame = Frame(code, opaque=7, ext={}, body=b"x" * (8 << 20)).pack()
    async with await Peer.connect(cluster.broker.address) as peer:
        await peer.raw(frame[: 300 << 10])
        refusal = await peer.receive()
        await peer.raw(frame[300 << 10 :])
        # The rest is read, but not as a request.
        assert (refusal.opaque, refusal.code) == (7, answered)
        assert (await peer.call(UNKNOWN, {})).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
