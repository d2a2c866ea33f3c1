"""Clients behind NAT: a name server with an outer listener hands out addresses that each side can reach.

Goal: clients of every language send and consume from outside and from inside, without settings of their own. Method:
servers in one network, clients in two, and a router that forwards two ports.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks.processes import Child

from .clients import ProcessClient, start_go, start_java
from .messages import MessageSpec
from .nat import INNER_HOST, INSIDE, OUTER_HOST, OUTSIDE, nat, needs_nat

pytestmark = [needs_nat, pytest.mark.timeout(200, func_only=True)]

INNER = f"{INNER_HOST}:9876"
OUTER = f"{OUTER_HOST}:31876"
SETTINGS = (
    "--host",
    INNER_HOST,
    "listeners=outer=0.0.0.0:30876",
    f"advertisedAddresses=outer {INNER_HOST}:10911={OUTER_HOST}:31911",
)
#: Our own client: sends one message, and reads the queue from its start.
OURS = """
import sys, rmqpy
namesrv, topic = sys.argv[1:]
with rmqpy.Producer(namesrv) as producer:
    producer.send(topic, b"from rmqpy")
with rmqpy.PullConsumer("ours", namesrv, start_from="earliest", auto_commit=False) as consumer:
    consumer.assign(consumer.queues(topic))
    bodies = set()
    while b"from rmqpy" not in bodies:
        bodies |= {message.body for message in consumer.poll(5.0)}
"""


def _rmqpy(
    inside: tuple[str, ...], *arguments: str, seconds: float = 30
) -> "subprocess.CompletedProcess[str]":
    command = [*inside, sys.executable, "-m", "rmqpy", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)


@pytest.fixture(scope="module")
def networks(folder: Path) -> Iterator[None]:
    """Both networks, and the servers inside."""
    home = folder / "nat"
    home.mkdir()
    command = [
        *INSIDE,
        sys.executable,
        "-m",
        "rmqpy",
        "standalone",
        "--data-dir",
        str(home / "data"),
        *SETTINGS,
    ]
    with nat({31876: 30876, 31911: 10911}), Child("nat-standalone", command, home) as child:
        child.wait_until(lambda: _rmqpy(INSIDE, "-n", INNER, "topic", "create", "orders").returncode == 0, 30)
        yield


@pytest.fixture(scope="module")
def client_in(
    networks: None, originals: Callable[[str], Path], folder: Path
) -> Iterator[Callable[[str, tuple[str, ...]], ProcessClient]]:
    with ExitStack() as stack:

        def client(name: str, inside: tuple[str, ...]) -> ProcessClient:
            own = f"{name}-{inside[-1]}"
            build = originals(name)
            started = (
                start_go(build, folder, own, inside)
                if name == "go"
                else start_java(build, name.removeprefix("java-"), folder, own, inside=inside)
            )
            stack.callback(started.close)
            return started

        yield client


@pytest.mark.parametrize(
    ("inside", "namesrv"), [(OUTSIDE, OUTER), (INSIDE, INNER)], ids=["outside", "inside"]
)
@pytest.mark.parametrize("name", ["java-5.5.0", "java-4.9.8", "go"])
def test_foreign_clients_send_and_consume_behind_nat(
    client_in: Callable[[str, tuple[str, ...]], ProcessClient],
    name: str,
    inside: tuple[str, ...],
    namesrv: str,
) -> None:
    client = client_in(name, inside)
    body = f"from {client.name}".encode()
    (sent,) = client.send(namesrv, "orders", [MessageSpec(body)])
    assert sent.status == "SEND_OK"
    group = f"group-{client.name}".replace(".", "-")
    api = client.pulls[0]
    received = client.pull(namesrv, "orders", group, api=api, count=1)
    assert received


@pytest.mark.parametrize(
    ("inside", "namesrv"), [(OUTSIDE, OUTER), (INSIDE, INNER)], ids=["outside", "inside"]
)
@pytest.mark.usefixtures("networks")
def test_our_client_sends_and_consumes_behind_nat(inside: tuple[str, ...], namesrv: str) -> None:
    command = [*inside, sys.executable, "-c", OURS, namesrv, "orders"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("networks")
def test_doctor_reports_addresses_for_outside_clients() -> None:
    inside = _rmqpy(INSIDE, "-n", INNER, "doctor")
    assert (
        f"clients of listener outer receive {OUTER_HOST}:31911 for broker-a: not reachable from here"
        in inside.stdout
    )
    outside = _rmqpy(OUTSIDE, "-n", OUTER, "doctor")
    assert outside.returncode == 0, outside.stdout
