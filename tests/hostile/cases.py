"""Attacks on a whole broker and its name server, as tables.

`BYTES` are the lines of `tests/vectors/hostile.txt`: no frames, or frames nobody could want. `REQUESTS` are well-formed
frames with contents a client may send. Each row says how it must end:

=========  =====================================================================
closed     the connection is closed, nothing was answered
refused    answered with an error, and the connection goes on
served     answered with code 0, and the connection goes on
answered   answered, whatever the code, and the connection goes on
ignored    nothing comes, and the connection goes on
waits      nothing comes, and the server waits for more
=========  =====================================================================
"""

import json
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rmqpy.protocol.codes import RequestCode as Code
from wire import BINARY, ONEWAY, Frame

#: A topic and a group that exist.
TOPIC, GROUP = "hostile-bystander", "hostile-group"
MIB = 1 << 20


@dataclass(frozen=True)
class Case:
    name: str
    end: str
    content: bytes
    #: "broker", "namesrv", or "any" of them.
    target: str = "any"


# ----------------------------------------------------------------------------------------------------------------
# Bytes
# ----------------------------------------------------------------------------------------------------------------


def written() -> Iterator[Case]:
    """The cases of hostile.txt."""
    text = (Path(__file__).parent.parent / "vectors" / "hostile.txt").read_text("ascii")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            end, name, recipe = (column.strip() for column in line.split("|", 2))
            yield Case(name, end, composed(recipe))


def composed(recipe: str) -> bytes:
    """The bytes a recipe stands for; its notation is explained on top of the file."""
    items: list[bytes] = []
    opened: list[tuple[int, int]] = []
    header: int | None = None
    for token in re.findall(r"'[^']*'|\S+", recipe):
        if token.startswith("'"):
            items.append(token[1:-1].encode())
        elif token in ("json(", "bin("):
            opened.append((token == "bin(", len(items)))
            header = None
        elif token == "/":
            header = len(items)
        elif token == ")":
            encoding, start = opened.pop()
            size = len(b"".join(items[start:header]))
            content = b"".join(items[start:])
            items[start:] = [struct.pack(">iI", 4 + len(content), encoding << 24 | size) + content]
        elif token.startswith("x"):
            items[-1] *= int(token[1:])
        else:
            items.append(bytes.fromhex(token))
    return b"".join(items)


# ----------------------------------------------------------------------------------------------------------------
# Requests
# ----------------------------------------------------------------------------------------------------------------


def request(name: str, end: str, frame: Frame, target: str = "broker") -> Case:
    return Case(name, end, frame.pack(), target)


