"""One scenario of the Python client of 5.x: SCENARIO ADDRESS TOPIC GROUP [ARGUMENT…]; ../scenarios.md has them all.

A separate process, because importing the client turns other loggers off.
"""

import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

import rocketmq
from rocketmq.grpc_protocol import FilterType

#: The time of a message that was received, in seconds: the shortest that servers take.
HIDDEN_S = 10
#: The answer of a checker that does not know yet; the client has no name for it.
UNDECIDED = 0
SCENARIO, ADDRESS, TOPIC, GROUP, *REST = sys.argv[1:]
_printing = threading.Lock()


def show(value: dict[str, Any]) -> None:
    with _printing:
        print(json.dumps(value), flush=True)


def configuration() -> Any:
    user, secret = os.environ.get("GRPC_USER", ""), os.environ.get("GRPC_SECRET", "")
    return rocketmq.ClientConfiguration(ADDRESS, rocketmq.Credentials(user, secret))


def is_encrypted() -> bool:
    return os.environ.get("GRPC_TLS") == "1"


def message(body: str, **fields: Any) -> Any:
    made = rocketmq.Message()
    made.topic, made.body = TOPIC, body.encode()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def producer(**options: Any) -> Any:
    made = rocketmq.Producer(configuration(), (TOPIC,), tls_enable=is_encrypted(), **options)
    made.startup()
    return made


def consumer(expression: Any = None) -> Any:
    wanted = {TOPIC: expression or rocketmq.FilterExpression()}
    made = rocketmq.SimpleConsumer(
        configuration(), GROUP, wanted, await_duration=5, tls_enable=is_encrypted()
    )
    made.startup()
    return made


def received(member: Any, count: int, *, acks: bool = True) -> list[Any]:
    found: list[Any] = []
    end = time.monotonic() + 30
    while len(found) < count and time.monotonic() < end:
        for one in member.receive(32, HIDDEN_S) or ():
            found.append(one)
            if acks:
                member.ack(one)
    return found


def bodies(views: list[Any]) -> list[str]:
    return [one.body.decode() for one in views]


def normal() -> dict[str, Any]:
    sender, member = producer(), consumer()
    sent = message("hello", tag="greeting")
    sent.keys = "key-1"
    sent.add_property("color", "blue")
    receipt = sender.send(sent)
    found = [
        {
            "id": one.message_id,
            "body": one.body.decode(),
            "tag": one.tag,
            "keys": list(one.keys or ()),
            "color": (one.properties or {}).get("color"),
            "attempt": one.delivery_attempt,
        }
        for one in received(member, 1)
    ]
    rest = member.receive(32, HIDDEN_S) or []
    member.shutdown()
    sender.shutdown()
    return {"sent": receipt.message_id, "found": found, "rest": len(rest)}


def fifo() -> dict[str, Any]:
    sender, member = producer(), consumer()
    for number in range(4):
        sender.send(message(str(number), message_group="order-1"))
    views = received(member, 4)
    return {"found": bodies(views), "groups": [one.message_group for one in views]}


def delay() -> dict[str, Any]:
    sender, member = producer(), consumer()
    begin = time.time()
    receipt = sender.send(message("later", delivery_timestamp=int(begin) + 3))
    found = bodies(received(member, 1))
    return {"found": found, "after": time.time() - begin, "recall": bool(receipt.recall_handle)}


def recall() -> dict[str, Any]:
    sender = producer()
    receipt = sender.send(message("never", delivery_timestamp=int(time.time()) + 60))
    recalled = sender.recall_message(TOPIC, receipt.recall_handle)
    return {"sent": receipt.message_id, "recalled": recalled}


def transactions() -> dict[str, Any]:
    asked: list[str] = []

    class Checker(rocketmq.TransactionChecker):  # type: ignore[misc]
        def check(self, one: Any) -> Any:
            asked.append(one.body.decode())
            return rocketmq.TransactionResolution.COMMIT

    sender, member = producer(checker=Checker()), consumer()
    for body in ("commit", "rollback", "check"):
        transaction = sender.begin_transaction()
        sender.send(message(body), transaction)
        if body == "commit":
            transaction.commit()
        elif body == "rollback":
            transaction.rollback()
    return {"found": bodies(received(member, 2)), "asked": asked}


