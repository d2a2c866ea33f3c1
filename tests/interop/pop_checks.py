"""POP scenarios for either broker: each sends raw requests and returns what it observed, without times.

A scenario has a topic and a group of its own, so that all of them run at the same time.
"""

import asyncio
import base64
import json
import re
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

from broker.popping import Popped, messages
from broker.records import records
from broker.talk import pull, send
from rmqpy.protocol.codes import RequestCode
from waiting import until_async
from wire import Frame, Peer

from . import wire
from .servers import Cluster

#: What a scenario observed, by name.
Observed = dict[str, Any]

INVISIBLE_MS: Final = 3_000
#: The time in which either broker delivers a message again after its invisible time: Apache's takes 2 to 6 s more.
AGAIN_MS: Final = 9_000
PARKED: Final = 200
_ADDRESS: Final = re.compile(r"/?\d+\.\d+\.\d+\.\d+:\d+")
#: Fields that are times, or that are counted over all requests.
_VARYING: Final = frozenset({"popTime", "reviveQid"})


@dataclass
class Pops:
    """One group that pops one topic, over one connection."""

    cluster: Cluster
    peer: Peer
    topic: str
    group: str

    async def create(self, queues: int = 1) -> None:
        await asyncio.to_thread(
            wire.create_topic, self.cluster.namesrv, self.cluster.broker, self.topic, queues
        )

    async def sent(self, *bodies: bytes, queue: int = 0, **properties: str) -> None:
        for body in bodies:
            named = {"UNIQ_KEY": f"AC11000100{time.time_ns():022d}"} | properties
            text = "".join(f"{name}\x01{value}\x02" for name, value in named.items())
            stored = await send(self.peer, self.topic, body, e=str(queue), i=text)
            assert stored.code == 0
        # Apache's broker shows a message to pops a moment after its answer.
        last = int((stored.ext or {})["queueOffset"])
        await until_async(lambda: self.end_of(queue), wanted=lambda end: end > last)

    async def end_of(self, queue: int) -> int:
        fields = {"topic": self.topic, "queueId": str(queue)}
        reply = await self.peer.call(RequestCode.GET_MAX_OFFSET, fields)
        return int((reply.ext or {})["offset"])

    async def pop(
        self,
        count: int = 32,
        *,
        invisible: int = INVISIBLE_MS,
        wait: int = 0,
        peer: Peer | None = None,
        **changes: str,
    ) -> Frame:
        ext = {
            "consumerGroup": self.group, "topic": self.topic, "queueId": "-1", "maxMsgNums": str(count),
            "invisibleTime": str(invisible), "pollTime": str(wait), "bornTime": str(round(time.time() * 1000)),
            "initMode": "0", "expType": "TAG", "exp": "*", "order": "false",
        }  # fmt: skip
        return await (peer or self.peer).call(RequestCode.POP_MESSAGE, ext | changes)

    async def popped(self, count: int = 32, *, wait: int = AGAIN_MS, **changes: Any) -> list[Popped]:
        return messages(await self.pop(count, wait=wait, **changes))

    async def all_popped(self, number: int, **changes: Any) -> list[Popped]:
        """So many messages, of several pops; fewer where no more come."""
        found: list[Popped] = []
        while len(found) < number and (more := await self.popped(**changes)):
            found += more
        return found

    def named(self, message: Popped, **changes: str) -> dict[str, str]:
        mark = message.handle.split(" ")[4]
        topic = {"0": self.topic, "1": f"%RETRY%{self.group}_{self.topic}"}[mark]
        fields = {
            "consumerGroup": self.group, "topic": topic, "queueId": str(message.queue_id),
            "extraInfo": message.handle, "offset": str(message.offset),
        }  # fmt: skip
        return fields | changes

    async def ack(self, message: Popped, **changes: str) -> Frame:
        return await self.peer.call(RequestCode.ACK_MESSAGE, self.named(message, **changes))

    async def change(self, message: Popped, invisible: int, **changes: str) -> Frame:
        ext = self.named(message, invisibleTime=str(invisible), **changes)
        return await self.peer.call(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ext)

    async def batch_ack(self, *found: Popped) -> Frame:
        entries: dict[tuple[str, ...], dict[str, Any]] = {}
        for message in found:
            start, popped, invisible, revive, mark, _, queue, offset = message.handle.split(" ")
            entry = entries.setdefault(
                (start, popped, queue, mark),
                {"c": self.group, "t": self.topic, "r": mark, "so": int(start), "q": int(queue), "rq": int(revive),
                 "pt": int(popped), "it": int(invisible), "bits": 0},
            )  # fmt: skip
            entry["bits"] |= 1 << (int(offset) - int(start))
        for entry in entries.values():
            bits = entry.pop("bits")
            entry["b"] = base64.b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode()
        body = json.dumps({"brokerName": "broker-a", "acks": list(entries.values())}).encode()
        return await self.peer.call(RequestCode.BATCH_ACK_MESSAGE, {}, body)

    def answer(self, frame: Frame) -> Observed:
        """A frame without what varies."""
        remark = None if frame.remark is None else self._plain(_ADDRESS.sub("ADDRESS", frame.remark))
        fields = {
            name: self._plain(value)
            for name, value in sorted((frame.ext or {}).items())
            if name not in _VARYING
        }
        return {"code": frame.code, "remark": remark, **fields}

    def message(self, message: Popped, first: Popped | None = None) -> Observed:
        """A message without what varies; `first` is its delivery before."""
        handle = message.handle.split(" ")
        observed = {
            "body": message.body.decode(), "topic": self._plain(message.topic), "queue": message.queue_id,
            "offset": message.offset, "times": message.reconsume_times, "mark": handle[4],
            "has POP_CK": "POP_CK" in message.properties,
            "names": sorted(set(message.properties) - {"CLUSTER", "TRACE_ON", "MSG_REGION"}),
        }  # fmt: skip
        if first is not None:
            observed["keeps UNIQ_KEY"] = message.properties["UNIQ_KEY"] == first.properties["UNIQ_KEY"]
            observed["ORIGIN_GROUP"] = self._plain(message.properties.get("ORIGIN_GROUP", ""))
            observed["1ST_POP_TIME is the first"] = (
                message.properties.get("1ST_POP_TIME") == first.handle.split(" ")[1]
            )
        return observed

    def _plain(self, text: str) -> str:
        return text.replace(self.group, "GROUP").replace(self.topic, "TOPIC")

    async def committed(self, queue: int = 0) -> int:
        # Apache's broker commits a moment after its answer.
        await asyncio.sleep(0.5)
        return wire.committed(self.cluster.broker, self.group, self.topic, queue)