def send(**changes: str) -> dict[str, str]:
    """Fields of a good send (V2); each change makes it a bad one."""
    now = {"a": "producers", "b": TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000"}
    return now | {"h": "0", "i": "", "j": "0", "k": "false", "l": "16", "m": "false"} | changes


def pull(**changes: str) -> dict[str, str]:
    now = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "queueOffset": "0", "maxMsgNums": "32"}
    now |= {"sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "100", "subscription": "*"}
    return now | {"subVersion": "0", "expressionType": "TAG"} | changes


def topic(name: str, **changes: str) -> dict[str, str]:
    now = {"topic": name, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
    return now | {"topicFilterType": "SINGLE_TAG", "order": "false"} | changes


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


#: Names that are no names: what `CVE-2019-17572` and its kin are made of.
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
    "256 letters": "a" * 256,
    "60,000 letters": "a" * 60_000,
}


def names() -> Iterator[Case]:
    """Each bad name wherever a name can stand."""
    for what, name in NAMES.items():
        frames = {
            "send to": Frame(Code.SEND_MESSAGE_V2, ext=send(b=name), body=b"x"),
            "create topic": Frame(Code.UPDATE_AND_CREATE_TOPIC, ext=topic(name)),
            "pull from": Frame(Code.PULL_MESSAGE, ext=pull(topic=name)),
            "commit for": Frame(
                Code.UPDATE_CONSUMER_OFFSET,
                ext={"consumerGroup": GROUP, "topic": name, "queueId": "0", "commitOffset": "1"},
            ),
            "create group": Frame(
                Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=json.dumps({"groupName": name}).encode()
            ),
        }
        for verb, frame in frames.items():
            yield request(f"{verb} {what}", "refused", frame)


def sends() -> Iterator[Case]:
    bad = {
        "no topic": {"b": ""},
        "a queue in words": {"e": "zero"},
        "a queue beyond the last": {"e": "2147483647"},
        "a queue beyond 32 bits": {"e": "99999999999"},
        "a system topic": {"b": "SCHEDULE_TOPIC_XXXX"},
        "properties too long": {"i": "k\x01" + "v" * 40_000 + "\x02"},
        "a delay in words": {"i": "DELAY\x01soon\x02"},
    }
    for what, changes in bad.items():
        yield request(f"send: {what}", "refused", Frame(Code.SEND_MESSAGE_V2, ext=send(**changes), body=b"x"))
    yield request("send: no fields", "refused", Frame(Code.SEND_MESSAGE_V2, body=b"x"))
    yield request("send: V1 with V2 fields", "refused", Frame(Code.SEND_MESSAGE, ext=send(), body=b"x"))
    yield request("send: empty body", "refused", Frame(Code.SEND_MESSAGE_V2, ext=send()))
    large = Frame(Code.SEND_MESSAGE_V2, ext=send(), body=b"x" * (4 * MIB + 1))
    yield request("send: one byte above the largest body", "refused", large)
    odd = {
        "properties without structure": {"i": "\x01\x02\x02\x01\x01"},
        "properties that forge internals": {"i": "REAL_TOPIC\x01../x\x02REAL_QID\x01-1\x02PGROUP\x01x\x02"},
        "all flags": {"f": "2147483647"},
        "negative everything": {"e": "-1", "f": "-1", "g": "-1", "h": "-1", "j": "-1", "l": "-1"},
        "a body that claims to be compressed": {"f": "1"},
        "a million reconsumptions": {"j": "1000000"},
        "many queues by default": {"b": "hostile-many", "d": "2147483647"},
        "a retry topic of nobody": {"b": "%RETRY%nobody-at-all"},
    }
    for what, changes in odd.items():
        yield request(
            f"send: {what}", "answered", Frame(Code.SEND_MESSAGE_V2, ext=send(**changes), body=b"x")
        )


def batches() -> Iterator[Case]:
    inner = struct.pack(">iiiii", 26, 0, 0, 0, 1) + b"x" + struct.pack(">h", 0)
    bad = {
        "garbage": b"garbage",
        "empty": b"",
        "negative length": struct.pack(">i", -1) + inner[4:],
        "greatest length": struct.pack(">i", 0x7FFF_FFFF) + inner[4:],
        "length 0": struct.pack(">i", 0) * 1000,
        "negative body": inner[:16] + struct.pack(">i", -1) + inner[20:],
        "body beyond the batch": inner[:16] + struct.pack(">i", MIB) + inner[20:],
        "negative properties": inner[:-2] + struct.pack(">h", -1),
        "cut short": inner * 3 + inner[:-1],
        "more than any client sends": inner * 40_000,
    }
    for what, body in bad.items():
        frame = Frame(Code.SEND_BATCH_MESSAGE, ext=send(m="true"), body=body)
        yield request(f"batch: {what}", "refused", frame)


def pulls() -> Iterator[Case]:
    bad = {
        "unknown topic": {"topic": "hostile-unknown"},
        "queue beyond the last": {"queueId": "2147483647"},
        "negative queue": {"queueId": "-1"},
        "offset beyond 64 bits": {"queueOffset": "9" * 40},
        "most negative offset": {"queueOffset": "-9223372036854775808"},
        "greatest offset": {"queueOffset": "9223372036854775807"},
        "unknown expression type": {"expressionType": "REGEX", "subscription": "(a+)+$"},
        "SQL nested deeply": {"expressionType": "SQL92", "subscription": "(" * 10_000 + "a=1" + ")" * 10_000},
        "SQL of 200 kB": {"expressionType": "SQL92", "subscription": "a=1 OR " * 30_000 + "a=1"},
    }
    for what, changes in bad.items():
        yield request(f"pull: {what}", "refused", Frame(Code.PULL_MESSAGE, ext=pull(**changes)))
    odd = {
        "unknown group": {"consumerGroup": "nobody-at-all"},
        "all messages there are": {"maxMsgNums": "2147483647"},
        "fewer than no messages": {"maxMsgNums": "-2147483648"},
        "ten thousand tags": {"subscription": "||".join(f"t{n}" for n in range(10_000))},
        "all flags": {"sysFlag": "2147483647", "queueOffset": "0", "commitOffset": "-1"},
    }
    for what, changes in odd.items():
        yield request(f"pull: {what}", "answered", Frame(Code.PULL_MESSAGE, ext=pull(**changes)))
    forever = pull(sysFlag="6", queueOffset="0", queueId="3", suspendTimeoutMillis="9223372036854775807")
    yield request("pull: held for ever", "ignored", Frame(Code.PULL_MESSAGE, ext=forever))


def offsets() -> Iterator[Case]:
    base = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "commitOffset": "0"}
    for what, changes in {
        "beyond 64 bits": {"commitOffset": "9" * 30},
        "in words": {"commitOffset": "all"},
        "unknown topic": {"topic": "hostile-unknown"},
        "negative queue": {"queueId": "-5"},
    }.items():
        frame = Frame(Code.UPDATE_CONSUMER_OFFSET, ext=base | changes)
        yield request(f"commit: {what}", "refused", frame)
    for code in (
        Code.QUERY_CONSUMER_OFFSET,
        Code.UPDATE_CONSUMER_OFFSET,
        Code.PULL_MESSAGE,
        Code.SEARCH_OFFSET_BY_TIMESTAMP,
        Code.GET_MAX_OFFSET,
        Code.QUERY_MESSAGE,
        Code.VIEW_MESSAGE_BY_ID,
        Code.UPDATE_AND_CREATE_TOPIC,
        Code.INVOKE_BROKER_TO_RESET_OFFSET,
        Code.CONSUMER_SEND_MSG_BACK,
    ):
        yield request(f"{code.name.lower()}: no fields at all", "refused", Frame(code))
    for what, offset in {"negative": "-1", "greatest": str(2**63 - 1), "inside a record": "13"}.items():
        frame = Frame(Code.VIEW_MESSAGE_BY_ID, ext={"offset": offset})
        yield request(f"view by id: {what}", "refused", frame)
        back = {"group": GROUP, "offset": offset, "delayLevel": "3", "originTopic": TOPIC}
        yield request(f"send back: {what}", "refused", Frame(Code.CONSUMER_SEND_MSG_BACK, ext=back))
        end = {"producerGroup": "p", "tranStateTableOffset": offset, "commitLogOffset": offset}
        end |= {"commitOrRollback": "8", "fromTransactionCheck": "false", "msgId": "x", "transactionId": "x"}
        oneway = Frame(Code.END_TRANSACTION, ext=end, flag=ONEWAY)
        yield request(f"end of transaction: {what}", "ignored", oneway)
    query = {"topic": TOPIC, "key": "k" * 30_000, "maxNum": "2147483647"}
    query |= {"beginTimestamp": str(2**63 - 1), "endTimestamp": str(-(2**63))}
    yield request("query: everything at once", "answered", Frame(Code.QUERY_MESSAGE, ext=query))


