"""Followers: every message of the log, in order, at least once, whatever the plug-in or the broker does."""

import itertools
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import rmqpy
from crash.killable import Broker
from plugins.conftest import Install, metric
from plugins.installed import install
from rmqpy import testing
from rmqpy.control.plugins import breaker as breakers
from rmqpy.control.plugins import guard as guards
from rmqpy.testing import broker
from waiting import until

FOLLOWER = """
    import threading
    from rmqpy.plugins import LogFollower

    class Probe(LogFollower):
        api_version = 1
        batch = 100

        def open(self, context):
            events.append("open")

        def keep(self, messages):
            gate.wait()
            if failing.is_set():
                attempts.append(messages[0].commit_log_offset)
                raise OSError("the archive is full")
            kept.extend(messages)

        def close(self):
            events.append("close")

    class Orders(Probe):
        topics = {"orders"}

    class Newest(Probe):
        begins = "newest"

    kept, events, attempts = [], [], []
    gate, failing = threading.Event(), threading.Event()
    gate.set()
"""


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pauses after failures."""
    monkeypatch.setattr(guards, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(guards, "PAUSE_SECONDS_MAX", 0.05)
    monkeypatch.setattr(breakers, "PAUSE_SECONDS", 0.3)


def send(namesrv: str, topic: str, bodies: range) -> list[str]:
    """Send numbers; return the ids."""
    with rmqpy.Producer(namesrv) as producer:
        return [producer.send(topic, str(number).encode()).message_id for number in bodies]


def test_a_follower_gets_every_message_in_order_and_continues_after_a_restart(plugin: Install) -> None:
    probes = plugin(FOLLOWER, probe="Probe", orders="Orders")
    with broker(plugins="probe", httpPort=0) as server:
        first = send(server.namesrv, "orders", range(150)) + send(server.namesrv, "refunds", range(150))
        with rmqpy.Producer(server.namesrv) as producer:
            # Its records while it waits are in a topic of the broker's own.
            first.append(producer.send("orders", b"later", deliver_after=0.5).message_id)
        until(lambda: len(probes.kept), wanted=lambda count: count == 301)
        assert [message.message_id for message in probes.kept] == first
        positions = [message.commit_log_offset for message in probes.kept]
        assert positions == sorted(set(positions))
        assert probes.kept[0].queue.broker
        until(lambda: metric(server, "messages_total"), wanted=lambda count: count == 301)
        until(lambda: metric(server, "behind_bytes"), wanted=lambda count: count == 0)


def test_a_follower_continues_where_it_was_over_a_restart(plugin: Install, tmp_path: Path) -> None:
    probes = plugin(FOLLOWER, probe="Probe")
    settings: dict[str, Any] = {"data_dir": tmp_path / "data", "namesrv_port": 0, "broker_port": 0}
    with rmqpy.server.Standalone(**settings, plugins="probe", **testing.SMALL) as server:
        ids = send(server.namesrv, "orders", range(20))
        until(lambda: len(probes.kept) == 20)
    assert probes.events == ["open", "close"]
    # It is not loaded, and gets what it missed later.
    with rmqpy.server.Standalone(**settings, **testing.SMALL) as server:
        ids += send(server.namesrv, "orders", range(20))
    with rmqpy.server.Standalone(**settings, plugins="probe", **testing.SMALL) as server:
        ids += send(server.namesrv, "orders", range(20))
        until(lambda: len(probes.kept) >= 60)
    assert [message.message_id for message in probes.kept] == ids


def test_a_follower_of_some_topics_gets_no_others_and_a_late_one_may_begin_at_the_end(
    plugin: Install, tmp_path: Path
) -> None:
    probes = plugin(FOLLOWER, orders="Orders", newest="Newest")
    settings: dict[str, Any] = {"data_dir": tmp_path / "data", "namesrv_port": 0, "broker_port": 0}
    with rmqpy.server.Standalone(**settings, **testing.SMALL) as server:
        send(server.namesrv, "refunds", range(5))
        orders = send(server.namesrv, "orders", range(5))
    with rmqpy.server.Standalone(**settings, plugins="orders", **testing.SMALL):
        until(lambda: len(probes.kept) >= 5)
    assert [message.message_id for message in probes.kept] == orders
    probes.kept.clear()
    with rmqpy.server.Standalone(**settings, plugins="newest", **testing.SMALL) as server:
        refunds = send(server.namesrv, "refunds", range(5))
        until(lambda: len(probes.kept) >= 5)
    assert [message.message_id for message in probes.kept] == refunds


def test_a_failing_follower_gets_its_batch_again_and_its_breaker_pauses_it(plugin: Install) -> None:
    probes = plugin(FOLLOWER, probe="Probe")
    probes.failing.set()
    with broker(plugins="probe", httpPort=0, brokerName="broker-a") as server:
        ids = send(server.namesrv, "orders", range(30))
        until(lambda: metric(server, "breaker"), wanted=lambda state: state in (1, 2))
        with rmqpy.Admin(server.namesrv) as admin:
            [found] = [
                each for each in admin.health(disk_free_min=0) if each.check == "plug-in probe of broker-a"
            ]
        assert found.level == "warn"
        assert "keep: OSError: the archive is full" in found.found
        until(lambda: (metric(server, "failures_total") or 0) > breakers.FAILURES_MAX)
        # The position did not move.
        assert len(set(probes.attempts)) == 1
        probes.failing.clear()
        until(lambda: len(probes.kept), wanted=lambda count: count == 30)
        assert [message.message_id for message in probes.kept] == ids
        until(lambda: metric(server, "breaker") == 0)


def test_a_blocked_follower_lags_and_the_broker_serves_and_stops(plugin: Install) -> None:
    probes = plugin(FOLLOWER, probe="Probe")
    probes.gate.clear()
    try:
        with broker(plugins="probe", httpPort=0) as server:
            send(server.namesrv, "orders", range(300))
            until(lambda: (metric(server, "busy_seconds") or 0) > 0)
            assert (metric(server, "behind_bytes") or 0) > 300 * 100
            assert metric(server, "skipped_messages_total") == 0
            began = time.monotonic()
        assert time.monotonic() - began < 15
        assert probes.kept == []
    finally:
        probes.gate.set()


def test_messages_that_retention_deletes_before_a_follower_reads_them_are_counted(plugin: Install) -> None:
    probes = plugin(FOLLOWER, probe="Probe")
    clock = testing.HandClock()
    probes.failing.set()
    settings = {"mappedFileSizeCommitLog": 1 << 20, "maxMessageSize": 1 << 17, "fileReservedTime": 1}
    with (
        broker(clock=clock, plugins="probe", httpPort=0, brokerName="broker-a", **settings) as server,
        rmqpy.Producer(server.namesrv, compress_above=None) as producer,
        rmqpy.Admin(server.namesrv) as admin,
    ):
        for _ in range(40):
            producer.send("orders", b"x" * 100_000)
        clock.advance(3 * 3_600)
        producer.send("orders", b"new")

        def deleted() -> int:
            admin.delete_expired_log()
            return sum(queue.begin for queue in admin.topic("orders"))

        until(deleted)
        probes.failing.clear()
        until(lambda: probes.kept and probes.kept[-1].body == b"new")
        assert len(probes.kept) < 41
        assert (metric(server, "missed_bytes_total") or 0) >= 1 << 20
        [found] = [
            each for each in admin.health(disk_free_min=0) if each.check == "plug-in probe of broker-a"
        ]
        assert "which retention deleted before it read them" in found.found


KEEPER = """
    import os
    from rmqpy.plugins import LogFollower

    class Probe(LogFollower):
        api_version = 1
        batch = 50

        def open(self, context):
            self.file = open(context.folder / "kept", "ab", buffering=0)

        def keep(self, messages):
            self.file.write(b"".join(b"%d %s\\n" % (m.commit_log_offset, m.body) for m in messages))
