"""The pytest plugin, in a separate run of pytest."""

import pytest

pytest_plugins = ["pytester"]

SUITE = """
import time
import rmqpy
from datetime import timedelta


def remind(topic, **when):
    with rmqpy.Producer() as producer:
        producer.send(topic, "water the plants", tag="home", keys="p-1", **when)


def test_assertions(rocketmq):
    rocketmq.assert_not_sent("reminders")
    remind("reminders")
    sent = rocketmq.assert_sent("reminders", "water the plants", tag="home", key="p-1", count=1)
    assert sent.text() == "water the plants"


def test_each_test_has_an_empty_broker(rocketmq):
    assert rocketmq.sent("reminders") == []


def test_clock_moves_timers_and_invisible_times(rocketmq, rocketmq_clock):
    remind("reminders", deliver_after=timedelta(days=2))
    assert (rocketmq.scheduled("reminders"), rocketmq.sent("reminders")) == (1, [])
    rocketmq_clock.advance("2d")
    rocketmq.assert_sent("reminders")
    with rmqpy.SimpleConsumer("home", start_from="earliest") as consumer:
        consumer.subscribe("reminders")
        [first] = consumer.receive(invisible=3600, wait=5)
        rocketmq_clock.advance("1h")
        [again] = consumer.receive(wait=5)
        assert again.delivery_attempt == 2


def test_fails(rocketmq):
    remind("reminders")
    rocketmq.assert_sent("reminders", tag="work")
"""


def test_fixtures_give_a_broker_time_and_assertions(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(SUITE)
    result = pytester.runpytest_subprocess("-p", "rmqpy.contrib.pytest")
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(
        ["*0 messages to reminders with tag='work', not any; sent were *water the plants* tag=home *"]
    )
