"""Producers in event loops: the same errors, the same bounds, nothing that blocks."""

import asyncio
from typing import Any

import pytest

import rmqpy
from rmqpy import errors
from rmqpy.message import MessageQueue

from .fakes import SILENCE, Brokers, NameServer, Network


async def test_a_loop_sends_many_and_awaits_them_in_any_order(
    name_server: NameServer, brokers: Brokers
) -> None:
    async with rmqpy.AsyncProducer(name_server.address, max_in_flight=64) as producer:
        futures = [await producer.submit("orders", str(number)) for number in range(500)]
        results = await asyncio.gather(*futures)
        batch = await producer.send_batch([rmqpy.Message("orders", b"x") for _ in range(3)])
        await producer.send_oneway("orders", b"x")
    assert all(result.ok for result in [*results, *batch])
    assert len({result.message_id for result in results}) == 500


async def test_a_loop_gets_the_same_errors(name_server: NameServer, brokers: Brokers) -> None:
    for broker in brokers:
        broker.refuse(13, "never")
    async with rmqpy.AsyncProducer(name_server.address) as producer:
        with pytest.raises(errors.SendError, match="never"):
            await producer.send("orders", b"x")
        with pytest.raises(errors.TopicNotFound):
            await producer.send("fresh", b"x")


async def test_cancelling_a_send_ends_the_wait_and_nothing_else(
    name_server: NameServer, brokers: Brokers
) -> None:
    held: list[Any] = []

    def hold(ask: Any) -> Any:
        held.append(ask)
        return SILENCE if len(held) == 1 else brokers[0].store(ask)

    for broker in brokers:
        broker.handlers[310] = hold
    async with rmqpy.AsyncProducer(name_server.address, send_timeout=5) as producer:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await producer.send("orders", b"x")
        assert (await producer.send("orders", b"y")).ok


@pytest.mark.parametrize("budget", [{"max_in_flight": 1}, {"max_in_flight": 7}, {"max_buffered_bytes": 300}])
@pytest.mark.parametrize("queue", [None, MessageQueue("orders", "broker-a", 0)])
async def test_sends_that_wait_for_room_go_in_order_and_all_get_through(
    network: Network, brokers: Brokers, budget: dict[str, int], queue: MessageQueue | None
) -> None:
    servers = network.name_server(brokers[:1], {"orders": 1})
    async with rmqpy.AsyncProducer(servers.address, send_timeout=30, retries=0, **budget) as producer:  # type: ignore[arg-type]
        # A send that is the first of its topic waits for its route.
        await producer.send("orders", b"0", queue=queue)
        sizes = [400 if number % 10 == 0 else 10 for number in range(100)]
        tasks = []
        for number, size in enumerate(sizes):
            tasks.append(asyncio.ensure_future(producer.send("orders", f"{number:0{size}}", queue=queue)))
            # There may be room for it, and none for a larger one before it.
            await asyncio.sleep(0)
        for victim in tasks[50:60]:
            victim.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(isinstance(result, rmqpy.SendResult) for result in results) >= 90
    arrived = [int(frame.body) for frame in brokers[0].sends]
    assert arrived == sorted(arrived)


async def test_closing_ends_the_wait_for_room(name_server: NameServer, brokers: Brokers) -> None:
    for broker in brokers:
        broker.handlers[310] = lambda ask: SILENCE
    producer = rmqpy.AsyncProducer(name_server.address, max_in_flight=1, send_timeout=30)
    first = await producer.submit("orders", b"x")
    waiting = asyncio.ensure_future(producer.submit("orders", b"x"))
    await asyncio.sleep(0)
    await producer.close(timeout=0.05)
    with pytest.raises(errors.ClosedError):
        await waiting
    with pytest.raises(errors.SendError):
        await first
