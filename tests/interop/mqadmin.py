"""Apache's command line tool, command by command: the arguments, and the required output.

Owns the list of its commands. Each runs against an *environment*: a topic of three queues with twelve messages, and
two groups that consumed them and are still connected, one with a member of Java's, the other with one of ours; names
in braces stand for these. Commands of one phase run concurrently, so a command that needs another's effect belongs
to a later phase.
"""

import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import rmqpy
from waiting import until

from . import wire
from .clients import MQADMIN_SECONDS_MAX, Printed, ProcessClient
from .messages import MessageSpec
from .servers import BROKER_NAME, CLUSTER_NAME, Cluster

TOPIC = "mqadmin-topic"
GROUP = "mqadmin-group"
OUR_GROUP = "mqadmin-ours"

_CONSUMERS = 203

BODY_FOLDER = Path(tempfile.gettempdir(), "rocketmq", "msgbodys")
"""Where queryMsgById leaves the body of each message it has shown."""


@dataclass(frozen=True)
class Command:
    """One command line and what it has to print, as patterns for single lines."""

    arguments: str
    expected: tuple[str, ...]


def _works(arguments: str, *expected: str) -> Command:
    return Command(arguments, expected)


PHASES: tuple[dict[str, Command], ...] = (
    {
        "clusterList": _works("", r"{cluster} +{name} +0 +{broker}"),
        "clusterList -m": _works("-m", r"{cluster} +{name} +\d+ +\d+ +\d+ +\d+"),
        "topicList": _works("", r"^{topic}$", r"^%RETRY%{group}$"),
        "topicList -c": _works("-c", r"{cluster} +{topic}"),
        "topicRoute": _works("-t {topic}", r'"brokerName": ?"{name}"', r'"readQueueNums": ?3', r"{broker}"),
        "topicRoute -l": _works("-t {topic} -l", r"{name} +.*{broker}}} +3 +3 +6"),
        "topicStatus": _works("-t {topic}", *(rf"{{name}} +{queue} +0 +4 " for queue in range(3))),
        "topicClusterList": _works("-t {topic}", r"^{cluster}$"),
        "allocateMQ": _works("-t {topic} -i 10.0.0.1,10.0.0.2", r'"10\.0\.0\.2":\[.*{topic}'),
        "brokerStatus": _works(
            "-b {broker}", r"^bootTimestamp +: +\d+$", r"^putTps +: ", r"^msgPutTotalTodayNow +: +\d+$"
        ),
        "haStatus": _works("-b {broker}", r"^#MasterAddr\s+{broker}$", r"^#SlaveNum\s+0$"),
        "getBrokerEpoch": _works("-b {name}", r"(?i)brokerName\W+{name}", r"(?i)epoch\D*16\b"),
        "brokerConsumeStats": _works("-b {broker}", r"^{topic} +{group} +{name} +0 +4 +4 +0 "),
        "getBrokerConfig": _works("-b {broker}", r"^brokerName +[= ]+ +{name}$"),
        "getNamesrvConfig": _works("", r"^listenPort +[= ]+ +\d+$"),
        "getConsumerConfig": _works("-g {group}", r"retryQueueNums +[= ]+ +1$"),
        "consumerProgress": _works("-g {group}", r"^{topic} +{name} +0 +4 +4 ", r"Diff Total: 0$"),
        "consumerProgress -s": _works("-g {group} -s true", r"^{topic} +{name} +0 +4 +4 "),
        "consumerProgress of all": _works("", r"^{group} "),
        "consumerConnection": _works(
            "-g {group}", r"@{group}-", r"{topic} +\*", r"CLUSTERING", r"CONSUME_FROM_FIRST_OFFSET"
        ),
        "consumerConnection -b": _works("-g {group} -b {broker}", r"@{group}-"),
        "consumerProgress of ours": _works("-g {ours}", r"^{topic} +{name} +0 +4 +4 ", r"Diff Total: 0$"),
        "consumerConnection of ours": _works("-g {ours}", r"^{our_client} ", r"{topic} +paid", r"CLUSTERING"),
        "producerConnection": _works("-g interop-producer -t {topic}", r"@producer-\d+-", r"JAVA"),
        "producer": _works("-b {broker}", r"\(interop-producer\) instance : clientId=.*language=JAVA"),
        "statsAll": _works("-t {topic}", r"^{topic} +{group} +0 +\d+\.\d\d +\d+\.\d\d +12 +12$"),
        "queryMsgByKey": _works("-t {topic} -k order-5", r"^{id} "),
        "queryMsgByUniqueKey": _works(
            "-t {topic} -i {id}", r"Topic: +{topic}$", r"Keys: +\[?order-5", r"Tags: +\[?paid"
        ),
        "queryMsgById": _works("-t {topic} -i {offset_id}", r"Topic: +{topic}$", r"Keys: +\[?order-5"),
        "queryMsgById@4.9.8": _works("-i {offset_id}", r"Topic: +{topic}$", r"Keys: +\[?order-5"),
        "queryMsgByOffset": _works("-t {topic} -b {name} -i {queue} -o {offset}", r"Topic: +{topic}$", r"order-5"),
        "queryCq": _works(
            "-t {topic} -q 0 -i 1 -c 2 -b {broker}", r"^max: 4, min: 0$", r"^idx: 2$", r"tagsCode=3433164,"
        ),
        "queryCq -g": _works("-t {topic} -q 0 -i 0 -c 1 -b {broker} -g {group}", r'"topic":"{topic}"'),
        "printMsg": _works("-t {topic}", r"BODY: body 11"),
        "printMsgByQueue": _works("-t {topic} -a {name} -i {queue} -p true -d true", r"BODY: body 5"),
        "consumeMessage": _works("-t {topic} -b {name} -i {queue} -o {offset} -c 1", r"BODY: body 5"),
        "exportMetadata -t": _works("-c {cluster} -f {folder} -t", r"export {folder}/topic.json success"),
        "exportMetadata": _works("-c {cluster} -f {folder}", r"export {folder}/metadata.json success"),
        "exportConfigs": _works("-c {cluster} -f {folder}", r"export {folder}/configs.json success"),
        "exportMetrics": _works("-c {cluster} -f {folder}", r"export {folder}/metrics.json success"),
    },
    {
        "updateStaticTopic": _works("-b {name} -t {topic}-static -qn 2", r"written to file"),
        "updateTopic": _works("-b {broker} -t {topic}-other -r 2 -w 2", r"create topic to {broker} success"),
        "updateTopic -c": _works("-c {cluster} -t {topic}-third", r"create topic to {broker} success"),
        "updateTopic -o": _works(
            "-b {broker} -t {topic}-order -r 2 -w 2 -o true", r"create topic to {broker} success"
        ),
        "updateTopicList": _works("-b {broker} -f {folder}/topics.json", r"submit batch of topic config to {broker}"),
        "updateSubGroup": _works("-b {broker} -g {group}-other -r 3", r"create subscription group to {broker} success"),
        "updateSubGroup -c": _works("-c {cluster} -g {group}-clone", r"create subscription group to {broker} success"),
        "updateSubGroupList": _works("-b {broker} -f {folder}/groups.json", r"to {broker}"),
        "setConsumeMode": _works(
            "-b {broker} -t {topic} -g {group} -m PULL -q 2",
            r"^set consume mode to {broker} success\.$",
            r"^topic\[{topic}\] group\[{group}\] consume mode\[PULL\] popShareQueueNum\[2\]",
        ),
        "exportPopRecord": _works("-b {broker}", r"^Export broker records, brokerName={name}, brokerAddr={broker}, "),
        "updateBrokerConfig": _works(
            "-b {broker} -k notifyConsumerIdsChangedEnable -v true", r"update broker config success"
        ),
        "updateBrokerConfig -c": _works(
            "-c {cluster} -k notifyConsumerIdsChangedEnable -v true", r"update broker config success"
        ),
        "updateNamesrvConfig": _works("-k waitSecondsForService -v 45", r"update name server config success"),
        "updateKvConfig": _works("-s space -k key -v value", r"create or update kv config to namespace success"),
        "updateOrderConf": _works("-t {topic}-other -m put -v {name}:2", r"orderConf=\[?{name}:2"),
        "sendMessage": _works("-t {topic}-sent -p hello -k key-1 -c paid -b {name} -i 0", r"SEND_OK"),
        "sendMessage -m": _works("-t {topic}-sent -p hello -m true", r"SEND_OK"),
        "sendMsgStatus": _works("-b {name} -c 2", r"sendStatus=SEND_OK"),
        "checkMsgSendRT": _works("-t {topic}-sent -a 3 -s 64", r"^{name} +0 +true +\d+$", r"Avg RT: "),
        "queryMsgById -s": _works("-t {topic}-sent -i {resent_id} -s true", r"SEND_OK"),
        "queryMsgById -s@4.9.8": _works("-i {resent_id} -s true", r"SEND_OK"),
    },
    {
        "remappingStaticTopic": _works("-b {name} -t {topic}-static", r"written to file"),
        # A tool waits 3 s for what members say of themselves, too little beside forty other commands.
        "consumerStatus of ours": _works("-g {ours}", r"{our_client} +V"),
        "consumerStatus -i of ours": _works(
            "-g {ours} -i {our_client} -s",
            r"^PROP_CONSUMEORDERLY +: false$",
            r"Topic: {topic} +ClassFilter: false +SubExpression: paid$",
            r"^{topic} +{name} +0 +4 ",
            r"#Consumer jstack#",
            r"MainThread TID: ",
        ),
        "consumerStatus": _works("-g {group}", r"^1 +{client} ", r"^Rebalance OK$"),
        "consumerStatus -i": _works("-g {group} -i {client} -s", r"{topic} +{name} +0 ", r"TID: \d+ STATE: "),
        "queryMsgByUniqueKey -d": _works("-t {topic} -i {id} -g {group} -d {client}", r"consumeResult=CR_SUCCESS"),
        "updateTopicPerm": _works("-b {broker} -t {topic}-other -p 4", r"update topic perm from 6 to 4"),
        "updateTopicPerm@4.9.8": _works("-b {broker} -t {topic}-other -p 2", r"update topic perm from [46] to 2"),
        "updateOrderConf get": _works("-t {topic}-other -m get", r"orderConf=\[?{name}:2"),
        "cloneGroupOffset": _works("-s {group} -d {group}-clone -t {topic}", r"clone group offset success"),
        "queryMsgTraceById": _works("-i {traced}", r"^Pub +"),
        "statsAll -a": _works("-a", r"^{topic}-sent +\d+ +\d+\.\d\d +\d+ +NO_CONSUMER$"),
    },
    {
        "queryMsgById -d": _works("-t {topic} -i {offset_id} -g {group} -d {client}", r"consumeResult=CR_SUCCESS"),
        "queryMsgById -d@4.9.8": _works("-i {offset_id} -g {group} -d {client}", r"consumeResult=CR_SUCCESS"),
        "queryMsgById -d of ours": _works("-t {topic} -i {offset_id} -g {ours} -d {our_client}", r"=CR_LATER"),
        "queryMsgById -d of ours@4.9.8": _works("-i {offset_id} -g {ours} -d {our_client}", r"=CR_LATER"),
        "resetOffsetByTime": _works("-g {group} -t {topic} -s -1", r"{name} +0 "),
        "resetOffsetByTime -q": _works(
            "-g {group}-clone -t {topic} -s now -b {broker} -q 0 -o 2", r"^reset consumer offset to 2$"
        ),
        "skipAccumulatedMessage": _works("-g {group} -t {topic}", r"{name} +0 +4"),
        "deleteSubGroup": _works("-b {broker} -g {group}-other", r"delete subscription group \[{group}-other\]"),
        "deleteTopic": _works("-c {cluster} -t {topic}-third", r"delete topic \[{topic}-third\] from cluster"),
        "deleteKvConfig": _works("-s space -k key", r"delete kv config from namespace success"),
        "updateOrderConf delete": _works("-t {topic}-other -m delete", r"delete orderConf success"),
        "cleanExpiredCQ": _works("-b {broker}", r"^success$"),
        "deleteExpiredCommitLog": _works("-b {broker}", r"^success$"),
        "cleanUnusedTopic": _works("-b {broker}", r"^success$"),
        "cleanUnusedTopic -c": _works("-c {cluster}", r"^success$"),
    },
    {"wipeWritePerm": _works("-b {name}", r"wipe write perm of broker\[{name}\] in name server\[.*\] OK, \d+")},
    {"addWritePerm": _works("-b {name}", r"add write perm of broker\[{name}\] in name server\[.*\] OK, \d+")},
)  # fmt: skip

