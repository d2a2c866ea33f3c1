"""Message traces: of Java's and Go's clients and of ours, at a broker as it comes; and ours in Java's form."""

from collections.abc import Callable

import pytest

import rmqpy
from rmqpy import errors
from rmqpy.admin.traces import Step
from rmqpy.cli.mq import admin as our_mqadmin
from rmqpy.protocol.names import TRACE_TOPIC
from rmqpy.protocol.traces import BegunNote, ConsumeCode, EndedNote, SentKind, SentNote
from waiting import until

from . import wire
from .clients import InteropClient, ProcessClient
from .messages import MessageSpec
from .servers import Cluster

#: Clients write what they trace some seconds later: Java's within 5 s.
WAIT_S = 30.0
SPEC = MessageSpec(b"hello", tag="paid", keys=("A-1", "A-2"))


def steps_of(admin: rmqpy.Admin, message_id: str, count: int) -> list[Step]:
    """The steps of a message, once there are so many that have ended."""
    return until(
        lambda: admin.trace(message_id),
        wanted=lambda steps: len([step for step in steps if step.outcome is not None]) >= count,
        failing=(errors.MessageNotFound, errors.TopicNotFound),
    )


def notes_of(admin: rmqpy.Admin, message_id: str) -> set[tuple[str, ...]]:
    """The notes of a message as they were written, in fields."""
    bodies = admin.messages_by_key(TRACE_TOPIC, message_id, count=64)
    texts = {text for body in bodies for text in body.text().split("\x02")}
    return {tuple(text.split("\x01")) for text in texts if message_id in text.split("\x01")}


@pytest.mark.parametrize("client_name", ["java-5.5.0", "java-4.9.8", "go"])
def test_producer_and_consumer_of_each_client_make_one_timeline(
    client_name: str, client_of: Callable[[str], InteropClient], cluster_of: Callable[[str], Cluster]
) -> None:
    client, cluster = client_of(client_name), cluster_of("rmqpy")
    assert isinstance(client, ProcessClient)
    topic = f"traced-by-{client_name}".replace(".", "_")
    group = f"{topic}-group"
    wire.create_topic(cluster.namesrv, cluster.broker, topic, 1)
    [sent] = client.send(cluster.namesrv, topic, [SPEC], trace=True)
    listener = client.listen(cluster.namesrv, topic, group, trace=True)
    listener.wait_for(1)
    with rmqpy.Admin(cluster.namesrv) as admin:
        send, consume = steps_of(admin, sent.id, 2)
        assert (send.what, send.topic, send.broker, send.outcome) == (
            *("send", topic, cluster.broker),
            "success",
        )
        assert (consume.what, consume.group, consume.attempt, consume.outcome) == (
            *("consume", group, 1),
            "success",
        )
        assert send.at_ms is not None
        assert consume.at_ms is not None
        assert send.at_ms <= consume.at_ms
        if client_name.startswith("java"):
            written = {written_again(note) for note in notes_of(admin, sent.id)}
            assert written == notes_of(admin, sent.id), "as ours write it"
    listener.stop()


def written_again(note: tuple[str, ...]) -> tuple[str, ...]:
    """What our clients write for the same."""
    text = {each: None if each == "null" else each for each in note}
    match note[0]:
        case "Pub":
            at, region, group, topic, message_id, tag, keys, broker, size, took, kind, offset_id, ok = note[
                1:
            ]
            again: SentNote | BegunNote | EndedNote = SentNote(
                at_ms=int(at), region=region, group=group, topic=topic, message_id=message_id, tag=text[tag],
                keys=text[keys], broker=text[broker], body_bytes=int(size), took_ms=int(took),
                kind=SentKind(int(kind)), offset_message_id=offset_id, is_success=ok == "true",
            )  # fmt: skip
        case "SubBefore":
            at, region, group, request, message_id, retries, keys = note[1:]
            again = BegunNote(
                at_ms=int(at), region=region, group=group, request=request, message_id=message_id,
                retries=int(retries), keys=text[keys],
            )  # fmt: skip
        case _:
            assert note[0] == "SubAfter"
            request, message_id, took, _, keys, code, at, group = note[1:]
            again = EndedNote(
                request=request, message_id=message_id, took_ms=int(took), keys=text[keys],
                code=ConsumeCode(int(code)), at_ms=int(at), group=group,
            )  # fmt: skip
    return tuple(again.text().removesuffix("\x02").split("\x01"))


@pytest.mark.parametrize("servers", ["rmqpy", "apache"])
def test_java_reads_our_traces_at_either_broker(
    servers: str,
    client_of: Callable[[str], InteropClient],
    cluster_of: Callable[[str], Cluster],
    capfd: pytest.CaptureFixture[str],
) -> None:
    java, cluster, topic = client_of("java-5.5.0"), cluster_of(servers), "traced-by-ours"
    assert isinstance(java, ProcessClient)
    wire.create_topic(cluster.namesrv, cluster.broker, topic, 1)
    with rmqpy.Producer(cluster.namesrv, group="shop", trace=True) as producer:
        sent = producer.send(topic, b"hello", tag="paid", keys=["A-1"])
    consumer = rmqpy.PushConsumer("billing-traced", cluster.namesrv, start_from="earliest", trace=True)
    consumer.on(topic, handler=lambda message: None)
    with consumer, rmqpy.Admin(cluster.namesrv) as admin:
        steps = steps_of(admin, sent.message_id, 2)
        assert [(step.what, step.group, step.outcome) for step in steps] == [
            ("send", "shop", "success"),
            ("consume", "billing-traced", "success"),
        ]
    printed = java.mqadmin("queryMsgTraceById", "-n", cluster.namesrv, "-i", sent.message_id)
    assert our_mqadmin.run(["queryMsgTraceById", "-n", cluster.namesrv, "-i", sent.message_id]) == 0
    ours = capfd.readouterr().out
    assert "shop" in printed
    assert "billing-traced" in printed
    assert [line.split() for line in ours.splitlines()] == [line.split() for line in printed.splitlines()]
