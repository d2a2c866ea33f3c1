"""One attack, and the valid requests from which most attacks are derived."""

import json
from dataclasses import dataclass

from rmqpy.protocol.codes import RequestCode as Code
from wire import Frame

#: A topic of four queues and a group that exist.
TOPIC, GROUP, QUEUES = "hostile-bystander", "hostile-group", 4
#: A topic of one queue that never has messages, and a group only for resets.
QUIET_TOPIC, RESET_GROUP = "hostile-quiet", "hostile-reset"
#: A topic of which no attack speaks.
HONEST_TOPIC = "hostile-citizen"
KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Case:
    name: str
    #: The code it is answered with, or one of the words explained in `hostile.cases`.
    end: int | str
    content: bytes
    #: "broker", "namesrv", or "any" of them.
    target: str = "any"


def request(name: str, end: int | str, frame: Frame, target: str = "broker") -> Case:
    return Case(name, end, frame.pack(), target)


def send(**changes: str) -> dict[str, str]:
    """Fields of a valid send (V2); each change makes it invalid."""
    now = {"a": "producers", "b": TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000"}
    return now | {"h": "0", "i": "", "j": "0", "k": "false", "l": "16", "m": "false"} | changes


def long_send(**changes: str) -> dict[str, str]:
    """The same under the names of the first version."""
    now = {
        "producerGroup": "producers",
        "topic": TOPIC,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
    }
    now |= {"queueId": "0", "sysFlag": "0", "bornTimestamp": "1700000000000", "flag": "0", "properties": ""}
    return now | {"reconsumeTimes": "0", "unitMode": "false", "maxReconsumeTimes": "16"} | changes


def pull(**changes: str) -> dict[str, str]:
    now = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "queueOffset": "0", "maxMsgNums": "32"}
    now |= {"sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "100", "subscription": "*"}
    return now | {"subVersion": "0", "expressionType": "TAG"} | changes


def offset(**changes: str) -> dict[str, str]:
    """Fields of requests about one queue of a group."""
    return {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "commitOffset": "0"} | changes


def reset(**changes: str) -> dict[str, str]:
    return {"topic": TOPIC, "group": RESET_GROUP, "timestamp": "0", "isForce": "true"} | changes


def send_back(**changes: str) -> dict[str, str]:
    now = {"group": GROUP, "offset": "0", "delayLevel": "3", "originTopic": TOPIC, "unitMode": "false"}
    return now | {"originMsgId": "x", "maxReconsumeTimes": "16"} | changes


def topic(name: str, **changes: str) -> dict[str, str]:
    now = {"topic": name, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
    return now | {"topicFilterType": "SINGLE_TAG", "order": "false"} | changes


def registration(**changes: str) -> dict[str, str]:
    """Fields of a broker's registration at a name server."""
    now = {"brokerName": "hostile", "brokerAddr": "127.0.0.1:1", "clusterName": "hostile", "haServerAddr": ""}
    return now | {"brokerId": "0", "bodyCrc32": "0", "compressed": "false"} | changes


def heartbeat(group: str = GROUP, subscriptions: int = 1, **subscription: object) -> bytes:
    row = {
        "topic": TOPIC,
        "subString": "*",
        "expressionType": "TAG",
        "subVersion": 1,
        "codeSet": [],
        "tagsSet": [],
    }
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "unitMode": False,
        "subscriptionDataSet": [row | subscription] * subscriptions,
    }
    return json.dumps({"clientID": "hostile", "consumerDataSet": [consumer], "producerDataSet": []}).encode()


#: The requests of a well-behaved client to each of them.
COURTESY = {
    "broker": Frame(Code.SEND_MESSAGE_V2, ext=send(), body=b"an honest message"),
    "namesrv": Frame(Code.GET_ROUTEINFO_BY_TOPIC, ext={"topic": HONEST_TOPIC}),
}