ONLY_5_X = frozenset(
    {
        "updateTopicList",
        "updateSubGroupList",
        "resetOffsetByTime -q",
        "exportConfigs",
        "haStatus",
        "getBrokerEpoch",
        "setConsumeMode",
        "exportPopRecord",
        "updateStaticTopic",
        "remappingStaticTopic",
    }
)
"""Commands that the tool of 4.9.8 lacks, and `exportPopRecord`, which needs a setting that 5.x brokers do not have."""

TRACED = ("sendMessage -m", r"\b[0-9A-F]{32,}\b")
"""Where the id of a message with a trace is printed, and what it looks like."""

TRACE_SENDS_MAX = 3
"""Java's producer gives its trace half a second as it shuts down: a busy machine has not sent it by then."""

GAVE_UP = (
    r"Remoting(Connect|Timeout)Exception|the client disconnected before it answered"
    r"|the consumer group\[{group}\] not online|no consumer for this group, {group}$"
)
"""What the tool says when its own three seconds are over, too few for a dozen clients on a busy machine; and what the
broker says when a member has closed its connection, as Java's clients do when an answer is late: until it is heard of
again, half a minute later at most, nobody is in its group."""

HEARTBEAT_SECONDS = 30.0
"""Time between two heartbeats of a member of Java's."""

