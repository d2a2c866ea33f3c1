"""mqadmin's commands at a real cluster: effects, printed columns, and exit codes."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rmqpy
from rmqpy.cli.mq import admin as mqadmin
from rmqpy.testing import Cluster

ROOT = Path(__file__).resolve().parent.parent.parent
#: Exit code, lines of standard output, standard error.
Run = Callable[..., tuple[int, list[str], str]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(name_servers=2, brokers=["broker-a", "broker-b"]) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def sent(cluster: Cluster) -> rmqpy.SendResult:
    """The last of four messages in queue 0 of `orders` at broker-a; `billing` has consumed three of them."""
    with rmqpy.Admin(cluster.namesrv) as admin, rmqpy.Producer(cluster.namesrv) as producer:
        admin.create_topic("orders", read_queues=2, write_queues=2)
        admin.create_group("billing")
        queue = producer.queues("orders")[0]
        for number in range(4):
            result = producer.send(
                "orders", f"body {number}", tag="paid", keys=[f"order-{number}"], queue=queue
            )
    with rmqpy.PullConsumer("billing", cluster.namesrv, auto_commit=False) as consumer:
        consumer.assign([queue])
        consumer.commit({queue: 3})
    return result


@pytest.fixture
def run(
    cluster: Cluster,
    sent: rmqpy.SendResult,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Run:
    monkeypatch.setenv("NAMESRV_ADDR", cluster.namesrv)

    def run(*arguments: str) -> tuple[int, list[str], str]:
        code = mqadmin.run(arguments)
        captured = capfd.readouterr()
        return code, captured.out.splitlines(), captured.err

    return run


def named() -> set[str]:
    """Every command of Apache's tool: those that the page on it lists, and those that it only counts."""
    page = (ROOT / "docs/mqadmin.md").read_text(encoding="utf-8")
    verbs = ("create", "update", "delete", "get", "list", "copy")
    of_access = {f"{verb}{noun}" for verb in verbs for noun in ("User", "Acl")}
    of_lite = {
        f"get{noun}Info" for noun in ("BrokerLite", "ParentTopic", "LiteTopic", "LiteClient", "LiteGroup")
    }
    return set(re.findall(r"^\| `(\w+)", page, re.MULTILINE)) | of_access | of_lite | {"triggerLiteDispatch"}


def test_every_command_of_the_original_is_served_or_says_where_to_go() -> None:
    assert len(named()) == 96
    assert named() <= mqadmin.SERVED.keys() | mqadmin.ELSEWHERE.keys()
    assert not mqadmin.SERVED.keys() & mqadmin.ELSEWHERE.keys()


@pytest.mark.parametrize("name", sorted(mqadmin.ELSEWHERE))
def test_unsupported_mqadmin_command_is_refused_with_any_options(name: str, run: Run) -> None:
    code, out, told = run(name, "-b", "127.0.0.1:10911", "--whatever")
    assert (code, out) == (1, [])
    assert told == f"Error: {name} is not served: {mqadmin.ELSEWHERE[name]}\n"


@pytest.mark.parametrize("name", sorted(mqadmin.SERVED))
def test_every_command_has_help_in_both_ways(name: str, run: Run) -> None:
    code, lines, _ = run(name, "-h")
    assert code == 0
    assert lines[0].startswith(f"Usage: mqadmin {name}")
    assert run("help", name)[1] == lines


def test_unknown_command_suggests_the_nearest(run: Run) -> None:
    code, _, told = run("topiclst")
    assert code == 2
    assert "did you mean 'topicList'?" in told


