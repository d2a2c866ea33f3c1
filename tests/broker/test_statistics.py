"""Statistics: the data plane's counts over a minute, an hour and a day."""

from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

from broker.conftest import Cluster, Start
from broker.talk import pull, send
from rmqpy.clock import HandClock
from rmqpy.control.statistics import traffic
from rmqpy.control.statistics.traffic import SAMPLE_SECONDS, Statistics
from rmqpy.protocol.requests.brokers import BrokerStats, ViewBrokerStatsData
from rmqpy.protocol.requests.groups import DeleteSubscriptionGroup
from rmqpy.protocol.requests.messages import ConsumerSendMessageBack
from rmqpy.protocol.requests.topics import DeleteTopicInBroker
from wire import Frame, Peer, Refusal


class Arrivals(NamedTuple):
    """Counts of the messages that became visible in one queue."""

    messages: int
    topic: str = "orders"
    queue_id: int = 0
    message_type: str = "NORMAL"

    @property
    def bytes(self) -> int:
        return 100 * self.messages


@dataclass
class Counted:
    """Counts of a data plane since the last call."""

    arrivals: list[Arrivals] = field(default_factory=list)

    def take_arrivals(self) -> list[Arrivals]:
        taken, self.arrivals = self.arrivals, []
        return taken

    def take_deliveries(self) -> list[object]:
        return []


@dataclass
class Day:
    """Statistics of a broker with a clock that the test advances."""

    clock: HandClock = field(default_factory=HandClock)
    counted: Counted = field(default_factory=Counted)

    def __post_init__(self) -> None:
        self.statistics = Statistics(
            "c1", self.counted, self.counted, lambda topic: topic == "SYS", self.clock
        )

    def put(self, messages: int, topic: str = "orders") -> None:
        self.counted.arrivals.append(Arrivals(messages, topic))

    def passes(self, seconds: int) -> None:
        for _ in range(seconds // SAMPLE_SECONDS):
            self.clock.advance(SAMPLE_SECONDS)
            self.statistics.sample()

    def orders(self, name: str = "TOPIC_PUT_NUMS", key: str = "orders") -> BrokerStats:
        found = self.statistics.view(name, key)
        assert found is not None
        return found


def test_window_excludes_older_samples() -> None:
    day = Day()
    day.put(30)
    totals = []
    for seconds in (60, 60, 4_200, 25 * 3_600):
        totals.append([window.sum for window in (day.orders().stats_minute, day.orders().stats_hour)])
        totals[-1].append(day.orders().stats_day.sum)
        day.passes(seconds)
        day.put(0, "other")
        if seconds == 4_200:
            day.put(1)
    assert totals == [[30, 30, 30], [30, 30, 30], [0, 30, 30], [1, 1, 31]]


def test_rate_is_the_count_divided_by_the_window() -> None:
    day = Day()
    day.passes(600)
    for _ in range(60):
        day.put(50)
        day.passes(10)
    minute, size = day.orders().stats_minute, day.orders("TOPIC_PUT_SIZE").stats_minute
    assert (minute.sum, minute.tps, minute.avgpt) == (300, 5.0, 1.0)
    assert (size.sum, size.tps, size.avgpt) == (30_000, 500.0, 100.0)
    assert day.statistics.topic_put_tps("orders") == 5.0


def test_first_messages_of_a_topic_cause_no_rate_peak() -> None:
    """A rate over the instant since the last sample would be thousands a second."""
    day = Day()
    day.passes(60)
    day.clock.advance(0.001)
    day.put(20)
    assert day.orders().stats_minute.tps == 2.0


def test_idle_statistics_expire_and_system_topics_have_none() -> None:
    day = Day()
    day.put(2)
    day.put(5, "SYS")
    day.passes(3_600)
    assert day.orders("BROKER_PUT_NUMS", "c1").stats_day.sum == 7
    assert day.orders("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", "c1").stats_day.sum == 2
    assert day.statistics.total("BROKER_PUT_NUMS") == 7
    day.passes(27 * 3_600)
    assert day.statistics.view("TOPIC_PUT_NUMS", "orders") is None


def test_queues_are_counted_separately_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "SERIES_MAX", 10)
    day = Day()
    day.counted.arrivals = [Arrivals(1, queue_id=queue) for queue in range(20)]
    assert day.orders().stats_day.sum == 20
    known = [queue for queue in range(20) if day.statistics.view("QUEUE_PUT_NUMS", f"orders@{queue}")]
    assert known == list(range(len(known)))
    assert 0 < len(known) < 10


