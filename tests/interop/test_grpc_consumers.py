"""Scenarios of Apache's e2e tests with the official 5.x clients: batches, order, times, checks, groups, retries.

`docs/internals/grpc.md` names the test of each class of Apache's, and what is left out.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import rmqpy
from rmqpy.server import Standalone
from rmqpy.testing import broker
from waiting import until

from . import grpc_clients
from .grpc_clients import CLIENTS, GrpcClient

pytestmark = pytest.mark.timeout(420, func_only=True)

CHECKS = {"transactionTimeOut": 2_000, "transactionCheckInterval": 1_000}


@pytest.fixture(scope="module")
def server() -> Iterator[Standalone]:
    with broker(grpcServerPort=0, **CHECKS) as server, rmqpy.Admin(server.namesrv) as admin:
        for client in CLIENTS:
            for name in ("batches", "bounds", "late", "shared", "retried"):
                admin.create_topic(f"{client}-{name}", write_queues=2, read_queues=2)
            admin.create_topic(f"{client}-checks", write_queues=2, read_queues=2, message_type="TRANSACTION")
            for name in ("stuck", "kept"):
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


def test_batches_have_at_most_32_messages_and_only_the_unacknowledged_one_is_redelivered(
    observe: Callable[..., Any],
) -> None:
    seen = observe("batches", "batches", "40")
    assert max(seen["sizes"]) <= 32
    wanted = [(str(number), 1) for number in range(40)] + [("0", 2)]
    assert Counter(map(tuple, seen["found"])) == Counter(wanted)
    assert seen["rest"] == 0


def test_unacknowledged_message_blocks_its_message_group(observe: Callable[..., Any]) -> None:
    batches = observe("stuck", "stuck")["batches"]
    # As at Apache's broker, the whole batch is delivered again.
    assert batches[:2] == [["0", "1", "2"]] * 2
    assert [body for batch in batches[2:] for body in batch] == ["3", "4", "5"]


def test_bounds_of_a_receive(observe: Callable[..., Any]) -> None:
    seen = observe("bounds", "bounds")
    short, long = seen["refused"]
    assert "9000 ms" in short
    assert "43201000 ms" in long
    assert seen["count"] == 0
    assert 4.5 <= seen["after"] < 15


def test_late_acknowledgement_is_refused(observe: Callable[..., Any], client: GrpcClient) -> None:
    seen = observe("late", "late")
    # The Go client reports no status of an acknowledgement.
    assert client.name == "go" or "expired" in seen["refused"]
    assert seen["attempt"] == 2


def test_checks_commit_roll_back_and_ask_again(observe: Callable[..., Any]) -> None:
    seen = observe("checks", "checks")
    assert sorted(seen["found"]) == ["commit", "unknown"]
    asked = Counter(seen["asked"])
    assert asked["unknown"] >= 2
    assert asked.keys() == {"commit", "rollback", "unknown"}


def test_members_of_a_group_share_what_every_group_gets(
    server: Standalone, client: GrpcClient, tmp_path: Path
) -> None:
    assert server.grpc is not None
    topic, count = f"{client.name}-shared", 60
    groups = {
        "one": f"{client.name}-shared",
        "two": f"{client.name}-shared",
        "three": f"{client.name}-others",
    }
    with ExitStack() as stack, rmqpy.Producer(server.namesrv) as producer:
        members = {}
        for name, group in groups.items():
            home = tmp_path / name
            home.mkdir()
            members[name] = stack.enter_context(client.running(home, "push", server.grpc, topic, group))
        for member in members.values():
            member.wait_for(bool)
        for number in range(count):
            producer.send(topic, str(number).encode())

        def got(*names: str) -> list[str]:
            return [body for name in names for body in members[name].values("got")]

        until(lambda: len(got("three")) >= count and len(got("one", "two")) >= count, 60)
        wanted = Counter(map(str, range(count)))
        assert Counter(got("three")) == wanted
        assert Counter(got("one", "two")) == wanted


@pytest.mark.parametrize("name", ["retried", "kept"])
def test_message_that_failed_once_is_retried(
    server: Standalone, client: GrpcClient, tmp_path: Path, name: str
) -> None:
    """In an ordered group each message group keeps its order meanwhile."""
    assert server.grpc is not None
    topic = f"{client.name}-{name}"
    sent = [f"{'once' if number % 2 else 'good'}-{number % 3}-{number}" for number in range(9)]
    wanted = [body for body in sent for _ in range(2 if body.startswith("once") else 1)]
    with (
        client.running(tmp_path, "push", server.grpc, topic, topic) as run,
        rmqpy.Producer(server.namesrv) as producer,
    ):
        run.wait_for(bool)
        for body in sent:
            if name == "kept":
                producer.send(topic, body.encode(), sharding_key=f"order-{body.split('-')[1]}")
            else:
                producer.send(topic, body.encode())
        run.wait_for(lambda seen: len([line for line in seen if "got" in line]) >= len(wanted), 90)
        got = run.values("got")
    assert Counter(got) == Counter(wanted)
    # The Go client goes on with the next message of a batch while it retries one.
    if name == "kept" and client.name != "go":
        for group in "012":
            of_group = [body for body in wanted if body.split("-")[1] == group]
            assert [body for body in got if body.split("-")[1] == group] == of_group
