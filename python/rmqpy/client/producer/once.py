"""Sends with a deduplication key: the broker stores the first message with the key, and answers all with its place.

Owns one request, and repeats it while its broker is busy or unreachable, which is safe by its nature. All messages with
a key go to one broker, that of the key's queue.
"""

from __future__ import annotations

import time
import zlib
from typing import Final

from rmqpy import errors
from rmqpy.client.cluster import ClusterConnection
from rmqpy.client.producer.selectors import by_sharding_key
from rmqpy.client.routes import Route
from rmqpy.message import Duplicate, Message, MessageQueue, SendResult, SendStatus
from rmqpy.protocol.properties import encode
from rmqpy.protocol.requests.messages import SendOnce
from rmqpy.remoting.backoff import BUSY
from rmqpy.remoting.client import Caller

KEY_BYTES_MAX: Final = 255


async def send_once(
    cluster: ClusterConnection, caller: Caller, group: str, message: Message, key: str, timeout_s: float
) -> SendResult:
    """Send a message unless its broker has one with this key. Raises `SendError` and `Unsupported`."""
    if not key or len(key.encode()) > KEY_BYTES_MAX or not key.isprintable():
        raise ValueError(f"dedup must be 1 to {KEY_BYTES_MAX} bytes of printable text, not {key!r:.80}")
    topic, properties = message.topic, _properties(message)
    deadline = time.monotonic() + timeout_s
    failures = 0
    while True:
        route = await cluster.routes.publish(topic, caller)
        queue = _queue(message, key, route)
        ask = SendOnce(
            producer_group=group,
            topic=topic,
            queue_id=queue.queue_id,
            dedup_key=key,
            born_timestamp=time.time_ns() // 1_000_000,
            flag=message.flag,
            properties=properties,
            body=message.body,
        )
        try:
            left_s = max(deadline - time.monotonic(), 0.001)
            stored = await caller.ask(route.master(route.home(queue)), ask, timeout=left_s)
        except errors.Unsupported as error:
            raise errors.Unsupported(
                f"broker {queue.broker} does not deduplicate messages",
                code=error.code,
                broker=queue.broker,
                topic=topic,
                hint="dedup needs brokers of rmqpy",
            ) from None
        except errors.RocketMQError as error:
            failures += 1
            pause_s = BUSY.pause_s(failures)
            is_lasting = not (
                error.retriable or isinstance(error, errors.ConnectError | errors.RequestTimeout)
            )
            if is_lasting or time.monotonic() + pause_s >= deadline:
                raise
            cluster.routes.doubt(topic)
            await caller.sleep(pause_s)
            continue
        kind = Duplicate if stored.is_duplicate else SendResult
        return kind(
            stored.unique_id,
            stored.msg_id,
            MessageQueue(topic, queue.broker, stored.queue_id),
            stored.queue_offset,
            SendStatus.SEND_OK,
            attempts=failures + 1,
        )


def _queue(message: Message, key: str, route: Route) -> MessageQueue:
    """Return the queue of the sharding key, or of the deduplication key."""
    if not route.writable:
        raise errors.NoWritableQueue(f"topic {message.topic!r} has no writable queue", topic=message.topic)
    if message.sharding_key is not None:
        return by_sharding_key(message, route.writable)
    return route.writable[zlib.crc32(key.encode()) % len(route.writable)]


def _properties(message: Message) -> str:
    own: dict[str, str] = {**message.properties, "WAIT": "true"}
    if message.tag is not None:
        own["TAGS"] = message.tag
    if message.keys:
        own["KEYS"] = " ".join(message.keys)
    if message.sharding_key is not None:
        own["__SHARDINGKEY"] = message.sharding_key
    if message.deliver_at is not None:
        own["TIMER_DELIVER_MS"] = str(round(message.deliver_at * 1_000))
    if message.deliver_after is not None:
        own["TIMER_DELAY_MS"] = str(round(message.deliver_after * 1_000))
    if message.delay_level is not None:
        own["DELAY"] = str(message.delay_level)
    if message.priority is not None:
        own["_SYS_MSG_PRIORITY_"] = str(message.priority)
    if message.lite_topic is not None:
        own["__LITE_TOPIC"] = message.lite_topic
    return encode(own)
