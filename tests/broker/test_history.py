"""Histories: recent values in a broker's memory, their bounds, and their way to the console."""

import tracemalloc
from pathlib import Path

import pytest

import rmqpy
from apiclient import CHANGE, api_of
from rmqpy.clock import HandClock
from rmqpy.control.statistics import history
from rmqpy.control.statistics.history import POINTS, History, Sample
from rmqpy.protocol.requests.brokers import UNKNOWN
from rmqpy.testing import broker
from waiting import until

NOTHING = Sample({}, {}, {}, {}, {})
MIB = 1 << 20


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


def sample(clock: HandClock, kept: History, **given: dict[str, float]) -> None:
    clock.advance(10)
    kept.add(NOTHING._replace(**given))


def test_counters_become_rates_and_other_values_stay(clock: HandClock) -> None:
    kept = History(clock)
    sample(clock, kept, arrived={"orders": 50}, lags={"billing": 7}, broker={"disk": 0.5})
    sample(clock, kept, arrived={"orders": 80}, lags={"billing": 9}, broker={"disk": float("nan")})
    clock.advance(4)
    found = kept.view(["in", "lag", "broker"], ["orders", "billing", "disk", "idle"])
    assert (found.step_millis, found.age_millis) == (10_000, 4_000)
    assert found.series["in"]["orders"] == [5.0, 3.0]
    assert found.series["in"]["idle"] == [0.0, 0.0]
    assert found.series["lag"]["billing"] == [7.0, 9.0]
    assert found.series["broker"]["disk"] == [0.5, UNKNOWN]
    assert found.series["broker"]["idle"] == [UNKNOWN, UNKNOWN]


def test_history_ends_with_its_points_and_forgets_idle_names(clock: HandClock) -> None:
    kept = History(clock)
    for number in range(2 * POINTS):
        sample(clock, kept, arrived={"orders": 10 * number}, lags={"gone": 1} if number == 0 else {})
    found = kept.view(["in"], ["orders"])
    assert found.series["in"]["orders"] == [1.0] * POINTS
    assert ("lag", "gone") not in kept._series


def test_longer_history_has_longer_steps_and_the_same_memory(clock: HandClock) -> None:
    kept = History(clock)
    kept.begin(24 * 60, "started as master", "broker-a")
    due = [kept.is_due for _ in range(48)]
    assert due.count(True) == 2
    assert kept.view([], []).step_millis == 240_000


def test_series_are_bounded_and_unknown_beyond(clock: HandClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "SERIES_MAX", 2)
    kept = History(clock)
    sample(clock, kept, lags={"a": 1, "b": 2, "c": 3})
    assert kept.view(["lag"], ["a", "b", "c"]).series["lag"] == {"a": [1.0], "b": [2.0], "c": [UNKNOWN]}


def test_ten_thousand_topics_and_two_thousand_groups_take_at_most_sixty_mebibytes(clock: HandClock) -> None:
    topics = {f"orders-{number:05}": number + 1 for number in range(10_000)}
    groups = {f"billing-{number:05}": number + 1 for number in range(2_000)}
    tracemalloc.start()
    try:
        kept = History(clock)
        for _ in range(3):
            sample(clock, kept, arrived=topics, delivered=groups, lags=groups, dead_letters=groups)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 60 * MIB, used / MIB


def test_console_has_lines_charts_and_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqpy.control.startup.history.SAMPLE_SECONDS", 0.1)
    with broker(httpPort=0, httpAllowChanges=True) as server:
        ask = api_of(server.http)
        with rmqpy.Admin(server.namesrv) as admin, rmqpy.Producer(server.namesrv) as producer:
            admin.create_topic("orders", read_queues=1, write_queues=1)
            admin.create_group("billing")
            for _ in range(20):
                producer.send("orders", b"x")
        with rmqpy.PullConsumer("billing", server.namesrv, start_from="earliest") as consumer:
            [queue] = consumer.queues("orders")
            consumer.commit({queue: 5})
        until(lambda: any(ask("/history/topics/orders").json["series"]["in"]))
        chart = ask("/history/topics/orders").json
        assert len(chart["times_ms"]) == len(chart["series"]["in"])
        assert [each["what"] for each in chart["marks"]] == ["started as master"]
        until(lambda: ask("/history/groups/billing").json["series"]["lag"][-1:] == [15.0])
        group = ask("/history/groups/billing").json
        assert set(group["series"]) == {"out", "lag", "dead_letters"}
        moved = {"topic": "orders", "to": "end"}
        assert ask("/groups/billing/offsets", method="POST", body=moved, headers=CHANGE).status == 200
        marks = ask("/history/groups/billing").json["marks"]
        assert [(each["what"], each["subject"]) for each in marks][-1] == ("offsets reset", "billing")
        own = ask("/history/brokers/" + marks[0]["broker"]).json
        assert 0 < own["series"]["disk"][-1] < 1
        assert own["series"]["behind_bytes"][-1] is None, "there are no slaves"
        assert max(value or 0 for value in own["series"]["p99_ms"]) > 0
        (row,) = ask("/topics?filter=orders").json["rows"]
        assert max(row["recent"]) > 0
        (row,) = ask("/groups?filter=billing").json["rows"]
        assert max(row["recent"]) >= 15


def test_history_that_is_off_has_no_values() -> None:
    with broker(httpPort=0, historyMinutes=0) as server:
        with rmqpy.Admin(server.namesrv) as admin:
            admin.create_topic("orders", read_queues=1, write_queues=1)
        assert api_of(server.http)("/history/topics/orders").json["times_ms"] == []
