"""Apache's command line tool, both versions, against our broker and name server.

One table: what is typed, and what has to be in the answer; `@` and a version where that one differs. Names in braces
stand for the things every command finds: a topic of three queues with twelve messages, and two groups that consumed
them and are still connected, the one with a member of Java's, the other with one of ours.
"""

import re
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import rmqpy

from . import wire
from .messages import Outgoing
from .peers import Peer, ProcessPeer
from .servers import BROKER_NAME, CLUSTER_NAME, Cluster
from .toolchain import JAVA_CLIENTS

pytestmark = pytest.mark.timeout(100, func_only=True)

TOPIC = "mqadmin-topic"
GROUP = "mqadmin-group"
OUR_GROUP = "mqadmin-ours"

BODY_FOLDER = Path(tempfile.gettempdir(), "rocketmq", "msgbodys")
"""Where queryMsgById leaves the body of each message it has shown."""

COMMANDS = {
    "clusterList": ("", [r"{cluster} +{name} +0 +{broker}"]),
    "topicList": ("", [r"^{topic}$", r"^%RETRY%{group}$"]),
    "topicList of a cluster": ("-c", [r"{cluster} +{topic}"]),
    "topicRoute": ("-t {topic}", [r'"brokerName": ?"{name}"', r'"readQueueNums": ?3', r"{broker}"]),
    "topicStatus": ("-t {topic}", [rf"{{name}} +{queue} +0 +4 " for queue in range(3)]),
    "topicClusterList": ("-t {topic}", [r"^{cluster}$"]),
    "brokerStatus": ("-b {broker}", [r"^bootTimestamp +: +\d+$", r"^putTps +: ", r"^msgPutTotalTodayNow +: +\d+$"]),
    "getBrokerConfig": ("-b {broker}", [r"^brokerName +[= ]+ +{name}$"]),
    "getNamesrvConfig": ("", [r"^listenPort +[= ]+ +\d+$"]),
    "getConsumerConfig": ("-g {group}", [r"retryQueueNums +[= ]+ +1$"]),
    "consumerProgress": ("-g {group}", [r"^{topic} +{name} +0 +4 +4 ", r"Diff Total: 0$"]),
    "consumerProgress of all": ("", [r"^{group} "]),
    "consumerConnection": ("-g {group}", [r"@{group}-", r"{topic} +\*", r"CLUSTERING", r"CONSUME_FROM_FIRST_OFFSET"]),
    "consumerProgress of ours": ("-g {ours}", [r"^{topic} +{name} +0 +4 +4 ", r"Diff Total: 0$"]),
    "consumerConnection of ours": ("-g {ours}", [r"^{our_member} ", r"{topic} +paid", r"CLUSTERING"]),
    "consumerStatus": ("-g {group}", [r"{member} +V"]),
    "consumerStatus of ours": ("-g {ours}", [r"{our_member} +V"]),
    "consumerStatus of one": ("-g {group} -i {member}", [r"^PROP_CONSUMEORDERLY +: false", r"^{topic} +{name} +0 +4 "]),
    "consumerStatus of one of ours": (
        "-g {ours} -i {our_member} -s",
        [
            r"^PROP_CONSUMEORDERLY +: false$",
            r"Topic: {topic} +ClassFilter: false +SubExpression: paid$",
            r"^{topic} +{name} +0 +4 ",
            r"#Consumer jstack#",
            r"MainThread TID: ",
        ],
    ),
    "queryMsgById at a member": ("-t {topic} -i {offset_id} -g {group} -d {member}", [r"consumeResult=CR_SUCCESS"]),
    "queryMsgById at a member@4.9.8": ("-i {offset_id} -g {group} -d {member}", [r"consumeResult=CR_SUCCESS"]),
    "queryMsgById at ours": ("-t {topic} -i {offset_id} -g {ours} -d {our_member}", [r"consumeResult=CR_LATER"]),
    "queryMsgById at ours@4.9.8": ("-i {offset_id} -g {ours} -d {our_member}", [r"consumeResult=CR_LATER"]),
    "producerConnection": ("-g interop-producer -t {topic}", [r"@producer-\d+-", r"JAVA"]),
    "queryMsgByKey": ("-t {topic} -k order-5", [r"^{id} "]),
    "queryMsgByUniqueKey": ("-t {topic} -i {id}", [r"Topic: +{topic}$", r"Keys: +\[?order-5", r"Tags: +\[?paid"]),
    "queryMsgById": ("-t {topic} -i {offset_id}", [r"Topic: +{topic}$", r"Keys: +\[?order-5"]),
    "queryMsgById@4.9.8": ("-i {offset_id}", [r"Topic: +{topic}$", r"Keys: +\[?order-5"]),
    "queryMsgByOffset": ("-t {topic} -b {name} -i {queue} -o {offset}", [r"Topic: +{topic}$", r"order-5"]),
    "printMsg": ("-t {topic}", [r"BODY: body 11"]),
    "updateBrokerConfig": ("-b {broker} -k notifyConsumerIdsChangedEnable -v true", [r"update broker config success"]),
    "updateTopic": ("-b {broker} -t {topic}-other -r 2 -w 2", [r"create topic to {broker} success"]),
    "updateTopic in a cluster": ("-c {cluster} -t {topic}-third", [r"create topic to {broker} success"]),
    "updateTopicPerm": ("-b {broker} -t {topic}-other -p 4", [r"update topic perm from 6 to 4"]),
    "updateTopicPerm@4.9.8": ("-b {broker} -t {topic}-other -p 2", [r"update topic perm from [46] to 2"]),
    "updateSubGroup": ("-b {broker} -g {group}-other -r 3", [r"create subscription group to {broker} success"]),
    "deleteSubGroup": ("-b {broker} -g {group}-other", [r"delete subscription group \[{group}-other\]"]),
    "deleteTopic": ("-c {cluster} -t {topic}-third", [r"delete topic \[{topic}-third\] from cluster"]),
    "cleanUnusedTopic": ("-b {broker}", [r"success"]),
    "resetOffsetByTime": ("-g {group} -t {topic} -s -1", [r"{name} +0 "]),
    "updateKvConfig": ("-s space -k key -v value", [r"create or update kv config to namespace success"]),
    "deleteKvConfig": ("-s space -k key", [r"delete kv config from namespace success"]),
    "updateOrderConf": ("-t {topic}-other -m put -v {name}:2", [r"orderConf=\[?{name}:2"]),
    "wipeWritePerm": ("-b {name}", [r"wipe write perm of broker\[{name}\] in name server\[.*\] OK, \d+"]),
    "addWritePerm": ("-b {name}", [r"add write perm of broker\[{name}\] in name server\[.*\] OK, \d+"]),
}  # fmt: skip


