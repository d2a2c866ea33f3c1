"""Our mqadmin and topic commands at Apache's broker and name server, and at ours, with equal output."""

import itertools
import re
from collections.abc import Callable

import pytest

from commandline import runner
from rmqpy import cli
from rmqpy.cli.mq import admin as mqadmin

from .servers import BROKER_NAME, CLUSTER_NAME, Cluster

_numbers = itertools.count(1)
#: Typed one after the other; patterns of lines that are printed. `ID` is the message that was sent.
LINES: tuple[tuple[str, str], ...] = (
    ("updateTopic -b {broker} -t {topic} -r 2 -w 2", r"^create topic to {broker} success\.$"),
    ("updateSubGroup -c {cluster} -g {topic} -r 3", r"^create subscription group to {broker} success\.$"),
    ("sendMessage -t {topic} -p hello -k one -c paid -b {name} -i 1", r"^{name} +1 +SEND_OK +\w{{32}}$"),
    ("topicList", r"^{topic}$"),
    ("topicRoute -t {topic}", r'"readQueueNums":2'),
    ("topicStatus -t {topic}", r"^{name} +1 +0 +1 +\d{{4}}-"),
    ("clusterList", r"^{cluster} +{name} +0 +{broker} +V\w+ +\d+\.\d\d\(\d+,\d+ms\)"),
    ("clusterList -m", r"^{cluster} +{name} +\d+ +\d+ +\d+ +\d+$"),
    ("brokerStatus -b {broker}", r"^bootTimestamp +: \d+$"),
    ("getBrokerConfig -b {broker}", r"^brokerName +=  {name}$"),
    (
        "updateBrokerConfig -b {broker} -k notifyConsumerIdsChangedEnable -v true",
        r"^update broker config success, {broker}$",
    ),
    ("queryMsgByUniqueKey -t {topic} -i {id}", r"^Keys: +\[one\]$"),
    ("queryMsgByKey -t {topic} -k one", r"^{id} +1 +0$"),
    ("queryMsgByOffset -t {topic} -b {name} -i 1 -o 0", r"^Tags: +\[paid\]$"),
    ("consumeMessage -t {topic}", r"^MSGID: {id} .* BODY: hello$"),
    ("resetOffsetByTime -g {topic} -t {topic} -s 0", r"^{name} +1 +0$"),
    ("consumerProgress -g {topic}", r"^{topic} +{name} +1 +1 +0 +1"),
    ("skipAccumulatedMessage -g {topic} -t {topic}", r"^{name} +1 +1$"),
    ("deleteSubGroup -b {broker} -g {topic}", r"^delete subscription group \[{topic}\]"),
    (
        "deleteTopic -c {cluster} -t {topic}",
        r"^delete topic \[{topic}\] from cluster \[{cluster}\] success\.$",
    ),
)


@pytest.mark.parametrize("servers", ["rmqpy", "apache"])
def test_the_tool_prints_the_same_lines_at_either_broker(
    servers: str,
    cluster_of: Callable[[str], Cluster],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    cluster = cluster_of(servers)
    monkeypatch.setenv("NAMESRV_ADDR", cluster.namesrv)
    names = {"topic": f"our-mqadmin-{next(_numbers)}", "id": ""}
    names |= {"broker": cluster.broker, "name": BROKER_NAME, "cluster": CLUSTER_NAME}
    for typed, pattern in LINES:
        code = mqadmin.run(typed.format(**names).split())
        out, err = capfd.readouterr()
        assert code == 0, f"{typed}: {err}"
        assert re.search(pattern.format(**names), out, re.MULTILINE), f"{typed}: {out}"
        if typed.startswith("sendMessage"):
            names["id"] = out.split()[-1]
    assert mqadmin.run(["topicStatus", "-t", names["topic"]]) == 4


@pytest.mark.parametrize("servers", ["rmqpy", "apache"])
def test_a_topic_that_exists_is_not_made_again_at_either_broker(
    servers: str,
    cluster_of: Callable[[str], Cluster],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    run = runner(cluster_of(servers).namesrv, monkeypatch, capfd)
    topic = f"our-topic-{next(_numbers)}"
    assert run("topic", "create", topic, "--queues", "4")[0] == 0
    assert run("topic", "create", topic, "--queues", "2")[0] == 1
    assert run("topic", "create", topic, "--if-not-exists")[0] == 0
    assert run("topic", "settings", topic, "-o", "template={read_queues}")[1] == "4\n"
    assert cli.run(["config", "set", BROKER_NAME, "notifyConsumerIdsChangedEnabl=true"]) == 2
