"""A folder with messages in flight, passed from one broker to the other and back: unacknowledged messages come again.

The number of messages is `RMQPY_POP_MESSAGES`.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqpy
from broker.popping import messages, pop
from waiting import until
from wire import Peer

from . import wire
from .folders import SMALL_FILES, Folder

TOPIC, GROUP = "jobs", "workers"
MESSAGES = int(os.environ.get("RMQPY_POP_MESSAGES", "200"))
#: Longer than a change of the broker takes, and a receipt of all messages.
INVISIBLE_S = 60.0 + MESSAGES / 1_000
RECEIVED_SECONDS_MAX = INVISIBLE_S + 90.0 + MESSAGES / 200
#: A broker's log is not spread over thousands of files.
FILES = SMALL_FILES | {
    "mappedFileSizeCommitLog": max(1 << 20, MESSAGES << 10),
    "mappedFileSizeConsumeQueue": 20 * 5_000,
}


class Receipts:
    """The messages that a broker delivered, of which every second one is acknowledged."""

    def __init__(self, wanted: set[bytes]) -> None:
        self.attempts: list[int] = []
        self.acknowledged: set[bytes] = set()
        self.missing = set(wanted)

    def receive(self, consumer: rmqpy.SimpleConsumer, invisible: float) -> int:
        """Receive some more; the number of messages that are still missing."""
        found = consumer.receive(32, invisible=invisible, wait=1)
        self.attempts += [message.delivery_attempt for message in found]
        self.missing -= {message.body for message in found}
        if done := found[::2]:
            consumer.ack(*done)
            self.acknowledged |= {message.body for message in done}
        return len(self.missing)


def receive(folder: Folder, wanted: set[bytes], *, invisible: float) -> Receipts:
    """Receive until all of these messages were received."""
    until(lambda: wire.has_route(folder.namesrv, TOPIC))
    receipts = Receipts(wanted)
    with rmqpy.SimpleConsumer(GROUP, folder.namesrv, start_from="earliest") as consumer:
        consumer.subscribe(TOPIC)
        until(
            lambda: receipts.receive(consumer, invisible),
            RECEIVED_SECONDS_MAX,
            wanted=lambda missing: missing == 0,
            pause=0,
        )
    return receipts


@pytest.mark.timeout(600 + 3 * MESSAGES / 100)
@pytest.mark.parametrize(("first", "second"), [("apache", "rmqpy"), ("rmqpy", "apache")])
def test_messages_in_flight_come_again_at_the_other_broker_and_back(
    first: str, second: str, originals: Callable[[str], Path], namesrv: str, tmp_path: Path
) -> None:
    folder = Folder.make(tmp_path / "broker", namesrv, originals("apache"), **FILES)
    left = {b"%d" % number for number in range(MESSAGES)}
    with folder.served_by(first):
        wire.create_topic(namesrv, folder.broker, TOPIC, 4)
        until(lambda: wire.has_route(namesrv, TOPIC))
        with rmqpy.Producer(namesrv, send_timeout=30.0) as producer:
            for sent in [producer.submit(TOPIC, body) for body in sorted(left)]:
                sent.result(timeout=60)
    for attempt, name in enumerate((first, second, first), 1):
        with folder.served_by(name):
            receipts = receive(folder, left, invisible=INVISIBLE_S)
        counts = {each: receipts.attempts.count(each) for each in sorted(set(receipts.attempts))}
        print(f"{name}: {len(left)} open messages, receipts by delivery attempt {counts}")
        assert counts == {attempt: len(left)}, "each is received once"
        left -= receipts.acknowledged


async def first_offsets(broker: str) -> dict[str, list[int]]:
    """Offsets that new groups are given first, by the mode in which they begin."""
    found = {}
    async with await Peer.connect(broker) as peer:
        for name, mode in (("last", "1"), ("first", "0")):
            answer = await pop(peer, 2, consumerGroup=f"from-{name}", initMode=mode, wait=5_000)
            found[name] = [message.offset for message in messages(answer)]
    return found


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", ["rmqpy", "apache"])
def test_new_group_begins_at_the_last_message_of_a_topic_whose_first_file_is_gone(
    name: str, originals: Callable[[str], Path], namesrv: str, tmp_path: Path
) -> None:
    """Check 1: of a topic that is still whole and in memory it gets all."""
    folder = Folder.make(tmp_path / "broker", namesrv, originals("apache"), **SMALL_FILES)
    count = 3_000
    with folder.served_by(name):
        wire.create_topic(namesrv, folder.broker, TOPIC, 1)
        until(lambda: wire.has_route(namesrv, TOPIC))
        with rmqpy.Producer(namesrv, send_timeout=30.0) as producer:
            for sent in [producer.submit(TOPIC, bytes(1_000)) for _ in range(count)]:
                sent.result(timeout=60)
    min((folder.home / "store" / "commitlog").iterdir()).unlink()
    with folder.served_by(name):
        begin = until(lambda: wire.min_offset(folder.broker, TOPIC, 0), 60)
        found = asyncio.run(first_offsets(folder.broker))
    print(f"{name}: the queue has {begin} to {count - 1}; the first pop gives {found}")
    assert found == {"last": [count - 1], "first": [begin, begin + 1]}