REFUSED: dict[str, Command] = {
    "queryCq of no queue": Command("-t {topic} -q 9 -i 0 -c 1 -b {broker}", (r"CODE: 1 .* 9@{topic} is not exist",)),
    "updateBrokerConfig of a key in the block list": Command("-b {broker} -k brokerConfigPath -v x", (r"CODE: 16 ",)),
    "updateNamesrvConfig of a key in the block list": Command("-k kvConfigPath -v x", (r"CODE: 16 ",)),
    "cloneGroupOffset to no group": Command("-s {group} -d nobody -t {topic}", (r"CODE: 26 ",)),
}  # fmt: skip
"""What both brokers refuse, with the same code."""

_COLD = "cold data is not limited"
_CONTROLLER = "a controller serves it, on its own port"
_REPLICATION = "only the master itself reports the end of its log to a slave"

NOT_SERVED: dict[str, tuple[str, str]] = {
    "rocksDBConfigToJson": ("-c {cluster}", "queues and metadata are files"),
    "resetMasterFlushOffset": ("-b {broker} -o 0", _REPLICATION),
    "switchTimerEngine": ("-b {broker} -e F", "timed messages wait in the file wheel alone"),
    "checkRocksdbCqWriteProgress": ("-c {cluster} -t {topic}", "queues and metadata are files"),
    "addBroker": ("-c {broker} -b broker.conf", "not a container of brokers"),
    "removeBroker": ("-c {broker} -b {cluster}:{name}:1", "not a container of brokers"),
    "getColdDataFlowCtrInfo": ("-b {broker}", _COLD),
    "updateColdDataFlowCtrGroupConfig": ("-b {broker} -g {group} -v 1", _COLD),
    "removeColdDataFlowCtrGroupConfig": ("-b {broker} -g {group}", _COLD),
    "setCommitLogReadAheadMode": ("-b {broker} -m 0", _COLD),
    "getSyncStateSet": ("-a {namesrv} -b {name}", _CONTROLLER),
    "getControllerMetaData": ("-a {namesrv}", _CONTROLLER),
    "getControllerConfig": ("-a {namesrv}", _CONTROLLER),
    "updateControllerConfig": ("-a {namesrv} -k k -v v", _CONTROLLER),
    "electMaster": ("-a {namesrv} -b 0 -bn {name} -c {cluster}", _CONTROLLER),
    "cleanBrokerMetadata": ("-a {namesrv} -bn {name} -c {cluster}", _CONTROLLER),
}  # fmt: skip
"""What our broker says it does not serve yet, and why."""

