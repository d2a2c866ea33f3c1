"""POP scenarios for either broker: each sends raw requests and returns what it observed, without times.

A scenario has a topic and a group of its own, so that all of them run at the same time. Those of workers that wait are
in `pop_waits`.
"""

import asyncio
import operator
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from broker.popping import Popped, messages
from broker.records import records
from broker.talk import pull, send
from rmqpy.protocol.codes import RequestCode
from waiting import until_async
from wire import Frame, Peer

from .pop_requests import AGAIN_MS, INVISIBLE_MS, Observed, Pops
from .pop_waits import notifications, parked_requests, peeks, polling_infos
from .servers import Cluster


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


async def priorities(pops: Pops) -> Observed:
    """A priority chooses the queue of a message; pops read the most urgent queue first, and retries last."""
    await pops.create(8, "+message.type=PRIORITY")
    queues: Observed = {}
    for name, properties in {
        "0": {}, "5": {}, "99": {}, "-1": {}, "high": {}, "2": {"__SHARDINGKEY": "s"}, "3": {"DELAY": "5"},
        "4": {"TRAN_MSG": "true", "PGROUP": "g"},
    }.items():  # fmt: skip
        named = {"UNIQ_KEY": f"AC11000100{time.time_ns():022d}", "_SYS_MSG_PRIORITY_": name} | properties
        text = "".join(f"{key}\x01{value}\x02" for key, value in named.items())
        flag = "4" if "TRAN_MSG" in named else "0"
        stored = await send(pops.peer, pops.topic, name.encode(), e="1", i=text, f=flag)
        queues[name] = (stored.code, (stored.ext or {}).get("queueId"))
    for queue, end in {0: 1, 1: 3, 5: 1, 7: 1}.items():
        await until_async(partial(pops.end_of, queue), wanted=partial(operator.le, end))
    first = await pops.pop(1, invisible=60_000)
    rest = await pops.pop(invisible=INVISIBLE_MS)
    again = await pops.all_popped(len(messages(rest)), invisible=60_000)
    return {
        "queues": queues,
        "first": [pops.message(each) for each in messages(first)],
        "rest": [pops.message(each) for each in messages(rest)],
        "again": sorted((each.body.decode(), each.queue_id, each.reconsume_times) for each in again),
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
        deleted_groups, filters, priorities, clocks,
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
