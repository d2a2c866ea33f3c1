"""Messages for an operator: their traces, the newest of a topic, one sent again to a group."""

import json
import threading
import time
from typing import Any

import pytest

import rmqpy
from commandline import Run, runner
from rmqpy import errors, testing
from rmqpy.testing import Cluster
from waiting import until

TIMEOUT_S = 30.0


def test_trace_combines_producer_and_consumer_records(run: Any, cluster: Cluster) -> None:
    assert run("topic", "create", "notes", "--queues", "1")[0] == 0
    with rmqpy.Producer(cluster.namesrv) as producer:
        for note in (
            "Pub 1700000000000 null shop orders ID7 paid A-1 10.0.0.1:10911 5 3 0 OFFSET true",
            "SubBefore 1700000001000 null billing R1 ID7 1 A-1",
        ):
            producer.send("notes", note.replace(" ", "\x01") + "\x02", keys=["ID7", "A-1"])
    code, steps, _ = run("message", "trace", "ID7", "--trace-topic", "notes")
    assert code == 0
    assert [
        (step["what"], step["group"], step["attempt"], step["ms"], step["outcome"]) for step in steps
    ] == [
        ("send", "shop", None, 3, "success"),
        ("consume", "billing", 2, None, None),
    ]
    assert steps[0]["at"] == "2023-11-14T22:13:20.000+00:00"
    assert all(step["client"].startswith("127.0.0.1:") for step in steps)


def test_missing_trace_exits_with_4_and_advice(run: Any) -> None:
    code, _, told = run("message", "trace", "ID7")
    assert code == 4
    assert "traceTopicEnable=true" in told
    assert run("topic", "create", "silent")[0] == 0
    code, _, told = run("message", "trace", "ID7", "--trace-topic", "silent")
    assert code == 4
    assert "no trace of" in told


def test_tail_shows_the_newest_messages_and_follows_all_queues(cluster: Cluster) -> None:
    with rmqpy.Admin(cluster.namesrv) as admin, rmqpy.Producer(cluster.namesrv) as producer:
        admin.create_topic("tailed", read_queues=1, write_queues=1)
        here, there = producer.queues("tailed")
        for number in range(5):
            producer.send("tailed", f"{number}", queue=here)
        assert list(admin.tail("tailed", 0)) == []
        assert [message.text() for message in admin.tail("tailed", 3)] == ["2", "3", "4"]
        following = admin.tail("tailed", 1, follow=True)
        assert next(following).text() == "4"
        producer.send("tailed", "5", queue=here)
        producer.send("tailed", "6", queue=there)
        assert {next(following).text(), next(following).text()} == {"5", "6"}


def test_topic_rates_are_shown_by_group(run: Any, cluster: Cluster) -> None:
    assert run("topic", "create", "busy", "--queues", "1")[0] == 0
    assert run("group", "create", "takers")[0] == 0
    with rmqpy.Producer(cluster.namesrv) as producer:
        for number in range(10):
            producer.send("busy", f"{number}")
    with rmqpy.PullConsumer("takers", cluster.namesrv, start_from="earliest") as consumer:
        consumer.assign(consumer.queues("busy"))
        taken = 0
        deadline = time.monotonic() + TIMEOUT_S
        while taken < 10:
            assert time.monotonic() < deadline
            messages = consumer.poll(timeout=1.0)
            taken += len(messages)
            consumer.commit()
        with rmqpy.Producer(cluster.namesrv) as producer:
            for number in range(5):
                producer.send("busy", f"{number}")
        code, rows, _ = run("topic", "status", "busy")
    assert code == 0
    assert [(row["direction"], row["group"], row["last_day"]) for row in rows] == [
        ("in", None, 15),
        ("out", "takers", rows[1]["last_day"]),
    ]
    # The consumer prefetches, so it may have received the last five already, without committing them.
    assert rows[1]["last_day"] >= 10
    assert rows[1]["lag"] == 5
    assert rows[0]["per_second"] > 0


def test_a_topic_that_does_not_exist_has_neither_status_nor_tail(run: Any, cluster: Cluster) -> None:
    assert run("topic", "status", "nowhere")[0] == 4
    with rmqpy.Admin(cluster.namesrv) as admin, pytest.raises(errors.TopicNotFound):
        next(admin.tail("nowhere"))


def test_a_message_sent_again_reaches_the_group_and_no_other(run: Any, cluster: Cluster) -> None:
    assert run("topic", "create", "again", "--queues", "1")[0] == 0
    with rmqpy.Producer(cluster.namesrv) as producer:
        sent = producer.send("again", b"once more", tag="paid", keys="A-1")
    got: dict[str, list[Any]] = {"meant": [], "others": []}
    arrived = threading.Event()
    consumers = [rmqpy.PushConsumer(name, cluster.namesrv, start_from="earliest") for name in got]

    def handler(name: str) -> Any:
        def handle(message: rmqpy.ReceivedMessage) -> None:
            got[name].append(message)
            if len(got["meant"]) == 2 and got["others"]:
                arrived.set()

        return handle

    for name, consumer in zip(got, consumers, strict=True):
        consumer.on("again", "*", handler(name))
        consumer.start()
    try:
        until(lambda: got["meant"] and got["others"])
        code, told, _ = run("message", "resend", sent.message_id, "meant", "--topic", "again")
        assert code == 0
        assert told["sent_as"]
        # A consumer that learns its new retry topic when only one broker has it asks for the route again in 30 s.
        assert arrived.wait(90.0)
    finally:
        for consumer in consumers:
            consumer.close()
    first, second = got["meant"]
    assert (second.topic, second.body, second.tag, second.keys) == ("again", b"once more", "paid", ("A-1",))
    assert second.message_id == first.message_id
    assert len(got["others"]) == 1


