"""Handlers with parameters by annotation: they get values, and what cannot be decoded becomes a dead letter."""

import threading
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

import rmqpy
from rmqpy.server import Standalone
from waiting import until, until_async

from .live import make_topic


@dataclass(frozen=True)
class Purchase:
    id: str
    total: float


CODEC = rmqpy.JsonCodec()
Currency = Annotated[str, rmqpy.Property("currency")]


def dead(server: Standalone, group: str) -> list[tuple[bytes, str]]:
    with rmqpy.Admin(server.namesrv) as admin:
        return [(message.body, message.properties["CONSUME_ERROR"]) for _, message in admin.dlq(group)]


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
def test_handlers_get_values_and_bad_bodies_become_dead_letters(
    server: Standalone, topic: str, ordered: bool
) -> None:
    seen: list[Any] = []
    consumer = rmqpy.PushConsumer(topic, server.namesrv, ordered=ordered, start_from="earliest")

    @consumer.on(topic, "t", codec=CODEC)
    def handle(
        order: Purchase, message: rmqpy.ReceivedMessage, body: bytes, currency: Currency = "EUR"
    ) -> None:
        assert message.body == body
        seen.append((order, currency))

    with rmqpy.Producer(server.namesrv) as producer, consumer:
        orders = producer.typed(topic, Purchase)
        orders.send(Purchase("A-1", 4.5), tag="t", properties={"currency": "CHF"}, sharding_key="a")
        producer.send(topic, b'{"id": 5}', tag="t", sharding_key="a")
        orders.submit(Purchase("A-2", 5), tag="t", sharding_key="a").result()
        until(lambda: len(seen) == 2)
        until(lambda: consumer.stats().failed == 1)
        until(lambda: len(dead(server, topic)) == 1)
    assert sorted(seen, key=str) == [(Purchase("A-1", 4.5), "CHF"), (Purchase("A-2", 5.0), "EUR")]
    ((body, error),) = dead(server, topic)
    assert body == b'{"id": 5}'
    assert error == "cannot decode the message: the body lacks total"


def test_a_batch_leaves_out_what_cannot_be_decoded(server: Standalone, topic: str) -> None:
    seen: list[Purchase] = []
    consumer = rmqpy.PushConsumer(topic, server.namesrv, start_from="earliest", batch_size=8)

    @consumer.on(topic, "t", codec=CODEC)
    def handle(orders: list[Purchase], messages: list[rmqpy.ReceivedMessage]) -> None:
        assert [CODEC.decode(message.body, Purchase) for message in messages] == orders
        seen.extend(orders)

    with rmqpy.Producer(server.namesrv) as producer:
        for number in range(8):
            producer.send(topic, b"?" if number % 4 == 0 else CODEC.encode(Purchase(str(number), 1)), tag="t")
    with consumer:
        until(lambda: len(seen) == 6)
        until(lambda: len(dead(server, topic)) == 2)
    assert sorted(order.id for order in seen) == ["1", "2", "3", "5", "6", "7"]


async def test_coroutines_get_values_and_typed_topics_send_them(server: Standalone, topic: str) -> None:
    seen: list[Purchase] = []
    consumer = rmqpy.AsyncPushConsumer(topic, server.namesrv, start_from="earliest")

    @consumer.on(topic, "t", codec=CODEC)
    async def handle(order: Purchase) -> rmqpy.Reply:
        seen.append(order)
        return rmqpy.Reply(f"{order.total:g}")

    make_topic(server, topic)
    async with rmqpy.AsyncProducer(server.namesrv) as producer, consumer:
        orders = producer.typed(topic, Purchase)
        assert (await orders.request(Purchase("A-1", 4.5), tag="t", timeout=10)).text() == "4.5"
        assert (await orders.send(Purchase("A-2", 1), tag="t")).ok
        await (await orders.submit(Purchase("A-3", 1), tag="t"))
        # A message may arrive at the handler after its producer's reply.
        await until_async(lambda: {order.id for order in seen} == {"A-1", "A-2", "A-3"})


def test_a_handler_may_make_dead_letters(server: Standalone, topic: str) -> None:
    called = threading.Event()
    consumer = rmqpy.PushConsumer(topic, server.namesrv, start_from="earliest")

    @consumer.on(topic, "t")
    def handle(message: rmqpy.ReceivedMessage) -> rmqpy.ConsumeResult:
        called.set()
        return rmqpy.ConsumeResult.DEAD_LETTER

    with rmqpy.Producer(server.namesrv) as producer, consumer:
        producer.send(topic, b"poison", tag="t")
        until(lambda: len(dead(server, topic)) == 1)
    assert called.is_set()


def test_ranges_are_read_as_values(server: Standalone, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    make_topic(server, topic)
    with rmqpy.Producer(server.namesrv) as producer:
        queue = producer.queues(topic)[0]
        orders = producer.typed(topic, Purchase)
        orders.send(Purchase("A-1", 1), tag="t", queue=queue)
        producer.send(topic, b"?", queue=queue)
        orders.send(Purchase("A-2", 2), tag="t", queue=queue)
        end = producer.send(topic, b"end", queue=queue).queue_offset
    ranges = [rmqpy.QueueRange(queue, end - 3, end)]
    with pytest.raises(
        rmqpy.errors.DecodeError, match=f"message {end - 2} of queue {queue.queue_id} of {topic}"
    ):
        list(rmqpy.read_values(ranges, Purchase, server.namesrv))
    values = list(rmqpy.read_values(ranges, Purchase, server.namesrv, on_error="skip"))
    assert values == [Purchase("A-1", 1), Purchase("A-2", 2)]
    assert "skipping it" in caplog.text


def wrong_default(order: Purchase, retries: int = 3) -> None: ...
def unannotated(order) -> None: ...  # type: ignore[no-untyped-def]
def unresolved(order: "Nowhere") -> None: ...  # type: ignore[name-defined] # noqa: F821
def unsupported(order: complex) -> None: ...
def wrong_property(size: Annotated[list[int], rmqpy.Property("size")]) -> None: ...
def nothing() -> None: ...
async def coroutine(order: Purchase) -> None: ...


@pytest.mark.parametrize(
    ("handler", "text"),
    [
        (unannotated, "'order'.*needs an annotation"),
        (unresolved, "'Nowhere'.*cannot be read"),
        (unsupported, "cannot decode"),
        (wrong_property, "a property is str, int, float or bool"),
        (nothing, "takes no parameter"),
        (coroutine, "use AsyncPushConsumer"),
        (5, "cannot be called"),
    ],
)
def test_handlers_that_cannot_be_called_are_refused_when_registered(handler: Any, text: str) -> None:
    consumer = rmqpy.PushConsumer("billing")
    with pytest.raises(TypeError, match=text):
        consumer.on("orders", handler=handler, codec=CODEC)


def test_options_of_a_handler_are_left_alone() -> None:
    rmqpy.PushConsumer("billing").on("orders", codec=CODEC)(wrong_default)
