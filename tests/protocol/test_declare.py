"""Declarations: one class, both directions."""

from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Any

import pytest

from rmqpy.errors import DecodeError
from rmqpy.protocol.codes import RequestCode, ResponseCode
from rmqpy.protocol.declare import (
    EncodedRequest,
    Request,
    decode,
    decode_reply,
    encode,
    off_wire,
    record,
    reply,
    request,
    wire,
)


class Model(Enum):
    BROADCASTING = 0
    CLUSTERING = 1


@record
class Queue:
    broker_name: str
    queue_id: int
    topic: str


@record
class Entry:
    at: int = 0
    names: list[str] = field(default_factory=list)
    nested: "Entry | None" = None
    is_on: bool = wire("on", default=False)


@reply
class Offsets:
    body: dict[Queue, int]
    is_strict: bool = off_wire(default=False)


@request(RequestCode.GET_CONSUME_STATS)
class Ask(Request[Offsets]):
    client_id: str = wire("clientID")
    queue_id: int = 7
    model: Model | None = None
    lo: bool | None = None


@request(RequestCode.HEART_BEAT)
class WithBody(Request[None]):
    body: Entry


@request(RequestCode.UPDATE_BROKER_CONFIG)
class WithText(Request[None]):
    body: str


def test_a_request_becomes_text_fields_in_wire_names() -> None:
    ask = Ask(client_id="c", model=Model.CLUSTERING, lo=False)
    expected = {"clientID": "c", "lo": "false", "model": "CLUSTERING", "queueId": "7"}
    assert encode(ask) == EncodedRequest(expected, None)
    assert decode(Ask, expected, None) == ask


@pytest.mark.parametrize(
    ("ext", "expected"),
    [
        ({"clientID": "c", "unknown": "x"}, Ask(client_id="c")),
        ({"clientid": "c", "QUEUEID": "1"}, Ask(client_id="c", queue_id=1)),
        ({"clientID": ""}, Ask(client_id="")),
        ({"clientID": "c", "queueId": "", "lo": ""}, Ask(client_id="c")),
        ({"clientID": "c", "queueId": " -5 "}, Ask(client_id="c", queue_id=-5)),
        ({"clientID": "c", "model": "clustering"}, Ask(client_id="c", model=Model.CLUSTERING)),
        ({"clientID": "c", "model": "0"}, Ask(client_id="c", model=Model.BROADCASTING)),
        ({"clientID": "c", "lo": "TRUE"}, Ask(client_id="c", lo=True)),
        ({"clientID": "c", "lo": "0"}, Ask(client_id="c", lo=False)),
    ],
)
def test_t25_t42_header_fields_are_read_as_leniently_as_java_reads_them(
    ext: Mapping[str, str], expected: Ask
) -> None:
    assert decode(Ask, ext, None) == expected


@pytest.mark.parametrize(
    ("ext", "code", "text"),
    [
        ({}, ResponseCode.SYSTEM_ERROR, "the custom field <clientID> is null"),
        (
            {"clientID": "c", "queueId": "x"},
            ResponseCode.INVALID_PARAMETER,
            "queueId must be an integer, not 'x'",
        ),
        ({"clientID": "c", "queueId": "1_0"}, ResponseCode.INVALID_PARAMETER, "queueId must be an integer"),
        ({"clientID": "c", "queueId": "٣"}, ResponseCode.INVALID_PARAMETER, "queueId must be an integer"),
        ({"clientID": "c", "queueId": str(1 << 63)}, ResponseCode.INVALID_PARAMETER, "of 64 bits"),
        ({"clientID": "c", "lo": "maybe"}, ResponseCode.INVALID_PARAMETER, "lo must be true or false"),
        ({"clientID": "c", "model": "2"}, ResponseCode.INVALID_PARAMETER, "one of BROADCASTING, CLUSTERING"),
    ],
)
def test_unreadable_field_is_named_with_the_reason(ext: Mapping[str, str], code: int, text: str) -> None:
    with pytest.raises(DecodeError, match=text.replace("|", r"\|")) as caught:
        decode(Ask, ext, None)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('{"at":"5","names":null,"on":1}', Entry(at=5, is_on=True)),
        ('{at:5.0,NESTED:{names:[1,true,"x"]}}', Entry(at=5, nested=Entry(names=["1", "true", "x"]))),
        ("{}", Entry()),
        ('{"more":{"of":[{}]}}', Entry()),
    ],
)
def test_t25_json_bodies_are_read_as_leniently_as_java_reads_them(body: str, expected: Entry) -> None:
    assert decode(WithBody, {}, body.encode()) == WithBody(body=expected)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "WithBody needs a body"),
        (b"[]", "body must be an object"),
        (b'{"names":{}}', "body.names must be a list"),
        (b'{"nested":{"at":[1]}}', r"body\.nested\.at must be an integer"),
        (b'{"names":["a",["b"]]}', r"body\.names\[1\] must be text"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_unreadable_body_error_has_the_position(body: bytes, text: str) -> None:
    with pytest.raises(DecodeError, match=text):
        decode(WithBody, {}, body)


@pytest.mark.parametrize(
    "body",
    [
        b'{{"brokerName":"b","queueId":0,"topic":"t"}:9}',
        b'{"{\\"brokerName\\":\\"b\\",\\"queueId\\":0,\\"topic\\":\\"t\\"}":9}',
    ],
)
def test_t3_object_keys_are_read_bare_and_quoted(body: bytes) -> None:
    expected = {Queue(broker_name="b", queue_id=0, topic="t"): 9}
    assert decode_reply(Ask, {}, body).body == expected


def test_t3_object_keys_are_written_bare_unless_the_reply_is_strict() -> None:
    offsets = {Queue(broker_name="b", queue_id=0, topic="t"): 9}
    assert encode(Offsets(body=offsets)) == EncodedRequest(
        None, b'{{"brokerName":"b","queueId":0,"topic":"t"}:9}'
    )
    strict = encode(Offsets(body=offsets, is_strict=True)).body
    assert strict == b'{"{\\"brokerName\\":\\"b\\",\\"queueId\\":0,\\"topic\\":\\"t\\"}":9}'


def test_members_are_written_in_alphabetical_order_and_absent_ones_are_not() -> None:
    assert encode(WithBody(body=Entry(at=1))).body == b'{"at":1,"names":[],"on":false}'


def test_text_bodies_are_utf8_and_lone_surrogates_do_not_break_replies() -> None:
    assert decode(WithText, {}, "größe".encode()) == WithText(body="größe")
    assert decode(WithText, {}, None) == WithText(body="")
    assert encode(WithText(body="a\ud800")).body == b"a?"
    with pytest.raises(DecodeError, match="not UTF-8 at byte 1"):
        decode(WithText, {}, b"a\xff")


def test_the_empty_reply_has_neither_fields_nor_body() -> None:
    assert encode(None) == EncodedRequest(None, None)
    assert decode_reply(WithBody, {}, b"") is None


def test_a_request_must_name_its_reply() -> None:
    with pytest.raises(TypeError, match="must derive from"):
        request(RequestCode.HEART_BEAT)(type("Bare", (Request,), {}))


def test_a_type_without_a_rule_is_refused_when_the_class_is_first_used() -> None:
    @reply
    class Odd:
        what: complex

    with pytest.raises(TypeError, match="cannot use"):
        encode(Odd(what=1j))


def test_requests_know_their_code_and_reply() -> None:
    kinds: list[Any] = [Ask, WithBody]
    assert [(kind.code, kind.reply) for kind in kinds] == [(208, Offsets), (34, type(None))]
