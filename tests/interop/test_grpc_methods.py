"""gRPC methods and refusals that no official client reaches: offsets, settings, forged handles, metadata."""

from collections.abc import Iterator
from typing import Any

import pytest

import rmqpy
from rmqpy.server import Standalone
from rmqpy.testing import broker

pytest.importorskip("rocketmq", reason="rocketmq-python-client is not installed", exc_type=ImportError)
from .grpc_stubs import METADATA, definitions, grpc, named, queue, services, stub, telemetry

pytestmark = pytest.mark.timeout(60)

OK, ILLEGAL_OFFSET, NO_OFFSET = 20000, 40019, 40404


@pytest.fixture(scope="module")
def server() -> Iterator[Standalone]:
    with broker(grpcServerPort=0) as server, rmqpy.Admin(server.namesrv) as admin:
        admin.create_topic("pulled", write_queues=1, read_queues=1)
        for group in ("puller", "keeper"):
            admin.create_group(group)
        with rmqpy.Producer(server.namesrv) as producer:
            for number in range(5):
                producer.send("pulled", str(number).encode(), tag="even" if number % 2 == 0 else "odd")
        yield server


@pytest.fixture
def calls(server: Standalone) -> Iterator[Any]:
    assert server.grpc is not None
    with stub(server.grpc) as calls:
        yield calls


def test_offsets_are_stored_and_looked_up(calls: Any) -> None:
    place = {"group": named("keeper"), "message_queue": queue("pulled")}

    def stored() -> tuple[int, int]:
        reply = calls.GetOffset(services.GetOffsetRequest(**place), metadata=METADATA)
        return reply.status.code, reply.offset

    def update(offset: int) -> int:
        request = services.UpdateOffsetRequest(**place, offset=offset)
        return int(calls.UpdateOffset(request, metadata=METADATA).status.code)

    def at(policy: str, **fields: Any) -> int:
        request = services.QueryOffsetRequest(
            message_queue=queue("pulled"), query_offset_policy=policy, **fields
        )
        return int(calls.QueryOffset(request, metadata=METADATA).offset)

    assert stored()[0] == NO_OFFSET
    assert update(-1) == ILLEGAL_OFFSET
    assert update(3) == OK
    assert stored() == (OK, 3)
    assert (at("BEGINNING"), at("END")) == (0, 5)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (definitions.Settings(client_type="PRODUCER"), "neither publishing nor subscription"),
        (
            definitions.Settings(
                client_type="PRODUCER", publishing=definitions.Publishing(topics=[named("a b")])
            ),
            "a b",
        ),
        (
            definitions.Settings(
                client_type="SIMPLE_CONSUMER", subscription=definitions.Subscription(group=named(" "))
            ),
            "blank",
        ),
    ],
)
def test_settings_that_contradict_themselves_end_the_stream(calls: Any, settings: Any, text: str) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        telemetry(calls, settings)
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert text in refused.value.details()


def test_settings_are_completed(calls: Any) -> None:
    publishing = definitions.Settings(
        client_type="PRODUCER", publishing=definitions.Publishing(topics=[named("pulled")])
    )
    reply = telemetry(calls, publishing)
    assert reply.status.code == OK
    assert reply.settings.publishing.topics[0].name == "pulled"
    assert reply.settings.publishing.max_body_size == 4 << 20
    assert reply.settings.backoff_policy.HasField("exponential_backoff")
    subscribing = definitions.Settings(
        client_type="PUSH_CONSUMER", subscription=definitions.Subscription(group=named("readers"))
    )
    reply = telemetry(calls, subscribing)
    assert reply.settings.subscription.receive_batch_size == 32
    assert reply.settings.backoff_policy.max_attempts == 17
    assert reply.settings.backoff_policy.customized_backoff.next[0].seconds == 1


@pytest.mark.parametrize(
    "handle",
    ["", "x", "1 2 3", "0 1 9999999999999 0 0 broker-a 0 0 -5 7", "9" * 900, "0 " * 400, "\u0663 " * 8],
)
def test_forged_handles_are_refused(calls: Any, handle: str) -> None:
    entry = services.AckMessageEntry(message_id="1", receipt_handle=handle)
    acked = calls.AckMessage(
        services.AckMessageRequest(group=named("puller"), topic=named("pulled"), entries=[entry]),
        metadata=METADATA,
    )
    assert acked.status.code == acked.entries[0].status.code == 40013
    hidden = services.ChangeInvisibleDurationRequest(
        group=named("puller"), topic=named("pulled"), receipt_handle=handle, message_id="1"
    )
    assert calls.ChangeInvisibleDuration(hidden, metadata=METADATA).status.code == 40013
    dead = services.ForwardMessageToDeadLetterQueueRequest(
        group=named("puller"), topic=named("pulled"), receipt_handle=handle, message_id="1"
    )
    assert calls.ForwardMessageToDeadLetterQueue(dead, metadata=METADATA).status.code == 40013


def test_handle_of_another_place_does_no_harm(calls: Any) -> None:
    # Well formed, with a position, a queue and a broker that do not exist.
    handle = "0 9999999999999 60000 0 0 elsewhere 77 123456 99999999999"
    dead = services.ForwardMessageToDeadLetterQueueRequest(
        group=named("puller"), topic=named("pulled"), receipt_handle=handle, message_id="1"
    )
    assert calls.ForwardMessageToDeadLetterQueue(dead, metadata=METADATA).status.code != OK
    entry = services.AckMessageEntry(message_id="1", receipt_handle=handle)
    request = services.AckMessageRequest(group=named("puller"), topic=named("pulled"), entries=[entry])
    assert calls.AckMessage(request, metadata=METADATA).status.code != OK


def test_call_without_a_client_id_is_refused(calls: Any) -> None:
    request = services.QueryRouteRequest(topic=named("pulled"))
    assert calls.QueryRoute(request, metadata=()).status.code == 40017
    assert calls.QueryRoute(request, metadata=(("x-mq-client-id", " "),)).status.code == 40017
    assert calls.QueryRoute(request, metadata=METADATA).status.code == OK
