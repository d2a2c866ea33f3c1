"""Requests that the interop tests send themselves, each on one connection, so that no client under test is needed."""

import struct
from collections.abc import Mapping

from benchmarks.wire import exchange
from waiting import until

READER = "interop-wire"
"""The group that pulls; an Apache broker knows it from then on."""

_PULL = 11
_QUERY = 12
_QUERY_CONSUMER_OFFSET = 14
_UPDATE_CONSUMER_OFFSET = 15
_UPDATE_TOPIC = 17
_SEARCH_OFFSET = 29
_MAX_OFFSET = 30
_MIN_OFFSET = 31
_VIEW = 33
_ROUTE = 105
_CLUSTER = 106


class Refused(Exception):
    """The server answered with another code than 0."""


def request(address: str, code: int, fields: Mapping[str, object]) -> tuple[dict[str, str], bytes]:
    """Send one request without a body; the fields and the body of the answer."""
    answer = exchange(address, code, {name: str(value) for name, value in fields.items()})
    if answer.code != 0:
        raise Refused(f"code {answer.code}: {answer.remark}")
    return answer.ext or {}, answer.body


def create_topic(namesrv: str, broker: str, topic: str, queues: int, attributes: str = "") -> None:
    """Create a topic on the broker and wait until the name server routes to it. `attributes`: such as `+a=1`."""
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": queues,
        "writeQueueNums": queues,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": "false",
        **({"attributes": attributes} if attributes else {}),
    }
    request(broker, _UPDATE_TOPIC, fields)
    until(lambda: has_route(namesrv, topic))


def has_route(namesrv: str, topic: str) -> bool:
    """Return whether the name server knows a broker with `topic`; False also without a name server."""
    try:
        request(namesrv, _ROUTE, {"topic": topic, "acceptStandardJsonOnly": "true"})
    except (Refused, OSError):
        return False
    return True


def knows(namesrv: str, broker: str) -> bool:
    """Return whether a broker of this name, or at this address, is registered; False also without a name server."""
    try:
        _, info = request(namesrv, _CLUSTER, {})
    except (Refused, OSError):
        return False
    return f'"{broker}"'.encode() in info


def is_serving(namesrv: str) -> bool:
    """Return whether a name server answers at this address."""
    try:
        request(namesrv, _CLUSTER, {})
    except OSError:
        return False
    return True


def committed(broker: str, group: str, topic: str, queue_id: int) -> int:
    """Offset at which the group continues in this queue; 0 when it never committed there."""
    fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id}
    try:
        answer, _ = request(broker, _QUERY_CONSUMER_OFFSET, fields)
    except Refused:
        return 0
    return int(answer["offset"])


def commit(broker: str, group: str, topic: str, queue_id: int, offset: int) -> None:
    """Move the group to `offset`."""
    fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": offset}
    request(broker, _UPDATE_CONSUMER_OFFSET, fields)


def stored(broker: str, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int]:
    """System flags and size of a message as the broker keeps it, before any client has unpacked it."""
    await_readable(broker, topic, queue_id, queue_offset)
    record = pull(broker, topic, queue_id, queue_offset, count=1)
    (size,) = struct.unpack_from(">i", record, 0)
    (sys_flag,) = struct.unpack_from(">i", record, 36)
    return sys_flag, size


def await_readable(broker: str, topic: str, queue_id: int, queue_offset: int) -> None:
    """Wait until the queue reaches beyond an offset: an Apache broker answers a send before its queues name it."""
    until(lambda: max_offset(broker, topic, queue_id) > queue_offset)


def pull(broker: str, topic: str, queue_id: int, queue_offset: int, *, count: int = 1024) -> bytes:
    """Records from this offset on, one behind the other."""
    fields = {
        "consumerGroup": READER,
        "topic": topic,
        "queueId": queue_id,
        "queueOffset": queue_offset,
        "maxMsgNums": count,
        "sysFlag": 4,  # The subscription is in this request.
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
    }
    _, found = request(broker, _PULL, fields)
    return found


def max_offset(broker: str, topic: str, queue_id: int) -> int:
    """The offset after the last message."""
    return _offset(broker, _MAX_OFFSET, {"topic": topic, "queueId": queue_id})


def min_offset(broker: str, topic: str, queue_id: int) -> int:
    """The offset of the first message."""
    return _offset(broker, _MIN_OFFSET, {"topic": topic, "queueId": queue_id})


def offset_by_time(broker: str, topic: str, queue_id: int, time_ms: int) -> int:
    """The offset for a store time."""
    return _offset(broker, _SEARCH_OFFSET, {"topic": topic, "queueId": queue_id, "timestamp": time_ms})


def _offset(broker: str, code: int, fields: Mapping[str, object]) -> int:
    answer, _ = request(broker, code, fields)
    return int(answer["offset"])


def query(broker: str, topic: str, key: str) -> bytes:
    """Records with this key, one behind the other; none where nothing is found."""
    fields = {"topic": topic, "key": key, "maxNum": 64, "beginTimestamp": 0, "endTimestamp": 2**63 - 1}
    try:
        _, found = request(broker, _QUERY, fields)
    except Refused:
        return b""
    return found


def view(broker: str, physical_offset: int) -> bytes:
    """The record at this position of the log."""
    _, found = request(broker, _VIEW, {"offset": physical_offset})
    return found
