"""Topics as an operator sees them, through the command line and a real cluster."""

import contextlib
import io
import json
from typing import Any

import pytest

import rmqpy
from client.fakes import Network
from rmqpy.admin.topics import Topics
from rmqpy.protocol.codes import RequestCode
from rmqpy.remoting.client import BlockingCaller
from rmqpy.testing import Cluster
from wire import Frame, Peer


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


def test_message_type_of_topics_is_shown_and_changed(run: Any, cluster: Cluster) -> None:
    for name, kind in {"plain": None, "in-turn": "FIFO"}.items():
        assert run("topic", "create", name, *(("--type", kind) if kind else ()))[0] == 0
    assert [
        {**row} for row in run("topic", "list", "--types")[1] if row["topic"] in ("plain", "in-turn")
    ] == [
        {"topic": "in-turn", "type": "FIFO"},
        {"topic": "plain", "type": "NORMAL"},
    ]
    assert run("topic", "alter", "in-turn", "--type", "DELAY")[0] == 0
    assert {row["type"] for row in run("topic", "describe", "in-turn")[1]} == {"DELAY"}
    with rmqpy.Admin(cluster.namesrv) as admin:
        assert admin.topic_types()["in-turn"] == "DELAY"
        assert "SELF_TEST_TOPIC" in admin.topic_types(with_system=True)
    code, _, err = run("topic", "create", "all", "--type", "MIXED")
    assert code != 0
    assert "MIXED message type is not supported" in err


def listed(cluster: Cluster) -> list[dict[str, str]]:
    """The order topics of each name server."""
    found = []
    for address in cluster.namesrv.split(";"):
        with rmqpy.Admin(address) as admin:
            found.append(admin.values("ORDER_TOPIC_CONFIG"))
    return found


def test_the_queues_of_an_order_topic_are_listed_at_every_name_server(run: Any, cluster: Cluster) -> None:
    assert run("topic", "create", "in-order", "--queues", "4", "--order")[0] == 0
    assert listed(cluster) == [{"in-order": "broker-a:4;broker-b:4"}] * 2
    assert run("topic", "alter", "in-order", "--queues", "6")[0] == 0
    assert listed(cluster) == [{"in-order": "broker-a:6;broker-b:6"}] * 2
    assert run("topic", "alter", "in-order", "--no-order")[0] == 0
    assert listed(cluster) == [{}] * 2
    assert run("topic", "alter", "in-order", "--order")[0] == 0
    with rmqpy.Admin(cluster.namesrv) as admin:
        # A repetition completes what the failure left out.
        admin.set_value("ORDER_TOPIC_CONFIG", "in-order", None)
        assert admin.create_topic("in-order", order=True, exist_ok=True) == []
    assert listed(cluster) == [{"in-order": "broker-a:6;broker-b:6"}] * 2
    assert run("topic", "delete", "in-order", "--yes")[0] == 0
    assert listed(cluster) == [{}] * 2


def test_an_order_topic_of_a_namespace_is_listed_as_brokers_know_it(cluster: Cluster) -> None:
    with rmqpy.Admin(rmqpy.ClientConfig(namesrv=cluster.namesrv, namespace="shop")) as admin:
        admin.create_topic("in-order", order=True, write_queues=2, read_queues=2)
        assert listed(cluster) == [{"shop%in-order": "broker-a:2;broker-b:2"}] * 2
        admin.delete_topic("in-order")
    assert listed(cluster) == [{}] * 2


