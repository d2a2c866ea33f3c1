"""Three brokers of one name under one controller: elections, and what a broker without a sure role refuses.

The servers are processes, because a test kills or pauses them. They serve all tests of this file.
"""

import asyncio
import csv
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from click.testing import CliRunner

from broker.talk import send
from campaigns.election.elected_set import ElectedSet
from campaigns.election.senders import Senders
from campaigns.election.servers import BROKER_NAME, CLUSTER_NAME, Server
from commandline import Run, runner
from rmqpy.cli.mq import controllers
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.leadership import GetBrokerEpochCache
from rmqpy.protocol.requests.routes import GetClusterInfo
from waiting import until, until_async
from wire import Frame, Peer

TOPIC = "orders"
QUEUES = 4
SENDERS = 8
#: Sends that are accepted before and after a loss.
SENDS = 50
WAIT_S = 60.0
#: The interval of asking for the role, as long as possible: brokers learn of changes when they happen.
ROLE_SECONDS = 60

IN_THE_NAME_SERVER, AS_A_PROCESS = "in the name server", "as a process"
with_one_kind = pytest.mark.parametrize("running", [AS_A_PROCESS], indirect=True)


@pytest.fixture(scope="module", params=[IN_THE_NAME_SERVER, AS_A_PROCESS])
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ElectedSet]:
    """The servers. With the controller in the name server, all brokers start together; with a process, one leads before
    the others start."""
    is_embedded = request.param == IN_THE_NAME_SERVER
    elected = ElectedSet(
        tmp_path_factory.mktemp("elected"),
        replicas=3,
        is_embedded=is_embedded,
        controllerHeartBeatTimeoutMills=3_000,
        syncBrokerMetadataPeriod=ROLE_SECONDS * 1_000,
    )
    with ExitStack() as undo:
        elected.start(undo, leader_first=not is_embedded)
        elected.wait_in_sync()
        elected.make_topic(TOPIC, QUEUES)
        yield elected


@pytest.fixture
def elected(running: ElectedSet) -> Iterator[ElectedSet]:
    """All brokers run and are in sync. The ends of the logs are shown if the test fails."""
    servers = list(dict.fromkeys((*running.controllers, running.namesrv, *running.brokers)))
    for server in servers:
        server.revive()
    running.wait_in_sync()
    # A controller that was started again has to hear of each broker.
    until(lambda: in_sync_and_alive(running), wanted=lambda found: len(found) == 3, failing=(AssertionError,))
    yield running
    for server in servers:
        print(f"---- {server.name}\n{server.log.read_text(errors='replace')[-4_000:]}")


def followers(elected: ElectedSet) -> list[Server]:
    master = elected.master()
    return [each for each in elected.brokers if each is not master]


@contextmanager
def paused(servers: list[Server]) -> Iterator[None]:
    """These servers do nothing until the block is left."""
    for server in servers:
        server.send(signal.SIGSTOP)
    try:
        yield
    finally:
        for server in servers:
            server.send(signal.SIGCONT)


async def end_of_log(peer: Peer) -> int:
    return (await peer.ask(GetBrokerEpochCache())).body.max_offset


def log_end(server: Server) -> int:
    """The end of this broker's log."""

    async def ask() -> int:
        async with await Peer.connect(server.address) as peer:
            return await end_of_log(peer)

    return asyncio.run(ask())


def answer(server: Server, body: bytes = b"hello") -> Frame:
    """The reply of this broker to a send."""

    async def ask() -> Frame:
        async with await Peer.connect(server.address) as peer:
            return await send(peer, TOPIC, body)

    return asyncio.run(ask())


def wait_accepted(elected: ElectedSet, body: bytes = b"hello") -> None:
    """Send to the master until a send is accepted."""
    until(lambda: answer(elected.master(), body).code == 0, failing=(OSError, asyncio.IncompleteReadError))


def addresses(elected: ElectedSet) -> dict[int, str]:
    """The brokers at the name server, by id: 0 is the master."""

    async def ask() -> dict[int, str]:
        async with await Peer.connect(elected.namesrv.address) as peer:
            info = await peer.ask(GetClusterInfo())
        known = info.broker_addr_table.get(BROKER_NAME)
        return {} if known is None else dict(known.broker_addrs)

    return asyncio.run(ask())


def test_one_of_three_leads_and_the_others_are_in_sync(elected: ElectedSet) -> None:
    state, master = elected.state(), elected.master()
    assert state is not None
    assert state.master_epoch >= 1
    assert sorted(each.broker_id for each in state.in_sync_replicas) == [1, 2, 3]
    found = until(lambda: addresses(elected), wanted=lambda found: len(found) == 3)
    assert found[0] == master.address
    assert set(found.values()) == {each.address for each in elected.brokers}


