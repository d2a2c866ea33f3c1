"""Queries that a broker forwards to a member of a group, and their replies."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from held_reading import reading_held
from rmqpy.control.clients.relay import Relay
from rmqpy.protocol.codes import RequestCode, ResponseCode
from rmqpy.protocol.requests.introspection import GetConsumerRunningInfo, InvokeBrokerToGetConsumerStatus
from rmqpy.remoting.server import ClientAnswered, Refused
from wire import RESPONSE, Frame, Peer

from .conftest import Cluster, Start, samples
from .talk import beat, heartbeat, pushed, send
from .test_send_back import stored

ASK = GetConsumerRunningInfo(consumer_group="billing", client_id="one")


@pytest.fixture
async def member(cluster: Cluster) -> AsyncIterator[Peer]:
    """The client `one` of the group `billing`."""
    async with await Peer.connect(cluster.broker.address) as peer:
        await beat(peer, heartbeat("one", "orders"))
        yield peer


@pytest.fixture
async def admin(cluster: Cluster) -> AsyncIterator[Peer]:
    async with await Peer.connect(cluster.broker.address) as peer:
        yield peer


async def asked(member: Peer, code: RequestCode) -> Frame:
    """Return the broker's query of this code, skipping other requests."""
    while (frame := await pushed(member)).code != code:
        pass
    return frame


async def answer(member: Peer, question: Frame, body: bytes = b"", code: int = 0, remark: str = "") -> None:
    frame = Frame(code, opaque=question.opaque, flag=RESPONSE, remark=remark or None, body=body)
    await member.raw(frame.pack())


async def test_query_and_reply_are_relayed_unchanged(admin: Peer, member: Peer) -> None:
    ext = {"consumerGroup": "billing", "clientId": "one", "jstackEnable": "true"}
    asking = asyncio.create_task(admin.call(RequestCode.GET_CONSUMER_RUNNING_INFO, ext))
    question = await asked(member, RequestCode.GET_CONSUMER_RUNNING_INFO)
    assert question.ext is not None
    assert (question.flag, question.ext) == (0, question.ext | ext)
    await answer(member, question, b'{"mqTable":{{"queueId":0}:{}}}')
    told = await asking
    assert (told.code, told.body) == (0, b'{"mqTable":{{"queueId":0}:{}}}')


async def test_refusal_of_a_client_is_relayed(admin: Peer, member: Peer) -> None:
    ext = {"consumerGroup": "billing", "clientId": "one"}
    asking = asyncio.create_task(admin.call(RequestCode.GET_CONSUMER_RUNNING_INFO, ext))
    await answer(
        member, await asked(member, RequestCode.GET_CONSUMER_RUNNING_INFO), code=1, remark="not here"
    )
    told = await asking
    assert (told.code, told.remark) == (1, "not here")