#: Command line → patterns of lines it prints. Names in braces are those of the cluster.
READING = {
    "topicList": ["^orders$", "^TBW102$"],
    "topicList -c": [r"^#Cluster Name +#Topic +#Consumer Group", r"^DefaultCluster +orders +billing$"],
    "topicRoute -t orders": ['"brokerName":"broker-a"', '"readQueueNums":2', "{a}"],
    "topicRoute -t orders -l": [
        r"^#ClusterName +#BrokerName",
        r"^DefaultCluster +broker-a +.*{a}.* +2 +2 +6$",
    ],
    "topicStatus -t orders": [
        r"^#Broker Name +#QID +#Min Offset +#Max Offset +#Last Updated$",
        r"^broker-a +0 +0 +4 +\d{4}-",
        r"^broker-b +1 +0 +0$",
    ],
    "topicClusterList -t orders": ["^DefaultCluster$"],
    "clusterList": [
        r"^#Cluster Name +#Broker Name +#BID +#Addr",
        r"^DefaultCluster +broker-a +0 +{a} +V\w+ ",
    ],
    "clusterList -m": [r"#InTotalToday", r"^DefaultCluster +broker-a +0 +0 +4 +\d+$"],
    "brokerStatus -b {a}": [r"^bootTimestamp +: \d+$", r"^putTps +: ", r"^msgPutTotalTodayNow +: 4$"],
    "haStatus -b {a}": [r"^#MasterAddr\t{a}$", r"^#SlaveNum\t0$", r"^#SlaveAddr +#SlaveAckOffset +#Diff "],
    "getBrokerEpoch -b broker-a": [
        "^#brokerName\tbroker-a$",
        "^#brokerAddr\t{a}$",
        r"^#Epoch: EpochEntry\{epoch=16, startOffset=0, endOffset=\d+\}$",
    ],
    "brokerStatus -c DefaultCluster": [r"^{a} +bootTimestamp +: \d+$", r"^{b} +bootTimestamp +: \d+$"],
    "getBrokerConfig -b {a}": [r"^=+{a}=+$", r"^brokerName +=  broker-a$"],
    "getNamesrvConfig": [r"^listenPort +=  \d+$"],
    "getConsumerConfig -g billing": [r"^retryQueueNums +=  1$"],
    "consumerProgress -g billing": [
        r"^#Topic +#Broker Name +#QID +#Broker Offset +#Consumer Offset +#Diff +#Inflight +#LastTime$",
        r"^orders +broker-a +0 +4 +3 +1 +0 ",
        r"^Consume Diff Total: 1$",
        r"^Consume Inflight Total: 0$",
    ],
    "consumerProgress": [r"^#Group +#Count", r"^billing +0 +OFFLINE .* 1$"],
    "queryMsgById -i {offset_id}": [r"^Topic: +orders$", r"^Keys: +\[order-3\]$", r"^Message Body: +body 3$"],
    "queryMsgByUniqueKey -t orders -i {id}": [r"^Topic: +orders$", r"^Tags: +\[paid\]$"],
    "queryMsgByKey -t orders -k order-3": [r"^#Message ID +#QID +#Offset$", r"^{id} +0 +3$"],
    "queryMsgByOffset -t orders -b broker-a -i 0 -o 2": [r"^Keys: +\[order-2\]$"],
    "consumeMessage -t orders -b broker-a -i 0 -o 2 -c 1": [
        r"^MSGID: \w+ \[.*queueOffset=2.*\] BODY: body 2$"
    ],
    "consumeMessage -t orders -s now": [],
    "printMsg -t orders -d false": [r"^MSGID: {id} \[[^]]*\]$"],
}


@pytest.mark.parametrize("typed", READING)
def test_mqadmin_prints_the_originals_columns(
    typed: str, run: Run, cluster: Cluster, sent: rmqpy.SendResult
) -> None:
    places = {
        "a": cluster.address("broker-a"),
        "b": cluster.address("broker-b"),
        "id": sent.message_id,
        "offset_id": sent.offset_message_id,
    }

    def filled(text: str) -> str:
        return re.sub(r"\{(a|b|id|offset_id)\}", lambda name: places[name[1]], text)

    code, lines, told = run(*filled(typed).split())
    assert code == 0, told
    for pattern in READING[typed]:
        assert any(re.search(filled(pattern), line) for line in lines), (pattern, lines)
    if not READING[typed] or "-c 1" in typed:
        assert len(lines) == len(READING[typed])