def test_checks_for_a_new_topic_back_off(monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> None:
    slept: list[float] = []

    async def sleep(self: BlockingCaller, seconds: float) -> None:
        slept.append(seconds)

    async def never(*_: object) -> bool:
        return len(slept) == 9

    monkeypatch.setattr(BlockingCaller, "sleep", sleep)
    monkeypatch.setattr(Topics, "_is_routed", never)
    with rmqpy.Admin(cluster.namesrv) as admin:
        admin.create_topic("slow")
    assert len(slept) == 9
    assert 0.02 <= slept[0] <= 0.03
    assert all(0.5 <= pause <= 0.75 for pause in slept[5:])


def test_topics_of_the_system_are_listed_only_on_request(run: Any) -> None:
    own = {row["topic"] for row in run("topic", "list")[1]}
    every = {row["topic"] for row in run("topic", "list", "--system")[1]}
    assert own < every
    assert {"DefaultCluster", "broker-a", "TBW102"} <= every - own


def test_read_only_topic_is_shown_as_such(run: Any) -> None:
    assert run("topic", "create", "archive", "--perm", "R")[0] == 0
    assert {row["perm"] for row in run("topic", "describe", "archive")[1]} == {"R-"}


@pytest.mark.parametrize("command", ["describe", "delete"])
def test_a_topic_that_does_not_exist_is_code_4(run: Any, command: str) -> None:
    arguments = ("topic", command, "nowhere", *(["--yes"] if command == "delete" else []))
    code, out, err = run(*arguments)
    assert (code, out) == (4, None)
    assert "topic 'nowhere' does not exist" in err


def test_a_name_that_no_topic_can_have_is_a_usage_error(run: Any) -> None:
    code, out, err = run("topic", "create", "not a name")
    assert (code, out) == (2, None)
    assert err.startswith("Error: topic 'not a name': ")


def test_missing_name_server_exits_with_3(run: Any) -> None:
    code, out, err = run("topic", "list", "-n", "127.0.0.1:1")
    assert (code, out) == (3, None)
    assert "no name server answers" in err


def test_deleting_asks_first(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("topic", "create", "kept")[0] == 0
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _: "n")
    code, out, told = run("topic", "delete", "kept")
    assert (code, out) == (1, None)
    assert "cancelled" in told
    assert "interrupted" not in told
    assert {"topic": "kept"} in run("topic", "list")[1]


def test_question_without_a_terminal_is_a_usage_error(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    code, _, told = run("topic", "delete", "kept")
    assert code == 2
    assert told.splitlines()[1:] == ["Error: no confirmation possible without a terminal: give --yes"]


def test_a_topic_that_exists_is_not_made_again(run: Any, cluster: Cluster) -> None:
    assert run("topic", "create", "wide", "--queues", "16")[0] == 0
    with rmqpy.Producer(cluster.namesrv) as producer:
        producer.send("wide", "x", queue=producer.queues("wide")[15])
    code, out, told = run("topic", "create", "wide", "--queues", "8")
    assert (code, out) == (1, None)
    assert "topic 'wide' already exists (broker-a: 16 queues, broker-b: 16 queues)" in told
    code, made, told = run("topic", "create", "wide", "--queues", "8", "--if-not-exists")
    assert (code, [row["read_queues"] for row in made]) == (0, [16, 16]), "not what was asked for"
    assert "nothing changed" in told
    assert run("topic", "settings", "wide")[1] == made
    with rmqpy.Admin(cluster.namesrv) as admin, pytest.raises(rmqpy.errors.TopicExists):
        admin.create_topic("wide", read_queues=4)


async def test_topic_is_created_only_where_it_is_missing(run: Any, cluster: Cluster) -> None:
    ext = {"topic": "halved", "defaultTopic": "TBW102", "readQueueNums": "3", "writeQueueNums": "3"}
    ext |= {"perm": "6", "topicFilterType": "SINGLE_TAG", "order": "false"}
    async with await Peer.connect(cluster.address("broker-a")) as peer:
        assert (await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)).code == 0
    code, out, told = run("topic", "create", "halved")
    assert (code, out) == (1, None)
    assert "(broker-a: 3 queues)" in told
    code, made, _ = run("topic", "create", "halved", "--if-not-exists")
    assert (code, made["brokers"]) == (0, ["broker-b"])
    rows = run("topic", "settings", "halved")[1]
    assert {row["broker"]: row["read_queues"] for row in rows} == {"broker-a": 3, "broker-b": 8}


def test_queue_removal_needs_a_confirmation(
    run: Any, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("topic", "create", "narrowed", "--queues", "2")[0] == 0
    with rmqpy.Producer(cluster.namesrv) as producer:
        producer.send("narrowed", "x", queue=producer.queues("narrowed")[1])
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    code, _, told = run("topic", "alter", "narrowed", "--read-queues", "1")
    assert code == 1
    assert "broker-a: 2 to 1 read queues" in told
    assert "1 messages become unreadable" in told
    assert {row["read_queues"] for row in run("topic", "settings", "narrowed")[1]} == {2}
    assert run("topic", "alter", "narrowed", "--read-queues", "1", "--yes")[0] == 0
    assert {row["read_queues"] for row in run("topic", "settings", "narrowed")[1]} == {1}
    assert run("topic", "alter", "narrowed", "--read-queues", "4")[0] == 0


def test_removal_of_read_permission_needs_a_confirmation(
    run: Any, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("topic", "create", "muted")[0] == 0
    with rmqpy.Producer(cluster.namesrv) as producer:
        producer.send("muted", "x")
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    code, _, told = run("topic", "alter", "muted", "--perm", "W")
    assert code == 1
    assert (
        "broker-a: no permission to read; broker-b: no permission to read; 1 messages become unreadable"
        in told
    )
    assert {row["perm"] for row in run("topic", "settings", "muted")[1]} == {"RW"}
    assert run("topic", "alter", "muted", "--perm", "R")[0] == 0


def test_queues_to_read_and_to_write_change_in_one(run: Any) -> None:
    assert run("topic", "create", "widened", "--queues", "2")[0] == 0
    assert run("topic", "alter", "widened", "--queues", "4")[0] == 0
    rows = run("topic", "settings", "widened")[1]
    assert {(row["read_queues"], row["write_queues"]) for row in rows} == {(4, 4)}
    code, _, told = run("topic", "alter", "widened", "--queues", "8", "--read-queues", "8")
    assert (code, "give --queues, or --read-queues" in told) == (2, True)


@pytest.mark.parametrize("away", ["name server", "broker"])
def test_a_deletion_that_missed_a_server_is_finished_by_the_next(cluster: Cluster, away: str) -> None:
    """A server that the administrator cannot reach, but that continues to run."""
    topic = f"half-deleted-{away.partition(' ')[0]}"
    name_servers = cluster.namesrv.split(";")
    cut_off = name_servers[0] if away == "name server" else cluster.address("broker-b")
    config = rmqpy.ClientConfig(namesrv=cluster.namesrv, address_map={cut_off: "127.0.0.1:1"})

    def has_route(name_server: str) -> bool:
        with rmqpy.Admin(name_server) as one, contextlib.suppress(rmqpy.errors.TopicNotFound):
            return bool(one.route(topic).queue_datas)
        return False

    with rmqpy.Admin(cluster.namesrv) as admin, rmqpy.Admin(config) as hindered:
        admin.create_topic(topic)
        for _ in range(2):
            with pytest.raises(rmqpy.errors.ConnectError, match=r"cannot connect.*delete it again when"):
                hindered.delete_topic(topic)
        left = [True, False] if away == "name server" else [True, True]
        assert [has_route(each) for each in name_servers] == left
        assert admin.delete_topic(topic) == ["broker-a", "broker-b"]
        assert not any(map(has_route, name_servers))
        with pytest.raises(rmqpy.errors.TopicNotFound):
            admin.delete_topic(topic)


def test_broker_without_single_topic_queries_returns_all_topics() -> None:
    """As one of 4.x."""
    known = {"topicName": "orders", "readQueueNums": 3, "writeQueueNums": 3, "perm": 6}
    table = {"dataVersion": {"counter": 1, "timestamp": 1}, "topicConfigTable": {"orders": known}}
    with Network() as network:
        broker = network.broker("broker-a")
        broker.handlers[RequestCode.GET_ALL_TOPIC_CONFIG] = lambda ask: Frame(
            0, body=json.dumps(table).encode()
        )
        broker.handlers[RequestCode.UPDATE_AND_CREATE_TOPIC] = lambda ask: Frame(0)
        name_server = network.name_server([broker], {"orders": 3, "bills": 8})
        info = {
            "brokerAddrTable": {
                "broker-a": {"brokerAddrs": {"0": broker.address}, "brokerName": "broker-a", "cluster": "c"}
            },
            "clusterAddrTable": {"c": ["broker-a"]},
        }
        name_server.handlers[RequestCode.GET_BROKER_CLUSTER_INFO] = lambda ask: Frame(
            0, body=json.dumps(info).encode()
        )
        with rmqpy.Admin(name_server.address) as admin:
            assert admin.topic_settings("orders")["broker-a"].read_queue_nums == 3
            with pytest.raises(rmqpy.errors.TopicExists):
                admin.create_topic("orders")
            assert admin.create_topic("bills") == ["broker-a"]
        assert broker.count(RequestCode.UPDATE_AND_CREATE_TOPIC) == 1


def test_system_topics_of_every_broker_are_hidden() -> None:
    with Cluster(brokers=["broker-a", "broker-b"]) as cluster, rmqpy.Admin(cluster.namesrv) as admin:
        member = "rmq_sys_SYNC_BROKER_MEMBER_"
        every = admin.topics(with_system=True)
        assert {f"{member}broker-a", f"{member}broker-b"} <= set(every)
        assert [name for name in admin.topics() if name.startswith("rmq_sys_")] == []