async def test_oversized_reply_is_counted_and_reported_to_the_caller(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = await start(httpPort="0")
    address = cluster.broker.address
    async with await Peer.connect(address) as member, await Peer.connect(address) as admin:
        await beat(member, heartbeat("one", "orders"))
        ext = {"consumerGroup": "billing", "clientId": "one"}
        asking = asyncio.create_task(admin.call(RequestCode.GET_CONSUMER_RUNNING_INFO, ext))
        question = await asked(member, RequestCode.GET_CONSUMER_RUNNING_INFO)
        await answer(member, question, bytes((4 << 20) + 1))
        told = await asyncio.wait_for(asking, 30)
    assert told.code == ResponseCode.SYSTEM_ERROR
    assert told.remark == "the client's answer has 4194305 bytes; at most 4194304 are accepted"
    assert f"client refused GET_CONSUMER_RUNNING_INFO: {told.remark}" in caplog.text
    assert [line.split()[-1] for line in await samples(cluster, "rmqpy_refused_answers_total")] == ["1.0"]


async def test_message_is_consumed_directly_by_one_client(admin: Peer, member: Peer) -> None:
    record = await stored(admin)
    message_id = (await send(admin, "orders")).ext or {}
    ext = {"consumerGroup": "billing", "clientId": "one", "msgId": message_id["msgId"], "topic": "orders"}
    asking = asyncio.create_task(admin.call(RequestCode.CONSUME_MESSAGE_DIRECTLY, ext))
    question = await asked(member, RequestCode.CONSUME_MESSAGE_DIRECTLY)
    assert question.ext is not None
    assert question.ext["brokerName"] == "broker-a"
    assert record.body in question.body
    await answer(member, question, json.dumps({"consumeResult": "CR_SUCCESS"}).encode())
    assert json.loads((await asking).body) == {"consumeResult": "CR_SUCCESS"}


async def test_every_member_reports_its_positions(admin: Peer, member: Peer) -> None:
    asking = asyncio.create_task(admin.ask(InvokeBrokerToGetConsumerStatus(topic="orders", group="billing")))
    question = await asked(member, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT)
    body = (
        b'{"consumerTable":{},"messageQueueTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:4}}'
    )
    await answer(member, question, body)
    [(client, offsets)] = (await asking).consumer_table.items()
    assert (client, list(offsets.values())) == ("one", [4])


async def test_others_are_answered_while_a_large_reply_is_parsed(
    cluster: Cluster, admin: Peer, member: Peer
) -> None:
    ext = {"topic": "orders", "group": "billing", "clientAddr": "one"}
    code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    queues = ",".join(
        f"{{topic:'orders',brokerName:'broker-a',queueId:{number}}}:7" for number in range(20_000)
    )
    body = f"{{consumerTable:{{}},messageQueueTable:{{{queues}}}}}".encode()
    asking = asyncio.create_task(admin.call(code, ext))
    question = await asked(member, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT)
    with reading_held():
        await answer(member, question, body)
        async with await Peer.connect(cluster.broker.address) as other:
            for _ in range(20):
                await other.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "billing"})
        assert not asking.done()
    assert (await asking).code == 0


async def test_leaving_member_ends_the_query(admin: Peer, member: Peer) -> None:
    ext = {"consumerGroup": "billing", "clientId": "one"}
    asking = asyncio.create_task(admin.call(RequestCode.GET_CONSUMER_RUNNING_INFO, ext))
    await asked(member, RequestCode.GET_CONSUMER_RUNNING_INFO)
    await member.close()
    assert (await asking).code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("ext", [{"consumerGroup": "absent"}, {"consumerGroup": "billing"}])
async def test_query_to_an_absent_client_is_refused(admin: Peer, member: Peer, ext: dict[str, str]) -> None:
    told = await admin.call(RequestCode.GET_CONSUMER_RUNNING_INFO, ext | {"clientId": "two"})
    assert told.code == ResponseCode.SYSTEM_ERROR


async def test_unsolicited_replies_are_dropped(admin: Peer, member: Peer) -> None:
    for opaque in (-1, 0, 1, 2, 3):
        await member.raw(Frame(0, opaque=opaque, flag=RESPONSE, body=b"x" * 1_000).pack())
    assert (await send(member, "orders")).code == 0


class Mute:
    """A server whose clients accept queries without answering."""

    def __init__(self) -> None:
        self.forgotten: list[tuple[int, int]] = []

    def ask(self, connection: int, code: int, ext: object, body: bytes | None = None) -> int | None:
        return 7 if connection else None

    def forget_answer(self, connection: int, token: int) -> None:
        self.forgotten.append((connection, token))


async def test_query_times_out_and_leaves_no_state() -> None:
    server = Mute()
    relay = Relay(server)
    with pytest.raises(Refused) as refused:
        await relay.ask(1, ASK, seconds=0.01)
    assert refused.value.code is ResponseCode.CONSUME_MSG_TIMEOUT
    assert server.forgotten == [(1, 7)]
    relay.answered(ClientAnswered(1, 7, 0, "", {}, b"late"))
    with pytest.raises(Refused):
        await relay.ask(0, ASK)
