"""Questions that go through the broker to a member of a group, and what becomes of their answers."""

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
    """The broker's question of this code; what else it says is passed over."""
    while (frame := await pushed(member)).code != code:
        pass
    return frame


async def answer(member: Peer, question: Frame, body: bytes = b"", code: int = 0, remark: str = "") -> None:
    frame = Frame(code, opaque=question.opaque, flag=RESPONSE, remark=remark or None, body=body)
    await member.raw(frame.pack())


async def test_a_question_goes_through_as_it_came_and_so_does_its_answer(admin: Peer, member: Peer) -> None:
    ext = {"consumerGroup": "billing", "clientId": "one", "jstackEnable": "true"}
    asking = asyncio.create_task(admin.call(RequestCode.GET_CONSUMER_RUNNING_INFO, ext))
    question = await asked(member, RequestCode.GET_CONSUMER_RUNNING_INFO)
    assert question.ext is not None
    assert (question.flag, question.ext) == (0, question.ext | ext)
    await answer(member, question, b'{"mqTable":{{"queueId":0}:{}}}')
    told = await asking
    assert (told.code, told.body) == (0, b'{"mqTable":{{"queueId":0}:{}}}')


async def test_a_client_that_refuses_is_heard(admin: Peer, member: Peer) -> None:
    ext = {"consumerGroup": "billing", "clientId": "one"}
    asking = asyncio.create_task(admin.call(RequestCode.GET_CONSUMER_RUNNING_INFO, ext))
    await answer(
        member, await asked(member, RequestCode.GET_CONSUMER_RUNNING_INFO), code=1, remark="not here"
    )
    told = await asking
    assert (told.code, told.remark) == (1, "not here")


async def test_an_answer_that_is_too_large_is_counted_and_who_asked_is_told(
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
    assert told.remark == "the client's answer has 4194305 bytes; at most 4194304 are taken"
    assert f"GET_CONSUMER_RUNNING_INFO was refused by the client that was asked: {told.remark}" in caplog.text
    assert [line.split()[-1] for line in await samples(cluster, "rmqpy_refused_answers_total")] == ["1.0"]


async def test_a_message_is_handed_to_one_client_to_be_consumed_now(admin: Peer, member: Peer) -> None:
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


async def test_each_member_says_where_it_stands(admin: Peer, member: Peer) -> None:
    asking = asyncio.create_task(admin.ask(InvokeBrokerToGetConsumerStatus(topic="orders", group="billing")))
    question = await asked(member, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT)
    body = (
        b'{"consumerTable":{},"messageQueueTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:4}}'
    )
    await answer(member, question, body)
    [(client, offsets)] = (await asking).consumer_table.items()
    assert (client, list(offsets.values())) == ("one", [4])


async def test_others_are_answered_while_the_large_answer_of_a_member_is_read(
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


async def test_a_member_that_leaves_ends_the_question(admin: Peer, member: Peer) -> None:
    ext = {"consumerGroup": "billing", "clientId": "one"}
    asking = asyncio.create_task(admin.call(RequestCode.GET_CONSUMER_RUNNING_INFO, ext))
    await asked(member, RequestCode.GET_CONSUMER_RUNNING_INFO)
    await member.close()
    assert (await asking).code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("ext", [{"consumerGroup": "absent"}, {"consumerGroup": "billing"}])
async def test_nobody_can_be_asked_who_is_not_there(admin: Peer, member: Peer, ext: dict[str, str]) -> None:
    told = await admin.call(RequestCode.GET_CONSUMER_RUNNING_INFO, ext | {"clientId": "two"})
    assert told.code == ResponseCode.SYSTEM_ERROR


async def test_answers_nobody_asked_for_are_dropped(admin: Peer, member: Peer) -> None:
    for opaque in (-1, 0, 1, 2, 3):
        await member.raw(Frame(0, opaque=opaque, flag=RESPONSE, body=b"x" * 1_000).pack())
    assert (await send(member, "orders")).code == 0


class Mute:
    """A server whose clients take questions and say nothing."""

    def __init__(self) -> None:
        self.forgotten: list[tuple[int, int]] = []

    def ask(self, connection: int, code: int, ext: object, body: bytes | None = None) -> int | None:
        return 7 if connection else None

    def forget_answer(self, connection: int, token: int) -> None:
        self.forgotten.append((connection, token))


async def test_a_question_ends_with_its_time_and_leaves_nothing_behind() -> None:
    server = Mute()
    relay = Relay(server)
    with pytest.raises(Refused) as refused:
        await relay.ask(1, ASK, seconds=0.01)
    assert refused.value.code is ResponseCode.CONSUME_MSG_TIMEOUT
    assert server.forgotten == [(1, 7)]
    relay.answered(ClientAnswered(1, 7, 0, "", {}, b"late"))
    with pytest.raises(Refused):
        await relay.ask(0, ASK)
