"""Client queries: an administrator queries consumers through the broker, and has one handle a message out of turn."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import rmqpy
from rmqpy import errors
from rmqpy._native import Client
from rmqpy.protocol import fastjson
from rmqpy.protocol.requests.introspection import (
    ConsumeMessageDirectly,
    GetConsumerRunningInfo,
    InvokeBrokerToGetConsumerStatus,
)
from rmqpy.remoting.client import LoopCaller
from rmqpy.remoting.client import Peer as Asked
from rmqpy.server import Standalone
from waiting import until

from .live import BODIES, WAIT_S, Seen, end, send


@pytest.fixture
async def broker(server: Standalone) -> AsyncIterator[Asked]:
    client = Client()
    async with LoopCaller(client) as caller:
        yield caller.peer(server.broker, timeout=WAIT_S)
    await asyncio.to_thread(client.close)


async def running_info(broker: Asked, group: str, *, stacks: bool = False) -> Any:
    ask = GetConsumerRunningInfo(consumer_group=group, client_id="", jstack_enable=stacks)
    return fastjson.loads(await broker.call(ask))


async def handed(broker: Asked, group: str, topic: str, message_id: str) -> Any:
    ask = ConsumeMessageDirectly(consumer_group=group, topic=topic, msg_id=message_id)
    return json.loads(await broker.call(ask))


def consumer(
    server: Standalone, topic: str, handler: Callable[[Any], Any], **options: Any
) -> rmqpy.PushConsumer:
    made = rmqpy.PushConsumer(topic, server.namesrv, start_from="earliest", **options)
    made.on(topic, "t", handler)
    return made


def stored(server: Standalone, topic: str, body: str = "direct") -> str:
    """The place of a message that no subscription wants."""
    with rmqpy.Producer(server.namesrv) as producer:
        return producer.send(topic, body, tag="unwanted").offset_message_id


async def test_member_reports_its_positions(server: Standalone, topic: str, broker: Asked) -> None:
    seen = Seen()
    with consumer(server, topic, seen) as member:
        await asyncio.to_thread(send, server, topic, BODIES[:40])
        await asyncio.to_thread(until, lambda: seen.has(*BODIES[:40]) and member.stats().waiting == 0)
        told = await broker.call(InvokeBrokerToGetConsumerStatus(topic=topic, group=topic))
        [(client, table)] = told.consumer_table.items()
        assert {named.queue for named in table} == {
            queue for queue in member.queues() if queue.topic == topic
        }
    assert client.startswith("127.0.0.1@")
    assert sum(table.values()) == await asyncio.to_thread(end, server, topic)


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
async def test_member_reports_its_running_info(
    server: Standalone, topic: str, broker: Asked, ordered: bool
) -> None:
    gate = threading.Event()
    seen = Seen()

    def handle(message: rmqpy.ReceivedMessage) -> None:
        if message.text() == "3":
            gate.wait(WAIT_S)
        seen(message)

    with consumer(server, topic, handle, ordered=ordered, workers=1) as member:
        await asyncio.to_thread(send, server, topic, BODIES[:8], sharding_key="one queue")
        await asyncio.to_thread(until, lambda: seen.has("0", "1", "2") and member.stats().waiting == 5)
        info = await running_info(broker, topic, stacks=True)
        gate.set()
    assert info["properties"]["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert info["properties"]["PROP_CONSUMEORDERLY"] == str(ordered).lower()
    assert {one["topic"] for one in info["subscriptionSet"]} == {topic, f"%RETRY%{topic}"}
    [busy] = [state for state in info["mqTable"].values() if state["cachedMsgCount"]]
    assert busy["cachedMsgCount"] == 5
    assert busy["cachedMsgMaxOffset"] - busy["cachedMsgMinOffset"] == 4
    assert busy["commitOffset"] == busy["cachedMsgMinOffset"]
    assert busy["locked"] is ordered
    assert bool(busy["lastLockTimestamp"]) is ordered
    assert busy["lastPullTimestamp"] > 0 < busy["lastConsumeTimestamp"]
    rates = info["statusTable"][topic]
    assert rates["consumeOKTPS"] > 0 < rates["pullTPS"]
    assert rates["consumeFailedMsgs"] == 0
    assert "in handle" in info["jstack"]
    assert f"rmqpy-{topic}-handler-0" in info["jstack"]


class Odd:
    """ClientQueryHandlers a message as its body says."""

    def __init__(self) -> None:
        self.threads: list[str] = []

    def __call__(self, message: rmqpy.ReceivedMessage) -> Any:
        self.threads.append(threading.current_thread().name)
        match message.text():
            case "raise":
                raise RuntimeError("cannot be")
            case "later":
                return False
            case "discard":
                return rmqpy.ConsumeResult.DISCARD
        return None


@pytest.mark.parametrize(
    ("body", "result"),
    [
        ("fine", "CR_SUCCESS"),
        ("discard", "CR_SUCCESS"),
        ("later", "CR_LATER"),
        ("raise", "CR_THROW_EXCEPTION"),
    ],
)
async def test_message_handled_out_of_turn_changes_no_progress(
    server: Standalone, topic: str, broker: Asked, body: str, result: str
) -> None:
    odd = Odd()
    message_id = await asyncio.to_thread(stored, server, topic, body)
    with consumer(server, topic, odd) as member:
        await asyncio.to_thread(until, lambda: len(member.queues()) >= 4)
        told = await handed(broker, topic, topic, message_id)
        assert member.stats()[:3] == (0, 0, 0)
    assert (told["consumeResult"], told["order"], told["autoCommit"]) == (result, False, True)
    assert ("cannot be" in (told.get("remark") or "")) == (body == "raise")
    assert len(odd.threads) == 1
    assert "handler" not in odd.threads[0]


async def test_ordered_member_reports_its_mode(server: Standalone, topic: str, broker: Asked) -> None:
    message_id = await asyncio.to_thread(stored, server, topic)
    with consumer(server, topic, lambda message: None, ordered=True):
        assert (await handed(broker, topic, topic, message_id))["order"] is True


async def test_coroutine_handlers_can_handle_messages_out_of_turn(
    server: Standalone, topic: str, broker: Asked
) -> None:
    handled: list[tuple[str, rmqpy.MessageQueue]] = []

    async def handle(messages: list[rmqpy.ReceivedMessage]) -> None:
        await asyncio.sleep(0)
        handled.extend((message.text(), message.queue) for message in messages)

    message_id = await asyncio.to_thread(stored, server, topic)
    member = rmqpy.AsyncPushConsumer(topic, server.namesrv, batch_size=8)
    member.on(topic, "t", handle)
    async with member:
        assert (await handed(broker, topic, topic, message_id))["consumeResult"] == "CR_SUCCESS"
    [(body, queue)] = handled
    assert body == "direct"
    assert queue.topic == topic
    assert queue.broker
    assert queue.queue_id in range(4)


async def test_a_member_without_handler_for_the_topic_refuses(
    server: Standalone, topic: str, broker: Asked
) -> None:
    other = f"{topic}-other"
    message_id = await asyncio.to_thread(stored, server, other)
    with (
        consumer(server, topic, lambda message: None),
        pytest.raises(errors.BrokerError, match=f"no handler for topic {other}"),
    ):
        await handed(broker, topic, other, message_id)


async def test_polling_member_reports_positions_and_refuses_messages(
    server: Standalone, topic: str, broker: Asked
) -> None:
    message_id = await asyncio.to_thread(stored, server, topic)

    def took() -> rmqpy.PullConsumer:
        member = rmqpy.PullConsumer(topic, server.namesrv, start_from="earliest")
        member.subscribe(topic, "t")
        until(lambda: (member.poll(0.05), len(member.assignment()) == 4)[1])
        return member

    member = await asyncio.to_thread(took)
    try:
        info = await running_info(broker, topic)
        assert info["properties"]["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
        assert len(info["mqTable"]) == 4
        with pytest.raises(errors.BrokerError, match="cannot be handed"):
            await handed(broker, topic, topic, message_id)
    finally:
        await asyncio.to_thread(member.close)
