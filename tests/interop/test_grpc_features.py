"""5.x clients at the gRPC port: the official Python client with every kind of message, filters, users and TLS."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

import rmqpy
from rmqpy.server import Standalone
from rmqpy.testing import broker

from .grpc_python import needs_client, observe

pytestmark = [needs_client, pytest.mark.timeout(180)]

TYPES: tuple[Literal["NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY"], ...] = (
    "NORMAL",
    "FIFO",
    "DELAY",
    "TRANSACTION",
    "PRIORITY",
)


@pytest.fixture(scope="module")
def server() -> Iterator[Standalone]:
    with broker(grpcServerPort=0) as server, rmqpy.Admin(server.namesrv) as admin:
        for topic in ("again", "tags", "sql"):
            admin.create_topic(topic, write_queues=2, read_queues=2)
        for kind in TYPES:
            admin.create_topic(f"typed-{kind}", write_queues=2, read_queues=2, message_type=kind)
        admin.create_topic("urgent", write_queues=8, read_queues=8, message_type="PRIORITY")
        yield server


def grpc_of(server: Standalone) -> str:
    assert server.grpc is not None
    return server.grpc


def test_changed_time_brings_a_message_again_with_a_new_handle(server: Standalone, tmp_path: Path) -> None:
    seen = observe(tmp_path, "again", grpc_of(server), "again")
    assert seen == {"attempts": [1, 2], "is_new": True}


def test_filters_by_tag_and_by_property(server: Standalone, tmp_path: Path) -> None:
    assert observe(tmp_path, "filters", grpc_of(server), "tags", "TAG", "odd || none") == ["1", "3"]
    assert observe(tmp_path, "filters", grpc_of(server), "sql", "SQL", "number >= 2") == ["2", "3"]


@pytest.mark.parametrize("kind", ["NORMAL", "FIFO", "DELAY", "PRIORITY"])
def test_topic_takes_messages_of_its_type(server: Standalone, tmp_path: Path, kind: str) -> None:
    seen = observe(tmp_path, "typed", grpc_of(server), f"typed-{kind}", kind)
    (found,) = seen["found"]
    assert found["body"] == kind
    assert found["group"] == ("order-1" if kind == "FIFO" else None)
    assert seen["recall"] == (kind == "DELAY")
    assert (seen["after"] >= 1) == (kind == "DELAY")


@pytest.mark.parametrize(
    ("topic", "kind"), [("FIFO", "NORMAL"), ("PRIORITY", "NORMAL"), ("NORMAL", "PRIORITY")]
)
def test_topic_refuses_messages_of_another_type(
    server: Standalone, tmp_path: Path, topic: str, kind: str
) -> None:
    refused = observe(tmp_path, "typed", grpc_of(server), f"typed-{topic}", kind)["refused"]
    assert "type" in refused


def test_the_most_urgent_message_is_received_first(server: Standalone, tmp_path: Path) -> None:
    seen = observe(tmp_path, "priorities", grpc_of(server), "urgent")
    assert [one["body"] for one in seen] == ["99", "5", "0"]
    assert [one["priority"] for one in seen] == [99, 5, 0]
    assert all("_SYS_MSG_PRIORITY_" not in one["properties"] for one in seen)


def test_delayed_message_is_recalled(server: Standalone, tmp_path: Path) -> None:
    seen = observe(tmp_path, "recall", grpc_of(server), "typed-DELAY")
    assert seen["recalled"] == seen["sent"]


def test_transactions_are_committed_rolled_back_and_checked(server: Standalone, tmp_path: Path) -> None:
    seen = observe(tmp_path, "transactions", grpc_of(server), "typed-TRANSACTION")
    assert sorted(one["body"] for one in seen["found"]) == ["check", "commit"]
    assert all("__transactionId__" in one["properties"] for one in seen["found"])
    assert seen["asked"] == ["check"]


def test_unknown_topic_is_not_created(server: Standalone, tmp_path: Path) -> None:
    seen = observe(tmp_path, "typed", grpc_of(server), "nowhere", "NORMAL")
    assert "refused" in seen
    with rmqpy.Admin(server.namesrv) as admin:
        assert "nowhere" not in admin.topics()