async def start_offsets(pops: Pops) -> Observed:
    """Check 1: a new group begins at the first message of a small topic, in either mode."""
    await pops.create()
    await pops.sent(b"0", b"1", b"2")
    last = await pops.pop(initMode="1")
    pops.group += "-first"
    first = await pops.pop(initMode="0")
    return {"MAX": pops.answer(last), "MIN": pops.answer(first)}


async def pulls_before(pops: Pops) -> Observed:
    """Check 10: a pop begins at the committed offset, also where the group has pulled further and not committed."""
    await pops.create()
    await pops.sent(b"0", b"1", b"2")
    pulled = await pull(pops.peer, pops.group, pops.topic)
    uncommitted = await pops.pop(initMode="0")
    pops.group += "-committed"
    fields = {"consumerGroup": pops.group, "topic": pops.topic, "queueId": "0", "commitOffset": "2"}
    await pull(pops.peer, pops.group, pops.topic)
    await pops.peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
    committed = await pops.pop(initMode="0")
    return {
        "pulled": len(records(pulled.body)),
        "popped after a pull": pops.answer(uncommitted),
        "popped after a commit": pops.answer(committed),
    }


async def refusals(pops: Pops) -> Observed:
    """Check 2: requests that are refused."""
    await pops.create(2)
    now = round(time.time() * 1000)
    return {
        "33 messages": pops.answer(await pops.pop(33)),
        "no messages": pops.answer(await pops.pop(0)),
        "a queue too many": pops.answer(await pops.pop(queueId="2")),
        "any negative queue": pops.answer(await pops.pop(queueId="-7")),
        "an unknown topic": pops.answer(await pops.pop(topic=f"{pops.topic}-unknown")),
        "a late request": pops.answer(await pops.pop(bornTime=str(now - 600_000))),
        "a filter that cannot be parsed": pops.answer(await pops.pop(expType="SQL92", exp="a >")),
        "nothing to pop": pops.answer(await pops.pop()),
        "no time": pops.answer(await pops.pop(invisible=0)),
    }  # fmt: skip


