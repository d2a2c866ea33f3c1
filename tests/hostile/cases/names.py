"""Invalid names in every field that takes one, as in CVE-2019-17572 and similar attacks."""

import json
from collections.abc import Iterator

from hostile.cases.case import Case, heartbeat, offset, pull, request, reset, send, send_back, topic
from rmqpy.protocol.codes import RequestCode as Code
from wire import Frame

NAMES = {
    "a parent folder": "../../../../hostile",
    "a folder": "a/b",
    "an absolute path": "/hostile",
    "a Windows path": "..\\..\\hostile",
    "a dot": ".",
    "two dots": "..",
    "a NUL": "a\0b",
    "a line feed": "a\nb",
    "a blank": "a b",
    "no ASCII": "täm\u202epic",
    "a shell": "$(touch${IFS}hostile)",
    "a format": "%s%n${jndi:ldap://127.0.0.1/a}",
    "a retry prefix and a path": "%RETRY%../hostile",
    "a separator of properties": "a\x01b\x02",
    "256 letters": "a" * 256,
    "60,000 letters": "a" * 60_000,
}


def text_of(**members: object) -> bytes:
    return json.dumps(members).encode()


def creating(name: str) -> dict[str, Frame]:
    """Requests that would create something of this name: nothing is created, and 29 has the reason."""
    return {
        "send to": Frame(Code.SEND_MESSAGE_V2, ext=send(b=name), body=b"x"),
        "batch to": Frame(Code.SEND_BATCH_MESSAGE, ext=send(b=name, m="true"), body=b"x"),
        "create topic": Frame(Code.UPDATE_AND_CREATE_TOPIC, ext=topic(name)),
        "create topics": Frame(
            Code.UPDATE_AND_CREATE_TOPIC_LIST, body=text_of(topicConfigList=[{"topicName": name}])
        ),
        "create group": Frame(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=text_of(groupName=name)),
        "create groups": Frame(
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=text_of(groupConfigList=[{"groupName": name}])
        ),
    }


def reading(name: str) -> dict[str, tuple[int, Frame]]:
    """Requests that look up this name, which does not exist."""
    return {
        "pull from": (17, Frame(Code.PULL_MESSAGE, ext=pull(topic=name))),
        "pull for the group": (26, Frame(Code.PULL_MESSAGE, ext=pull(consumerGroup=name))),
        "commit for": (17, Frame(Code.UPDATE_CONSUMER_OFFSET, ext=offset(topic=name, commitOffset="1"))),
        "commit for the group": (26, Frame(Code.UPDATE_CONSUMER_OFFSET, ext=offset(consumerGroup=name))),
        "offset of": (22, Frame(Code.QUERY_CONSUMER_OFFSET, ext=offset(topic=name))),
        "send back for the group": (26, Frame(Code.CONSUMER_SEND_MSG_BACK, ext=send_back(group=name))),
        "configuration of": (17, Frame(Code.GET_TOPIC_CONFIG, ext={"topic": name})),
        "statistics of": (17, Frame(Code.GET_TOPIC_STATS_INFO, ext={"topic": name})),
        "reset of": (
            17,
            Frame(
                Code.INVOKE_BROKER_TO_RESET_OFFSET,
                ext=reset(topic=name),
            ),
        ),
        "reset for the group": (
            26,
            Frame(
                Code.INVOKE_BROKER_TO_RESET_OFFSET,
                ext=reset(group=name),
            ),
        ),
    }


def names() -> Iterator[Case]:
    for what, name in NAMES.items():
        for verb, frame in creating(name).items():
            yield request(f"{verb} {what}", 29, frame)
        for verb, (code, frame) in reading(name).items():
            yield request(f"{verb} {what}", code, frame)
        # Deleting a missing name succeeds, as in Apache's broker; it must not delete the file that the name points to.
        for code, field in {
            Code.DELETE_TOPIC_IN_BROKER: "topic",
            Code.DELETE_SUBSCRIPTIONGROUP: "groupName",
        }.items():
            yield request(f"{code.name.lower()}: {what}", 0, Frame(code, ext={field: name}))
        yield request(f"heartbeat of group {what}", "answered", Frame(Code.HEART_BEAT, body=heartbeat(name)))
        yield request(
            f"heartbeat for topic {what}", "answered", Frame(Code.HEART_BEAT, body=heartbeat(topic=name))
        )
        for verb, (expected, frame) in at_name_server(name).items():
            yield request(f"{verb} {what}", expected, frame, "namesrv")


def at_name_server(name: str) -> dict[str, tuple[int, Frame]]:
    return {
        "route of": (17, Frame(Code.GET_ROUTEINFO_BY_TOPIC, ext={"topic": name})),
        "value of": (22, Frame(Code.GET_KV_CONFIG, ext={"namespace": name, "key": name})),
        "members of": (0, Frame(Code.GET_BROKER_MEMBER_GROUP, ext={"clusterName": name, "brokerName": name})),
        "forget topic": (0, Frame(Code.DELETE_TOPIC_IN_NAMESRV, ext={"topic": name})),
    }
