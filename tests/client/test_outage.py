"""Outages of all name servers: producers and consumers continue, and learn of changes once a name server is back.

Each run takes a few seconds. `make campaign NAME=outage` takes OUTAGE_SECONDS (120) with the clients' own settings, so
that routes expire and several rounds of heartbeats pass meanwhile.
"""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import rmqpy
from rmqpy import errors
from rmqpy.testing import Cluster
from waiting import until

from .live import WAIT_S, Seen, knows

#: Time for which every name server is gone.
OUTAGE_S = float(os.environ.get("OUTAGE_SECONDS") or 3)
#: In the short run routes come of age several times as well.
REFRESH_S = 0.5 if OUTAGE_S < 60 else 30.0
TOPIC = "orders"

pytestmark = pytest.mark.timeout(OUTAGE_S + 120)


class Traffic:
    """One message after the other, sent until it is told to stop; every one must be taken at its first attempt."""

    def __init__(self, config: rmqpy.ClientConfig) -> None:
        self.sent: list[str] = []
        self.failures: list[Exception] = []
        self._config = config
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def _send(self) -> None:
        with rmqpy.Producer(self._config, retries=0) as producer:
            while not self._has_ended.wait(0.002):
                try:
                    producer.send(TOPIC, str(len(self.sent)))
                except Exception as error:
                    self.failures.append(error)
                    return
                self.sent.append(str(len(self.sent)))

    @contextmanager
    def flowing(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._has_ended.set()
            self._thread.join()


def go_on(traffic: Traffic, seen: Seen, seconds: float) -> None:
    """For so long, and until what was sent by then is consumed."""
    until_at = time.monotonic() + seconds
    until(lambda: traffic.failures or time.monotonic() > until_at, seconds + WAIT_S)
    assert not traffic.failures
    sent = traffic.sent[:]
    until(lambda: seen.has(*sent))


def consumer(config: rmqpy.ClientConfig, seen: Seen, topic: str = TOPIC) -> rmqpy.PushConsumer:
    made = rmqpy.PushConsumer("billing", config, start_from="earliest")
    made.on(topic, "*", seen)
    return made


def test_everything_goes_on_while_every_name_server_is_gone() -> None:
    with Cluster(name_servers=2, registerNameServerPeriod=10_000) as cluster:
        config = rmqpy.ClientConfig(namesrv=cluster.namesrv, route_refresh=REFRESH_S)
        make(config, TOPIC)
        seen, traffic = Seen(), Traffic(config)
        with consumer(config, seen) as first, traffic.flowing():
            go_on(traffic, seen, 0.5)
            for name in ("name-server-0", "name-server-1"):
                cluster.stop(name)
            go_on(traffic, seen, OUTAGE_S)
            for name in ("name-server-0", "name-server-1"):
                cluster.start(name)
            # What comes into being afterwards is found by those who were there before, once the broker has told
            # the name servers that there is one.
            until(lambda: is_sent(config, "made-later", "after the outage"))
            first.on("made-later", "*", seen)
            until(lambda: seen.has("after the outage"))
        assert not traffic.failures
        print(
            f"\n{len(traffic.sent)} messages in {OUTAGE_S:.0f} s without name servers, none failed, none lost"
        )


@pytest.mark.parametrize("dead", [0, 1, 2])
def test_one_of_three_that_is_dead_from_the_start_goes_unnoticed(dead: int) -> None:
    with Cluster(name_servers=3) as cluster:
        cluster.stop(f"name-server-{dead}")
        config = rmqpy.ClientConfig(namesrv=cluster.namesrv, route_refresh=REFRESH_S)
        # The broker as well meets a name server that is not there.
        cluster.stop("broker-a")
        cluster.start("broker-a")
        make(config, TOPIC)
        seen, traffic = Seen(), Traffic(config)
        with consumer(config, seen), traffic.flowing():
            go_on(traffic, seen, 0.5)
        assert not traffic.failures


def make(config: rmqpy.ClientConfig, topic: str) -> None:
    """Have the topic made by its first message, and wait until the route is known."""
    assert is_sent(config, topic, "first")
    with rmqpy.PullConsumer("probe", config) as probe:
        until(lambda: knows(probe, topic))


def is_sent(config: rmqpy.ClientConfig, topic: str, body: str) -> bool:
    with rmqpy.Producer(config) as producer:
        try:
            return producer.send(topic, body).ok
        except errors.RouteError:
            return False


def test_a_name_server_that_starts_again_knows_its_brokers_soon() -> None:
    with Cluster() as cluster:
        config = rmqpy.ClientConfig(namesrv=cluster.namesrv, route_refresh=REFRESH_S)
        make(config, TOPIC)
        cluster.stop("name-server-0")
        cluster.start("name-server-0")
        began = time.monotonic()
        until(lambda: is_sent(config, TOPIC, "after the restart"))
        assert time.monotonic() - began < 20, "the period of registrations is 30 s"


def test_topics_are_not_reported_missing_without_registered_brokers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Cluster() as cluster:
        config = rmqpy.ClientConfig(namesrv=cluster.namesrv)
        make(config, TOPIC)
        cluster.stop("broker-a")
        with (
            rmqpy.Producer(config) as producer,
            pytest.raises(errors.NoBrokerRegistered, match="no broker is"),
        ):
            producer.send(TOPIC, b"x")
        with rmqpy.Admin(config) as admin:
            for ask in (admin.topic, admin.route, admin.delete_topic):
                with pytest.raises(errors.NoBrokerRegistered):
                    ask(TOPIC)
        with rmqpy.PullConsumer("idle", config) as puller, pytest.raises(errors.NoBrokerRegistered):
            puller.queues(TOPIC)
        seen = Seen()
        with consumer(config, seen):
            # It waits for brokers, as for topics.
            cluster.start("broker-a")
            until(lambda: is_sent(config, TOPIC, "at last"))
            until(lambda: seen.has("at last"))
    assert any(record.name.endswith("no_broker") for record in caplog.records)


@pytest.mark.parametrize("kind", ["push", "ordered", "pull"])
def test_a_broker_that_is_away_is_one_warning_a_minute(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "rmqpy.client")
    with Cluster() as cluster:
        config = rmqpy.ClientConfig(namesrv=cluster.namesrv, request_timeout=1, route_refresh=REFRESH_S)
        with rmqpy.Admin(config) as admin:
            admin.create_topic(TOPIC, read_queues=8, write_queues=8)
        with contextlib.ExitStack() as stack:
            if kind == "pull":
                puller = stack.enter_context(rmqpy.PullConsumer("idle", config, auto_commit=False))
                puller.subscribe(TOPIC)
                until(lambda: puller.poll(0.1) or len(puller.assignment()) == 8)
            else:
                pusher = rmqpy.PushConsumer("idle", config, ordered=kind == "ordered")
                pusher.on(TOPIC, "*", lambda message: None)
                stack.enter_context(pusher)
                until(lambda: len(pusher.queues()) >= 8)
            caplog.clear()
            cluster.stop("broker-a")

            def failures() -> int:
                if kind == "pull":
                    puller.poll(0.1)
                return sum("failed, retrying" in one.getMessage() for one in caplog.records)

            until(lambda: failures() >= 24)
            warnings = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
            warnings = [
                text for text in warnings if "registration" not in text and "rmqpy.control" not in text
            ]
            caplog.clear()
            cluster.start("broker-a")
    assert 1 <= len(warnings) <= 3, warnings