@with_one_kind
def test_a_set_of_one_refuses_messages_until_another_replica_is_in_sync(elected: ElectedSet) -> None:
    # Before any other election, so that the master was elected before the others registered.
    master, slaves = elected.master(), followers(elected)
    assert answer(master).code == 0
    for slave in slaves:
        slave.kill()
    # A send that was accepted before may wait for the slaves meanwhile, and end with another code.
    # It does not depend on the next question for the role either.
    refused = until(
        lambda: answer(master), ROLE_SECONDS / 2, wanted=lambda frame: frame.code == ResponseCode.SYSTEM_ERROR
    )
    assert "1 replicas are in sync, and minInSyncReplicas is 2" in (refused.remark or "")
    end = log_end(master)
    assert answer(master).code == ResponseCode.SYSTEM_ERROR
    assert log_end(master) == end, "the refused message is stored"
    slaves[0].start()
    until(lambda: answer(master).code == 0)


@with_one_kind
def test_a_waiting_message_is_not_acknowledged_once_too_few_replicas_are_in_sync(elected: ElectedSet) -> None:
    master, slaves = elected.master(), followers(elected)

    async def reply() -> Frame:
        async with await Peer.connect(master.address) as waiting, await Peer.connect(master.address) as other:
            with paused(slaves):
                end = await end_of_log(other)
                sent = asyncio.ensure_future(send(waiting, TOPIC))
                await until_async(lambda: end_of_log(other), wanted=lambda now: now > end)
                for slave in slaves:
                    slave.kill()
            return await sent

    assert asyncio.run(reply()).code == ResponseCode.FLUSH_SLAVE_TIMEOUT


def test_a_killed_master_is_replaced_without_a_loss_and_follows_when_it_returns(elected: ElectedSet) -> None:
    with Senders(elected.namesrv.address, TOPIC, SENDERS) as senders:
        senders.wait_for(SENDS, WAIT_S)
        killed = elected.master()
        # Messages that only this master has are lost with it.
        with paused(followers(elected)):
            end = log_end(killed)
            until(lambda: log_end(killed), wanted=lambda now: now > end)
            killed.kill()
        senders.wait_for(SENDS, WAIT_S)
        assert elected.master() is not killed
        killed.start()
        elected.wait_in_sync()
        assert elected.master() is not killed
        senders.wait_for(SENDS, WAIT_S)
    stored = elected.stored(TOPIC, QUEUES)
    assert [body for body in senders.acknowledged if body not in stored] == []
    elected.wait_equal()


@with_one_kind
def test_a_message_is_acknowledged_only_once_the_replicas_in_sync_have_it(elected: ElectedSet) -> None:
    master, slaves = elected.master(), followers(elected)

    async def replies() -> tuple[bool, int]:
        async with await Peer.connect(master.address) as waiting, await Peer.connect(master.address) as other:
            with paused(slaves):
                end = await end_of_log(other)
                sent = asyncio.ensure_future(send(waiting, TOPIC))
                await until_async(lambda: end_of_log(other), wanted=lambda now: now > end)
                for _ in range(50):
                    # A reply that does not wait overtakes these.
                    await end_of_log(other)
                early = sent.done()
            return early, (await sent).code

    assert asyncio.run(replies()) == (False, 0)


@with_one_kind
def test_a_paused_master_does_not_acknowledge_after_its_lease_and_follows(elected: ElectedSet) -> None:
    master = elected.master()
    body = b"sent to a paused master"

    async def reply() -> Frame:
        async with await Peer.connect(master.address) as peer:
            assert (await send(peer, TOPIC)).code == 0
            with paused([master]):
                sent = asyncio.ensure_future(send(peer, TOPIC, body))
                await until_async(lambda: asyncio.to_thread(elected.master), lambda now: now is not master)
            return await sent

    refused = asyncio.run(reply())
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE, refused
    wait_accepted(elected)
    elected.wait_in_sync()
    assert elected.master() is not master
    assert elected.stored(TOPIC, QUEUES)[body] == 0


@with_one_kind
def test_a_master_stops_acknowledging_while_no_controller_answers(elected: ElectedSet) -> None:
    master, controller = elected.master(), elected.controllers[0]
    assert answer(master).code == 0
    with paused([controller]):
        until(lambda: answer(master), wanted=lambda frame: frame.code == ResponseCode.SERVICE_NOT_AVAILABLE)
    wait_accepted(elected)


@with_one_kind
def test_a_broker_that_starts_without_a_controller_does_not_acknowledge(elected: ElectedSet) -> None:
    master, controller = elected.master(), elected.controllers[0]
    controller.kill()
    master.kill()
    master.start()
    master.wait()
    refused = answer(master)
    assert refused.code == ResponseCode.SYSTEM_BUSY, refused
    assert "takes no messages" in (refused.remark or "")
    controller.start()
    wait_accepted(elected)


