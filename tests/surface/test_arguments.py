"""Arguments of wrong types: refused by name."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rmqpy
from rmqpy import testing

#: An address without a server: refused calls contact none.
NOBODY = "127.0.0.1:1"

WRONG: dict[str, tuple[str, Callable[[Any], object]]] = {
    # Name of the case → the argument, and a call that passes the wrong value.
    "message topic": ("topic", lambda wrong: rmqpy.Message(wrong, b"x")),
    "message body": ("body", lambda wrong: rmqpy.Message("orders", wrong)),
    "message tag": ("tag", lambda wrong: rmqpy.Message("orders", b"x", tag=wrong)),
    "message keys": ("keys", lambda wrong: rmqpy.Message("orders", b"x", keys=wrong)),
    "message keys, one of them": ("keys", lambda wrong: rmqpy.Message("orders", b"x", keys=["A", wrong])),
    "message properties": ("properties", lambda wrong: rmqpy.Message("orders", b"x", properties=wrong)),
    "message property": ("properties", lambda wrong: rmqpy.Message("orders", b"x", properties={"a": wrong})),
    "message sharding_key": ("sharding_key", lambda wrong: rmqpy.Message("orders", b"x", sharding_key=wrong)),
    "message deliver_at": ("deliver_at", lambda wrong: rmqpy.Message("orders", b"x", deliver_at=wrong)),
    "message deliver_after": (
        "deliver_after",
        lambda wrong: rmqpy.Message("orders", b"x", deliver_after=wrong),
    ),
    "message delay_level": ("delay_level", lambda wrong: rmqpy.Message("orders", b"x", delay_level=wrong)),
    "message priority": ("priority", lambda wrong: rmqpy.Message("orders", b"x", priority=wrong)),
    "message flag": ("flag", lambda wrong: rmqpy.Message("orders", b"x", flag=wrong)),
    "producer namesrv": ("namesrv", lambda wrong: rmqpy.Producer(wrong)),
    "producer group": ("group", lambda wrong: rmqpy.Producer(NOBODY, group=wrong)),
    "producer send_timeout": ("send_timeout", lambda wrong: rmqpy.Producer(NOBODY, send_timeout=wrong)),
    "producer retries": ("retries", lambda wrong: rmqpy.Producer(NOBODY, retries=wrong)),
    "producer compress_above": ("compress_above", lambda wrong: rmqpy.Producer(NOBODY, compress_above=wrong)),
    "producer compression": ("compression", lambda wrong: rmqpy.Producer(NOBODY, compression=wrong)),
    "producer max_in_flight": ("max_in_flight", lambda wrong: rmqpy.Producer(NOBODY, max_in_flight=wrong)),
    "producer transaction_checker": (
        "transaction_checker",
        lambda wrong: rmqpy.Producer(NOBODY, group="g", transaction_checker=wrong),
    ),
    "transaction message": (
        "message",
        lambda wrong: producer(group="g").transaction(wrong),
    ),
    "producer selector": ("selector", lambda wrong: rmqpy.Producer(NOBODY, selector=wrong)),
    "send message": ("message", lambda wrong: producer().send(wrong, b"x")),
    "send body": ("body", lambda wrong: producer().send("orders", wrong)),
    "send queue": ("queue", lambda wrong: producer().send("orders", b"x", queue=wrong)),
    "send timeout": ("timeout", lambda wrong: producer().send("orders", b"x", timeout=wrong)),
    "send keys": ("keys", lambda wrong: producer().send("orders", b"x", keys=wrong)),
    "submit callback": ("callback", lambda wrong: producer().submit("orders", b"x", callback=wrong)),
    "flush timeout": ("timeout", lambda wrong: producer().flush(wrong)),
    "producer latency_fault_tolerance": (
        "latency_fault_tolerance",
        lambda wrong: rmqpy.Producer(NOBODY, latency_fault_tolerance=wrong),
    ),
    "config header": ("header", lambda wrong: rmqpy.ClientConfig(header=wrong)),
    "config zone": ("zone", lambda wrong: rmqpy.ClientConfig(zone=wrong)),
    "config vip": ("vip", lambda wrong: rmqpy.ClientConfig(vip=wrong)),
    "config unit": ("unit", lambda wrong: rmqpy.ClientConfig(unit=wrong)),
    "config address_map": ("address_map", lambda wrong: rmqpy.ClientConfig(address_map=wrong)),
    "push ordered": ("ordered", lambda wrong: rmqpy.PushConsumer("g", NOBODY, ordered=wrong)),
    "push broadcast": ("broadcast", lambda wrong: rmqpy.PushConsumer("g", NOBODY, broadcast=wrong)),
    "pull group": ("group", lambda wrong: rmqpy.PullConsumer(wrong, NOBODY)),
    "pull auto_commit": ("auto_commit", lambda wrong: rmqpy.PullConsumer("g", NOBODY, auto_commit=wrong)),
    "pull max_batch": ("max_batch", lambda wrong: rmqpy.PullConsumer("g", NOBODY, max_batch=wrong)),
    "subscribe topic": ("topic", lambda wrong: reader().subscribe(wrong)),
    "subscribe topics": ("topic", lambda wrong: reader().subscribe(["orders", wrong])),
    "subscribe tags": ("tags", lambda wrong: reader().subscribe("orders", wrong)),
    "subscribe on_rebalance": (
        "on_rebalance",
        lambda wrong: reader().subscribe("orders", on_rebalance=wrong),
    ),
    "assign queues": ("queues", lambda wrong: reader().assign(wrong)),
    "assign a queue": ("queues", lambda wrong: reader().assign([wrong])),
    "poll timeout": ("timeout", lambda wrong: reader().poll(wrong)),
    "poll max_messages": ("max_messages", lambda wrong: reader().poll(max_messages=wrong)),
    "commit offsets": ("offsets", lambda wrong: reader().commit(wrong)),
    "seek queue": ("queue", lambda wrong: reader().seek(wrong, 0)),
    "push group": ("group", lambda wrong: rmqpy.PushConsumer(wrong, NOBODY)),
    "push workers": ("workers", lambda wrong: rmqpy.PushConsumer("g", NOBODY, workers=wrong)),
    "push batch_size": ("batch_size", lambda wrong: rmqpy.PushConsumer("g", NOBODY, batch_size=wrong)),
    "push max_attempts": ("max_attempts", lambda wrong: rmqpy.PushConsumer("g", NOBODY, max_attempts=wrong)),
    "push consume_timeout": (
        "consume_timeout",
        lambda wrong: rmqpy.PushConsumer("g", NOBODY, consume_timeout=wrong),
    ),
    "on topic": ("topic", lambda wrong: rmqpy.PushConsumer("g", NOBODY).on(wrong)(print)),
    "on tags": ("tags", lambda wrong: rmqpy.PushConsumer("g", NOBODY).on("orders", wrong)(print)),
}

_open: list[Any] = []


def producer(group: str | None = None) -> rmqpy.Producer:
    _open.append(rmqpy.Producer(server().namesrv, group=group))
    return _open[-1]  # type: ignore[no-any-return]


def reader() -> rmqpy.PullConsumer:
    _open.append(rmqpy.PullConsumer("g", server().namesrv, auto_commit=False))
    return _open[-1]  # type: ignore[no-any-return]


class _Server:
    """The one server of these tests."""

    running: Any = None


def server() -> Any:
    return _Server.running


@pytest.fixture(scope="module", autouse=True)
def _serve() -> Iterator[None]:
    with testing.broker() as running:
        _Server.running = running
        yield


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    while _open:
        _open.pop().close()


@pytest.mark.parametrize("case", WRONG)
def test_an_argument_of_a_wrong_type_is_named(case: str) -> None:
    argument, call = WRONG[case]
    with pytest.raises(TypeError) as refused:
        call(object())
    # The text of a traceback: the native module adds the name as a note.
    text = "\n".join([str(refused.value), *getattr(refused.value, "__notes__", ())])
    assert argument in text
    assert "object" in text, "it says what it got"


def test_text_is_refused_as_a_list_of_queues() -> None:
    with pytest.raises(TypeError, match="queues must be MessageQueue, not str"):
        reader().assign("orders")  # type: ignore[arg-type]


def test_valid_arguments_are_accepted() -> None:
    assert producer().send("orders", b"x", keys=("A",), flag=3, timeout=2).ok


@pytest.mark.parametrize("name", ["retries", "max_in_flight", "send_timeout", "linger"])
def test_bool_is_refused_as_a_number(name: str) -> None:
    with pytest.raises(TypeError, match=f"{name} must be .*, not bool"):
        rmqpy.Producer(NOBODY, **{name: True})  # type: ignore[arg-type]


def test_a_header_is_of_one_of_two_kinds() -> None:
    with pytest.raises(rmqpy.errors.ConfigError, match="header must be 'json' or 'binary', not 'xml'"):
        rmqpy.ClientConfig(header="xml")  # type: ignore[arg-type]
