"""Internal topics and groups: permissions with access control and without.

Goal: a user without permission to read a topic cannot read its pending messages either, and no client moves the
broker's own progress. Method: a table of each action on each internal name, by each kind of user.
"""

from pathlib import Path
from typing import NamedTuple

import pytest

from broker.conftest import Start, made_broker
from broker.signing import SignedPeer, add_user, entry, signed
from broker.talk import send
from broker.test_access import NO_PERMISSION, ON, UNIQUE
from rmqpy._native import BROKER_TOPICS
from rmqpy.protocol import names
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, encode, read_json
from rmqpy.protocol.requests.groups import DeleteSubscriptionGroup
from rmqpy.protocol.requests.locks import LockBatch, LockBatchMq, LockedQueues
from rmqpy.protocol.requests.messages import QueryMessage
from rmqpy.protocol.requests.offsets import (
    GetMaxOffset,
    InvokeBrokerToResetOffset,
    QueryConsumerOffset,
    UpdateConsumerOffset,
)
from rmqpy.protocol.requests.progress import CloneGroupOffset
from rmqpy.protocol.requests.queues import MessageQueue
from rmqpy.protocol.requests.topics import DeleteTopicInBroker
from wire import Peer

#: Those that a broker of the name `broker-a` in the cluster `c1` has.
TOPICS = (
    *sorted(BROKER_TOPICS),
    "rmq_sys_REVIVE_LOG_c1",
    "rmq_sys_SYNC_BROKER_MEMBER_broker-a",
    "CHECKPOINT_TOPIC",
)
GROUP = "CID_RMQ_SYS_TRANS"
RESERVED = "internal topics and groups are reserved for super users"
OWN = "the broker's own"


class Answer(NamedTuple):
    """The result of an action."""

    code: int
    remark: str
    #: Of a pull: where the queue ends.
    end: str = ""


async def ask(peer: Peer, request: Request[object]) -> Answer:
    sent = encode(request)
    frame = await peer.call(request.code, sent.ext, sent.body or b"")
    if isinstance(request, LockBatchMq) and frame.code == 0:
        granted = read_json(LockedQueues, frame.body).lock_ok_mq_set
        return Answer(0, "" if granted else OWN)
    return Answer(frame.code, frame.remark or "")


async def pull(peer: Peer, group: str, topic: str) -> Answer:
    ext = {
        "consumerGroup": group, "topic": topic, "queueId": "0", "queueOffset": "0", "maxMsgNums": "32",
        "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
        "expressionType": "TAG",
    }  # fmt: skip
    frame = await peer.call(RequestCode.PULL_MESSAGE, ext)
    return Answer(frame.code, frame.remark or "", (frame.ext or {}).get("maxOffset", ""))


async def on_topic(peer: Peer, topic: str) -> dict[str, Answer]:
    """Run each action on an internal topic, as members of a separate group."""
    sent = await send(peer, topic)
    queue = MessageQueue(topic=topic, broker_name="broker-a", queue_id=0)
    key = QueryMessage(topic=topic, key="k", max_num=1, begin_timestamp=0, end_timestamp=1 << 60)
    return {
        "read": await pull(peer, "readers", topic),
        "read by key": await ask(peer, key),
        "read the end": await ask(peer, GetMaxOffset(topic=topic, queue_id=0)),
        "write": Answer(sent.code, sent.remark or ""),
        "commit": await ask(peer, _commit("readers", topic)),
        "reset": await ask(peer, _reset("readers", topic)),
        "lock": await ask(peer, _lock("readers", queue)),
        "delete": await ask(peer, DeleteTopicInBroker(topic=topic)),
    }


async def on_group(peer: Peer) -> dict[str, Answer]:
    """Each deed in the name of the group under which the broker keeps its progress."""
    progress = QueryConsumerOffset(consumer_group=GROUP, topic=names.HALF_TOPIC, queue_id=0)
    queue = MessageQueue(topic=names.HALF_TOPIC, broker_name="broker-a", queue_id=0)
    own = MessageQueue(topic="orders", broker_name="broker-a", queue_id=0)
    return {
        "read": await pull(peer, GROUP, "orders"),
        "read the progress": await ask(peer, progress),
        "write": await _send(peer, names.retry_topic(GROUP)),
        "commit": await ask(peer, _commit(GROUP, names.HALF_TOPIC)),
        "commit elsewhere": await ask(peer, _commit(GROUP, "orders")),
        "reset": await ask(peer, _reset(GROUP, names.HALF_TOPIC)),
        "clone": await ask(peer, CloneGroupOffset(src_group="readers", dest_group=GROUP, topic="orders")),
        "lock": await ask(peer, _lock(GROUP, queue)),
        "lock elsewhere": await ask(peer, _lock(GROUP, own)),
        "delete": await ask(peer, DeleteSubscriptionGroup(group_name=GROUP, clean_offset=True)),
    }


async def _send(peer: Peer, topic: str) -> Answer:
    frame = await send(peer, topic)
    return Answer(frame.code, frame.remark or "")


def _commit(group: str, topic: str, offset: int = 1_000) -> UpdateConsumerOffset:
    return UpdateConsumerOffset(consumer_group=group, topic=topic, queue_id=0, commit_offset=offset)


def _lock(group: str, queue: MessageQueue) -> LockBatchMq:
    return LockBatchMq(body=LockBatch(consumer_group=group, client_id="c1", mq_set=[queue]))


def _reset(group: str, topic: str) -> InvokeBrokerToResetOffset:
    return InvokeBrokerToResetOffset(
        topic=topic, group=group, timestamp=-1, is_force=True, queue_id=0, offset=None
    )