def again() -> dict[str, Any]:
    sender, member = producer(), consumer()
    sender.send(message("once more"))
    (first,) = received(member, 1, acks=False)
    member.change_invisible_duration(first, 1)
    (second,) = received(member, 1, acks=False)
    member.change_invisible_duration(second, 30)
    member.ack(second)
    return {"attempts": [first.delivery_attempt, second.delivery_attempt]}


def filter_() -> dict[str, Any]:
    kind, expression = REST
    sender = producer()
    member = consumer(rocketmq.FilterExpression(expression, FilterType.Value(kind)))
    for number in range(4):
        sent = message(str(number), tag="even" if number % 2 == 0 else "odd")
        sent.add_property("number", str(number))
        sender.send(sent)
    return {"found": bodies(received(member, 2))}


def described(text: str) -> Any:
    """The message of an argument."""
    made = message(" ")
    for name, value in parse_qsl(text, keep_blank_values=True):
        if name == "body":
            made.body = value.encode()
        elif name == "size":
            made.body = b"x" * int(value)
        elif name == "key":
            made.keys = value
        elif name == "tag":
            made.tag = value
        elif name == "group":
            made.message_group = value
        elif name == "in":
            made.delivery_timestamp = int(time.time()) + int(value)
        else:
            made.add_property(name.removeprefix("property."), value)
    return made


def exchange() -> dict[str, Any]:
    kind, expression, count, *messages = REST
    wanted = rocketmq.FilterExpression(expression, FilterType.Value(kind))
    sender, member = producer(), consumer(wanted) if int(count) else None
    refused: list[str | None] = []
    for text in messages:
        try:
            sender.send(described(text))
            refused.append(None)
        except Exception as error:
            refused.append(str(error))
    found = [
        {
            "body": one.body.decode(),
            "tag": one.tag,
            "keys": list(one.keys or ()),
            "properties": dict(one.properties or {}),
        }
        for one in (received(member, int(count)) if member else ())
    ]
    return {"refused": refused, "found": found}


def batches() -> dict[str, Any]:
    sender, member, count = producer(), consumer(), int(REST[0])
    for sent in [sender.send_async(message(str(number))) for number in range(count)]:
        sent.result()
    found: list[list[Any]] = []
    sizes: list[int] = []
    end = time.monotonic() + 60
    for turn in itertools.count():
        if len(found) > count or time.monotonic() > end:
            break
        is_async = turn % 2 == 1
        views = (
            member.receive_async(50, HIDDEN_S).result() if is_async else member.receive(50, HIDDEN_S)
        ) or ()
        for one in views:
            found.append([one.body.decode(), one.delivery_attempt])
            if found[-1] == ["0", 1]:
                continue
            if is_async:
                member.ack_async(one)  # returns nothing to wait for
            else:
                member.ack(one)
        sizes += [len(views)] if views else []
    rest = member.receive(32, HIDDEN_S) or ()
    return {"sizes": sizes, "found": found, "rest": len(rest)}


def stuck() -> dict[str, Any]:
    sender, member = producer(), consumer()
    for number in range(6):
        sender.send(message(str(number), message_group="order-1"))
    found: list[list[str]] = []
    acked: set[str] = set()
    end = time.monotonic() + 60
    while len(acked) < 6 and time.monotonic() < end:
        views = member.receive(3, HIDDEN_S) or ()
        is_first = not found
        if views:
            found.append(bodies(list(views)))
        for one in views[1:] if is_first else views:
            member.ack(one)
            acked.add(one.body.decode())
    return {"batches": found}


def bounds() -> dict[str, Any]:
    member = consumer()
    refused: list[str | None] = []
    for seconds in (9, 43_201):
        try:
            member.receive(1, seconds)
            refused.append(None)
        except Exception as error:
            refused.append(str(error))
    begin = time.monotonic()
    count = len(member.receive(100_000, HIDDEN_S) or ())
    return {"refused": refused, "count": count, "after": time.monotonic() - begin}


