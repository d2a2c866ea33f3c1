"""Permissions on records: the record named by a request decides, not the topic that the request claims.

Goal: a user cannot read, move or answer messages of a topic without a permission on it. Method: each request that names
a record or a client, by a user with all permissions on another topic and group, and by one with the same on the
record's.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, fields

import pytest

from broker.conftest import Start
from broker.every_request import DECLARED
from broker.signing import SignedPeer, add_user, entry, signed
from broker.talk import beat, heartbeat, pull, pushed, send
from broker.test_access import NO_PERMISSION, ON, UNIQUE
from broker.test_replies import ext_of, taken
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, encode
from rmqpy.protocol.requests.introspection import (
    ConsumeMessageDirectly,
    GetConsumerRunningInfo,
    InvokeBrokerToGetConsumerStatus,
)
from rmqpy.protocol.requests.messages import QueryConsumeQueue, QueryMessage, ViewMessageById
from rmqpy.protocol.requests.transactions import ResumeCheckHalfMessage
from wire import RESPONSE, Frame

REPLIES = "c1_REPLY_TOPIC"


@dataclass
class Records:
    """A broker with records of the topic `theirs`, and the clients of the test."""

    address: str
    #: Position and message id of a message.
    position: int
    message_id: str
    #: The answer to an open half message.
    half: dict[str, str]
    #: A super user whose client expects replies under the id `requester`.
    root: SignedPeer
    #: A member of the group `mine`.
    member: SignedPeer


@pytest.fixture
async def records(start: Start) -> AsyncIterator[Records]:
    address = (await start(**ON)).broker.address
    async with await signed(address, "root") as root, await signed(address, "carol") as member:
        mine = (entry("Topic:mine", "All"), entry("Group:mine", "All"))
        for name in ("alice", "carol"):
            await add_user(root, name, *mine)
        await add_user(root, "bob", *mine, entry("Topic:theirs", "All"), entry(f"Topic:{REPLIES}", "Pub"))
        for topic in ("mine", "theirs"):
            assert (await send(root, topic)).code == 0
        sent = await send(root, "theirs", body=b"theirs")
        properties = f"{UNIQUE}TRAN_MSG\x01true\x02PGROUP\x01producers\x02"
        half = await send(root, "theirs", i=properties, f="4")
        assert (await beat(root, heartbeat("requester", producer="producers"))).code == 0
        assert (await beat(member, heartbeat("member", "mine", group="mine"))).code == 0
        message_id = (sent.ext or {})["msgId"]
        position = int(message_id[-16:], 16)
        yield Records(address, position, message_id, half.ext or {}, root, member)


async def ask(peer: SignedPeer, request: Request[object]) -> int:
    sent = encode(request)
    return (await peer.call(request.code, sent.ext, sent.body or b"")).code


async def view(peer: SignedPeer, records: Records) -> int:
    return await ask(peer, ViewMessageById(offset=records.position, topic="mine"))


async def send_back(peer: SignedPeer, records: Records) -> int:
    ext = {"group": "mine", "offset": str(records.position), "delayLevel": "1"}
    return (await peer.call(RequestCode.CONSUMER_SEND_MSG_BACK, ext)).code


async def end(peer: SignedPeer, records: Records) -> int:
    ext = {
        "producerGroup": "producers", "tranStateTableOffset": records.half["queueOffset"], "commitOrRollback": "12",
        "commitLogOffset": str(int(records.half["msgId"][-16:], 16)), "msgId": "x", "topic": "mine",
    }  # fmt: skip
    return (await peer.call(RequestCode.END_TRANSACTION, ext)).code


async def resume(peer: SignedPeer, records: Records) -> int:
    return await ask(peer, ResumeCheckHalfMessage(topic="mine", msg_id=records.half["msgId"]))


async def consume(peer: SignedPeer, records: Records) -> int:
    answering = asyncio.create_task(answer_next(records.member))
    try:
        return await ask(
            peer,
            ConsumeMessageDirectly(
                consumer_group="mine", client_id="member", msg_id=records.message_id, topic="mine"
            ),
        )
    finally:
        answering.cancel()
        with suppress(asyncio.CancelledError):
            await answering


async def answer_next(member: SignedPeer) -> None:
    """Answer the query of the broker to this member."""
    while (asked := await pushed(member)).code != RequestCode.CONSUME_MESSAGE_DIRECTLY:
        pass
    await member.raw(Frame(0, opaque=asked.opaque, flag=RESPONSE, body=b"{}").pack())


async def answer(peer: SignedPeer, records: Records, **changes: str) -> int:
    taking = asyncio.create_task(taken(records.root))
    try:
        return (
            await peer.call(RequestCode.SEND_REPLY_MESSAGE_V2, ext_of("requester", **changes), b"4 kg")
        ).code
    finally:
        taking.cancel()
        with suppress(asyncio.CancelledError):
            await taking


async def read(peer: SignedPeer, records: Records) -> int:
    return (await pull(peer, "mine", "theirs")).code


async def query(peer: SignedPeer, records: Records) -> int:
    found = QueryMessage(topic="theirs", key="k1", max_num=1, begin_timestamp=0, end_timestamp=1 << 60)
    return await ask(peer, found)


async def units(peer: SignedPeer, records: Records) -> int:
    return await ask(
        peer, QueryConsumeQueue(topic="theirs", queue_id=0, index=0, count=1, consumer_group="mine")
    )


async def status(peer: SignedPeer, records: Records) -> int:
    asked = InvokeBrokerToGetConsumerStatus(topic="theirs", group="mine", client_addr="nobody")
    return await ask(peer, asked)


#: Of a message of the topic `theirs` that the group `mine` has popped.
POPPED = {
    "consumerGroup": "mine",
    "topic": "theirs",
    "queueId": "0",
    "offset": "0",
    "extraInfo": "0 1 60000 0 0 broker-a 0 0",
    "invisibleTime": "60000",
}


async def popped(peer: SignedPeer, records: Records) -> int:
    return (await peer.call(RequestCode.POP_MESSAGE, POPPED | {"maxMsgNums": "1", "queueId": "-1"})).code


async def acknowledge(peer: SignedPeer, records: Records) -> int:
    return (await peer.call(RequestCode.ACK_MESSAGE, POPPED)).code


async def acknowledge_batch(peer: SignedPeer, records: Records) -> int:
    entry = {
        "c": "mine",
        "t": "theirs",
        "r": "0",
        "so": 0,
        "q": 0,
        "rq": 0,
        "pt": 1,
        "it": 60_000,
        "b": "AQ==",
    }
    body = json.dumps({"brokerName": "broker-a", "acks": [entry]}).encode()
    return (await peer.call(RequestCode.BATCH_ACK_MESSAGE, {}, body)).code


async def hide(peer: SignedPeer, records: Records) -> int:
    return (await peer.call(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, POPPED)).code


#: Each request that reads, moves or delivers a record.
TABLE: dict[RequestCode, Callable[[SignedPeer, Records], Awaitable[int]]] = {
    RequestCode.VIEW_MESSAGE_BY_ID: view,
    RequestCode.CONSUMER_SEND_MSG_BACK: send_back,
    RequestCode.END_TRANSACTION: end,
    RequestCode.RESUME_CHECK_HALF_MESSAGE: resume,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: consume,
    RequestCode.SEND_REPLY_MESSAGE_V2: answer,
    RequestCode.PULL_MESSAGE: read,
    RequestCode.QUERY_MESSAGE: query,
    RequestCode.QUERY_CONSUME_QUEUE: units,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: status,
    RequestCode.POP_MESSAGE: popped,
    RequestCode.ACK_MESSAGE: acknowledge,
    RequestCode.BATCH_ACK_MESSAGE: acknowledge_batch,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: hide,
}
#: Fields that point at a record or a client.
POINTING = {
    "offset",
    "msg_id",
    "commit_log_offset",
    "client_id",
    "client_addr",
    "recall_handle",
    "key",
    "index",
}
#: Requests with such a field that touch no record, or are tried elsewhere.
ELSEWHERE = {
    # An end of the queue that is named with it, within its topic's right.
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    # Concerns a member of the group that the permission names, not a record.
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.GET_LITE_CLIENT_INFO,
    RequestCode.TRIGGER_LITE_DISPATCH,
    # The sender's own connection.
    RequestCode.UNREGISTER_CLIENT,
    # Of the broker to its clients.
    RequestCode.CHECK_TRANSACTION_STATE,
    RequestCode.NOTIFY_UNSUBSCRIBE_LITE,
    # The recalled message is looked up in the recaller's topic: tests of recalls.
    RequestCode.RECALL_MESSAGE,
    # Of name servers.
    RequestCode.PUT_KV_CONFIG,
    RequestCode.GET_KV_CONFIG,
    RequestCode.DELETE_KV_CONFIG,
}


def test_each_request_that_names_a_record_is_in_the_table() -> None:
    pointing = {code for code, kind in DECLARED.items() if POINTING & {each.name for each in fields(kind)}}
    assert pointing - TABLE.keys() - ELSEWHERE == set()


@pytest.mark.parametrize("code", TABLE)
async def test_topic_of_the_record_decides(records: Records, code: RequestCode) -> None:
    async with await signed(records.address, "alice") as alice, await signed(records.address, "bob") as bob:
        assert await TABLE[code](alice, records) == NO_PERMISSION
        # Only the permission on the reply topic, or on the record's topic, is missing.
        assert await TABLE[code](bob, records) != NO_PERMISSION
        assert not [frame for frame in records.member.pushed if b"theirs" in frame.body]


async def test_redelivered_message_is_checked_against_its_original_topic(records: Records) -> None:
    again = POPPED | {"topic": "%RETRY%mine_theirs"}
    async with await signed(records.address, "alice") as alice, await signed(records.address, "bob") as bob:
        assert (await bob.call(RequestCode.POP_MESSAGE, POPPED | {"maxMsgNums": "1"})).code == 0
        for code in (RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME):
            assert (await alice.call(code, again)).code == NO_PERMISSION
            assert (await bob.call(code, again)).code != NO_PERMISSION


async def test_permission_to_send_does_not_allow_replies(records: Records) -> None:
    async with await signed(records.address, "alice") as alice, await signed(records.address, "bob") as bob:
        assert await answer(alice, records, b="mine") == NO_PERMISSION
        assert await answer(bob, records, b="mine") == NO_PERMISSION
        assert await answer(bob, records) == 0


async def test_replies_go_to_the_user_that_claimed_the_client_id_first(records: Records) -> None:
    async with await signed(records.address, "alice") as alice, await signed(records.address, "bob") as bob:
        # The newest connection would have them.
        assert (await beat(alice, heartbeat("requester", producer="mine"))).code == 0
        assert await answer(bob, records) == 0
        await alice.call(
            RequestCode.QUERY_CONSUMER_OFFSET, {"consumerGroup": "mine", "topic": "mine", "queueId": "0"}
        )
        assert alice.pushed == []
    async with await signed(records.address, "root") as again, await signed(records.address, "bob") as bob:
        # The same user's newest connection has.
        assert (await beat(again, heartbeat("requester", producer="producers"))).code == 0
        taking = asyncio.create_task(taken(again))
        replied = await bob.call(RequestCode.SEND_REPLY_MESSAGE_V2, ext_of("requester"), b"4 kg")
        assert (replied.code, (await taking).body) == (0, b"4 kg")


async def test_running_info_belongs_to_the_queried_group(records: Records) -> None:
    async with await signed(records.address, "alice") as alice:
        assert (
            await ask(alice, GetConsumerRunningInfo(consumer_group="theirs", client_id="member"))
            == NO_PERMISSION
        )
