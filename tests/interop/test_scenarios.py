"""Scenarios of applications, run with each client and checked by consumed messages.

The sender's report alone does not count: some clients report success on a dead port.
"""

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from . import wire
from .clients import ProcessClient
from .exchange import QUEUES, Exchange
from .messages import COMPRESSED, COMPRESSION_MASK, COMPRESSION_TYPES, MessageSpec, Received, bodies, numbered

pytestmark = pytest.mark.timeout(100, func_only=True)

WARM_UP_SECONDS_MAX = 20.0
AT_ONCE_SECONDS_MAX = 3.0

ORDER = MessageSpec(
    b'{"order": 4711}',
    tag="paid",
    keys=("A-1", "A-2"),
    properties={"region": "eu", "a": "b=c;d", "spaces": "  two words ", "long": "x" * 10_000},
    flag=7,
)


def test_synchronously_sent_message_arrives_complete(exchange: Exchange) -> None:
    [sent] = exchange.send([ORDER])
    [received] = exchange.consume(1)
    assert sent.status == "SEND_OK"
    assert received.content() == ORDER
    assert received.topic == exchange.topic


def test_send_result_has_position_and_ids(exchange: Exchange) -> None:
    sent = exchange.send(numbered(8))
    received = {message.id: message for message in exchange.consume(8)}
    assert {s.id for s in sent} == received.keys()
    for s in sent:
        assert received[s.id].position == (s.queue_id, s.queue_offset)
        assert received[s.id].offset_id == s.offset_id


def test_asynchronous_sends_complete_and_arrive_once_each(exchange: Exchange) -> None:
    messages = numbered(200)
    sent = exchange.send(messages, mode="async")
    received = exchange.consume(200)
    assert [s.status for s in sent] == ["SEND_OK"] * 200
    assert bodies(received) == [message.body for message in messages]
    assert {s.id for s in sent} == {r.id for r in received}


@pytest.mark.parametrize("name", ["TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC"])
def test_a_timed_message_arrives_at_its_time_and_not_before(exchange: Exchange, name: str) -> None:
    """The properties are those that `setDelayTimeMs`, `setDeliverTimeMs` and `setDelayTimeSec` of Java set."""
    if not isinstance(exchange.client, ProcessClient):
        pytest.skip("our client has arguments for it, and refuses the properties")
    before_ms = time.time_ns() // 1_000_000
    asked = {"TIMER_DELAY_MS": 1_500, "TIMER_DELIVER_MS": before_ms + 1_500, "TIMER_DELAY_SEC": 2}[name]
    [sent] = exchange.send([MessageSpec(b"later", properties={name: str(asked)})])
    [received] = exchange.consume(1)
    assert (sent.status, received.body, received.id) == ("SEND_OK", b"later", sent.id)
    assert received.stored_ms >= before_ms + 1_500
    assert received.properties["REAL_TOPIC"] == exchange.topic


def test_one_way_sends_arrive_once_each(exchange: Exchange) -> None:
    messages = numbered(50)
    assert exchange.send(messages, mode="oneway") == []
    assert bodies(exchange.consume(50)) == [message.body for message in messages]


def test_a_batch_arrives_as_single_messages_next_to_each_other(exchange: Exchange) -> None:
    messages = [
        replace(m, tag=f"tag{i % 3}", keys=(f"key-{i}",), properties={"n": str(i)})
        for i, m in enumerate(numbered(64))
    ]
    sent = exchange.send(messages, mode="batch")
    received = sorted(exchange.consume(64), key=lambda message: message.position)
    assert {s.status for s in sent} == {"SEND_OK"}
    assert [r.content() for r in received] == messages
    assert len({r.queue_id for r in received}) == 1
    assert [r.queue_offset for r in received] == list(range(64))


def test_messages_of_one_key_keep_queue_and_order(exchange: Exchange) -> None:
    messages = [replace(m, keys=(f"customer{i % 7}",)) for i, m in enumerate(numbered(70))]
    exchange.send(messages, mode="keyed")
    received = exchange.consume(70, ordered=True)
    by_key = defaultdict(list)
    for message in received:
        by_key[message.keys].append(message)
    assert len(by_key) == 7
    for of_key in by_key.values():
        assert len({message.queue_id for message in of_key}) == 1
        assert [message.body for message in of_key] == sorted(message.body for message in of_key)
    assert bodies(received) == [message.body for message in messages]


def test_tag_filter_passes_only_its_tags_despite_hash_collisions(exchange: Exchange) -> None:
    # "Aa" and "BB" have the same Java hash: the broker lets both through, the client must not.
    tags = ["Aa", "BB", "C", None]
    messages = [replace(m, tag=tags[i % 4]) for i, m in enumerate(numbered(40))]
    exchange.send(messages)
    received = exchange.consume(20, tags="Aa || C")
    assert bodies(received) == [m.body for m in messages if m.tag in ("Aa", "C")]


