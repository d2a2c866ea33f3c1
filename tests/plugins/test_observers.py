"""Observers: batches of what was sent and consumed, and skipped messages instead of delays."""

import time

import pytest

import rmqpy
from plugins.conftest import Install, metric
from rmqpy import _native
from rmqpy.control.plugins import breaker as breakers
from rmqpy.server import Standalone
from rmqpy.testing import broker
from waiting import until

OBSERVER = """
    import threading
    from rmqpy.plugins import Observer

    class Probe(Observer):
        api_version = 1
        behind_bytes = 1 << 20

        def sent(self, messages):
            entered.set()
            gate.wait()
            if failing.is_set():
                raise SystemExit("the plug-in ends itself")
            batches.append([message.body for message in messages])

    class Progress(Probe):
        def consumed(self, commits):
            progress.extend(commits)

    batches, progress = [], []
    gate, failing, entered = threading.Event(), threading.Event(), threading.Event()
    gate.set()
"""


def seen(server: Standalone) -> tuple[int, int]:
    """Messages passed on and skipped."""
    return int(metric(server, "messages_total") or 0), int(metric(server, "skipped_messages_total") or 0)


def test_an_observer_gets_batches_of_new_messages_in_order(plugin: Install) -> None:
    probes = plugin(OBSERVER, probe="Probe")
    with broker(plugins="probe", httpPort=0) as server, rmqpy.Producer(server.namesrv) as producer:
        with rmqpy.Admin(server.namesrv) as admin:
            admin.create_topic("orders")
        bodies = [str(number).encode() for number in range(1_000)]
        for future in [producer.submit("orders", body, sharding_key="one") for body in bodies]:
            future.result(30)
        until(lambda: sum(map(len, probes.batches)) == len(bodies))
        assert [body for batch in probes.batches for body in batch] == bodies
        assert max(map(len, probes.batches)) <= 256
        until(lambda: seen(server) == (1_000, 0))


def test_a_blocked_observer_delays_nothing_skips_ahead_and_every_message_is_counted(plugin: Install) -> None:
    probes = plugin(OBSERVER, probe="Probe")
    probes.gate.clear()
    try:
        with (
            broker(plugins="probe", httpPort=0) as server,
            rmqpy.Producer(server.namesrv, compress_above=None) as producer,
        ):
            for _ in range(1_500):
                producer.send("orders", b"x" * 8_192)
            # While it is still blocked.
            until(lambda: seen(server)[1] > 0)
            assert len(probes.batches) == 0
            until(lambda: (metric(server, "behind_bytes") or 0) <= 2 << 20)
            probes.gate.set()
            producer.send("orders", b"last")
            until(lambda: bool(probes.batches) and probes.batches[-1][-1] == b"last")
            until(lambda: sum(seen(server)) == 1_501)
            assert seen(server)[0] == sum(map(len, probes.batches)) < 1_501
    finally:
        probes.gate.set()


def test_a_failing_observer_is_paused_and_the_others_go_on(
    plugin: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(breakers, "PAUSE_SECONDS", 0.3)
    failing, sound = plugin(OBSERVER, failing="Probe"), plugin(OBSERVER, sound="Probe")
    failing.failing.set()
    with broker(plugins="failing,sound", httpPort=0) as server, rmqpy.Producer(server.namesrv) as producer:
        sent = 0

        def opened() -> bool:
            nonlocal sent
            producer.send("orders", b"x")
            sent += 1
            return (metric(server, "breaker", "failing") or 0) > 0

        until(opened, pause=0.15)
        until(lambda: sum(map(len, sound.batches)) == sent)
        assert (metric(server, "failures_total", "failing") or 0) >= breakers.FAILURES_MAX
        assert metric(server, "failures_total", "sound") == 0
        failing.failing.clear()

        def closed() -> bool:
            producer.send("orders", b"y")
            return metric(server, "breaker", "failing") == 0

        until(closed, pause=0.15)
        until(lambda: bool(failing.batches))


def test_an_observer_sees_the_progress_of_groups(plugin: Install) -> None:
    probes = plugin(OBSERVER, probe="Progress")
    with broker(plugins="probe") as server:
        with rmqpy.Producer(server.namesrv) as producer:
            for number in range(10):
                producer.send("orders", str(number).encode())
        with rmqpy.PullConsumer("billing", server.namesrv, start_from="earliest") as consumer:
            consumer.assign(consumer.queues("orders"))
            left = 10
            while left:
                left -= len(consumer.poll(timeout=5))
            consumer.commit()
        until(lambda: bool(probes.progress))
        newest = {commit.queue_id: commit.offset for commit in probes.progress if commit.topic == "orders"}
        assert sum(newest.values()) == 10
        assert {commit.group for commit in probes.progress if commit.topic == "orders"} == {"billing"}


def test_sends_enter_python_no_more_often_with_plugins(plugin: Install) -> None:
    probes = plugin(OBSERVER, probe="Probe")
    with (
        broker(plugins="probe", registerNameServerPeriod=60_000) as server,
        rmqpy.Producer(server.namesrv) as producer,
    ):
        producer.send("orders", b"the topic is made")
        until(lambda: sum(map(len, probes.batches)) == 1)
        before = _native.attach_count()
        for _ in range(2_000):
            producer.send("orders", b"x")
        entered = _native.attach_count() - before
        until(lambda: sum(map(len, probes.batches)) == 2_001)
    assert entered < 20


def test_a_stop_leaves_a_blocked_observer_behind(plugin: Install) -> None:
    probes = plugin(OBSERVER, probe="Probe")
    probes.gate.clear()
    try:
        with broker(plugins="probe") as server, rmqpy.Producer(server.namesrv) as producer:
            producer.send("orders", b"x")
            assert probes.entered.wait(30)
            began = time.monotonic()
        assert time.monotonic() - began < 15
    finally:
        probes.gate.set()
