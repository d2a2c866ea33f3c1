"""Three brokers of one name under a controller that sends no notifications, over several elections.

Brokers learn of elections from the replies to their heartbeats alone. The servers are processes, which serve all tests
of this file.
"""

import asyncio
import signal
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

import rmqpy
from broker.elected import QUEUES, TOPIC, revived, started
from broker.talk import send
from campaigns.election.elected_set import ElectedSet
from campaigns.election.servers import BROKER_NAME, CLUSTER_NAME, Server
from rmqpy.cli.mq import controllers
from rmqpy.protocol.codes import ResponseCode
from waiting import until
from wire import Frame, Peer

CATCH_UP_MS = 1_500
#: The interval of asking for the role, as long as possible.
ROLE_SECONDS = 60


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ElectedSet]:
    elected = ElectedSet(
        tmp_path_factory.mktemp("histories"),
        replicas=3,
        controller_settings={"notifyBrokerRoleChanged": "false"},
        haMaxTimeSlaveNotCatchup=CATCH_UP_MS,
        syncBrokerMetadataPeriod=ROLE_SECONDS * 1_000,
    )
    yield from started(elected)


@pytest.fixture
def elected(running: ElectedSet) -> Iterator[ElectedSet]:
    yield from revived(running)


def answer(server: Server, body: bytes = b"hello") -> Frame:
    """The reply of this broker to a send."""

    async def ask() -> Frame:
        async with await Peer.connect(server.address) as peer:
            return await send(peer, TOPIC, body)

    return asyncio.run(ask())


def wait_accepted(elected: ElectedSet, body: bytes) -> None:
    """Send to the master until a send is accepted."""
    until(lambda: answer(elected.master(), body).code == 0, failing=(OSError, asyncio.IncompleteReadError))


def move(elected: ElectedSet) -> None:
    """Move the leadership, and wait until all replicas are in sync again."""
    before = elected.master()
    with rmqpy.Admin(elected.namesrv.address) as admin:
        until(lambda: bool(admin.failover(BROKER_NAME)), failing=rmqpy.RocketMQError)
    assert elected.master() is not before
    elected.wait_in_sync()


def test_elections_without_messages_between_them_leave_equal_logs(elected: ElectedSet) -> None:
    wait_accepted(elected, b"before")
    move(elected)
    move(elected)
    wait_accepted(elected, b"between")
    killed = elected.master()
    killed.kill()
    wait_accepted(elected, b"after")
    killed.start()
    elected.wait_in_sync()
    elected.wait_equal()
    assert {b"before", b"between", b"after"} <= set(elected.stored(TOPIC, QUEUES))


def test_a_replica_that_does_not_catch_up_leaves_the_set_and_returns(elected: ElectedSet) -> None:
    master = elected.master()
    slow = next(each for each in elected.brokers if each is not master)
    slow.send(signal.SIGSTOP)
    try:
        until(lambda: slow.address not in elected.in_sync())
        wait_accepted(elected, b"without it")
        assert elected.master() is master
    finally:
        slow.send(signal.SIGCONT)
    elected.wait_in_sync()
    elected.wait_equal()


def test_a_removed_replica_serves_nothing_until_it_has_a_new_id(elected: ElectedSet) -> None:
    master, state = elected.master(), elected.state()
    assert state is not None
    removed = next(each for each in elected.brokers if each is not master)
    removed_id = next(
        each.broker_id for each in state.in_sync_replicas if each.broker_address == removed.address
    )
    removed.kill()
    until(lambda: removed.address not in elected.in_sync())
    given = [
        "-a",
        elected.controller_addresses[0],
        "-bn",
        BROKER_NAME,
        "-b",
        str(removed_id),
        "-c",
        CLUSTER_NAME,
    ]
    cleaned = CliRunner().invoke(controllers.clean_broker_metadata, given)
    assert cleaned.exit_code == 0, cleaned.output

    removed.start()
    removed.wait()
    until(lambda: "hasn't been registered" in removed.log.read_text(errors="replace"))
    refused = answer(removed)
    assert refused.code == ResponseCode.SYSTEM_BUSY, refused
    assert removed.address not in elected.in_sync()

    removed.kill()
    (removed.folder / "store" / "brokerIdentity").unlink()
    removed.start()
    elected.wait_in_sync()
    state = elected.state()
    assert state is not None
    assert removed_id not in {each.broker_id for each in state.in_sync_replicas}
    elected.wait_equal()
