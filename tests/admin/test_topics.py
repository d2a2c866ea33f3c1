"""Topics as an operator sees them, through the command line and a real cluster."""

from typing import Any

import pytest

import rmqpy
from rmqpy.testing import Cluster


def test_a_topic_is_made_on_every_broker_and_removed_from_all(run: Any, cluster: Cluster) -> None:
    code, made, _ = run("topic", "create", "orders", "--queues", "4")
    assert (code, made["brokers"]) == (0, ["broker-a", "broker-b"])
    assert {"topic": "orders"} in run("topic", "list")[1]

    with rmqpy.Producer(cluster.namesrv) as producer:
        queues = producer.queues("orders")
        assert len(queues) == 8
        producer.send("orders", "hello", queue=queues[0])
    code, described, _ = run("topic", "describe", "orders")
    assert code == 0
    assert [(row["broker"], row["queue"]) for row in described] == [
        (each.broker, each.queue_id) for each in queues
    ]
    assert [row["messages"] for row in described] == [1] + [0] * 7
    assert described[0]["last_stored"] is not None
    assert {row["perm"] for row in described} == {"RW"}

    code, deleted, _ = run("topic", "delete", "orders", "--yes")
    assert (code, deleted["deleted_from"]) == (0, ["broker-a", "broker-b"])
    assert {"topic": "orders"} not in run("topic", "list")[1]
    code, _, err = run("topic", "describe", "orders")
    assert code == 4
    assert "rmqpy topic create orders" in err


def test_topics_of_the_system_are_listed_only_on_request(run: Any) -> None:
    own = {row["topic"] for row in run("topic", "list")[1]}
    every = {row["topic"] for row in run("topic", "list", "--system")[1]}
    assert own < every
    assert {"DefaultCluster", "broker-a", "TBW102"} <= every - own


def test_a_topic_that_cannot_be_written_is_shown_so(run: Any) -> None:
    assert run("topic", "create", "archive", "--perm", "R")[0] == 0
    assert {row["perm"] for row in run("topic", "describe", "archive")[1]} == {"R-"}


@pytest.mark.parametrize("command", ["describe", "delete"])
def test_a_topic_that_does_not_exist_is_code_4(run: Any, command: str) -> None:
    arguments = ("topic", command, "nowhere", *(["--yes"] if command == "delete" else []))
    code, out, err = run(*arguments)
    assert (code, out) == (4, None)
    assert "there is no topic 'nowhere'" in err


def test_a_name_that_no_broker_takes_fails_with_the_brokers_words(run: Any) -> None:
    code, out, err = run("topic", "create", "not a name")
    assert (code, out) == (1, None)
    assert err.startswith("Error: ")


def test_no_name_server_is_code_3(run: Any) -> None:
    code, out, err = run("topic", "list", "-n", "127.0.0.1:1")
    assert (code, out) == (3, None)
    assert "no name server answers" in err


def test_deleting_asks_first(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("topic", "create", "kept")[0] == 0
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _: "n")
    assert run("topic", "delete", "kept")[0] == 130
    assert {"topic": "kept"} in run("topic", "list")[1]