def bodies() -> Iterator[Case]:
    """Bodies that are read as JSON."""
    codes = (Code.HEART_BEAT, Code.LOCK_BATCH_MQ, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
    bad = {
        "empty": b"",
        "not JSON": b"\xff" * 1000,
        "a number": b"1",
        "a list": b"[]",
        "lists, 100,000 deep": b"[" * 100_000 + b"]" * 100_000,
        "objects, 100,000 deep": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        "never closed": b'{"clientID":"' + b"x" * 100_000,
        "a million keys": b"{" + b",".join(b'"k%d":1' % n for n in range(100_000)) + b"}",
    }
    for code in codes:
        for what, body in bad.items():
            yield request(f"{code.name.lower()}: {what}", "refused", Frame(code, body=body))
    for what, body in {
        "ten thousand subscriptions": heartbeat(subscriptions=10_000),
        "a subscription of 1 MB": heartbeat(subString="x||" * 330_000),
    }.items():
        yield request(f"heart_beat: {what}", "answered", Frame(Code.HEART_BEAT, body=body))


def settings() -> Iterator[Case]:
    """Remote configuration must not reach files, commands or addresses: CVE-2023-33246, CVE-2023-37582."""
    broker = {
        "a home with a command": b"rocketmqHome=-c $@|sh . echo touch /hostile;\nfilterServerNums=1\n",
        "the path of its own file": b"brokerConfigPath=/hostile\n",
        "the store's folder": b"storePathRootDir=/hostile\n",
        "the commit log's folder": b"storePathCommitLog=/hostile\n",
        "another port": b"listenPort=1\n",
        "another name server": b"namesrvAddr=127.0.0.1:1\n",
        "a list of what is not allowed": b"configBlackList=\n",
        "an unknown key": b"hostile=1\n",
    }
    for what, body in broker.items():
        yield request(f"broker settings: {what}", "refused", Frame(Code.UPDATE_BROKER_CONFIG, body=body))
    name_server = {
        "the path of its own file": b"configStorePath=/hostile\nkvConfigPath=x\n",
        "the path of its table": b"kvConfigPath=/hostile\n",
        "a home": b"rocketmqHome=/hostile\n",
    }
    for what, body in name_server.items():
        frame = Frame(Code.UPDATE_NAMESRV_CONFIG, body=body)
        yield request(f"name server settings: {what}", "refused", frame, "namesrv")
    for code in (
        Code.REGISTER_FILTER_SERVER,
        Code.REGISTER_MESSAGE_FILTER_CLASS,
        Code.UPDATE_AND_CREATE_ACL_CONFIG,
    ):
        yield request(f"{code.name.lower()}", "refused", Frame(code, body=b"rm -rf /"))


def registrations() -> Iterator[Case]:
    fields = {
        "brokerName": "b",
        "brokerAddr": "127.0.0.1:1",
        "clusterName": "c",
        "haServerAddr": "",
        "brokerId": "0",
    }
    bomb = zlib.compress(b"\0" * (64 * MIB), 9)
    rows = {
        "a bomb": (fields | {"compressed": "true", "bodyCrc32": "0"}, bomb),
        "compressed garbage": (fields | {"compressed": "true", "bodyCrc32": "0"}, b"\x78\x9cgarbage"),
        "a checksum that does not match": (fields | {"bodyCrc32": "12345"}, b"{}"),
        "garbage": (fields | {"bodyCrc32": "0"}, b"\xff" * 100),
        "deep lists": (fields | {"bodyCrc32": "0"}, b"[" * 100_000),
        "no fields": (None, b"{}"),
    }
    for what, (ext, body) in rows.items():
        frame = Frame(Code.REGISTER_BROKER, ext=ext, body=body)
        yield request(f"register a broker: {what}", "refused", frame, "namesrv")
    for code in (Code.GET_ROUTEINFO_BY_TOPIC, Code.GET_KV_CONFIG, Code.GET_TOPICS_BY_CLUSTER):
        yield request(f"{code.name.lower()}: no fields at all", "refused", Frame(code), "namesrv")
    for what, name in NAMES.items():
        frame = Frame(Code.GET_ROUTEINFO_BY_TOPIC, ext={"topic": name})
        yield request(f"route of {what}", "refused", frame, "namesrv")


def in_binary(cases: Iterable[Case]) -> Iterator[Case]:
    """The same once more with the other header."""
    for case in cases:
        frame = Frame.unpack(case.content[4:])
        # Names are at most 32 KiB there, and codes 16 bits.
        if max((len(value) for value in (frame.ext or {}).values()), default=0) < 0x8000:
            frame.encoding, frame.language = BINARY, 0
            yield request(f"{case.name}, binary", case.end, frame, case.target)


BYTES = tuple(written())
REQUESTS = (
    *names(),
    *sends(),
    *batches(),
    *pulls(),
    *offsets(),
    *bodies(),
    *settings(),
    *registrations(),
    *in_binary([*sends(), *pulls(), *offsets()]),
)

#: What the good citizen asks each of them, and is answered.
COURTESY: Mapping[str, Frame] = {
    "broker": Frame(Code.SEND_MESSAGE_V2, ext=send(), body=b"an honest message"),
    "namesrv": Frame(Code.GET_BROKER_CLUSTER_INFO),
}