LITE: dict[str, Command] = {
    "getBrokerLiteInfo": Command("-b {broker} -d", (r"^{broker} .* [1-9]\d* +[1-9]\d* ", r"Topic Meta: .*{topic}")),
    "getParentTopicInfo": Command("-p {topic}", (r"^{name} +-1 +[1-9]\d* +[1-9]\d* .*{group}",)),
    "getLiteTopicInfo": Command("-p {topic} -l {lite_topic}", (r"^{name} +0 +3 +\d.* 1 *$",)),
    "getLiteClientInfo": Command(
        "-p {topic} -g {group} -c {client} -s", (r"^{name} +1 ", r"Lite Topics: .*{lite_topic}")
    ),
    "getLiteGroupInfo": Command(
        "-p {topic} -g {group} -l {lite_topic}", (r"^{name} +3 +3 +0 ", r"Total Lag Count: 0$")
    ),
    "triggerLiteDispatch": Command("-p {topic} -g {group}", (r"^{name} +dispatched",)),
}  # fmt: skip
"""The commands for lite topics, of which one has a subscriber that has acknowledged all of its three messages."""

_ENTRY = r"User:alice +Custom +Topic:orders +\[?Sub\]? +.*127\.0\.0\.1.* +Deny"
ACCESS: dict[str, Command] = {
    "createUser": Command("-b {broker} -u alice -p alice-secret -t Normal", (r"create user to {broker} success",)),
    "updateUser": Command("-b {broker} -u alice -s disable", (r"update user to {broker} success",)),
    "getUser": Command("-b {broker} -u alice", (r"alice .*Normal +disable",)),
    "listUser": Command("-b {broker}", (r"alice .*Normal +disable", r"root .*Super +enable")),
    "copyUser": Command("-f {broker} -t {broker} -u alice", (r"copy user of alice from {broker} to {broker} success",)),
    "createAcl": Command(
        "-b {broker} -s User:alice -r Topic:orders -a Pub -i 127.0.0.1 -d Allow", (r"create acl to {broker} success",)
    ),
    "updateAcl": Command(
        "-b {broker} -s User:alice -r Topic:orders -a Sub -i 127.0.0.1 -d Deny", (r"update acl to {broker} success",)
    ),
    "getAcl": Command("-b {broker} -s User:alice", (_ENTRY,)),
    "listAcl": Command("-b {broker}", (_ENTRY,)),
    "copyAcl": Command(
        "-f {broker} -t {broker} -s User:alice", (r"copy acl of User:alice from {broker} to {broker} success",)
    ),
    "deleteAcl": Command("-b {broker} -s User:alice -r Topic:orders", (r"delete acl to {broker} success",)),
    "deleteUser": Command("-b {broker} -u alice", (r"delete user to {broker} success",)),
}  # fmt: skip
"""The commands for users and their policies, one after the other: `test_access.py` runs them against access control."""

