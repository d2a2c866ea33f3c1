"""Pops and acknowledgements: impossible numbers, handles that were never given, endless batches."""

import base64
import json
from collections.abc import Iterator

from hostile.cases.case import GROUP, QUEUES, QUIET_TOPIC, TOPIC, Case, request
from rmqpy.protocol.codes import RequestCode as Code
from wire import Frame

_GREATEST, _BEYOND = str(2**63 - 1), str(2**63)


def pop(**changes: str) -> dict[str, str]:
    """Fields of a good pop of a topic without messages, that does not wait."""
    now = {"consumerGroup": GROUP, "topic": QUIET_TOPIC, "queueId": "-1", "maxMsgNums": "32"}
    now |= {"invisibleTime": "60000", "pollTime": "0", "bornTime": "0", "initMode": "0", "order": "false"}
    return now | changes


def ack(**changes: str) -> dict[str, str]:
    """Fields of an acknowledgement of the first message of a queue, popped long ago."""
    now = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "offset": "0"}
    return now | {"extraInfo": "0 1700000000000 60000 0 0 broker-a 0 0"} | changes


def entry(**changes: object) -> dict[str, object]:
    """One entry of a batch of acknowledgements."""
    bits = base64.b64encode(b"\xff").decode()
    now = {"b": bits, "c": GROUP, "it": 60_000, "pt": 1_700_000_000_000, "q": 0, "r": "0", "rq": 0, "so": 0}
    return now | {"t": TOPIC} | changes


def pops() -> Iterator[Case]:
    fields: dict[str, tuple[int | str, dict[str, str]]] = {
        "33 messages": (29, {"maxMsgNums": "33"}),
        "no messages, for a while": (210, {"maxMsgNums": "0", "pollTime": "200"}),
        "no messages of many, for a while": (210, {"topic": TOPIC, "maxMsgNums": "0", "pollTime": "200"}),
        "less than no messages": (210, {"topic": TOPIC, "maxMsgNums": "-2147483648", "pollTime": "200"}),
        "messages beyond 32 bits": (1, {"maxMsgNums": "99999999999"}),
        "visible at once": (29, {"invisibleTime": "0"}),
        "visible before": (29, {"invisibleTime": "-1"}),
        "invisible for ever": (29, {"invisibleTime": _GREATEST}),
        "invisible beyond 63 bits": (1, {"invisibleTime": _BEYOND}),
        "waits less than not": (210, {"pollTime": str(-(2**63))}),
        "born before all": (210, {"bornTime": str(-(2**63))}),
        "born long ago": (210, {"bornTime": "1"}),
        "unknown topic": (17, {"topic": "hostile-unknown"}),
        "queue beyond the last": (29, {"topic": TOPIC, "queueId": str(QUEUES)}),
        "unknown expression type": (23, {"expType": "REGEX", "exp": "(a+)+$"}),
        "SQL nested deeply": (23, {"expType": "SQL92", "exp": "(" * 10_000 + "a=1" + ")" * 10_000}),
        "an attempt of 100 kB": (29, {"order": "true", "attemptId": "a" * 100_000}),
        "in order, of nothing": (210, {"order": "true", "attemptId": "a"}),
    }
    for what, (end, changes) in fields.items():
        yield request(f"pop: {what}", end, Frame(Code.POP_MESSAGE, ext=pop(**changes)))
    yield request("pop: no fields at all", 29, Frame(Code.POP_MESSAGE))
    forever = pop(pollTime=_GREATEST, bornTime=_GREATEST)
    yield request("pop: held for ever", "ignored", Frame(Code.POP_MESSAGE, ext=forever))
    yield request("notification: held for ever", "ignored", Frame(Code.NOTIFICATION, ext=forever))
    for code in (Code.NOTIFICATION, Code.PEEK_MESSAGE, Code.POLLING_INFO):
        yield request(f"{code.name.lower()}: no fields at all", 17, Frame(code))
    many = pop(maxMsgNums="2147483647", topic=TOPIC)
    yield request("peek: everything at once", "answered", Frame(Code.PEEK_MESSAGE, ext=many))


def acks() -> Iterator[Case]:
    handles: dict[str, tuple[int, str]] = {
        "empty": (1, ""),
        "seven spaces": (1, " " * 7),
        "of 100 kB": (1, "0 1 1 0 0 " + "b" * 100_000 + " 0 0"),
        "an unknown revive queue": (1, "0 1 1 8 0 broker-a 0 0"),
        "a negative revive queue": (1, "0 1 1 -1 0 broker-a 0 0"),
        "numbers beyond 63 bits": (1, f"{_BEYOND} 1 1 0 0 broker-a 0 0"),
        "popped before all times": (0, f"0 {-(2**63)} {-(2**63)} 0 0 broker-a 0 0"),
        "hidden for ever": (13, f"0 {_GREATEST} {_GREATEST} 0 0 broker-a 0 0"),
        "of another broker": (0, "0 1 1 0 0 somewhere-else 0 0"),
    }
    for what, (end, handle) in handles.items():
        frame = Frame(Code.ACK_MESSAGE, ext=ack(extraInfo=handle))
        yield request(f"ack: a handle, {what}", end, frame)
    fields: dict[str, tuple[int, dict[str, str]]] = {
        "negative queue": (13, {"queueId": "-1"}),
        "queue beyond the last": (13, {"queueId": str(QUEUES)}),
        "negative offset": (208, {"offset": "-1"}),
        "greatest offset": (208, {"offset": _GREATEST}),
        "unknown topic": (17, {"topic": "hostile-unknown"}),
    }
    for what, (end, changes) in fields.items():
        yield request(f"ack: {what}", end, Frame(Code.ACK_MESSAGE, ext=ack(**changes)))
        hidden = ack(invisibleTime="1000", **changes)
        yield request(f"change: {what}", end, Frame(Code.CHANGE_MESSAGE_INVISIBLETIME, ext=hidden))
    for what, time in {"negative": "-1", "greatest": _GREATEST}.items():
        frame = Frame(Code.CHANGE_MESSAGE_INVISIBLETIME, ext=ack(invisibleTime=time))
        yield request(f"change: a time, {what}", 29, frame)
    bits = base64.b64encode(b"\xff" * 200_000).decode()
    bodies: dict[str, tuple[int, object]] = {
        "of nothing": (208, {"acks": []}),
        "of numbers": (0, {"acks": [1, 2, 3]}),
        "of one more than a thousand": (29, {"acks": [entry()] * 1_025}),
        "of a million bits": (0, {"acks": [entry(b=bits)]}),
        "of ten million bits": (29, {"acks": [entry(b=bits * 8)]}),
        "of the last offset": (0, {"acks": [entry(so=2**63 - 1)]}),
        "before the first offset": (0, {"acks": [entry(so=-(2**63))]}),
        "of an unknown revive queue": (1, {"acks": [entry(rq=8)]}),
        "of a strange mark": (0, {"acks": [entry(r="3")]}),
        "nested deeply": (208, "["),
    }
    for what, (end, body) in bodies.items():
        content = b"[" * 50_000 if body == "[" else json.dumps(body).encode()
        yield request(f"batch ack: {what}", end, Frame(Code.BATCH_ACK_MESSAGE, ext={}, body=content))
