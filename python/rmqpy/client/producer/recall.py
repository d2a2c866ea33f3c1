"""Recall: cancels a timed message before its delivery.

Owns one request, and retries it while its broker is busy or unreachable: a recall is idempotent.
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

#: The remark of brokers of all versions that do not allow recalls.
_OFF: Final = "recall failed, operation is forbidden"


async def recall(
    cluster: ClusterConnection, caller: Caller, group: str, topic: str, handle: str, timeout_s: float
) -> str:
    """Cancel the delivery of a timed message; return its id. Raises `RecallError`."""
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
            f"{handle!r} is not a recall handle",
            topic=topic,
            hint="use the recall_handle of the SendResult of a timed message",
        )
    if found.topic != wire_topic:
        raise errors.RecallError(
            f"the handle names a message to {found.topic}, not to {wire_topic}", topic=topic
        )
    return found


def _meaning(error: errors.RocketMQError) -> errors.RocketMQError:
    """Return the error that a broker's refusal means."""
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
