"""Assignment by the broker: queues of each member, modes of groups, and the file of modes."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rmqpy.broker import Broker
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import encode
from rmqpy.protocol.requests.assignments import (
    AssignmentQuery,
    GetAllMessageRequestMode,
    MessageRequestMode,
    QueryAssignment,
    RequestMode,
    SetMessageRequestMode,
)
from rmqpy.protocol.requests.clients import MessageModel
from rmqpy.protocol.requests.topics import UpdateAndCreateTopic
from waiting import until_async
from wire import Peer

from .conftest import Start, made_broker
from .replicas import pair
from .talk import heartbeat

TOPIC, GROUP = "jobs", "workers"
NO_PERMISSION, UNKNOWN_TOPIC, UNKNOWN_GROUP = 16, 17, 26


async def create(peer: Peer, queues: int = 4) -> None:
    await peer.ask(UpdateAndCreateTopic(topic=TOPIC, read_queue_nums=queues, write_queue_nums=queues))


async def set_mode(peer: Peer, mode: RequestMode = RequestMode.POP, *, share: int = 0, **changes: str) -> int:
    fields = {"topic": TOPIC, "consumer_group": GROUP, **changes}
    ask = SetMessageRequestMode(body=MessageRequestMode(mode=mode, pop_share_queue_num=share, **fields))
    ext, body = encode(ask)
    return (await peer.call(ask.code, ext, body or b"")).code


async def assigned(peer: Peer, client: str = "a", **changes: Any) -> list[tuple[str, int, str]] | None:
    """Broker, queue and mode of each queue that a member gets."""
    fields = {"topic": TOPIC, "consumer_group": GROUP, "strategy_name": "AVG", **changes}
    answer = await peer.ask(QueryAssignment(body=AssignmentQuery(client_id=client, **fields)))
    if answer.message_queue_assignments is None:
        return None
    return [
        (each.message_queue.broker_name, each.message_queue.queue_id, each.mode.name)
        for each in answer.message_queue_assignments
    ]


@asynccontextmanager
async def four_members(address: str) -> AsyncIterator[Peer]:
    """The members a, b, c and d, and the connection of the last one."""
    async with AsyncExitStack() as stack:
        for client in "abcd":
            peer = await stack.enter_async_context(await Peer.connect(address))
            await peer.ask(heartbeat(client, TOPIC, group=GROUP))
        yield peer


def pulled(*queues: int) -> list[tuple[str, int, str]]:
    return [("broker-a", queue, "PULL") for queue in queues]


def popped(*queues: int) -> list[tuple[str, int, str]]:
    return [("broker-a", queue, "POP") for queue in queues]


async def test_members_divide_the_queues_by_the_strategy_they_name(start: Start) -> None:
    address = (await start()).broker.address
    async with await Peer.connect(address) as first, await Peer.connect(address) as second:
        await create(first, 5)
        assert await assigned(first) is None, "the group has no members"
        await first.ask(heartbeat("a", TOPIC, group=GROUP))
        await second.ask(heartbeat("b", TOPIC, group=GROUP))
        assert [await assigned(first, each) for each in "ab"] == [pulled(0, 1, 2), pulled(3, 4)]
        circle = [await assigned(first, each, strategy_name="AVG_BY_CIRCLE") for each in "ab"]
        assert circle == [pulled(0, 2, 4), pulled(1, 3)]
        assert await assigned(first, "stranger") == [], "a stranger releases its queues"
        assert await assigned(first, strategy_name="CONSISTENT_HASH") is None
        assert await assigned(first, topic="unknown") is None
        everything = await assigned(first, message_model=MessageModel.BROADCASTING)
        assert everything == pulled(0, 1, 2, 3, 4)


@pytest.mark.parametrize(
    ("share", "queues"),
    [(0, [[-1]] * 4), (-1, [[-1]] * 4), (3, [[-1]] * 4), (1, [[0, 1], [1, 2], [2, 3], [0, 3]])],
)
async def test_members_in_mode_pop_share_queues(start: Start, share: int, queues: list[list[int]]) -> None:
    async with four_members((await start()).broker.address) as peer:
        await create(peer)
        assert await set_mode(peer, share=share) == 0
        assert [await assigned(peer, each) for each in "abcd"] == [popped(*each) for each in queues]
        assert await set_mode(peer, RequestMode.PULL) == 0
        assert [await assigned(peer, each) for each in "abcd"] == [pulled(each) for each in range(4)]


async def test_more_members_than_queues_get_one_queue_each(start: Start) -> None:
    async with four_members((await start()).broker.address) as peer:
        await create(peer, 2)
        assert await set_mode(peer, share=1) == 0
        assert [await assigned(peer, each) for each in "abcd"] == [popped(0), popped(1)] * 2


async def test_defaults_apply_where_no_mode_is_set(start: Start) -> None:
    settings = {"defaultMessageRequestMode": "POP", "serverLoadBalancerEnable": "false"}
    async with await Peer.connect((await start(**settings)).broker.address) as peer:
        await create(peer, 2)
        await peer.ask(heartbeat("a", TOPIC, group=GROUP))
        assert await assigned(peer) == popped(0, 1), "nothing is divided"
        retry = f"%RETRY%{GROUP}"
        assert await assigned(peer, topic=retry) == pulled(0), "a retry topic is pulled"


async def test_a_mode_is_refused_as_apache_refuses_it(start: Start) -> None:
    async with await Peer.connect((await start(autoCreateSubscriptionGroup="false")).broker.address) as peer:
        await create(peer)
        refusals = [
            await set_mode(peer, topic=f"%RETRY%{GROUP}"),
            await set_mode(peer, topic="unknown"),
            await set_mode(peer),
        ]
        assert refusals == [NO_PERMISSION, UNKNOWN_TOPIC, UNKNOWN_GROUP]


async def test_modes_are_written_as_apache_writes_them_and_survive(tmp_path: Path) -> None:
    async with made_broker(tmp_path, "", {}) as broker, await Peer.connect(broker.address) as peer:
        await create(peer)
        assert await set_mode(peer, share=2) == 0
        answer = await peer.call(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, {})
    entry = {"consumerGroup": GROUP, "mode": "POP", "popShareQueueNum": 2, "topic": TOPIC}
    expected = {"messageRequestModeMap": {TOPIC: {GROUP: entry}}}
    file = tmp_path / "store" / "config" / "messageRequestMode.json"
    assert json.loads(file.read_text()) == json.loads(answer.body) == expected
    async with made_broker(tmp_path, "", {}) as broker, await Peer.connect(broker.address) as peer:
        found = await peer.ask(GetAllMessageRequestMode())
        assert found.message_request_mode_map[TOPIC][GROUP].mode is RequestMode.POP


async def test_a_slave_copies_the_modes_and_refuses_to_set_one(
    tmp_path: Path, namesrv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqpy.control.replicas.mode_copy.SECONDS", 0.05)
    async with (
        pair(tmp_path, namesrv) as (master, slave),
        await Peer.connect(master.address) as at_master,
        await Peer.connect(slave.address) as at_slave,
    ):
        await create(at_master)
        assert await set_mode(at_master) == 0

        async def modes() -> int:
            return len((await at_slave.ask(GetAllMessageRequestMode())).message_request_mode_map)

        assert await until_async(modes, lambda count: count == 1)
        assert await set_mode(at_slave, share=3) != 0


async def test_queues_of_the_whole_cluster_are_divided(tmp_path: Path, namesrv: str) -> None:
    def broker(name: str) -> Broker:
        return made_broker(tmp_path / name, namesrv, {"brokerName": name})

    async with (
        broker("broker-a") as first,
        broker("broker-b") as second,
        await Peer.connect(first.address) as at_first,
        await Peer.connect(second.address) as at_second,
    ):
        await create(at_first, 2)
        await create(at_second, 2)
        await at_first.ask(heartbeat("a", TOPIC, group=GROUP))
        both = await until_async(
            lambda: assigned(at_first), lambda queues: queues is not None and len(queues) == 4
        )
        assert both == [(name, queue, "PULL") for name in ("broker-a", "broker-b") for queue in (0, 1)]
        assert await set_mode(at_first) == 0
        assert await assigned(at_first) == [("broker-a", -1, "POP"), ("broker-b", -1, "POP")]