"""


def test_over_kills_a_follower_gets_every_acknowledged_message_in_order_at_least_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = install(tmp_path / "site", "keeper", {"keeper": "keeper:Probe"}, KEEPER)
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{Path(rmqpy.__file__).parents[1]}")
    acknowledged: list[str] = []
    stop = threading.Event()
    server = Broker.start(tmp_path / "data", "plugins=keeper")
    kept_file = next((tmp_path / "data").rglob("plugins/keeper")) / "kept"

    def load(rounds: int) -> None:
        numbers = itertools.count()
        with rmqpy.Producer(server.namesrv, retries=0) as producer:
            while not stop.is_set():
                body = f"{rounds}-{next(numbers)}"
                try:
                    producer.send("orders", body.encode())
                except rmqpy.RocketMQError:
                    # It may be stored, so its body is not used again.
                    continue
                acknowledged.append(body)

    try:
        for rounds in range(3):
            stop.clear()
            sender = threading.Thread(target=load, args=(rounds,))
            before = len(acknowledged)
            sender.start()
            until(lambda before=before: len(acknowledged) > before + 300)
            # While the follower is at work.
            server.kill()
            stop.set()
            sender.join()
            server = Broker.start(tmp_path / "data", "plugins=keeper")

        def lines() -> list[tuple[int, str]]:
            rows = (line.split() for line in kept_file.read_text().splitlines())
            return [(int(position), body) for position, body in rows]

        until(lambda: {body for _, body in lines()} >= set(acknowledged))
    finally:
        stop.set()
        server.kill()
    found = lines()
    first_seen = dict.fromkeys(position for position, _ in found)
    assert list(first_seen) == sorted(first_seen), "new messages arrive in the order of the log"
    bodies = dict(found)
    assert len(bodies) == len({body for _, body in found}), "a repeated message has its position"
    wanted = set(acknowledged)
    assert [body for _, body in sorted(bodies.items()) if body in wanted] == acknowledged
