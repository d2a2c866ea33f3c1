"""JSON bodies, oversized heartbeats, and values for the name server's table."""

from collections.abc import Iterator

from hostile.cases.case import MIB, Case, heartbeat, request
from rmqpy.protocol.codes import RequestCode as Code
from wire import Frame

#: Invalid JSON, or JSON of another kind; 29 if it is valid with another meaning.
DOCUMENTS = {
    "empty": (1, b""),
    "not UTF-8": (1, b"\xff" * 1000),
    "a number": (29, b"1"),
    "a list": (29, b"[]"),
    "a text": (29, b'"text"'),
    "null": (29, b"null"),
    "lists, 100,000 deep": (1, b"[" * 100_000 + b"]" * 100_000),
    "objects, 100,000 deep": (1, b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "lists, never closed": (1, b"[" * 1_000_000),
    "a text, never closed": (1, b'{"clientID":"' + b"x" * 100_000),
    "a number of a million digits": (1, b'{"a":' + b"9" * 1_000_000 + b"}"),
    "ninety thousand keys": (1, b"{" + b",".join(b'"k%d":1' % n for n in range(90_000)) + b"}"),
    "the same key a hundred thousand times": (1, b"{" + b",".join([b'"k":1'] * 100_000) + b"}"),
    "more than any of them may have": (29, b" " * (4 * MIB + 1)),
    "half a character": (1, b'{"k":"\\ud800'),
    "a bad escape": (1, b'{"k":"\\q"}'),
    "a type to be made": (1, b'{"@type":"java.lang.Runtime","k":1}'),
}
READ_AS_JSON = (
    Code.HEART_BEAT,
    Code.LOCK_BATCH_MQ,
    Code.UNLOCK_BATCH_MQ,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    Code.UPDATE_AND_CREATE_TOPIC_LIST,
    Code.CHECK_CLIENT_CONFIG,
)


#: Sound objects that have nothing a request asks for.
WITHOUT_MEMBERS = {
    "ninety thousand keys",
    "the same key a hundred thousand times",
    "a type to be made",
}


def bodies() -> Iterator[Case]:
    for code in READ_AS_JSON:
        for what, (end, body) in DOCUMENTS.items():
            # Every member of this one may be absent.
            if code == Code.CHECK_CLIENT_CONFIG and what in WITHOUT_MEMBERS:
                end = 0
            yield request(f"{code.name.lower()}: {what}", end, Frame(code, body=body))


def heartbeats() -> Iterator[Case]:
    rows = {
        "ten thousand subscriptions": (29, heartbeat(subscriptions=10_000)),
        "a subscription of 1 MB, one tag": (29, heartbeat(subString="x||" * 330_000)),
        "a subscription of 100,000 tags": (
            29,
            heartbeat(subString="||".join(f"t{n}" for n in range(100_000))),
        ),
        "a tag set of 100,000": (29, heartbeat(tagsSet=[f"t{n}" for n in range(100_000)])),
        "a version beyond 64 bits": (29, heartbeat(subVersion=2**70)),
        "a topic as a list": (29, heartbeat(topic=["a"])),
        "no consumers, a million blanks": (
            0,
            b'{"clientID":"hostile",' + b" " * 1_000_000 + b'"producerDataSet":[]}',
        ),
    }
    for what, (end, body) in rows.items():
        yield request(f"heart_beat: {what}", end, Frame(Code.HEART_BEAT, body=body))


def key_values() -> Iterator[Case]:
    """The name server's table has room for configured values, but not for a flood."""

    def put(what: str, end: int, namespace: str, key: str, value: str) -> Case:
        ext = {"namespace": namespace, "key": key, "value": value}
        return request(f"put_kv_config: {what}", end, Frame(Code.PUT_KV_CONFIG, ext=ext), "namesrv")

    yield put("a path", 0, "../../hostile", "../../hostile", "../../hostile")
    yield put("control bytes", 0, "\0\n", "\x01", "\x02")
    for field in ("namespace", "key", "value"):
        ext = {"namespace": "n", "key": "k", "value": "v"}
        del ext[field]
        yield request(f"put_kv_config: no {field}", 1, Frame(Code.PUT_KV_CONFIG, ext=ext), "namesrv")
