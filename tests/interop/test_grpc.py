"""5.x clients at the gRPC port, quick part: the official Python client sends, receives, acknowledges; push."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import rmqpy
from rmqpy.server import Standalone
from rmqpy.testing import broker

from .grpc_python import needs_client, observe, run

PAGE = Path(__file__).parents[2] / "docs" / "grpc.md"

pytestmark = [needs_client, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def server() -> Iterator[Standalone]:
    with broker(grpcServerPort=0) as server, rmqpy.Admin(server.namesrv) as admin:
        for topic in ("greetings", "pushed", "foreign", "documented"):
            admin.create_topic(topic, write_queues=4, read_queues=4)
        yield server


def grpc_of(server: Standalone) -> str:
    assert server.grpc is not None
    return server.grpc


def test_python_client_receives_what_it_sent_and_acknowledges_it(server: Standalone, tmp_path: Path) -> None:
    seen = observe(tmp_path, "round_trip", grpc_of(server), "greetings")
    (found,) = seen["found"]
    assert found["id"] == seen["sent"] == seen["transaction"]
    assert (found["body"], found["tag"], found["keys"]) == ("hello", "greeting", ["key-1"])
    assert found["properties"]["color"] == "blue"
    assert (found["attempt"], found["corrupted"]) == (1, False)
    assert seen["offset"] >= 0
    assert seen["rest"] == 0
    assert seen["waited"] >= 4
    # The other clients of the broker see the same message.
    with rmqpy.SimpleConsumer("remoting", server.namesrv, start_from="earliest") as member:
        member.subscribe("greetings")
        (again,) = member.receive(wait=10)
        assert (again.body, again.message_id, again.tag) == (b"hello", seen["sent"], "greeting")


def test_push_consumer_gets_each_message_and_again_what_its_listener_failed_on(
    server: Standalone, tmp_path: Path
) -> None:
    found = observe(tmp_path, "push", grpc_of(server), "pushed", "8")
    bodies = sorted(one["body"] for one in found)
    assert bodies == ["0", *map(str, range(8))]
    assert sorted(one["attempt"] for one in found if one["body"] == "0") == [1, 2]


def test_messages_of_remoting_clients_arrive_decompressed(server: Standalone, tmp_path: Path) -> None:
    text = "long " * 2_000
    with rmqpy.Producer(server.namesrv) as producer:
        producer.send("foreign", b"plain", tag="t", keys=["k"])
        producer.send("foreign", text.encode())
    found = observe(tmp_path, "from_remoting", grpc_of(server), "foreign", "2")
    assert sorted(one["body"] for one in found) == sorted(["plain", text])
    assert not any(one["corrupted"] for one in found)


def test_program_of_the_documentation_runs(server: Standalone, tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    printed = run(
        tmp_path, "-c", program.replace("127.0.0.1:8081", grpc_of(server)).replace("greetings", "documented")
    )
    assert "b'hello'" in printed
