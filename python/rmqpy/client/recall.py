"""Recall: a timed message is taken back while it waits.

Owns one request. It is sent again while its broker is busy or cannot be reached, whatever became of it before: a
message that is taken back twice is taken back once.
"""

from __future__ import annotations

import time
from typing import Final

from rmqpy import errors
from rmqpy.client.cluster import ClusterConnection
from rmqpy.protocol import ids
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.messages import RecallMessage
from rmqpy.remoting.backoff import BUSY
from rmqpy.remoting.client import Caller

#: What brokers of all versions say that take nothing back.
_OFF: Final = "recall failed, operation is forbidden"


async def recall(
    cluster: ClusterConnection, caller: Caller, group: str, topic: str, handle: str, timeout_s: float
) -> str:
    """Have a timed message not be delivered; the id its producer was given. Raises `RecallError`."""
    broker = _content(topic, handle, caller.wire_name(topic)).broker
    route = await cluster.routes.publish(topic, caller)
    ask = RecallMessage(producer_group=group, topic=topic, recall_handle=handle, bname=broker)
    deadline = time.monotonic() + timeout_s
    failures = 0
    while True:
        try:
            left_s = max(deadline - time.monotonic(), 0.001)
            return (await caller.ask(route.sender(broker), ask, timeout=left_s)).msg_id
        except (errors.ConnectError, errors.FlowControl):
            failures += 1
            pause_s = BUSY.pause_s(failures)
            if time.monotonic() + pause_s >= deadline:
                raise
            await caller.sleep(pause_s)
        except errors.RocketMQError as error:
            raise _meaning(error) from None


def _content(topic: str, handle: str, wire_topic: str) -> ids.RecallHandle:
    found = ids.decode_recall_handle(handle)
    if found is None:
        raise errors.RecallError(
            f"{handle!r} is no recall handle",
            topic=topic,
            hint="it is the recall_handle of what a send with a time of delivery returned",
        )
    if found.topic != wire_topic:
        raise errors.RecallError(
            f"the handle is of a message to {found.topic}, not to {wire_topic}", topic=topic
        )
    return found


def _meaning(error: errors.RocketMQError) -> errors.RocketMQError:
    """What the refusal of a broker means."""
    kind: type[errors.RocketMQError]
    hint = None
    if error.code == ResponseCode.ILLEGAL_OPERATION:
        kind = errors.RecallError
    elif error.code == ResponseCode.NO_PERMISSION and _OFF in (error.remark or ""):
        kind, hint = errors.Unsupported, "set recallMessageEnable=true in the broker's configuration"
    else:
        return error
    text = str(error.args[0])
    return kind(text, code=error.code, remark=error.remark, broker=error.broker, topic=error.topic, hint=hint)