async def three_queues(pops: Pops) -> Observed:
    """Check 3: a pop of several queues has one entry for each."""
    await pops.create(3)
    for queue in range(3):
        await pops.sent(*(b"%d-%d" % (queue, number) for number in range(8)), queue=queue)
    answer = await pops.pop(invisible=60_000)
    found = messages(answer)
    by_queue = {queue: [each.offset for each in found if each.queue_id == queue] for queue in range(3)}
    return {
        "code": answer.code,
        "messages": len(found),
        "offsets": by_queue,
        "committed": [await pops.committed(queue) for queue in range(3)],
        "message": pops.message(min(found, key=lambda each: (each.queue_id, each.offset))),
        "again": pops.answer(await pops.pop()),
    }


async def acknowledgements(pops: Pops) -> Observed:
    """Check 4: what is acknowledged does not come again, the rest does, once."""
    await pops.create()
    await pops.sent(b"acked", b"left")
    acked, left = await pops.popped()
    answers = [pops.answer(await pops.ack(acked)) for _ in range(2)]
    again = await pops.popped(invisible=60_000)
    more = await pops.pop(wait=AGAIN_MS)
    return {
        "answers": answers,
        "again": [pops.message(each, left) for each in again],
        "nothing more": pops.answer(more),
        "ack of a retry": [pops.answer(await pops.ack(each)) for each in again],
    }


async def bad_acknowledgements(pops: Pops) -> Observed:
    """Check 4: acknowledgements and changes that are refused."""
    await pops.create()
    await pops.sent(b"0")
    [message] = await pops.popped(invisible=60_000)
    found: Observed = {}
    for name, changes in {
        "an unknown topic": {"topic": f"{pops.topic}-unknown"},
        "a queue too many": {"queueId": "9"},
        "an offset too far": {"offset": "99"},
        "the end of the queue": {"offset": "1"},
        "an unknown group": {"consumerGroup": f"{pops.group}-unknown"},
        "a handle of another pop": {"extraInfo": message.handle.replace(message.handle.split(" ")[1], "1")},
    }.items():
        found[f"ack: {name}"] = pops.answer(await pops.ack(message, **changes))
        found[f"change: {name}"] = pops.answer(await pops.change(message, 60_000, **changes))
    found["ack: no handle"] = (await pops.ack(message, extraInfo="x")).code
    empty = await pops.peer.call(RequestCode.BATCH_ACK_MESSAGE, {}, b'{"brokerName":"broker-a","acks":[]}')
    found["an empty batch"] = pops.answer(empty)
    return found


async def half_a_batch(pops: Pops) -> Observed:
    """Check 5: half of a batch is acknowledged, the other half comes again."""
    await pops.create()
    await pops.sent(*(b"%02d" % number for number in range(20)))
    batch = await pops.popped()
    answer = await pops.batch_ack(*batch[::2])
    again = await pops.all_popped(10, invisible=60_000)
    return {
        "popped": len(batch),
        "answer": pops.answer(answer),
        "again": sorted(each.body.decode() for each in again),
        "times": sorted({each.reconsume_times for each in again}),
    }