def test_topics_are_created_changed_and_deleted(run: Run, cluster: Cluster) -> None:
    a = cluster.address("broker-a")
    code, lines, _ = run("updateTopic", "-c", "DefaultCluster", "-t", "made", "-r", "3", "-w", "3")
    assert code == 0
    assert f"create topic to {a} success." in lines
    assert lines[-1].startswith("TopicConfig [topicName=made, readQueueNums=3, writeQueueNums=3, perm=RW-")
    # As in Apache's tool, an existing one is changed.
    with rmqpy.Admin(cluster.namesrv) as admin:
        admin.set_value("ORDER_TOPIC_CONFIG", "made", "broker-a:3;broker-b:3")
        code, lines, _ = run("updateTopic", "-b", a, "-t", "made", "-r", "4", "-w", "2", "-o", "true")
        assert (code, lines[1]) == (
            0,
            "set broker orderConf. isOrder=true, orderConf=[broker-a:2;broker-b:3]",
        )
        assert admin.values("ORDER_TOPIC_CONFIG")["made"] == "broker-a:2;broker-b:3"
    with rmqpy.Admin(cluster.namesrv) as admin:
        found = admin.topic_settings("made")
        assert [(each.read_queue_nums, each.order) for _, each in sorted(found.items())] == [
            (4, True),
            (3, False),
        ]
        code, lines, _ = run("updateTopicPerm", "-b", a, "-t", "made", "-p", "4")
        assert f"update topic perm from 6 to 4 in {a} success." in lines
        assert admin.topic_settings("made")["broker-a"].perm == 4
        code, lines, _ = run("deleteTopic", "-c", "DefaultCluster", "-t", "made")
        assert (code, lines[0]) == (0, "delete topic [made] from cluster [DefaultCluster] success.")
        assert "made" not in admin.topics()
    assert run("deleteTopic", "-c", "DefaultCluster", "-t", "made")[0] == 4
    assert run("updateTopic", "-t", "made")[0] == 2


def test_a_mode_is_set_and_records_of_popped_messages_are_exported(run: Run, cluster: Cluster) -> None:
    a, b = cluster.address("broker-a"), cluster.address("broker-b")
    code, lines, _ = run(
        *("setConsumeMode", "-c", "DefaultCluster", "-t", "orders", "-g", "billing", "-m", "POP", "-q", "2")
    )
    assert (code, lines) == (
        0,
        [
            f"set consume mode to {a} success.",
            f"set consume mode to {b} success.",
            "topic[orders] group[billing] consume mode[POP] popShareQueueNum[2]",
        ],
    )
    assert run("setConsumeMode", "-b", a, "-t", "unknown", "-g", "billing", "-m", "POP")[0] != 0
    for options, is_dry in (((), "false"), (("-d", "false"), "true")):
        code, lines, _ = run("exportPopRecord", "-b", a, *options)
        expected = f"Export broker records, brokerName=broker-a, brokerAddr={a}, dryRun={is_dry}"
        assert (code, lines) == (0, [expected])


def test_groups_are_created_moved_and_deleted(run: Run, cluster: Cluster) -> None:
    a = cluster.address("broker-a")
    code, lines, _ = run("updateSubGroup", "-c", "DefaultCluster", "-g", "moved", "-r", "3", "-d", "false")
    assert (code, lines[0]) == (0, f"create subscription group to {a} success.")
    with rmqpy.Admin(cluster.namesrv) as admin:
        made = admin.group("moved")["broker-b"]
        assert (made.retry_max_times, made.consume_broadcast_enable) == (3, False)
        assert run("cloneGroupOffset", "-s", "billing", "-d", "moved", "-t", "orders")[0] == 0

        def offset() -> int:
            return next(row.offset for row in admin.progress("moved", "orders") if row.broker == "broker-a")

        assert offset() == 3
        code, lines, _ = run("resetOffsetByTime", "-g", "moved", "-t", "orders", "-s", "0")
        assert code == 0
        assert any(re.match(r"broker-a +0 +0$", line) for line in lines)
        assert offset() == 0
        specified = ("-b", a, "-q", "0", "-o", "2")
        code, lines, _ = run("resetOffsetByTime", "-g", "moved", "-t", "orders", "-s", "now", *specified)
        assert (code, lines, offset()) == (0, ["reset consumer offset to 2"], 2)
        assert run("skipAccumulatedMessage", "-g", "moved", "-t", "orders")[0] == 0
        assert offset() == 4
        code, lines, _ = run("deleteSubGroup", "-c", "DefaultCluster", "-g", "moved")
        assert (code, lines[0]) == (0, f"delete subscription group [moved] from broker [{a}] success.")
        assert "moved" not in admin.groups()
    assert run("resetOffsetByTime", "-g", "moved", "-t", "orders", "-s", "now")[0] == 4
    assert run("resetOffsetByTime", "-g", "billing", "-t", "orders", "-s", "soon")[0] == 2