def late() -> dict[str, Any]:
    sender, member = producer(), consumer()
    sender.send(message("late"))
    (first,) = received(member, 1, acks=False)
    time.sleep(HIDDEN_S + 1)  # the handle ends by the clock
    refused = None
    try:
        member.ack(first)
    except Exception as error:
        refused = str(error)
    (second,) = received(member, 1)
    return {"refused": refused, "attempt": second.delivery_attempt}


def checks() -> dict[str, Any]:
    asked: list[str] = []

    class Checker(rocketmq.TransactionChecker):  # type: ignore[misc]
        def check(self, one: Any) -> Any:
            body = one.body.decode()
            asked.append(body)
            if body == "rollback":
                return rocketmq.TransactionResolution.ROLLBACK
            if asked.count("unknown") == 1 and body == "unknown":
                return UNDECIDED
            return rocketmq.TransactionResolution.COMMIT

    sender, member = producer(checker=Checker()), consumer()
    for body in ("commit", "rollback", "unknown"):
        sender.send(message(body), sender.begin_transaction())
    found = bodies(received(member, 2))
    return {"found": found + bodies(list(member.receive(32, HIDDEN_S) or ())), "asked": asked}


def send() -> dict[str, Any]:
    try:
        return {"sent": producer().send(message("hello")).message_id}
    except Exception as error:
        return {"refused": str(error)}


def push() -> dict[str, Any]:
    seen: set[str] = set()

    class Listener(rocketmq.MessageListener):  # type: ignore[misc]
        def consume(self, one: Any) -> Any:
            body = one.body.decode()
            show({"got": body, "attempt": one.delivery_attempt})
            failed = body.startswith("bad") or (body.startswith("once") and body not in seen)
            seen.add(body)
            return rocketmq.ConsumeResult.FAILURE if failed else rocketmq.ConsumeResult.SUCCESS

    wanted = {TOPIC: rocketmq.FilterExpression()}
    member = rocketmq.PushConsumer(configuration(), GROUP, Listener(), wanted, tls_enable=is_encrypted())
    member.startup()
    show({"ready": True})
    sys.stdin.read(1)
    member.shutdown()
    return {"ended": GROUP}


def steady() -> dict[str, Any]:
    sender = producer()
    over = threading.Event()

    def wait() -> None:
        sys.stdin.read(1)
        over.set()

    threading.Thread(target=wait, daemon=True).start()
    number = 0
    while not over.wait(0.1):
        try:
            sender.send(message(str(number)))
            show({"sent": str(number)})
        except Exception as error:
            show({"failed": str(error)})
        number += 1
    return {"ended": TOPIC}


def lite() -> dict[str, Any]:
    seen: set[str] = set()

    class Listener(rocketmq.MessageListener):  # type: ignore[misc]
        def consume(self, one: Any) -> Any:
            body = one.body.decode()
            show({"got": body, "lite": one.lite_topic, "attempt": one.delivery_attempt})
            failed = body.startswith("once") and body not in seen
            seen.add(body)
            return rocketmq.ConsumeResult.FAILURE if failed else rocketmq.ConsumeResult.SUCCESS

    member = rocketmq.LitePushConsumer(configuration(), GROUP, TOPIC, Listener(), tls_enable=is_encrypted())
    member.startup()
    for name in REST:
        member.subscribe_lite(name)
    # Release 5.1.2 has just subscribed to each letter of the names.
    member.subscribe_lite_all()
    show({"ready": True})
    sys.stdin.read(1)
    member.shutdown()
    return {"ended": GROUP}


def lite_send() -> dict[str, Any]:
    sender, sent = producer(), []
    name, *words = REST
    for word in words:
        try:
            sender.send(message(word, lite_topic=name))
        except Exception as error:
            return {"sent": sent, "refused": str(error)}
        sent.append(word)
    return {"sent": sent}


SCENARIOS: dict[str, Callable[[], dict[str, Any]]] = {
    "normal": normal,
    "fifo": fifo,
    "delay": delay,
    "recall": recall,
    "transactions": transactions,
    "again": again,
    "filter": filter_,
    "exchange": exchange,
    "batches": batches,
    "stuck": stuck,
    "bounds": bounds,
    "late": late,
    "checks": checks,
    "send": send,
    "push": push,
    "steady": steady,
    "lite": lite,
    "lite-send": lite_send,
}

show(SCENARIOS[SCENARIO]())
os._exit(0)
