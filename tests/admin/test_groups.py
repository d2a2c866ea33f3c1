"""Consumer groups and dead letters as an operator sees them, through the command line and a real cluster."""

import asyncio
import base64
import io
import json
from typing import Any

import pytest

import rmqpy
from broker.records import records
from broker.talk import beat, heartbeat, pull, pushed, send
from broker.test_send_back import send_back
from commandline import runner
from rmqpy import cli
from rmqpy.protocol.codes import RequestCode
from rmqpy.testing import Cluster
from waiting import until
from wire import RESPONSE, Frame, Peer


def sent(cluster: Cluster, topic: str, count: int) -> None:
    """So many messages in queue 0 of the topic at broker-a."""
    with rmqpy.Producer(cluster.namesrv) as producer:
        queue = next(
            each for each in producer.queues(topic) if (each.broker, each.queue_id) == ("broker-a", 0)
        )
        for number in range(count):
            producer.send(topic, f"message {number}", tag="paid", queue=queue)


async def committed(cluster: Cluster, group: str, topic: str, offset: int) -> None:
    """The group stands there in queue 0 at broker-a."""
    ext = {"consumerGroup": group, "topic": topic, "queueId": "0", "commitOffset": str(offset)}
    async with await Peer.connect(cluster.address("broker-a")) as peer:
        assert (await peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, ext)).code == 0


def lag(run: Any, group: str, topic: str) -> tuple[int, int]:
    """Offset and lag in queue 0 at broker-a."""
    code, rows, _ = run("group", "lag", group, "--topic", topic)
    assert code == 0
    [row] = [row for row in rows if (row["broker"], row["queue"]) == ("broker-a", 0)]
    assert row["seconds"] >= 0 if row["lag"] else row["seconds"] == 0
    return row["offset"], row["lag"]


def test_group_is_created_changed_and_deleted_on_every_broker(run: Any) -> None:
    assert run("group", "create", "billing", "--retry-max", "3")[1]["brokers"] == ["broker-a", "broker-b"]
    assert {"group": "billing"} in run("group", "list")[1]
    assert {"group": "TOOLS_CONSUMER"} not in run("group", "list")[1]
    assert {"group": "TOOLS_CONSUMER"} in run("group", "list", "--system")[1]
    assert run("group", "alter", "billing", "--no-consume")[0] == 0
    code, rows, _ = run("group", "describe", "billing")
    assert (code, [row["broker"] for row in rows]) == (0, ["broker-a", "broker-b"])
    assert {(row["retry_max"], row["consume"], row["broadcast"]) for row in rows} == {(3, False, True)}
    assert run("group", "delete", "billing", "--yes")[0] == 0
    assert {"group": "billing"} not in run("group", "list")[1]


def test_existing_group_is_not_created_again(run: Any) -> None:
    assert run("group", "create", "thrifty", "--retry-max", "3")[0] == 0
    code, _, told = run("group", "create", "thrifty")
    assert (code, told.count("\n")) == (1, 1)
    assert "group 'thrifty' already exists (broker-a, broker-b); keep it with --if-not-exists" in told
    code, made, told = run("group", "create", "thrifty", "--if-not-exists")
    assert (code, made["brokers"]) == (0, [])
    assert "nothing changed" in told
    assert {row["retry_max"] for row in run("group", "describe", "thrifty")[1]} == {3}


@pytest.mark.parametrize("command", ["describe", "lag", "members"])
def test_missing_group_is_exit_code_4(run: Any, command: str) -> None:
    code, found, told = run("group", command, "nobody")
    assert (code, found) == (4, None)
    assert "nobody" in told


@pytest.mark.parametrize(
    "arguments",
    [
        ("reset", "settled", "nowhere", "--to", "begin", "--yes"),
        ("reset", "settled", "nowhere", "--to", "begin", "--dry-run"),
        ("lag", "settled", "--topic", "nowhere"),
        ("skip", "settled", "--topic", "nowhere", "--yes"),
        ("watch", "settled", "--topic", "nowhere", "--rounds", "1"),
    ],
    ids=lambda words: words[0],
)
def test_missing_topic_has_no_progress(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
) -> None:
    run = runner(cluster.namesrv, monkeypatch, capfd)
    assert run("group", "create", "settled", "--if-not-exists")[0] == 0
    code, out, told = run("group", *arguments)
    assert (code, out) == (4, "")
    assert "topic 'nowhere' does not exist" in told


@pytest.mark.parametrize(
    "arguments", [("show",), ("export",), ("purge", "--yes"), ("resend", "--all", "--yes")]
)
def test_missing_group_has_no_dead_letters(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
) -> None:
    command, *options = arguments
    code, out, told = runner(cluster.namesrv, monkeypatch, capfd)("dlq", command, "nobody", *options)
    assert (code, out) == (4, "")
    assert "group 'nobody' does not exist" in told


