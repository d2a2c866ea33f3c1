"""Queue locks of an ordered member: released at every end, and not trusted after a suspension."""

import threading
import time

import pytest

import rmqpy
from rmqpy.clock import RunningClock
from rmqpy.protocol.codes import RequestCode
from waiting import until
from wire import Frame

from .fakes import SILENCE, Answer, Broker, Network, properties, record
from .live import WAIT_S

COUNT = 5


@pytest.fixture
def broker(network: Network) -> Broker:
    broker = network.broker("broker-a")
    broker.serve_groups()
    broker.log[0] = [
        record(str(offset).encode(), offset=offset, props=properties(UNIQ_KEY=f"k{offset}"))
        for offset in range(COUNT)
    ]
    return broker


@pytest.fixture
def config(network: Network, broker: Broker) -> rmqpy.ClientConfig:
    servers = network.name_server([broker], {"orders": 1, "late": 2})
    return rmqpy.ClientConfig(namesrv=servers.address, request_timeout=WAIT_S)


class Clocks:
    """The clocks of the system; a test sets them forward."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.suspended_s = self.wall_s = 0.0
        clock, wall = time.clock_gettime, time.time
        from_boot = getattr(time, "CLOCK_BOOTTIME", -1)
        monkeypatch.setattr(
            time, "clock_gettime", lambda kind: clock(kind) + self.suspended_s * (kind == from_boot)
        )
        monkeypatch.setattr(time, "time", lambda: wall() + self.suspended_s + self.wall_s)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


def test_running_clock_includes_suspensions_and_never_goes_back(clocks: Clocks) -> None:
    running = RunningClock()
    seen = [running()]
    for suspended_s, wall_s, gained_s in (
        (60.0, 0.0, 60.0),  # Suspended with its guests.
        (60.0, 50.0, 50.0),  # Paused from outside, and given the time.
        (60.0, -1000.0, 0.0),  # Set back.
        (60.0, -999.5, 0.0),  # Corrected a little.
    ):
        clocks.suspended_s, clocks.wall_s = suspended_s, wall_s
        seen.append(running())
        assert seen[-1] - seen[-2] == pytest.approx(gained_s, abs=0.5)
        assert seen[-1] >= seen[-2]


@pytest.mark.parametrize("way", ["suspended_s", "wall_s"])
def test_suspended_member_starts_nothing_before_renewing_its_lock(
    config: rmqpy.ClientConfig,
    broker: Broker,
    clocks: Clocks,
    way: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun, gate, seen = threading.Event(), threading.Event(), list[str]()

    def handle(message: rmqpy.ReceivedMessage) -> None:
        seen.append(message.text())
        begun.set()
        gate.wait(WAIT_S)

    consumer = rmqpy.PushConsumer("billing", config, ordered=True, start_from="earliest")
    consumer.on("orders", "*", handle)
    with consumer:
        assert begun.wait(WAIT_S)
        # Another member has the queue by now.
        broker.handlers[RequestCode.LOCK_BATCH_MQ] = lambda ask: Frame(0, body=b'{"lockOKMQSet":[]}')
        setattr(clocks, way, 45.0)
        gate.set()
        # It asks as soon as it runs again, not when a timer that stood still is up.
        until(lambda: "cannot renew the lock" in caplog.text, 15.0)
        assert seen == ["0"]
        broker.handlers[RequestCode.LOCK_BATCH_MQ] = broker.lock
        setattr(clocks, way, 90.0)
        until(lambda: len(seen) == COUNT)
    assert seen == list("01234")


@pytest.mark.parametrize("refusals", [0, 3], ids=["at once", "when the broker tells"])
def test_queue_with_an_expired_lock_resumes_at_others_progress(
    config: rmqpy.ClientConfig, broker: Broker, monkeypatch: pytest.MonkeyPatch, refusals: int
) -> None:
    monkeypatch.setattr("rmqpy.client.push.locks.BELIEVED_S", 0.5)
    monkeypatch.setattr("rmqpy.client.push.engine.RENEW_S", 0.1)
    begun, gate, seen = threading.Event(), threading.Event(), list[str]()
    changes: list[rmqpy.Rebalance] = []

    def handle(message: rmqpy.ReceivedMessage) -> None:
        seen.append(message.text())
        begun.set()
        gate.wait(WAIT_S)

    consumer = rmqpy.PushConsumer(
        "billing", config, ordered=True, start_from="earliest", on_rebalance=changes.append
    )
    consumer.on("orders", "*", handle)
    with consumer:
        assert begun.wait(WAIT_S)
        broker.handlers[RequestCode.LOCK_BATCH_MQ] = lambda ask: Frame(0, body=b'{"lockOKMQSet":[]}')
        locks = broker.count(RequestCode.LOCK_BATCH_MQ)
        # More time than a lock is believed for.
        until(lambda: broker.count(RequestCode.LOCK_BATCH_MQ) > locks + 6)
        # Another member has consumed three of them, and has left.
        broker.committed[0] = 3
        progress, left = broker.handlers[RequestCode.QUERY_CONSUMER_OFFSET], iter(range(refusals))

        def told(ask: Frame) -> Answer:
            is_refused = (ask.ext or {})["topic"] == "orders" and next(left, None) is not None
            return Frame(1, remark="not now") if is_refused else progress(ask)

        broker.handlers[RequestCode.QUERY_CONSUMER_OFFSET] = told
        broker.handlers[RequestCode.LOCK_BATCH_MQ] = broker.lock
        gate.set()
        until(lambda: len(seen) == 3)
        assert broker.committed[0] >= 3
    assert seen == list("034")
    assert broker.committed == {0: 5}
    (queue,) = changes[0].assigned
    assert [change.lost for change in changes[1:2]] == [frozenset([queue])]


def test_suspended_member_commits_nothing_before_reading_the_progress(
    config: rmqpy.ClientConfig, broker: Broker, clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqpy.client.push.engine.COMMIT_S", 0.5)
    gates, seen = [threading.Event() for _ in range(COUNT)], list[str]()
    commits, commit = [], broker.handlers[RequestCode.UPDATE_CONSUMER_OFFSET]
    progress, left = broker.handlers[RequestCode.QUERY_CONSUMER_OFFSET], iter(range(3))

    def handle(message: rmqpy.ReceivedMessage) -> None:
        seen.append(message.text())
        gates[int(message.text())].wait(3.0)

    def committed(ask: Frame) -> Answer:
        ext = ask.ext or {}
        if ext["topic"] == "orders":
            commits.append(int(ext["commitOffset"]))
        return commit(ask)

    def told(ask: Frame) -> Answer:
        is_refused = (ask.ext or {})["topic"] == "orders" and next(left, None) is not None
        return Frame(1, remark="not now") if is_refused else progress(ask)

    consumer = rmqpy.PushConsumer("billing", config, workers=1, start_from="earliest")
    consumer.on("orders", "*", handle)
    with consumer:
        until(lambda: seen == ["0"])
        broker.handlers[RequestCode.UPDATE_CONSUMER_OFFSET] = committed
        broker.handlers[RequestCode.QUERY_CONSUMER_OFFSET] = told
        # Another member has consumed all but one of them, and has left.
        broker.committed[0] = 4
        clocks.suspended_s = 45.0
        gates[0].set()
        until(lambda: "4" in seen)
        for gate in gates:
            gate.set()
        until(lambda: broker.committed[0] == 5)
    assert seen[-1] == "4"
    # Perhaps once more at the end.
    assert set(commits) == {5}


@pytest.mark.parametrize("is_ordered", [True, False], ids=["in order", "in any order"])
def test_doubtful_progress_is_settled_before_a_queue_is_released(
    config: rmqpy.ClientConfig,
    broker: Broker,
    clocks: Clocks,
    monkeypatch: pytest.MonkeyPatch,
    is_ordered: bool,
) -> None:
    monkeypatch.setattr("rmqpy.client.push.engine.COMMIT_S", WAIT_S)
    # A release of a queue without a lock that takes longer than this commits nothing: enough for a busy machine.
    monkeypatch.setattr("rmqpy.client.push.engine.TAKE_OVER_S", 15.0)
    seen, refused = list[str](), threading.Event()
    progress = broker.handlers[RequestCode.QUERY_CONSUMER_OFFSET]

    def told(ask: Frame) -> Answer:
        if (ask.ext or {})["topic"] != "orders" or refused.is_set():
            return progress(ask)
        refused.set()
        return Frame(1, remark="not now")

    consumer = rmqpy.PushConsumer("billing", config, ordered=is_ordered, start_from="earliest")
    consumer.on("orders", "*", lambda message: seen.append(message.text()))
    with consumer:
        until(lambda: len(seen) == COUNT)
        broker.handlers[RequestCode.QUERY_CONSUMER_OFFSET] = told
        # It stood still for longer than others wait before they begin with a queue; its lock has not run out.
        clocks.suspended_s = 16.0
        assert refused.wait(WAIT_S)
        consumer.off("orders")
        until(lambda: not consumer.queues() and not broker.locked)
        until(lambda: broker.committed == {0: COUNT})


def test_lock_granted_during_close_is_released(config: rmqpy.ClientConfig, broker: Broker) -> None:
    def progress(ask: Frame) -> Answer:
        return SILENCE if (ask.ext or {})["topic"] == "late" else Frame(22)

    broker.handlers[RequestCode.QUERY_CONSUMER_OFFSET] = progress
    consumer = rmqpy.PushConsumer("billing", config, ordered=True)
    consumer.on("orders", "*", lambda message: None)
    with consumer:
        until(lambda: broker.locked == {("orders", 0)})
        consumer.on("late", "*", lambda message: None)
        until(lambda: broker.locked == {("orders", 0), ("late", 0), ("late", 1)})
        consumer.close(timeout=5)
    assert broker.locked == set()


def test_lock_of_a_queue_that_cannot_start_is_released(config: rmqpy.ClientConfig, broker: Broker) -> None:
    broker.handlers[RequestCode.QUERY_CONSUMER_OFFSET] = lambda ask: Frame(1, remark="not now")
    consumer = rmqpy.PushConsumer("billing", config, ordered=True)
    consumer.on("orders", "*", lambda message: None)
    with consumer:
        assert broker.count(RequestCode.UNLOCK_BATCH_MQ) >= 1
        assert not consumer.queues()


def test_close_does_not_wait_for_a_handover_and_keeps_held_locks(
    config: rmqpy.ClientConfig, broker: Broker
) -> None:
    begun, gate = threading.Event(), threading.Event()

    def handle(message: rmqpy.ReceivedMessage) -> None:
        if message.text() == "2":
            begun.set()
            gate.wait(WAIT_S)

    consumer = rmqpy.PushConsumer("billing", config, ordered=True, start_from="earliest")
    consumer.on("orders", "*", handle)
    with consumer:
        assert begun.wait(WAIT_S)
        consumer.off("orders")
        until(lambda: not consumer.queues())
        consumer.close(timeout=0.1)
        # Finished work is committed; another member gets the queue only after the handler has returned.
        assert broker.committed == {0: 2}
        assert broker.locked == {("orders", 0)}
        gate.set()