# ---- a real broker ----


async def view(peer: Peer, name: str, key: str) -> int:
    return (await peer.ask(ViewBrokerStatsData(stats_name=name, stats_key=key))).stats_minute.sum


async def exchange(peer: Peer) -> Frame:
    """Send three messages, and return the one reply that delivers them."""
    for _ in range(3):
        assert (await send(peer, "orders")).code == 0
    answer = await pull(peer, "billing", "orders")
    assert answer.code == 0
    return answer


async def test_a_broker_counts_what_comes_in_and_what_each_group_takes(cluster: Cluster) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        size = len((await exchange(peer)).body)
        found = {
            (name, key): await view(peer, name, key)
            for name, key in [
                ("TOPIC_PUT_NUMS", "orders"), ("TOPIC_PUT_SIZE", "orders"), ("QUEUE_PUT_NUMS", "orders@0"),
                ("GROUP_GET_NUMS", "orders@billing"), ("GROUP_GET_SIZE", "orders@billing"),
                ("QUEUE_GET_NUMS", "orders@0@billing"), ("BROKER_PUT_NUMS", "c1"), ("BROKER_GET_NUMS", "c1"),
            ]
        }  # fmt: skip
        assert list(found.values()) == [3, size, 3, 3, size, 3, 3, 3]
        asked = ViewBrokerStatsData(stats_name="GROUP_GET_NUMS", stats_key="orders@billing")
        assert (await peer.ask(asked)).stats_minute.avgpt == 3.0
        for name, key in [("TOPIC_PUT_NUMS", "unheard-of"), ("NO_SUCH_FIGURE", "orders")]:
            with pytest.raises(Refusal, match="not exist"):
                await view(peer, name, key)


async def test_a_group_that_pulls_on_another_connection_adds_to_the_same_statistic(cluster: Cluster) -> None:
    async with (
        await Peer.connect(cluster.broker.address) as peer,
        await Peer.connect(cluster.broker.address) as other,
    ):
        await exchange(peer)
        assert (await pull(other, "billing", "orders")).code == 0
        assert (await pull(other, "audit", "orders")).code == 0
        assert await view(peer, "GROUP_GET_NUMS", "orders@billing") == 6
        assert await view(peer, "GROUP_GET_NUMS", "orders@audit") == 3


async def test_returned_messages_are_counted_for_their_topic(cluster: Cluster) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        await exchange(peer)
        await peer.ask(ConsumerSendMessageBack(offset=0, group="billing", delay_level=3))
        assert await view(peer, "SNDBCK_PUT_NUMS", "orders@billing") == 1


async def test_message_with_an_oversized_copy_is_not_counted_as_returned(start: Start) -> None:
    # A record that just fits a segment of the log; its copy, which says more about itself, does not.
    segment = 1 << 20
    cluster = await start(mappedFileSizeCommitLog=str(segment), maxMessageSize=str(segment))
    async with await Peer.connect(cluster.broker.address) as peer:
        body = segment - 1
        while (await send(peer, "orders", b"x" * body)).code != 0:
            body -= 50
        with pytest.raises(Refusal, match="does not fit"):
            await peer.ask(ConsumerSendMessageBack(offset=0, group="billing", delay_level=3))
        with pytest.raises(Refusal, match="not exist"):
            await view(peer, "SNDBCK_PUT_NUMS", "orders@billing")


async def test_statistics_of_deleted_topics_and_groups_are_removed(cluster: Cluster) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        await exchange(peer)
        await peer.ask(DeleteSubscriptionGroup(group_name="billing"))
        with pytest.raises(Refusal, match="not exist"):
            await view(peer, "GROUP_GET_NUMS", "orders@billing")
        assert await view(peer, "TOPIC_PUT_NUMS", "orders") == 3
        await peer.ask(DeleteTopicInBroker(topic="orders"))
        with pytest.raises(Refusal, match="not exist"):
            await view(peer, "TOPIC_PUT_NUMS", "orders")
