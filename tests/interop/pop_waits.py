"""POP scenarios of workers that look or wait: PEEK_MESSAGE, POLLING_INFO, NOTIFICATION and parked pops."""

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Final

from broker.records import records
from rmqpy.protocol.codes import RequestCode
from waiting import until_async
from wire import Frame, Peer

from .pop_requests import Observed, Pops

PARKED: Final = 200


async def peeks(pops: Pops) -> Observed:
    """PEEK_MESSAGE: messages are shown and stay; what is not there, and refusals."""
    await pops.create(2)
    await pops.sent(b"0", b"1", b"2")

    async def peek(**changes: str) -> Frame:
        ext = {"consumerGroup": pops.group, "topic": pops.topic, "queueId": "0", "maxMsgNums": "2"}
        return await pops.peer.call(RequestCode.PEEK_MESSAGE, ext | changes)

    def shown(frame: Frame) -> Observed:
        found = [(each.body.decode(), each.queue_id, each.queue_offset) for each in records(frame.body)]
        return pops.answer(frame) | {"messages": found}

    before = await peek()
    any_queue = await peek(queueId="-1", maxMsgNums="32")
    empty = await peek(queueId="1")
    await pops.popped(2, invisible=60_000)
    await pops.committed()
    return {
        "before a pop": shown(before),
        "any queue": shown(any_queue),
        "an empty queue": shown(empty),
        "behind the popped ones": shown(await peek()),
        "no messages": shown(await peek(maxMsgNums="0")),
        "33 messages": shown(await peek(maxMsgNums="33")),
        "a queue too many": pops.answer(await peek(queueId="2")),
        "an unknown topic": pops.answer(await peek(topic=f"{pops.topic}-unknown")),
    }


async def polling_infos(pops: Pops) -> Observed:
    """POLLING_INFO: the parked pops of exactly that queue, or of none."""
    await pops.create(2)

    async def info(**changes: str) -> Frame:
        ext = {"consumerGroup": pops.group, "topic": pops.topic, "queueId": "-1"}
        return await pops.peer.call(RequestCode.POLLING_INFO, ext | changes)

    async def parked(queue: int) -> int:
        return int((((await info(queueId=str(queue))).ext) or {})["pollingNum"])

    await pops.pop()
    before = await info()
    async with AsyncExitStack() as stack:
        waiting = []
        for queue in (-1, -1, 1):
            peer = await stack.enter_async_context(await Peer.connect(pops.cluster.broker))
            waiting.append(asyncio.create_task(pops.pop(wait=5_000, peer=peer, queueId=str(queue))))
        await until_async(lambda: parked(-1), wanted=lambda found: found == 2)
        await until_async(lambda: parked(1), wanted=lambda found: found == 1)
        during = {queue: pops.answer(await info(queueId=str(queue))) for queue in (-1, 0, 1)}
        codes = [frame.code for frame in await asyncio.gather(*waiting)]
    return {
        "before": pops.answer(before),
        "during": during,
        "codes": codes,
        "after": pops.answer(await info()),
        "a queue too many": pops.answer(await info(queueId="2")),
        "an unknown topic": pops.answer(await info(topic=f"{pops.topic}-unknown")),
    }


async def notifications(pops: Pops) -> Observed:
    """NOTIFICATION: whether a pop would find something, at once or within its time."""
    await pops.create(2)

    async def notification(wait: int = 0, peer: Peer | None = None, **changes: str) -> Frame:
        ext = {
            "consumerGroup": pops.group, "topic": pops.topic, "queueId": "-1", "pollTime": str(wait),
            "bornTime": str(round(time.time() * 1000)), "order": "false",
        }  # fmt: skip
        return await (peer or pops.peer).call(RequestCode.NOTIFICATION, ext | changes)

    nothing = await notification()
    async with await Peer.connect(pops.cluster.broker) as peer:
        waiting = asyncio.create_task(notification(10_000, peer))
        # Brokers do not tell when a notification is parked.
        await asyncio.sleep(1)
        began = time.monotonic()
        await pops.sent(b"0")
        woken = await waiting
        seconds = time.monotonic() - began
    there = await notification()
    of_queues = [pops.answer(await notification(queueId=str(queue))) for queue in (0, 1)]
    await pops.popped(invisible=60_000, order="true")
    return {
        "nothing": pops.answer(nothing),
        "woken": pops.answer(woken),
        "at once": seconds < 5,
        "there": pops.answer(there),
        "of queues": of_queues,
        "blocked in order": pops.answer(await notification(order="true", queueId="0")),
        "a queue too many": pops.answer(await notification(queueId="2")),
        "an unknown topic": pops.answer(await notification(topic=f"{pops.topic}-unknown")),
    }


async def parked_requests(pops: Pops) -> Observed:
    """Check 11: one message wakes one of many parked requests; a backlog gives work to all of them."""
    await pops.create(4)
    async with AsyncExitStack() as stack:
        peers = [
            await stack.enter_async_context(await Peer.connect(pops.cluster.broker)) for _ in range(PARKED)
        ]
        waiting = [
            asyncio.create_task(pops.pop(1, invisible=60_000, wait=4_000, peer=peer)) for peer in peers
        ]
        # Brokers do not tell when all requests are parked.
        await asyncio.sleep(1)
        await pops.sent(b"one")
        one = [frame.code for frame in await asyncio.gather(*waiting)]
        began = time.monotonic()
        waiting = [
            asyncio.create_task(pops.pop(1, invisible=60_000, wait=20_000, peer=peer)) for peer in peers
        ]
        # The same.
        await asyncio.sleep(1)
        for number in range(PARKED):
            await pops.sent(b"%d" % number, queue=number % 4)
        many = [frame.code for frame in await asyncio.gather(*waiting)]
    return {
        "one message": {code: one.count(code) for code in sorted(set(one))},
        "a backlog": {code: many.count(code) for code in sorted(set(many))},
        "before the timeout": time.monotonic() - began < 15,
    }