async def test_one_queue_of_one_broker_is_moved(run: Any, cluster: Cluster) -> None:
    assert run("topic", "create", "pairs", "--queues", "2")[0] == 0
    assert run("group", "create", "pairers")[0] == 0
    with rmqpy.Producer(cluster.namesrv) as producer:
        for queue in producer.queues("pairs"):
            producer.send("pairs", "x", queue=queue)

    def reset(*more: str) -> tuple[int, Any, str]:
        code, rows, told = run("group", "reset", "pairers", "pairs", "--yes", *more)
        return code, [(row["broker"], row["queue"], row["to"]) for row in rows or ()], told

    code, rows, told = reset("--to", "end", "--queue", "1")
    assert (code, rows) == (2, [])
    assert "queue 1 is at several brokers: name one of broker-a, broker-b" in told
    assert {row["offset"] for row in run("group", "lag", "pairers", "--topic", "pairs")[1]} <= {0, -1}
    assert reset("--to", "end", "--queue", "1", "--broker", "broker-b")[:2] == (0, [("broker-b", 1, 1)])
    assert reset("--to", "0", "--queue", "1", "--broker", "broker-b")[:2] == (0, [("broker-b", 1, 0)])
    assert len(reset("--to", "end", "--broker", "broker-a")[1]) == 2
    for wrong in (("--queue", "9"), ("--broker", "broker-z")):
        code, rows, told = reset("--to", "end", *wrong)
        assert (code, rows) == (2, [])
        assert "no such queue of 'pairs'" in told