async def prepared(peer: Peer) -> None:
    """A queue of `orders` with progress of the group `readers`, and an open half message."""
    assert (await send(peer, "orders", e="0")).code == 0
    half = await send(peer, "orders", i=f"{UNIQUE}TRAN_MSG\x01true\x02PGROUP\x01producers\x02", f="4")
    assert half.code == 0
    assert (await pull(peer, "readers", "orders")).code == 0
    assert (await ask(peer, _commit("readers", "orders", 1))).code == 0


async def test_internal_names_need_a_super_user(start: Start) -> None:
    cluster = await start(**ON)
    async with (
        await signed(cluster.broker.address, "root") as root,
        await signed(cluster.broker.address, "alice") as alice,
        await signed(cluster.broker.address) as nobody,
    ):
        await prepared(root)
        await add_user(root, "alice", entry("*", "All"), entry("Topic:*", "All"), entry("Group:*", "All"))
        named = [entry(f"Topic:{topic}", "All") for topic in TOPICS]
        await add_user(root, "bob", *named, entry(f"Group:{GROUP}", "All"), entry("Group:readers", "All"))
        # A wildcard is a right to everything else.
        assert (await pull(alice, "readers", "orders")).code == 0
        async with await signed(cluster.broker.address, "bob") as bob:
            wrong = []
            for who, peer in (("nobody", nobody), ("alice", alice), ("bob", bob)):
                for name in (*TOPICS, GROUP):
                    answers = await (on_group(peer) if name == GROUP else on_topic(peer, name))
                    wrong += [
                        f"{who}: {deed} {name}: {answer}"
                        for deed, answer in answers.items()
                        if answer.code != NO_PERMISSION or (who == "alice" and RESERVED not in answer.remark)
                    ]
        assert not wrong, "\n".join(wrong)
        there = existing(cluster.folder)
        for topic in TOPICS:
            answers = await on_topic(root, topic)
            assert [deed for deed, found in answers.items() if RESERVED in found.remark] == [], topic
            # A super user reads them; those that the broker alone writes are not written, and none is deleted.
            if topic != names.BROKER_MEMBER_PREFIX + "broker-a":
                assert answers["read"].code in ({0, 19, 20, 21} if topic in there else {17}), topic
            assert answers["write"].code != 0 or topic not in BROKER_TOPICS, topic
            assert answers["delete"].code != 0, topic
        check_own(await on_group(root))


def existing(folder: Path) -> set[str]:
    return {topic for topic in TOPICS if f'"{topic}"' in (folder / "config" / "topics.json").read_text()}


def check_own(answers: dict[str, Answer]) -> None:
    """Changes of the broker's own progress are refused to everyone; reads are not."""
    refused = {deed for deed, answer in answers.items() if OWN in answer.remark}
    changes = {"commit", "commit elsewhere", "reset", "clone", "lock", "lock elsewhere", "delete"}
    assert refused == changes, answers
    assert answers["read"].code in {0, 19, 20, 21}
    assert answers["read the progress"].code in {0, 22}


@pytest.mark.parametrize("settings", [{}, {"validateSystemTopicWhenUpdateTopic": "false"}])
async def test_clients_cannot_change_the_brokers_own_progress_without_access_control(
    start: Start, settings: dict[str, str]
) -> None:
    cluster = await start(**settings)
    async with await Peer.connect(cluster.broker.address) as peer:
        await prepared(peer)
        check_own(await on_group(peer))
        for topic in existing(cluster.folder) & {*BROKER_TOPICS}:
            assert (await ask(peer, DeleteTopicInBroker(topic=topic))).code != 0, topic


async def test_open_transaction_survives_a_client_that_poses_as_the_broker(start: Start) -> None:
    cluster = await start()
    async with await Peer.connect(cluster.broker.address) as peer:
        await send(peer, "orders")
        half = await send(peer, "orders", i=f"{UNIQUE}TRAN_MSG\x01true\x02PGROUP\x01producers\x02", f="4")
        for topic in (names.HALF_TOPIC, names.OP_HALF_TOPIC):
            await ask(peer, _commit(GROUP, topic, 1))
    await cluster.broker.stop()
    broker = made_broker(cluster.folder.parent, cluster.namesrv, {})
    async with broker, await Peer.connect(broker.address) as peer:
        position = int((half.ext or {})["msgId"][-16:], 16)
        end = {
            "producerGroup": "producers", "tranStateTableOffset": (half.ext or {})["queueOffset"],
            "commitLogOffset": str(position), "commitOrRollback": "8", "msgId": "x", "topic": "orders",
        }  # fmt: skip
        committed = await peer.call(RequestCode.END_TRANSACTION, end)
        assert (committed.code, committed.remark) == (0, None)
        found = await pull(peer, "readers", "orders")
        assert (found.code, found.end) == (0, "2")


async def test_signed_user_cannot_read_others_replies(start: Start) -> None:
    cluster = await start(**ON)
    async with await signed(cluster.broker.address, "root") as root:
        await add_user(root, "alice", entry("*", "All"))
        async with await signed(cluster.broker.address, "alice") as alice:
            await reads_replies(alice, NO_PERMISSION)
            # To answer a request is to send there.
            assert (await send(alice, "c1_REPLY_TOPIC")).code == 0
        await reads_replies(root, 0)


async def reads_replies(peer: SignedPeer, expected: int) -> None:
    for code in (
        (await ask(peer, GetMaxOffset(topic="c1_REPLY_TOPIC", queue_id=0))).code,
        (await pull(peer, "readers", "c1_REPLY_TOPIC")).code,
    ):
        assert code == expected
