"""Policies: refusals that clients see, and defaults for policies that fail or do not answer."""

import itertools
import time

import pytest

import rmqpy
from plugins.conftest import Install, metric
from rmqpy.control.plugins import breaker as breakers
from rmqpy.errors import BrokerError, RocketMQError
from rmqpy.testing import broker
from waiting import until

POLICY = """
    import threading
    from rmqpy.plugins import Policy

    class Probe(Policy):
        api_version = 1
        on_failure = "refuse"

        def topic(self, request):
            asked.append(request)
            gate.wait()
            if failing.is_set():
                raise KeyError("teams")
            return None if request.name.startswith("team-") else "its name must begin with team-"

        def group(self, request):
            asked.append(request)
            gate.wait()
            return None if request.name.startswith("team-") else "the group has no team"

    class Lenient(Probe):
        on_failure = "allow"

    class Wrong(Probe):
        def topic(self, request):
            return True

    class Flooding(Probe):
        def topic(self, request):
            return "no" * 1_000_000

    asked = []
    gate, failing = threading.Event(), threading.Event()
    gate.set()
"""
REASON = "plug-in probe refuses topic orders: its name must begin with team-"


def test_clients_and_administrators_see_why_a_topic_is_refused(plugin: Install) -> None:
    probes = plugin(POLICY, probe="Probe")
    with (
        broker(plugins="probe", httpPort=0) as server,
        rmqpy.Admin(server.namesrv) as admin,
        rmqpy.Producer(server.namesrv) as producer,
    ):
        with pytest.raises(BrokerError, match=REASON):
            admin.create_topic("orders")
        with pytest.raises(RocketMQError, match=REASON):
            producer.send("orders", b"x")
        assert "orders" not in admin.topics()
        admin.create_topic("team-orders", write_queues=3)
        producer.send("team-refunds", b"x")
        admin.update_topic("team-orders", write_queues=5)
        assert metric(server, "refusals_total") == len(
            [each for each in probes.asked if each.name == "orders"]
        )
        made = [each for each in probes.asked if each.name.startswith("team-")]
        assert [(each.name, each.is_new, each.origin, each.write_queues) for each in made] == [
            ("team-orders", True, "administrator", 3),
            ("team-refunds", True, "client", 4),
            ("team-orders", False, "administrator", 5),
        ]
        assert made[0].address.startswith("127.0.0.1:")


def consume(namesrv: str, group: str) -> None:
    """Consume a message of `team-orders`."""
    with rmqpy.PullConsumer(group, namesrv, start_from="earliest") as consumer:
        consumer.assign(consumer.queues("team-orders"))
        until(lambda: consumer.poll(timeout=1))


def test_a_consumer_of_a_refused_group_gets_nothing_and_the_group_is_not_made(plugin: Install) -> None:
    plugin(POLICY, probe="Probe")
    with broker(plugins="probe", httpPort=0) as server, rmqpy.Admin(server.namesrv) as admin:
        with rmqpy.Producer(server.namesrv) as producer:
            producer.send("team-orders", b"x")
        got: list[object] = []
        consumer = rmqpy.PushConsumer("billing", server.namesrv, start_from="earliest")
        consumer.on("team-orders", handler=got.append)
        with consumer:
            # Its heartbeats ask, too, and make neither the group nor its retry topic.
            until(lambda: (metric(server, "refusals_total") or 0) > 1)
        assert got == []
        assert "billing" not in admin.groups()
        assert not [name for name in admin.topics(with_system=True) if "billing" in name]


def test_clients_and_administrators_see_why_a_group_is_refused(plugin: Install) -> None:
    plugin(POLICY, probe="Probe")
    with broker(plugins="probe") as server, rmqpy.Admin(server.namesrv) as admin:
        with pytest.raises(BrokerError, match="plug-in probe refuses group billing: the group has no team"):
            admin.create_group("billing")
        with rmqpy.Producer(server.namesrv) as producer:
            producer.send("team-orders", b"x")
        consume(server.namesrv, "team-billing")
        with pytest.raises(RocketMQError, match="the group has no team"):
            consume(server.namesrv, "billing")
        assert "billing" not in admin.groups()
        assert "team-billing" in admin.groups()


@pytest.mark.parametrize(("kind", "is_allowed"), [("Probe", False), ("Lenient", True)])
def test_a_blocked_policy_costs_its_time_limit_and_its_default_counts(
    plugin: Install, monkeypatch: pytest.MonkeyPatch, kind: str, is_allowed: bool
) -> None:
    monkeypatch.setattr(breakers, "PAUSE_SECONDS", 0.5)
    probes = plugin(POLICY, probe=kind)
    probes.gate.clear()
    try:
        with (
            broker(plugins="probe", httpPort=0, brokerName="broker-a") as server,
            rmqpy.Admin(server.namesrv) as admin,
            rmqpy.Producer(server.namesrv) as producer,
        ):
            producer.send("TBW102", b"this topic exists")
            for number in range(breakers.FAILURES_MAX):
                if is_allowed:
                    admin.create_topic(f"team-{number}")
                else:
                    with pytest.raises(BrokerError, match="cannot decide about topic team-"):
                        admin.create_topic(f"team-{number}")
            assert metric(server, "timeouts_total") == breakers.FAILURES_MAX
            assert (metric(server, "breaker") or 0) > 0
            # It is not asked any more, so nothing waits for it.
            began = time.monotonic()
            if is_allowed:
                admin.create_topic("team-more")
            else:
                with pytest.raises(BrokerError, match="cannot decide"):
                    admin.create_topic("team-more")
            assert time.monotonic() - began < 5
            probes.gate.set()

            numbers = itertools.count()

            def decides() -> bool:
                try:
                    admin.create_topic(f"team-late-{next(numbers)}")
                except BrokerError:
                    return False
                return metric(server, "breaker") == 0

            until(decides, pause=0.1)
    finally:
        probes.gate.set()


def test_a_policy_that_raises_is_logged_with_its_name_and_its_default_counts(
    plugin: Install, caplog: pytest.LogCaptureFixture
) -> None:
    probes = plugin(POLICY, probe="Probe", wrong="Wrong")
    probes.failing.set()
    with broker(plugins="probe", httpPort=0) as server, rmqpy.Admin(server.namesrv) as admin:
        with pytest.raises(BrokerError, match="plug-in probe cannot decide about topic team-a now"):
            admin.create_topic("team-a")
        probes.failing.clear()
        admin.create_topic("team-a")
        assert metric(server, "failures_total") == 1
    assert "plug-in probe failed in topic" in caplog.text
    assert "KeyError: 'teams'" in caplog.text
    with (
        broker(plugins="wrong") as server,
        rmqpy.Admin(server.namesrv) as admin,
        pytest.raises(BrokerError, match="plug-in wrong cannot decide"),
    ):
        admin.create_topic("team-a")
    assert "must return text or None, not bool" in caplog.text


def test_a_policy_that_floods_its_answers_is_cut(plugin: Install) -> None:
    plugin(POLICY, probe="Flooding")
    with broker(plugins="probe", httpPort=0) as server, rmqpy.Admin(server.namesrv) as admin:
        with pytest.raises(BrokerError, match="plug-in probe refuses topic orders: nono") as refused:
            admin.create_topic("orders")
        assert len(str(refused.value)) < 1_000
        assert metric(server, "failures_total") == 0
