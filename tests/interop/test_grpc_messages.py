"""Scenarios of Apache's e2e tests with the official 5.x clients: limits of messages, texts, filters.

`docs/internals/grpc.md` names the test of each class of Apache's, and what is left out.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import rmqpy
from rmqpy.server import Standalone
from rmqpy.testing import broker

from . import grpc_clients
from .grpc_clients import CLIENTS, GrpcClient

pytestmark = pytest.mark.timeout(420, func_only=True)

BODY_BYTES_MAX = 4 << 20
PROPERTIES_BYTES_MAX = 16 << 10
DAY_S = 86_400
TEXTS = ("with  spaces ", "中文", "😱🏷", "a\tb\nc")
SUBSCRIPTIONS: dict[str, tuple[str, str, list[str]]] = {
    "either": ("TAG", "A || B", ["A1", "B1", "A2"]),
    "all": ("TAG", "*", ["A1", "B1", "C1", "A2"]),
    "one": ("TAG", "A", ["A1", "A2"]),
    "spaces": ("TAG", " A||B ", ["A1", "B1", "A2"]),
    "doubled": ("TAG", "A||||B", ["A1", "B1", "A2"]),
    "number": ("SQL", "price > 20", ["B1", "A2"]),
    "range": ("SQL", "(price BETWEEN 10 AND 25) AND region IS NOT NULL", ["A1", "C1", "A2"]),
    "true": ("SQL", "TRUE", ["A1", "B1", "C1", "A2"]),
    "unknown": ("SQL", "product = 'MQ' OR (price = 25)", ["A2"]),
}
"""Subscriptions, and the bodies of `test_filter` that each delivers: the last message always, which ends the wait."""


def described(**fields: str | int | list[str] | dict[str, str]) -> str:
    """A message for `exchange`, with the group or the time in front."""
    parts: list[tuple[str, object]] = []
    for name, value in sorted(fields.items(), key=lambda field: field[0] not in ("group", "in_s")):
        if isinstance(value, dict):
            parts += [(f"property.{key}", one) for key, one in value.items()]
        elif isinstance(value, list):
            parts += [("key", one) for one in value]
        else:
            parts.append((name.removesuffix("_s"), value))
    return "&".join(f"{quote(name, safe='.')}={quote(str(value), safe='')}" for name, value in parts)


@pytest.fixture(scope="module")
def server() -> Iterator[Standalone]:
    with broker(grpcServerPort=0) as server, rmqpy.Admin(server.namesrv) as admin:
        for client in CLIENTS:
            for name in ("limits", "texts"):
                admin.create_topic(f"{client}-{name}", write_queues=2, read_queues=2)
            for name in SUBSCRIPTIONS:
                admin.create_topic(f"{client}-{name}", write_queues=1, read_queues=1)
            admin.create_topic(f"{client}-delayed", write_queues=2, read_queues=2, message_type="DELAY")
            for name in ("ordered", "filtered"):
                admin.create_topic(f"{client}-{name}", write_queues=2, read_queues=2, message_type="FIFO")
                admin.create_group(f"{client}-{name}", order=True)
        yield server


@pytest.fixture(scope="module", params=CLIENTS)
def client(request: pytest.FixtureRequest, originals: Callable[[str], Path]) -> GrpcClient:
    return grpc_clients.start(request.param, originals)


@pytest.fixture
def observe(server: Standalone, client: GrpcClient, tmp_path: Path) -> Callable[..., Any]:
    assert server.grpc is not None
    return client.observer(tmp_path, server.grpc)


def sent(observe: Callable[..., Any], name: str, messages: dict[str, str]) -> set[str]:
    """The names of the messages that were sent; the others were refused."""
    refused = observe("exchange", name, "TAG", "*", "0", *messages.values())["refused"]
    assert len(refused) == len(messages)
    return {message for message, text in zip(messages, refused, strict=True) if text is None}


def test_limits_of_messages(observe: Callable[..., Any], client: GrpcClient) -> None:
    half, quarter = PROPERTIES_BYTES_MAX // 2, PROPERTIES_BYTES_MAX // 4
    allowed = {
        "largest body": described(size=BODY_BYTES_MAX),
        "largest body and properties": described(size=BODY_BYTES_MAX, properties={"p" * half: "v" * half}),
        "longest tag": described(tag="t" * PROPERTIES_BYTES_MAX),
        "longest key": described(keys=["k" * PROPERTIES_BYTES_MAX]),
        "longest property": described(properties={"p" * half: "v" * half}),
        "most properties": described(properties={f"p{number}": "v" for number in range(128)}),
        "all together": described(
            tag="t" * quarter, keys=["k" * quarter], properties={"p" * quarter: "v" * quarter}
        ),
        "characters": described(
            properties={"中文": "中文", "_": "_", "%": "%", "||": "||", "&&": "&&", "🏷": "🏷"}
        ),
    }
    refused = {
        "body": described(size=BODY_BYTES_MAX + 1),
        "empty body": described(size=0),
        "tag": described(tag="t" * (PROPERTIES_BYTES_MAX + 1)),
        "key": described(keys=["k" * (PROPERTIES_BYTES_MAX + 1)]),
        "property": described(properties={"p" * half: "v" * (half + 1)}),
        "properties": described(properties={f"p{number}": "v" for number in range(129)}),
        "all": described(
            tag="t" * quarter, keys=["k" * (quarter + 1)], properties={"p" * quarter: "v" * quarter}
        ),
        "bar in a tag": described(tag="tag|"),
        "blank tag": described(tag=" "),
        "control character in a tag": described(tag="\0"),
        "control character in a key": described(keys=["\0"]),
        "blank key": described(keys=[" "]),
        "control character in a property": described(properties={"\0": "value"}),
        "name of the system": described(properties={"UNIQ_KEY": "value"}),
    }
    if client.name == "rust":
        # The client does not know the code of the refusal, and panics.
        del refused["empty body"]
    assert sent(observe, "limits", allowed | refused) == set(allowed)


def test_limits_of_ordered_messages(observe: Callable[..., Any]) -> None:
    half = PROPERTIES_BYTES_MAX // 2
    allowed = {
        "body": described(size=BODY_BYTES_MAX, group="a"),
        "properties": described(size=BODY_BYTES_MAX, group="a", properties={"p" * half: "v" * half}),
        "group": described(group="g" * 63),
    }
    refused = {
        "body of one byte more": described(size=BODY_BYTES_MAX + 1, group="a"),
        "group of one byte more": described(group="g" * 64),
    }
    assert sent(observe, "ordered", allowed | refused) == set(allowed)


def test_limits_of_delayed_messages(observe: Callable[..., Any]) -> None:
    allowed = {
        "body": described(size=BODY_BYTES_MAX, in_s=DAY_S - 60),
        "a day": described(in_s=DAY_S - 60),
    }
    refused = {
        "body of one byte more": described(size=BODY_BYTES_MAX + 1, in_s=DAY_S - 60),
        "more than a day": described(in_s=DAY_S + 60),
    }
    assert sent(observe, "delayed", allowed | refused) == set(allowed)
    # A time in the past is now.
    seen = observe("exchange", "delayed", "TAG", "*", "1", described(body="overdue", in_s=-20))
    assert seen["refused"] == [None]
    assert [one["body"] for one in seen["found"]] == ["overdue"]


def test_texts_arrive_as_they_were_sent(observe: Callable[..., Any]) -> None:
    messages = [
        described(body=text, tag="标签", keys=["first", "第二"], properties={"name 名": f"{text}."})
        for text in TEXTS[:3]
    ]
    messages.append(described(body=TEXTS[3]))
    seen = observe("exchange", "texts", "TAG", "*", str(len(messages)), *messages)
    assert seen["refused"] == [None] * len(messages)
    found = {one["body"]: one for one in seen["found"]}
    assert set(found) == set(TEXTS)
    for text in TEXTS[:3]:
        assert found[text]["tag"] == "标签"
        assert set(found[text]["keys"]) == {"first", "第二"}
        assert found[text]["properties"]["name 名"] == f"{text}."


@pytest.mark.parametrize("name", SUBSCRIPTIONS)
def test_filter(observe: Callable[..., Any], name: str) -> None:
    kind, expression, wanted = SUBSCRIPTIONS[name]
    messages = [
        described(body=body, tag=body[0], properties={"price": price, "region": "north"})
        for body, price in (("A1", "10"), ("B1", "30"), ("C1", "20"), ("A2", "25"))
    ]
    seen = observe("exchange", name, kind, expression, str(len(wanted)), *messages)
    assert [one["body"] for one in seen["found"]] == wanted


@pytest.mark.parametrize(
    ("expression", "wanted"), [("BB", ["1", "3"]), ("Aa", ["0"])], ids=["one", "its twin"]
)
def test_tags_with_the_same_hash_and_in_other_case_differ(
    server: Standalone, observe: Callable[..., Any], client: GrpcClient, expression: str, wanted: list[str]
) -> None:
    name = f"twins-{expression}"
    with rmqpy.Admin(server.namesrv) as admin:
        admin.create_topic(f"{client.name}-{name}", write_queues=1, read_queues=1)
    tags = ("Aa", "BB", "bb", "BB") if expression == "BB" else ("Aa", "BB")
    messages = [described(body=str(number), tag=tag) for number, tag in enumerate(tags)]
    seen = observe("exchange", name, "TAG", expression, str(len(wanted)), *messages)
    assert [one["body"] for one in seen["found"]] == wanted


def test_filter_keeps_the_order_of_a_message_group(observe: Callable[..., Any]) -> None:
    messages = [
        described(body=str(number), group="order-1", properties={"number": str(number)})
        for number in range(8)
    ]
    seen = observe("exchange", "filtered", "SQL", "number BETWEEN 2 AND 4 OR number = 7", "4", *messages)
    assert [one["body"] for one in seen["found"]] == ["2", "3", "4", "7"]
