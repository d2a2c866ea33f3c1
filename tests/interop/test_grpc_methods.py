"""gRPC methods and refusals that no official client reaches: pulls, offsets, settings, forged handles, metadata."""

from collections.abc import Iterator
from typing import Any

import pytest

import rmqpy
from rmqpy.server import Standalone
from rmqpy.testing import broker

pytest.importorskip("rocketmq", reason="rocketmq-python-client is not installed", exc_type=ImportError)
from .grpc_stubs import METADATA, definitions, grpc, named, queue, services, stub, telemetry

pytestmark = pytest.mark.timeout(60)

OK, NOT_FOUND, ILLEGAL_OFFSET, NO_OFFSET = 20000, 40401, 40019, 40404


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


def pull(calls: Any, offset: int, **fields: Any) -> tuple[int, list[str], int | None]:
    """Status, bodies, and the next offset."""
    request = services.PullMessageRequest(
        group=named("puller"), message_queue=queue("pulled"), offset=offset, batch_size=3, **fields
    )
    code, bodies, following = 0, [], None
    for part in calls.PullMessage(request, metadata=METADATA, timeout=10):
        kind = part.WhichOneof("content")
        if kind == "status":
            code = part.status.code
        elif kind == "message":
            bodies.append(part.message.body.decode())
        else:
            following = part.next_offset
    return code, bodies, following


def test_pull_reads_a_queue_from_an_offset(calls: Any) -> None:
    assert pull(calls, 0) == (OK, ["0", "1", "2"], 3)
    assert pull(calls, 3) == (OK, ["3", "4"], 5)
    odd = definitions.FilterExpression(type="TAG", expression="odd")
    assert pull(calls, 0, filter_expression=odd)[1][:2] == ["1", "3"]
    assert pull(calls, 5) == (NOT_FOUND, [], 5)
    assert pull(calls, -1)[0] == ILLEGAL_OFFSET
    assert pull(calls, 99)[0] == ILLEGAL_OFFSET


def test_pull_waits_for_a_message(calls: Any, server: Standalone) -> None:
    with rmqpy.Admin(server.namesrv) as admin, rmqpy.Producer(server.namesrv) as producer:
        admin.create_topic("awaited", write_queues=1, read_queues=1)
        request = services.PullMessageRequest(
            group=named("puller"), message_queue=queue("awaited"), batch_size=1
        )
        request.long_polling_timeout.FromSeconds(8)
        parts = calls.PullMessage(request, metadata=METADATA, timeout=15)
        producer.send("awaited", b"at last")
        assert [part.message.body for part in parts if part.HasField("message")] == [b"at last"]


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
                client_type="PUSH_CONSUMER", publishing=definitions.Publishing(topics=[named("pulled")])
            ),
            "cannot publish",
        ),
        (
            definitions.Settings(
                client_type="PRODUCER", subscription=definitions.Subscription(group=named("readers"))
            ),
            "cannot subscribe",
        ),
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
    # The topics of a producer may become known later.
    nothing = definitions.Settings(client_type="PRODUCER", publishing=definitions.Publishing())
    assert telemetry(calls, nothing).status.code == OK
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