@dataclass(frozen=True)
class Town:
    """What the commands look at."""

    cluster: Cluster
    names: dict[str, object]


@pytest.fixture(scope="module")
def town(cluster_name: str, cluster_of: Callable[[str], Cluster], peer_of: Callable[[str], Peer]) -> Iterator[Town]:
    cluster = cluster_of(cluster_name)
    peer = peer_of("java-5.5.0")
    assert isinstance(peer, ProcessPeer)
    wire.create_topic(cluster.namesrv, cluster.broker, TOPIC, queues=3)
    messages = [Outgoing(f"body {i}".encode(), tag="paid", keys=(f"order-{i}",)) for i in range(12)]
    sent = peer.send(cluster.namesrv, TOPIC, messages)[5]
    listener = peer.listen(cluster.namesrv, TOPIC, GROUP)
    listener.wait_for(12)
    ours = rmqpy.PushConsumer(OUR_GROUP, cluster.namesrv, start_from="earliest")
    handled: list[bytes] = []

    @ours.on(TOPIC, "paid")
    def handle(message: rmqpy.ReceivedMessage) -> bool:
        """Takes each message once; what comes again, by hand, it refuses."""
        is_new = message.body not in handled
        handled.append(message.body)
        return is_new

    with ours:
        for group in (GROUP, OUR_GROUP):
            _wait_for_commits(cluster, group)
        yield Town(
            cluster,
            {
                "topic": TOPIC, "group": GROUP, "ours": OUR_GROUP,
                "member": _member(peer, cluster, GROUP), "our_member": _member(peer, cluster, OUR_GROUP),
                "cluster": CLUSTER_NAME, "name": BROKER_NAME, "broker": cluster.broker,
                "id": sent.id, "offset_id": sent.offset_id, "queue": sent.queue_id, "offset": sent.queue_offset,
            },
        )  # fmt: skip
    listener.stop()
    for name in (sent.id, sent.offset_id):
        (BODY_FOLDER / name).unlink(missing_ok=True)


@pytest.mark.parametrize("version", JAVA_CLIENTS)
@pytest.mark.parametrize("command", [command for command in COMMANDS if "@" not in command])
def test_mqadmin_gets_its_answer(command: str, version: str, town: Town, peer_of: Callable[[str], Peer]) -> None:
    arguments, expected = COMMANDS.get(f"{command}@{version}", COMMANDS[command])
    tool = peer_of(f"java-{version}")
    assert isinstance(tool, ProcessPeer)
    if (town.cluster.is_apache, command, version) == (True, "clusterList", "4.9.8"):
        pytest.skip("Apache's 5.5 broker has renamed a figure that this tool reads; ours sends both names")
    typed = [command.split()[0], "-n", town.cluster.namesrv, *arguments.format(**town.names).split()]
    out = tool.mqadmin(*typed)
    for pattern in expected:
        wanted = pattern.format(**{name: re.escape(str(value)) for name, value in town.names.items()})
        assert re.search(wanted, out, re.MULTILINE), f"{' '.join(typed)} does not say {wanted}:\n{out}"


def test_mqadmin_is_told_what_our_broker_does_not_serve(town: Town, peer_of: Callable[[str], Peer]) -> None:
    if town.cluster.is_apache:
        pytest.skip("Apache's broker serves it")
    tool = peer_of("java-5.5.0")
    assert isinstance(tool, ProcessPeer)
    with pytest.raises(RuntimeError, match=r"CODE: 3 .*QUERY_CONSUME_QUEUE is not served by this broker"):
        tool.mqadmin(*f"queryCq -n {town.cluster.namesrv} -b {town.cluster.broker} -t {TOPIC} -q 0 -i 0".split())


def _member(tool: ProcessPeer, cluster: Cluster, group: str) -> str:
    """The client id of the only member."""
    [member] = re.findall(r"^(\S+@\S+) ", tool.mqadmin("consumerConnection", "-n", cluster.namesrv, "-g", group), re.M)
    return str(member)


def _wait_for_commits(cluster: Cluster, group: str) -> None:
    """Clients commit every five seconds."""
    deadline = time.monotonic() + 20
    while sum(wire.committed(cluster.broker, group, TOPIC, queue) for queue in range(3)) < 12:
        assert time.monotonic() < deadline, "the group did not commit"
        time.sleep(0.1)