async def changed_times(pops: Pops) -> Observed:
    """Check 6: a change hides a message from now on; its new handle acknowledges, the old one does not."""
    await pops.create()
    await pops.sent(b"new handle", b"old handle", b"suspended")
    new, old, suspended = await pops.popped()
    answers = [await pops.change(new, INVISIBLE_MS), await pops.change(old, INVISIBLE_MS)]
    kept = await pops.change(suspended, INVISIBLE_MS, suspend="true")
    renewed = Popped(**{**new.__dict__, "handle": _renewed(new, answers[0])})
    acked = [await pops.ack(renewed), await pops.ack(old)]
    again = await pops.all_popped(2, invisible=60_000)
    return {
        "answers": [pops.answer(each) for each in (*answers, kept)],
        "acks": [pops.answer(each) for each in acked],
        "again": sorted((each.body.decode(), each.reconsume_times) for each in again),
        "nothing more": (await pops.pop(wait=AGAIN_MS)).code,
    }


def _renewed(message: Popped, answer: Frame) -> str:
    ext = answer.ext or {}
    _, _, _, _, mark, broker, queue, offset = message.handle.split(" ")
    return f"{offset} {ext['popTime']} {ext['invisibleTime']} {ext['reviveQid']} {mark} {broker} {queue} {offset}"


async def in_order(pops: Pops) -> Observed:
    """Check 9: a batch in order blocks its queue; the same attempt gets it again, and so does its expiry."""
    await pops.create()
    await pops.sent(*(b"%d" % number for number in range(6)))

    async def batch(count: int, **changes: Any) -> tuple[Frame, list[Popped]]:
        answer = await pops.pop(count, order="true", **changes)
        return answer, messages(answer)

    first, found = await batch(3, invisible=60_000, attemptId="one")
    blocked, _ = await batch(3, attemptId="two")
    repeated, again = await batch(3, invisible=60_000, attemptId="one")
    stale = await pops.ack(found[0])
    early = [await pops.ack(again[2]), await pops.ack(again[1])]
    still, _ = await batch(3, attemptId="three")
    committed = [await pops.committed()]
    changed = await pops.change(again[0], INVISIBLE_MS)
    # Until the new time of the first message: the acknowledged ones behind it come again, too.
    expired, late = await batch(2, invisible=60_000, wait=AGAIN_MS, attemptId="four")
    acked = [await pops.ack(each) for each in late]
    committed.append(await pops.committed())
    wrong = [await pops.ack(late[0]), await pops.ack(late[1], offset="5")]
    rest, others = await batch(32, invisible=1_000, attemptId="five")
    committed.append(await pops.committed())
    counted, _ = await batch(32, invisible=60_000, wait=AGAIN_MS, attemptId="six")
    return {
        "first": pops.answer(first),
        "blocked": pops.answer(blocked),
        "the same attempt": pops.answer(repeated),
        "ack of a handle before": pops.answer(stale),
        "acks behind the first": [pops.answer(each) for each in early],
        "still blocked": pops.answer(still),
        "change": {name: value for name, value in pops.answer(changed).items() if name != "invisibleTime"},
        "expired": pops.answer(expired),
        "acks": [pops.answer(each) for each in acked],
        "acks again": [pops.answer(each) for each in wrong],
        "rest": pops.answer(rest),
        "rest again": pops.answer(counted),
        "message": pops.message(others[0]),
        "committed": committed,
    }


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


async def resets(pops: Pops) -> Observed:
    """Check 12: a reset by time while messages are in flight."""
    await pops.create()
    await pops.sent(b"0", b"1", b"2")
    first = await pops.popped(2, invisible=60_000)
    fields = {
        "topic": pops.topic, "group": pops.group, "timestamp": "0", "isForce": "true", "offset": "0", "queueId": "-1",
    }  # fmt: skip
    answer = await pops.peer.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
    again = await pops.popped(invisible=60_000)
    return {
        "first": [each.offset for each in first],
        "reset": answer.code,
        "again": [(each.offset, each.reconsume_times) for each in again],
        "committed": await pops.committed(),
    }