async def test_the_lag_of_all_groups_ends_with_its_sum(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run = runner(cluster.namesrv, monkeypatch, capfd)
    assert run("topic", "create", "lagging", "--queues", "1")[0] == 0
    sent(cluster, "lagging", 7)
    for group, offset in (("laggards", 2), ("leaders", 6)):
        run("group", "create", group)
        await committed(cluster, group, "lagging", offset)
    rows = {row["group"]: row for row in json.loads(run("group", "lag", "-o", "json")[1])}
    assert (rows["laggards"]["lag"], rows["laggards"]["topics"]) == (5, ["lagging"])
    assert rows["leaders"]["lag"] == 1
    lines = [line.split() for line in run("group", "lag")[1].splitlines()]
    assert lines[0] == ["GROUP", "TOPICS", "LAG", "SECONDS"]
    assert lines[-1] == ["sum", str(sum(row["lag"] for row in rows.values()))]
    assert run("group", "lag", "laggards")[1].splitlines()[-1].split()[:2] == ["sum", "5"]
    code, _, told = run("group", "lag", "--topic", "lagging")
    assert code == 2
    assert "NAME of a group" in told


def test_changing_nothing_is_a_usage_error(run: Any) -> None:
    assert run("group", "alter", "billing")[0] == 2


async def test_a_group_is_moved_skipped_and_copied(
    run: Any, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("topic", "create", "moves", "--queues", "1")[0] == 0
    for group in ("movers", "copiers"):
        run("group", "create", group)
    sent(cluster, "moves", 5)
    await committed(cluster, "movers", "moves", 2)
    assert lag(run, "movers", "moves") == (2, 3)

    code, rows, _ = run("group", "reset", "movers", "moves", "--to", "begin", "--dry-run")
    assert code == 0
    assert {"topic": "moves", "broker": "broker-a", "queue": 0, "from": 2, "to": 0, "messages": -2} in rows
    assert lag(run, "movers", "moves") == (2, 3)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\nn\n"))
    code, _, told = run("group", "reset", "movers", "moves", "--to", "begin")
    assert (code, "by 2 messages back?" in told) == (1, True)
    code, _, told = run("group", "skip", "movers")
    assert (code, "by 3 messages forward?" in told) == (1, True)
    assert run("group", "reset", "movers", "moves", "--to", "begin", "--yes")[0] == 0
    assert lag(run, "movers", "moves") == (0, 5)
    assert run("group", "skip", "movers", "--yes")[0] == 0
    assert lag(run, "movers", "moves") == (5, 0)
    assert run("group", "reset", "movers", "moves", "--to", "1h", "--yes")[0] == 0
    assert lag(run, "movers", "moves") == (0, 5)
    assert run("group", "clone", "movers", "copiers", "--yes")[0] == 0
    assert lag(run, "copiers", "moves") == (0, 5)


def test_an_offset_needs_its_queue(run: Any) -> None:
    assert run("group", "reset", "movers", "moves", "--to", "3", "--yes")[0] == 2


async def dead_letter(cluster: Cluster, group: str, body: bytes, topic: str = "given-up") -> None:
    """A message at broker-a that the group gave up on."""
    async with await Peer.connect(cluster.address("broker-a")) as peer:
        answer = await send(peer, topic, body, i="TAGS\x01paid\x02KEYS\x01k1\x02")
        assert answer.code == 0
        [stored] = records((await pull(peer, group, topic)).body)
        assert (await send_back(peer, stored.position, group=group, delayLevel="-1")).code == 0


async def test_dead_letters_are_listed_shown_exported_and_sent_again(
    run: Any, cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    run("group", "create", "undertakers")
    assert run("dlq", "show", "undertakers")[1] == []
    await dead_letter(cluster, "undertakers", b"\xff hello")
    # The broker registers the topic on its own.
    rows = until(lambda: run("dlq", "list")[1])
    assert [(pile["group"], pile["messages"]) for pile in rows] == [("undertakers", 1)]
    [letter] = run("dlq", "show", "undertakers")[1]
    assert (letter["topic"], letter["tag"], letter["attempts"]) == ("given-up", "paid", 1)
    assert base64.b64decode(letter["body_base64"]) == b"\xff hello"
    assert cli.run(["dlq", "export", "undertakers"]) == 0
    exported = json.loads(capfd.readouterr().out)
    assert exported | {"resent_at": None} == letter

    assert run("dlq", "resend", "undertakers", "--id", "no such", "--yes")[0] == 1
    assert run("dlq", "resend", "undertakers", "--yes")[0] == 2
    code, [again], _ = run("dlq", "resend", "undertakers", "--id", letter["message_id"], "--yes")
    assert (code, again["message_id"]) == (0, letter["message_id"])
    async with await Peer.connect(cluster.address("broker-a")) as peer:
        [retried] = records((await pull(peer, "undertakers", "%RETRY%undertakers")).body)
    assert (retried.body, retried.reconsume_times) == (b"\xff hello", 0)
    assert (retried.properties["RETRY_TOPIC"], retried.properties["TAGS"]) == ("given-up", "paid")
    assert "DELAY" not in retried.properties
    assert retried.properties["DLQ_RESENT_FROM"] == letter["offset_message_id"]

    # The broker puts the new message into its index a moment after it stored it.
    shown = until(
        lambda: run("dlq", "show", "undertakers")[1][0], wanted=lambda row: row["resent_at"] is not None
    )
    assert shown | {"resent_at": None} == letter
    code, [left], _ = run("dlq", "resend", "undertakers", "--all", "--yes")
    assert (code, left) == (0, {**again, "sent": False})
    code, [twice], _ = run("dlq", "resend", "undertakers", "--all", "--again", "--yes")
    assert (code, twice["sent"]) == (0, True)
    assert twice["sent_as"] != again["sent_as"]
    async with await Peer.connect(cluster.address("broker-a")) as peer:
        assert len(records((await pull(peer, "undertakers", "%RETRY%undertakers")).body)) == 2


async def test_purged_dead_letters_are_deleted_and_the_topic_is_recreated(run: Any, cluster: Cluster) -> None:
    def letters() -> list[str]:
        return [letter["body"] for letter in run("dlq", "show", "purged")[1]]

    run("group", "create", "purged")
    assert run("dlq", "purge", "purged", "--yes")[1] == {"group": "purged", "messages": 0}
    for text in ("first", "second"):
        await dead_letter(cluster, "purged", text.encode(), f"given-up-{text}")
        until(letters, wanted=[text].__eq__)
        # The other name server may be the one that is asked, and learn of the topic a moment later.
        purged = {"group": "purged", "messages": 1}
        until(lambda: run("dlq", "purge", "purged", "--yes")[1], wanted=purged.__eq__)
        assert letters() == []


async def test_members_with_different_subscriptions_are_named(run: Any, cluster: Cluster) -> None:
    """Each member answers the broker's question itself, as Java clients do."""
    run("group", "create", "quarrel")
    async with (
        await Peer.connect(cluster.address("broker-a")) as one,
        await Peer.connect(cluster.address("broker-a")) as two,
    ):
        await beat(one, heartbeat("client-one", "orders", group="quarrel"))
        await beat(two, heartbeat("client-two", "invoices", group="quarrel"))
        answers = [
            asyncio.create_task(answer_running_info(peer, topic))
            for peer, topic in ((one, "orders"), (two, "invoices"))
        ]
        code, rows, told = await asyncio.to_thread(run, "group", "members", "quarrel")
        await asyncio.gather(*answers)
    assert code == 0
    assert {row["client"]: row["subscriptions"] for row in rows} == {
        "client-one": ["orders (*)"],
        "client-two": ["invoices (*)"],
    }
    assert "client-one: orders (*)" in told
    assert "client-two: invoices (*)" in told


async def answer_running_info(peer: Peer, topic: str) -> None:
    """Say what a client says that consumes this topic."""
    asked = await pushed(peer)
    while asked.code != RequestCode.GET_CONSUMER_RUNNING_INFO:
        asked = await pushed(peer)
    body = json.dumps({"subscriptionSet": [{"topic": topic, "subString": "*"}]}).encode()
    await peer.raw(Frame(0, opaque=asked.opaque, flag=RESPONSE, body=body).pack())