def test_a_message_for_an_unused_group_is_refused_with_exit_code_4(run: Any, cluster: Cluster) -> None:
    assert run("topic", "create", "lonely")[0] == 0
    with rmqpy.Producer(cluster.namesrv) as producer:
        sent = producer.send("lonely", b"x")
    code, _, told = run("message", "resend", sent.message_id, "nobody", "--topic", "lonely")
    assert code == 4
    assert "group 'nobody' has no retry topic" in told


def test_a_key_that_no_message_has_is_exit_code_4(run: Any) -> None:
    assert run("topic", "create", "keyless")[0] == 0
    assert run("message", "find", "keyless")[:2] == (0, [])
    code, found, told = run("message", "find", "keyless", "--key", "A-1")
    assert (code, found) == (4, None)
    assert "no message of 'keyless' has the key 'A-1'" in told


@pytest.fixture
def lines(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Commands that print one object a line."""
    return runner(cluster.namesrv, monkeypatch, capfd)


def test_watched_group_shows_its_lag_and_later_its_rates(lines: Run, cluster: Cluster) -> None:
    with rmqpy.Admin(cluster.namesrv) as admin, rmqpy.Producer(cluster.namesrv) as producer:
        admin.create_topic("watched", read_queues=1, write_queues=1)
        admin.create_group("watchers")
        with rmqpy.PullConsumer("watchers", cluster.namesrv, start_from="earliest") as consumer:
            consumer.assign(consumer.queues("watched"))
            consumer.commit(dict.fromkeys(consumer.queues("watched"), 0))
        for _ in range(3):
            producer.send("watched", b"x")
    code, out, _ = lines("group", "watch", "watchers", "--every", "0.1", "--rounds", "2", "-o", "jsonl")
    assert code == 0
    looks = [row for row in map(json.loads, out.splitlines()) if row["topic"] == "watched"]
    assert [(row["sent_per_second"], row["consumed_per_second"]) for row in looks] == [
        (None, None),
        (0.0, 0.0),
    ]
    assert {row["lag"] for row in looks} >= {3}


def test_the_stack_of_a_client_names_its_threads(run: Any, cluster: Cluster) -> None:
    with rmqpy.Admin(cluster.namesrv) as admin:
        admin.create_topic("stacked")
        consumer = rmqpy.PushConsumer("stackers", cluster.namesrv)
        consumer.on("stacked", "*", lambda message: None)
        with consumer:
            members = until(lambda: admin.members("stackers"))
            code, told, _ = run("client", "stack", "stackers", members[0].client_id)
            assert code == 0
            assert "rmqpy-stackers" in told["stack"]
            code, _, said = run("client", "stack", "stackers", "nobody@1")
    assert code == 1
    assert "nobody@1" in said


def test_given_up_transaction_is_rechecked_once(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    clock, decisions = testing.HandClock(), [None, True]

    def check(message: rmqpy.ReceivedMessage) -> bool | None:
        return decisions.pop(0)

    with (
        testing.broker(clock=clock, transactionCheckMax="1") as server,
        rmqpy.Admin(server.namesrv) as admin,
        rmqpy.Producer(server.namesrv, group="shop", transaction_checker=check) as producer,
    ):
        run = runner(server.namesrv, monkeypatch, capfd)
        admin.create_topic("orders", read_queues=1, write_queues=1)
        until(lambda: any(client.group == "shop" for client in admin.clients()))
        with producer.transaction("orders", b"paid") as transaction:
            transaction.leave_unknown()
        clock.advance(6)
        until(lambda: decisions == [True])
        clock.advance(30)
        until(lambda: "TRANS_CHECK_MAX_TIME_TOPIC" in admin.topics(with_system=True))
        message_id = transaction.half.message_id
        until(lambda: run("message", "recheck", message_id)[0] == 0)
        until(lambda: [message.body for message in admin.tail("orders")] == [b"paid"])
        code, _, told = run("message", "recheck", message_id)
        assert (code, "resumed already" in told) == (1, True)
        assert run("message", "recheck", "0" * 32)[0] != 0


def test_timed_messages_are_shown_by_topic_and_time(run: Any, cluster: Cluster) -> None:
    with rmqpy.Producer(cluster.namesrv) as producer:
        for seconds in (40.0, 50.0, 7_000.0):
            producer.send("reminders", b"later", deliver_after=seconds)
        producer.send("notices", b"later", deliver_after=90_000.0)
    with rmqpy.Admin(cluster.namesrv) as admin:
        until(lambda: sum(found.waiting for found in admin.pending_timers()) >= 4)
        [found] = admin.pending_timers("reminders")
        assert (found.topic, found.waiting) == ("reminders", 3)
        assert {bound: count for bound, count in found.due_within.items() if count} == {60: 2, 14_400: 1}
    code, rows, _ = run("message", "timers")
    assert code == 0
    assert [(row["topic"], row["waiting"], row["1m"], row["4h"], row["later"]) for row in rows] == [
        ("notices", 1, 0, 0, 1),
        ("reminders", 3, 2, 1, 0),
    ]