@with_one_kind
def test_a_tool_moves_the_leadership_to_a_chosen_broker(elected: ElectedSet) -> None:
    before, chosen = elected.state(), followers(elected)[-1]
    assert before is not None
    broker_id = next(
        each.broker_id for each in before.in_sync_replicas if each.broker_address == chosen.address
    )
    shown = mqadmin("elect_master", elected, "-bn", BROKER_NAME, "-b", str(broker_id), "-c", CLUSTER_NAME)
    lines = {f"#BrokerMasterAddr\t{chosen.address}", f"#MasterEpoch\t{before.master_epoch + 1}"}
    assert lines <= set(shown.splitlines())
    assert elected.master() is chosen
    wait_accepted(elected)
    elected.wait_in_sync()
    assert elected.master() is chosen


@with_one_kind
def test_failover_and_drain_move_the_leadership(
    elected: ElectedSet, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run = runner(elected.namesrv.address, monkeypatch, capfd)
    before, first = elected.state(), elected.master()
    assert before is not None
    [row] = rows(run, "cluster", "failover", BROKER_NAME)
    second = elected.master()
    assert second is not first
    assert (row["address"], row["replaced"]) == (second.address, first.address)
    assert int(row["epoch"]) == before.master_epoch + 1
    wait_accepted(elected)
    elected.wait_in_sync()

    code, _, err = run("cluster", "failover", BROKER_NAME, "--to", row["id"])
    assert (code, f"replica {row['id']} is the master of {BROKER_NAME} already" in err) == (2, True), err
    code, _, err = run("cluster", "failover", BROKER_NAME, "--to", "9")
    assert (code, f"{BROKER_NAME} has no replica 9" in err) == (2, True), err
    code, _, err = run("cluster", "failover", "unknown")
    assert (code, "has no controller, or is unknown" in err) == (2, True), err

    [row] = rows(run, "cluster", "drain", second.address)
    third = elected.master()
    assert third is not second
    assert (row["address"], row["replaced"]) == (third.address, second.address)
    wait_accepted(elected)
    elected.wait_in_sync()
    assert rows(run, "cluster", "drain", second.address) == []
    # All brokers of the set are at this host.
    code, _, err = run("cluster", "drain", "127.0.0.1")
    assert (code, f"{BROKER_NAME} keeps its master" in err) == (1, True), err
    code, _, err = run("cluster", "drain", "192.0.2.1")
    assert (code, "no broker runs at '192.0.2.1'" in err) == (2, True), err
    assert elected.master() is third


def rows(run: Run, *command: str) -> list[dict[str, str]]:
    """The rows of a command's table."""
    code, out, err = run(*command, "-o", "csv")
    assert code == 0, err
    return list(csv.DictReader(out.splitlines()))


@with_one_kind
def test_commands_show_the_master_its_epoch_and_the_replicas_in_sync(
    elected: ElectedSet, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    state, master = elected.state(), elected.master()
    assert state is not None
    shown = mqadmin("get_sync_state_set", elected, "-b", BROKER_NAME)
    assert {
        f"#MasterAddr\t{master.address}",
        f"#MasterEpoch\t{state.master_epoch}",
        "#SyncStateSetNums\t3",
    } <= set(shown.splitlines())
    assert set(in_sync_and_alive(elected)) == {each.address for each in elected.brokers}

    run = runner(elected.namesrv.address, monkeypatch, capfd)
    found = until(
        lambda: replicas(run), wanted=lambda found: [row["in_sync"] for row in found[1:]] == ["True"] * 2
    )
    assert (found[0]["id"], found[0]["address"], found[0]["slaves"]) == ("0", master.address, "2")
    assert 0 < float(found[0]["lease_seconds"]) < 5
    until(
        lambda: {row["epoch"] for row in replicas(run)},
        wanted=lambda epochs: epochs == {str(state.master_epoch)},
    )
    assert {row["address"] for row in found} == {each.address for each in elected.brokers}


def replicas(run: Run) -> list[dict[str, str]]:
    """The rows of `rmqpy cluster replicas`, the master's first."""
    return rows(run, "cluster", "replicas", BROKER_NAME)


def in_sync_and_alive(elected: ElectedSet) -> list[str]:
    """The addresses of the replicas in sync that the controller has heard."""
    shown = mqadmin("get_sync_state_set", elected, "-b", BROKER_NAME)
    return re.findall(r"^InSyncReplica:.*brokerAddress='([^']*)', alive=true", shown, re.MULTILINE)


def mqadmin(command: str, elected: ElectedSet, *arguments: str) -> str:
    """The output of one of mqadmin's commands."""
    given = ["-a", elected.controller_addresses[0], *arguments]
    result = CliRunner().invoke(getattr(controllers, command), given)
    assert result.exit_code == 0, result.output
    return result.output