def test_settings_are_changed_at_brokers_and_name_servers(run: Run, cluster: Cluster) -> None:
    key = "notifyConsumerIdsChangedEnable"
    code, lines, _ = run("updateBrokerConfig", "-c", "DefaultCluster", "-k", key, "-v", "false")
    assert (code, lines[0]) == (0, f"update broker config success, {cluster.address('broker-a')}")
    with rmqpy.Admin(cluster.namesrv) as admin:
        assert {admin.broker_config(each)[key] for each in ("broker-a", "broker-b")} == {"false"}
        assert run("updateNamesrvConfig", "-k", "waitSecondsForService", "-v", "46")[0] == 0
        assert {each["waitSecondsForService"] for each in admin.namesrv_config().values()} == {"46"}
    code, _, told = run(
        "updateBrokerConfig", "-b", cluster.address("broker-a"), "-k", "brokerPermision", "-v", "6"
    )
    assert code == 2
    assert "did you mean brokerPermission?" in told
    assert run("updateKvConfig", "-s", "space", "-k", "key", "-v", "value")[0] == 0
    assert run("deleteKvConfig", "-s", "space", "-k", "key")[0] == 0
    code, lines, _ = run("wipeWritePerm", "-b", "broker-b")
    assert code == 0
    assert re.match(r"wipe write perm of broker\[broker-b\] in name server\[.*\] OK, \d+$", lines[0])
    assert run("addWritePerm", "-b", "broker-b")[0] == 0


def test_a_message_is_sent_to_the_named_queue(run: Run, cluster: Cluster) -> None:
    assert run("updateTopic", "-c", "DefaultCluster", "-t", "sent")[0] == 0
    to = ("-b", "broker-b", "-i", "5")
    code, lines, told = run("sendMessage", "-t", "sent", "-p", "hello", "-k", "one two", "-c", "paid", *to)
    assert code == 0, told
    assert re.match(r"broker-b +5 +SEND_OK +\w{32}$", lines[1])
    with rmqpy.Admin(cluster.namesrv) as admin:
        [message] = admin.messages_between("sent")
    assert (message.text(), message.keys, message.tag) == ("hello", ("one", "two"), "paid")
    assert (message.queue.broker, message.queue.queue_id) == ("broker-b", 5)


def test_a_message_sent_with_a_trace_is_followed_by_its_id(run: Run) -> None:
    code, lines, _ = run("sendMessage", "-t", "orders", "-p", "traced", "-m", "true")
    assert code == 0
    message_id = lines[-1].split()[-1]
    code, lines, told = run("queryMsgTraceById", "-i", message_id)
    assert code == 0, told
    assert re.match(r"#Type +#ProducerGroup +#ClientHost +#SendTime +#CostTimes +#Status$", lines[0])
    assert re.match(r"Pub +rmqpy +127\.0\.0\.1 +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d +\d+ms +success$", lines[1])


def test_connections_are_listed_with_what_they_subscribe_to(run: Run, cluster: Cluster) -> None:
    with rmqpy.PullConsumer("joined", cluster.namesrv) as consumer, rmqpy.Admin(cluster.namesrv) as admin:
        consumer.subscribe("orders", "paid")
        while len(admin.group("joined")) < 2 or not admin.members("joined"):
            consumer.poll(0.1)
        code, lines, _ = run("consumerConnection", "-g", "joined")
    assert code == 0
    assert any(re.match(r"orders +paid$", line) for line in lines)
    assert "MessageModel: CLUSTERING" in lines
    assert run("consumerConnection", "-g", "billing")[0] == 1


@pytest.mark.parametrize(
    ("typed", "code"),
    [
        ("topicRoute -t nowhere", 4),
        ("topicStatus -t nowhere", 4),
        ("consumerProgress -g nobody", 4),
        ("consumerProgress -g billing -t nowhere", 4),
        ("queryMsgByKey -t orders -k none", 4),
        ("queryMsgByOffset -t orders -b broker-a -i 0 -o 99", 4),
        ("queryMsgByUniqueKey -t orders -i 7F0000010000A1B2C3D4000000000001", 4),
        ("topicList -n 127.0.0.1:1", 3),
        ("brokerStatus", 2),
        ("topicRoute", 2),
        ("consumerProgress -g billing -s true", 2),
        ("queryMsgTraceById -i 7F0000010000A1B2C3D4000000000001", 4),
    ],
)
def test_failures_have_exit_codes(typed: str, code: int, run: Run) -> None:
    found, _, told = run(*typed.split())
    assert found == code
    assert "Error: " in told