async def deletions(pops: Pops) -> Observed:
    """Check 12: a topic is deleted with messages in flight, and made again."""
    await pops.create()
    await pops.sent(b"0", b"1")
    found = await pops.popped(invisible=1_000)
    deleted = await pops.peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": pops.topic})
    answers = [pops.answer(await pops.pop()), pops.answer(await pops.ack(found[0]))]
    # Until the time of the checkpoints is over at either broker.
    await asyncio.sleep(AGAIN_MS / 1_000)
    await pops.create()
    await pops.sent(b"new")
    again = await pops.all_popped(1, invisible=60_000)
    return {
        "deleted": deleted.code,
        "without the topic": answers,
        "again": [(each.body.decode(), each.reconsume_times) for each in again],
        "nothing more": (await pops.pop(wait=2_000)).code,
    }


async def deleted_groups(pops: Pops) -> Observed:
    """Check 12: a group is deleted with messages in flight, and made again by its next pop."""
    await pops.create()
    await pops.sent(b"0", b"1", b"2")
    found = await pops.popped(2, invisible=1_000)
    fields = {"groupName": pops.group, "cleanOffset": "true"}
    deleted = await pops.peer.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, fields)
    acked = await pops.ack(found[0])
    # Until the time of the checkpoints is over at either broker.
    await asyncio.sleep(AGAIN_MS / 1_000)
    answer = await pops.pop(invisible=60_000)
    return {
        "deleted": deleted.code,
        "ack without the group": pops.answer(acked),
        "pop afterwards": pops.answer(answer),
        "messages": [(each.body.decode(), each.reconsume_times) for each in messages(answer)],
        "nothing more": (await pops.pop(wait=2_000)).code,
    }


async def filters(pops: Pops) -> Observed:
    """Check 13: messages that a filter passes over are committed, and others found behind them."""
    await pops.create()
    for number in range(200):
        await pops.sent(b"%d" % number, TAGS="other", price=str(number))
    await pops.sent(b"paid", TAGS="paid", price="1000")
    by_tag = await pops.all_popped(1, invisible=60_000, exp="paid || refunded", wait=2_000)
    tagged = await pops.committed()
    nothing = await pops.pop(exp="paid", wait=1_000)
    pops.group += "-sql"
    by_sql = await pops.all_popped(1, invisible=60_000, expType="SQL92", exp="price > 500", wait=2_000)
    return {
        "by tag": [pops.message(each) for each in by_tag],
        "committed": tagged,
        "nothing": nothing.code,
        "by SQL": [each.body.decode() for each in by_sql],
        "committed by SQL": await pops.committed(),
    }


async def clocks(pops: Pops) -> Observed:
    """Check 14: a client whose clock is behind gets nothing; one that is ahead waits longer."""
    await pops.create()
    now = round(time.time() * 1000)
    behind = await pops.pop(wait=5_000, bornTime=str(now - 600_000))
    began = time.monotonic()
    ahead = await pops.pop(wait=1_000, bornTime=str(now + 2_000))
    return {
        "behind": pops.answer(behind),
        "ahead": pops.answer(ahead),
        "seconds ahead": round(time.monotonic() - began),
    }


#: The scenarios by name.
CHECKS: Final[dict[str, Callable[[Pops], Awaitable[Observed]]]] = {
    check.__name__: check
    for check in (
        start_offsets, pulls_before, refusals, three_queues, acknowledgements, bad_acknowledgements, half_a_batch,
        changed_times, in_order, peeks, polling_infos, notifications, parked_requests, resets, deletions,
        deleted_groups, filters, clocks,
    )
}  # fmt: skip


async def observe(cluster: Cluster, run: str) -> dict[str, Observed]:
    """Run all scenarios at once; what each observed, or how it failed."""

    async def observed(name: str) -> Observed:
        topic = f"pop-{name.replace('_', '-')}-{run}"
        async with await Peer.connect(cluster.broker) as peer:
            try:
                return await CHECKS[name](Pops(cluster, peer, topic, f"group-of-{topic}"))
            except Exception as failure:
                return {"failure": f"{type(failure).__name__}: {failure}"}

    return dict(zip(CHECKS, await asyncio.gather(*map(observed, CHECKS)), strict=True))