LOCAL: dict[str, Command] = {
    "dumpCompactionLog": Command("-f {folder}/none", (r"file {folder}/none not exist",)),
    "exportMetadataInRocksDB": Command("-p {folder}/none -t topics", (r"RocksDB path is invalid",)),
}
"""Commands that read files of a Java broker where they run, and ask no server."""

ENDLESS: dict[str, Command] = {
    "clusterRT": Command("-c {cluster} -a 2 -i 1", (r"^{cluster} +{name} +\d",)),
    "startMonitoring": Command("", ()),
}
"""Commands that go on until they are ended."""


def command_of(label: str) -> str:
    """The sub-command that a label stands for."""
    return label.partition("@")[0].split()[0]


@dataclass(frozen=True)
class AdminEnvironment:
    """Cluster that the commands look at, and the tool that asks."""

    cluster: Cluster
    tool: ProcessClient
    names: Mapping[str, object]

    def typed(self, label: str, arguments: str) -> list[str]:
        """The words of a command line."""
        return [command_of(label), "-n", self.cluster.namesrv, *arguments.format(**self.names).split()]

    def run(self, commands: Mapping[str, str], seconds: float = MQADMIN_SECONDS_MAX) -> dict[str, Printed]:
        """Run command lines, by label, at once; one that ended too soon is run once more, by itself."""
        lines = {label: self.typed(label, arguments) for label, arguments in commands.items()}
        printed = dict(zip(lines, self.tool.mqadmin_all([*lines.values()], seconds), strict=True))
        gave_up = GAVE_UP.format(group=re.escape(GROUP))
        for label, first in printed.items():
            if re.search(gave_up, first.err, re.MULTILINE):
                self._wait_for_members()
                [printed[label]] = self.tool.mqadmin_all([lines[label]], seconds)
        return printed

    def _wait_for_members(self) -> None:
        until(
            lambda: all(_members(self.cluster, group) for group in (GROUP, OUR_GROUP)), HEARTBEAT_SECONDS * 2
        )

    def missing(self, printed: Printed, expected: Sequence[str]) -> list[str]:
        """The patterns that nothing printed fits."""
        quoted = {name: re.escape(str(value)) for name, value in self.names.items()}
        text = printed.out + printed.err
        wanted = [pattern.format(**quoted) for pattern in expected]
        return [pattern for pattern in wanted if not re.search(pattern, text, re.MULTILINE)]


def run_phases(environment: AdminEnvironment, version: str) -> tuple[dict[str, Command], dict[str, Printed]]:
    """Run everything that works, phase by phase: the commands of this version of the tool, and what they printed."""
    commands: dict[str, Command] = {}
    printed: dict[str, Printed] = {}
    for phase in PHASES:
        typed = {
            label: phase.get(f"{label}@{version}", command)
            for label, command in phase.items()
            if "@" not in label and not (version.startswith("4.") and label in ONLY_5_X)
        }
        if any("{traced}" in command.arguments for command in typed.values()):
            environment = AdminEnvironment(
                environment.cluster,
                environment.tool,
                {**environment.names, "traced": _traced(environment, printed)},
            )
        commands |= typed
        printed |= environment.run({label: command.arguments for label, command in typed.items()})
    return commands, printed


