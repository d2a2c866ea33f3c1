"""Sends with wrong contents, or odd ones that are allowed."""

from collections.abc import Iterator

from hostile.cases.case import KIB, MIB, Case, request, send, send_back
from rmqpy.protocol.codes import RequestCode as Code
from wire import Frame

SET, END = "\x01", "\x02"


def sends() -> Iterator[Case]:
    fields = {
        "no topic": (29, {"b": ""}),
        "a blank topic": (29, {"b": "   "}),
        "a queue beyond the last": (29, {"e": "4"}),
        "a system topic": (16, {"b": "SCHEDULE_TOPIC_XXXX"}),
        "the topic of half messages": (16, {"b": "RMQ_SYS_TRANS_HALF_TOPIC"}),
        "properties too long": (13, {"i": f"k{SET}{'v' * 40_000}{END}"}),
        "one property of 32 KiB and many": (13, {"i": f"k{SET}{'v' * 100}{END}" * 400}),
        "a delay in words": (13, {"i": f"DELAY{SET}soon{END}"}),
        "a delay beyond 32 bits": (13, {"i": f"DELAY{SET}99999999999{END}"}),
        "a delay level nobody has": (0, {"i": f"DELAY{SET}2147483647{END}"}),
        "a delay level below none": (0, {"i": f"DELAY{SET}-2147483648{END}"}),
        "a time that has been": (0, {"i": f"TIMER_DELIVER_MS{SET}1{END}"}),
        "a time that is none": (13, {"i": f"TIMER_DELIVER_MS{SET}soon{END}"}),
        "a wait of centuries": (13, {"i": f"TIMER_DELAY_SEC{SET}9223372036854775807{END}"}),
        "a transaction": (13, {"f": "4"}),
        "properties without structure": (0, {"i": "\x01\x02\x02\x01\x01"}),
        "properties that forge internals": (
            0,
            {"i": "REAL_TOPIC\x01../x\x02REAL_QID\x01-1\x02PGROUP\x01x\x02"},
        ),
        "properties with a NUL": (13, {"i": f"k{SET}a\0b{END}"}),
        "ten thousand keys": (0, {"i": f"KEYS{SET}{'k ' * 10_000}{END}"}),
        "negative everything": (13, {"e": "-1", "f": "-1", "g": "-1", "h": "-1", "j": "-1", "l": "-1"}),
        "a body that claims to be compressed": (0, {"f": "1"}),
        "a million deliveries behind it": (0, {"j": "1000000"}),
        "many queues by default": (0, {"b": "hostile-many", "d": "2147483647"}),
        "fewer queues than none by default": (0, {"b": "hostile-few", "d": "-2147483648"}),
        "a retry topic of nobody": (0, {"b": "%RETRY%nobody-at-all"}),
        "a template that is no topic": (17, {"b": "hostile-template", "c": "../../etc"}),
    }
    for what, (end, changes) in fields.items():
        yield request(f"send: {what}", end, Frame(Code.SEND_MESSAGE_V2, ext=send(**changes), body=b"x"))
    frames = {
        "no fields": (1, Frame(Code.SEND_MESSAGE_V2, body=b"x")),
        "V1 with V2 fields": (1, Frame(Code.SEND_MESSAGE, ext=send(), body=b"x")),
        "empty body": (13, Frame(Code.SEND_MESSAGE_V2, ext=send())),
        "one byte above the largest body": (
            13,
            Frame(Code.SEND_MESSAGE_V2, ext=send(), body=b"x" * (4 * MIB + 1)),
        ),
        "a body of 15 MiB": (13, Frame(Code.SEND_MESSAGE_V2, ext=send(), body=b"x" * (15 * MIB))),
        "fields of 100 KiB nobody knows": (
            0,
            Frame(
                Code.SEND_MESSAGE_V2,
                ext=send(zz="z" * 30 * KIB, zy="z" * 30 * KIB, zx="z" * 30 * KIB),
                body=b"x",
            ),
        ),
        "a version from the future": (0, Frame(Code.SEND_MESSAGE_V2, ext=send(), body=b"x", version=32_767)),
        "a version before the first": (
            0,
            Frame(Code.SEND_MESSAGE_V2, ext=send(), body=b"x", version=-32_768),
        ),
    }
    for what, (end, frame) in frames.items():
        yield request(f"send: {what}", end, frame)
    for what, position in {
        "negative": "-1",
        "lowest": str(-(2**63)),
        "greatest": str(2**63 - 1),
        "inside a record": "13",
    }.items():
        frame = Frame(Code.CONSUMER_SEND_MSG_BACK, ext=send_back(offset=position))
        yield request(f"send back: {what}", 1, frame)