def test_a_compressed_body_is_stored_compressed_and_arrives_whole(exchange: Exchange) -> None:
    body = b"to be compressed " * 1000
    for compression in exchange.client.compressions:
        [sent] = exchange.send([MessageSpec(body, tag=compression)], compression=compression)
        sys_flag, size = wire.stored(
            exchange.cluster.broker, exchange.topic, sent.queue_id, sent.queue_offset
        )
        assert sys_flag & COMPRESSED
        # Clients from before there was a choice leave the type at 0.
        assert sys_flag & COMPRESSION_MASK == COMPRESSION_TYPES[compression] or compression == "zlib"
        assert size < len(body) / 2
    received = exchange.consume(len(exchange.client.compressions))
    assert {r.tag for r in received} == set(exchange.client.compressions)
    assert {r.body for r in received} == {body}


def test_a_body_of_three_megabytes_arrives_whole(exchange: Exchange) -> None:
    body = Random(1).randbytes(3 << 20)  # Random, so that compression cannot make it small.
    exchange.send([MessageSpec(body)])
    [received] = exchange.consume(1)
    assert received.body == body


def test_a_message_with_a_body_only_arrives(exchange: Exchange) -> None:
    exchange.send([MessageSpec(b"\x00")])
    [received] = exchange.consume(1)
    assert received.content() == MessageSpec(b"\x00")


def test_a_property_with_an_empty_value_does_no_harm_to_the_others(exchange: Exchange) -> None:
    exchange.send([MessageSpec(b"x", tag="t", keys=("k",), properties={"a": "1", "empty": "", "z": "2"})])
    [received] = exchange.consume(1)
    content = received.content()
    # Some clients drop the empty one, when sending or decoding; none may lose another one with it.
    assert {name: value for name, value in content.properties.items() if value} == {"a": "1", "z": "2"}
    assert (content.tag, content.keys, content.body) == ("t", ("k",), b"x")


def test_text_beyond_ascii_arrives_unchanged(exchange: Exchange) -> None:
    message = MessageSpec(
        "Grüße, 世界 🚀".encode(),
        tag="прогноз",
        keys=("schlüssel", "键"),
        properties={"größe": "äöü", "emoji": "🚀 and \u2028 and \u00a0", "quoted": '"\\\n\t'},
    )
    exchange.send([message])
    [received] = exchange.consume(1)
    assert received.content() == message


def test_each_way_to_pull_reads_every_message_once(exchange: Exchange) -> None:
    messages = numbered(100, tag="even") + numbered(100, "other", tag="odd")
    for sent in exchange.send(messages, mode="async"):
        wire.await_readable(exchange.cluster.broker, exchange.topic, sent.queue_id, sent.queue_offset)
    # A sender that waited too long for an answer sends again, and then the topic holds both.
    ends = [wire.max_offset(exchange.cluster.broker, exchange.topic, queue) for queue in range(QUEUES)]
    stored = {(queue, offset) for queue, end in enumerate(ends) for offset in range(end)}
    for api in exchange.client.pulls:
        pulled = exchange.pull(len(stored), api=api)
        assert sorted(_places(pulled)) == sorted(stored), api
        assert {m.body for m in pulled} == {m.body for m in messages}, api
        odd = _places([m for m in pulled if m.tag == "odd"])
        assert sorted(_places(exchange.pull(len(odd), api=api, tags="odd"))) == sorted(odd), api


def _places(messages: Sequence[Received]) -> list[tuple[int, int]]:
    return [(message.queue_id, message.queue_offset) for message in messages]


def test_a_missing_topic_is_made_by_the_first_send(exchange: Exchange) -> None:
    exchange.topic += "-new"
    exchange.send([ORDER])
    [received] = exchange.consume(1)
    assert received.content() == ORDER


@pytest.mark.push
def test_waiting_consumer_gets_a_message_immediately(exchange: Exchange) -> None:
    # Long polls last 15 s: a message that waits for the end of a poll is late.
    assert isinstance(exchange.client, ProcessClient)
    listener = exchange.client.listen(exchange.cluster.namesrv, exchange.topic, exchange.group)
    try:
        for count in range(1, 13):
            exchange.send(numbered(1, f"round {count}"))
            listener.wait_for(count, seconds=WARM_UP_SECONDS_MAX if count < 4 else AT_ONCE_SECONDS_MAX)
    finally:
        listener.stop()


def test_group_resumes_at_its_progress(exchange: Exchange) -> None:
    exchange.send(numbered(30, "first"))
    exchange.consume(30, until_committed=30)
    exchange.send(numbered(30, "second"))
    assert bodies(exchange.consume(30)) == [message.body for message in numbered(30, "second")]
