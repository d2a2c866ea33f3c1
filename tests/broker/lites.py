"""Requests for lite topics, frame by frame, and the handles that clients build from the replies."""

import time
from dataclasses import dataclass

from broker.records import records
from broker.talk import send
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.requests.groups import SubscriptionGroup, UpdateAndCreateSubscriptionGroup
from rmqpy.protocol.requests.lite import (
    COMPLETE_ADD,
    PARTIAL_ADD,
    LiteOffset,
    LiteSubscription,
    LiteSubscriptionCtl,
    LiteSubscriptions,
)
from rmqpy.protocol.requests.topics import UpdateAndCreateTopic
from wire import Frame, Peer

PARENT = "sessions"
GROUP = "agents"
LITE = {"enableLmq": "true", "enableMultiDispatch": "true"}


@dataclass(frozen=True)
class PoppedLite:
    """A message of a lite topic."""

    body: bytes
    lite_topic: str
    offset: int
    #: Earlier deliveries.
    count: int
    handle: str


async def set_up(peer: Peer, *, group: str = GROUP, minutes: int = 0, **attributes: str) -> None:
    """Create the parent and a group that is bound to it; `model="Exclusive"` is the attribute lite.sub.model."""
    expiry = f",+lite.topic.expiration={minutes}" if minutes else ""
    await peer.ask(
        UpdateAndCreateTopic(
            topic=PARENT, read_queue_nums=4, write_queue_nums=4, attributes=f"+message.type=LITE{expiry}"
        )
    )
    rules = {f"+lite.sub.{name.replace('_', '.')}": value for name, value in attributes.items()}
    made = SubscriptionGroup(group_name=group, attributes={"+lite.bind.topic": PARENT} | rules)
    await peer.ask(UpdateAndCreateSubscriptionGroup(body=made))


async def publish(peer: Peer, lite_topic: str, body: bytes, **changes: str) -> Frame:
    """Send a message to a lite topic."""
    answer = await send(peer, PARENT, body, **({"i": f"__LITE_TOPIC\x01{lite_topic}\x02"} | changes))
    assert answer.code == 0, answer.remark
    return answer


async def subscribe(
    peer: Peer,
    client: str,
    *names: str,
    action: str = PARTIAL_ADD,
    group: str = GROUP,
    parent: str = PARENT,
    begin: LiteOffset | None = None,
) -> None:
    """Change the subscriptions of a client."""
    change = LiteSubscription(
        action=action,
        client_id=client,
        group=group,
        topic=parent,
        lite_topic_set=list(names),
        offset_option=begin,
    )
    await peer.ask(LiteSubscriptionCtl(body=LiteSubscriptions(subscription_set=[change])))


async def replace(peer: Peer, client: str, *names: str, group: str = GROUP) -> None:
    """Make the subscriptions of a client exactly these."""
    await subscribe(peer, client, *names, action=COMPLETE_ADD, group=group)


def pop_fields(
    client: str, count: int = 32, *, invisible: int = 60_000, wait: int = 0, **changes: str
) -> dict[str, str]:
    """The fields of POP_LITE_MESSAGE."""
    return {
        "clientId": client, "consumerGroup": GROUP, "topic": PARENT, "maxMsgNum": str(count),
        "invisibleTime": str(invisible), "pollTime": str(wait), "bornTime": str(round(time.time() * 1000)),
    } | changes  # fmt: skip


async def pop(peer: Peer, client: str, count: int = 32, *, wait: int = 0, **more: int) -> list[PoppedLite]:
    """Messages of the lite topics of a client."""
    answer = await peer.call(RequestCode.POP_LITE_MESSAGE, pop_fields(client, count, wait=wait, **more))
    return messages(answer)


async def bodies(peer: Peer, client: str, **more: int) -> list[bytes]:
    return [message.body for message in await pop(peer, client, **more)]


def messages(answer: Frame) -> list[PoppedLite]:
    """The messages of an answer, with the handles that Apache's proxy builds."""
    if answer.code != 0:
        assert answer.code == 210, (answer.code, answer.remark)
        return []
    ext = answer.ext or {}
    assert ext["reviveQid"] == "999"
    found = []
    rows = ext["orderCountInfo"].split(";")
    for record, row in zip(records(answer.body), rows, strict=True):
        offset = int(record.properties["INNER_MULTI_QUEUE_OFFSET"])
        lite_topic = record.properties["__LITE_TOPIC"]
        assert record.topic == PARENT
        assert record.properties["INNER_MULTI_DISPATCH"] == f"%LMQ%${PARENT}${lite_topic}"
        assert row == "0" or row.startswith(f"0 qo0%{offset} ")
        handle = f"{offset} {ext['popTime']} {ext['invisibleTime']} 999 0 broker-a 0 {offset}"
        count = 0 if row == "0" else int(row.rpartition(" ")[2])
        found.append(PoppedLite(record.body, lite_topic, offset, count, handle))
    return found


def _named(message: PoppedLite) -> dict[str, str]:
    return {
        "consumerGroup": GROUP, "topic": PARENT, "queueId": "0", "extraInfo": message.handle,
        "offset": str(message.offset), "liteTopic": message.lite_topic,
    }  # fmt: skip


async def ack(peer: Peer, message: PoppedLite, **changes: str) -> Frame:
    """ACK_MESSAGE, as Apache's proxy sends it."""
    return await peer.call(RequestCode.ACK_MESSAGE, _named(message) | changes)


async def change(peer: Peer, message: PoppedLite, invisible: int, **changes: str) -> Frame:
    """CHANGE_MESSAGE_INVISIBLETIME."""
    ext = _named(message) | {"invisibleTime": str(invisible)}
    return await peer.call(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ext | changes)