@contextmanager
def built(cluster: Cluster, client: ProcessClient, folder: Path) -> Iterator[AdminEnvironment]:
    """The environment; `client` has the producer and the group, and the tool."""
    wire.create_topic(cluster.namesrv, cluster.broker, TOPIC, queues=3)
    wire.create_topic(cluster.namesrv, cluster.broker, f"{TOPIC}-sent", queues=1)
    messages = [MessageSpec(f"body {i}".encode(), tag="paid", keys=(f"order-{i}",)) for i in range(12)]
    with rmqpy.Producer(cluster.namesrv, trace=True) as producer:
        # The first trace makes its topic, which takes longer than the tool's producer lives.
        traced = producer.send(f"{TOPIC}-traced", b"traced")
    assert _is_traced(cluster, traced.message_id)
    sent = client.send(cluster.namesrv, TOPIC, messages)[5]
    resent = client.send(cluster.namesrv, f"{TOPIC}-sent", messages[:1])[0]
    listener = client.listen(cluster.namesrv, TOPIC, GROUP)
    listener.wait_for(12)
    topics = [
        {"topicName": f"{TOPIC}-list-{i}", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
        for i in range(2)
    ]
    (folder / "topics.json").write_text(json.dumps(topics))
    (folder / "groups.json").write_text(json.dumps([{"groupName": f"{GROUP}-list-{i}"} for i in range(2)]))
    names = {
        "topic": TOPIC, "group": GROUP, "cluster": CLUSTER_NAME, "name": BROKER_NAME, "broker": cluster.broker,
        "namesrv": cluster.namesrv, "ours": OUR_GROUP, "folder": folder,
        "id": sent.id, "offset_id": sent.offset_id, "queue": sent.queue_id, "offset": sent.queue_offset,
        "resent_id": resent.offset_id,
    }  # fmt: skip
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
        members = {"client": _member(cluster, GROUP), "our_client": _member(cluster, OUR_GROUP)}
        yield AdminEnvironment(cluster, client, names | members)
    listener.stop()
    for name in (sent.id, sent.offset_id):
        (BODY_FOLDER / name).unlink(missing_ok=True)


def of_lite_topics(
    cluster: Cluster, tool: ProcessClient, topic: str, group: str, lite_topic: str
) -> AdminEnvironment:
    """The environment of `LITE`, where the group has one member."""
    names = {
        "topic": topic, "group": group, "name": BROKER_NAME, "broker": cluster.broker,
        "client": _member(cluster, group), "lite_topic": lite_topic,
    }  # fmt: skip
    return AdminEnvironment(cluster, tool, names)


def _member(cluster: Cluster, group: str) -> str:
    """The client id of the only member."""
    [member] = _members(cluster, group)
    return member


def _members(cluster: Cluster, group: str) -> list[str]:
    """The client ids of those that the broker knows; none where it says that the group is not online."""
    try:
        body = wire.request(cluster.broker, _CONSUMERS, {"consumerGroup": group})[1]
    except wire.Refused:
        return []
    return [str(member["clientId"]) for member in json.loads(body)["connectionSet"]]


def _traced(environment: AdminEnvironment, printed: Mapping[str, Printed]) -> str:
    """The id of a message whose trace has arrived: the one that a command sent, or else one that is sent anew."""
    label, pattern = TRACED
    text = printed[label].out
    for _ in range(TRACE_SENDS_MAX):
        found = re.search(pattern, text)
        assert found, f"{label} does not say what it sent: {text}"
        if _is_traced(environment.cluster, found[0]):
            return found[0]
        text = environment.run({label: PHASES[1][label].arguments})[label].out
    raise AssertionError(f"the traces of {TRACE_SENDS_MAX} messages did not arrive")


def _is_traced(cluster: Cluster, message_id: str) -> bool:
    """Producers send what they trace behind the message, on a thread of their own."""
    with suppress(AssertionError):
        return bool(until(lambda: wire.query(cluster.broker, "RMQ_SYS_TRACE_TOPIC", message_id), 10))
    return False


def _wait_for_commits(cluster: Cluster, group: str) -> None:
    """Clients commit every five seconds."""
    until(lambda: sum(wire.committed(cluster.broker, group, TOPIC, queue) for queue in range(3)) >= 12)
