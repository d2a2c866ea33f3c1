"""Apache's brokers in controller mode under our controller: elections, replicas in sync, and the lost controller.

One pair serves all tests of this file.
"""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rmqpy
from benchmarks.processes import suspended
from rmqpy.protocol.requests.brokers import UpdateBrokerConfig
from rmqpy.protocol.requests.controller import CleanBrokerMetadata, ElectMaster
from waiting import anything

from . import servers
from .clients import InteropClient, ProcessClient
from .elected import NAME, ForeignSet, foreign_set, until

TOPIC = "orders"
#: The longest time from the death of a master until another one is elected.
ELECTED_SECONDS_MAX = 3.0

pytestmark = pytest.mark.timeout(600, func_only=True)


@pytest.fixture(scope="module")
def running(
    originals: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ForeignSet]:
    folder = tmp_path_factory.mktemp("elected-apache")
    with (
        servers.rmqpy_name_server(folder) as (namesrv, _),
        foreign_set(originals("apache"), folder, namesrv) as elected,
    ):
        elected.make_topic(TOPIC)
        yield elected


@pytest.fixture
def elected(running: ForeignSet) -> ForeignSet:
    """Both brokers are in sync, and the master accepts messages."""
    running.revive(1, 2)
    running.wait_accepting(running.master(), TOPIC)
    return running


def move(elected: ForeignSet) -> int:
    """Move the leadership to the other broker, and wait until both are in sync; return the epoch."""
    ask = ElectMaster(
        cluster_name=servers.CLUSTER_NAME,
        broker_name=NAME,
        broker_id=3 - elected.master(),
        designate_elect=True,
    )
    moved = elected.tool.ask(elected.controller, ask)
    assert moved.master_broker_id == ask.broker_id
    elected.wait_in_sync(1, 2)
    return moved.master_epoch


def test_a_killed_master_is_replaced_and_comes_back_in_sync(elected: ForeignSet) -> None:
    sent = elected.send(TOPIC, 50, "before")
    killed = elected.master()
    other = 3 - killed
    began = time.monotonic()
    elected.kill(killed)
    elected.wait_master(other)
    replaced = time.monotonic() - began
    elected.wait_accepting(other, TOPIC)
    accepted = time.monotonic() - began
    assert replaced <= ELECTED_SECONDS_MAX
    sent += elected.send(TOPIC, 50, "after")
    began = time.monotonic()
    elected.start(killed)
    elected.wait_in_sync(1, 2)
    print(
        f"elected after {replaced:.2f} s, accepted after {accepted:.2f} s; in sync "
        f"{time.monotonic() - began:.1f} s after the start of its process"
    )
    assert elected.master() == other
    assert set(sent) <= elected.received(TOPIC)


def test_a_tool_moves_the_leadership(elected: ForeignSet) -> None:
    leading = elected.master()
    epoch = elected.info().master_epoch
    assert move(elected) == epoch + 1
    ask = ElectMaster(
        cluster_name=servers.CLUSTER_NAME, broker_name=NAME, broker_id=3 - leading, designate_elect=True
    )
    with pytest.raises(rmqpy.RocketMQError, match="still alive"):
        elected.tool.ask(elected.controller, ask)


def test_elections_without_messages_between_them_leave_equal_logs(elected: ForeignSet) -> None:
    sent = elected.send(TOPIC, 5, "still")
    move(elected)
    move(elected)
    elected.wait_accepting(elected.master(), TOPIC)
    sent += elected.send(TOPIC, 5, "between")
    killed = elected.master()
    elected.kill(killed)
    elected.wait_accepting(3 - killed, TOPIC)
    sent += elected.send(TOPIC, 5, "later")
    elected.start(killed)
    elected.wait_in_sync(1, 2)
    until(lambda: elected.log_end(1) == elected.log_end(2))
    assert elected.log_of(1) == elected.log_of(2)
    assert set(sent) <= elected.received(TOPIC)


def test_a_slave_that_does_not_catch_up_leaves_the_set_and_returns(elected: ForeignSet) -> None:
    slave = 3 - elected.master()
    with suspended([elected.pid(slave)]):
        elected.wait_in_sync(3 - slave)
        elected.wait_accepting(3 - slave, TOPIC)
    elected.wait_in_sync(1, 2)


def test_the_last_replica_of_the_set_leads_again(elected: ForeignSet) -> None:
    leading = elected.master()
    elected.kill(3 - leading)
    elected.wait_in_sync(leading)
    elected.kill(leading)
    until(lambda: elected.info().master_broker_id is None)
    # The other one does not have every acknowledged message.
    elected.start(3 - leading)
    elected.wait_fenced(3 - leading, TOPIC)
    assert elected.info().master_broker_id is None
    elected.start(leading)
    elected.wait_master(leading)
    elected.wait_in_sync(1, 2)


def test_brokers_go_on_without_a_controller_and_a_restarted_one_waits_for_it(elected: ForeignSet) -> None:
    leading = elected.master()
    slave = 3 - leading
    elected.kill(slave)
    elected.wait_in_sync(leading)
    elected.kill_controller()
    sent = elected.send(TOPIC, 20, "without a controller")
    elected.start(slave)
    elected.wait_fenced(slave, TOPIC)
    sent += elected.send(TOPIC, 20, "still without")
    elected.start_controller()
    elected.wait_in_sync(1, 2)
    assert elected.master() == leading
    assert set(sent) <= elected.received(TOPIC)


def test_a_set_of_one_refuses_messages_below_the_minimum(elected: ForeignSet) -> None:
    leading = elected.master()
    change(elected, leading, "minInSyncReplicas=2\n")
    try:
        elected.kill(3 - leading)
        elected.wait_in_sync(leading)
        end = elected.log_end(leading)
        assert elected.send_code(leading, TOPIC) not in (0, None)
        assert elected.log_end(leading) == end
    finally:
        change(elected, leading, "minInSyncReplicas=1\n")


def change(elected: ForeignSet, number: int, settings: str) -> None:
    """Change settings of a running broker."""
    elected.tool.ask(elected.address(number), UpdateBrokerConfig(body=settings))


def test_a_learner_copies_the_log_and_never_joins(elected: ForeignSet) -> None:
    elected.start(3, asyncLearner="true")
    for number in range(2):
        # The second one is copied by a learner that is connected.
        elected.send(TOPIC, 1, f"for a learner {number}")
        until(lambda: elected.log_end(3) == elected.log_end(elected.master()), failing=rmqpy.RocketMQError)
    assert elected.in_sync() == [1, 2]
    elected.kill(3)
    clean = CleanBrokerMetadata(
        cluster_name=servers.CLUSTER_NAME, broker_name=NAME, broker_controller_ids_to_clean="3"
    )
    until(lambda: elected.tool.ask(elected.controller, clean), wanted=anything, failing=rmqpy.RocketMQError)
    # It still has the file with its id.
    elected.start(3)
    elected.wait_fenced(3, TOPIC)
    assert elected.in_sync() == [1, 2]
    elected.kill(3)


def test_apaches_tool_reads_our_controller(
    elected: ForeignSet, client_of: Callable[[str], InteropClient]
) -> None:
    tool = client_of("java-5.5.0")
    assert isinstance(tool, ProcessClient)
    other, epoch = 3 - elected.master(), elected.info().master_epoch

    def mqadmin(command: str, *arguments: str) -> str:
        return tool.mqadmin(command, "-n", elected.namesrv, *arguments)

    shown = mqadmin("getControllerMetaData", "-a", elected.controller)
    assert re.search(rf"#ControllerLeaderAddress\s+{re.escape(elected.controller)}", shown)
    shown = mqadmin("getSyncStateSet", "-a", elected.controller, "-b", NAME)
    assert re.search(rf"#MasterBrokerId\s+{3 - other}", shown)
    assert re.search(r"#SyncStateSetNums\s+2", shown)
    shown = mqadmin(
        "electMaster", "-a", elected.controller, "-b", str(other), "-bn", NAME, "-c", servers.CLUSTER_NAME
    )
    assert re.search(rf"#MasterEpoch\s+{epoch + 1}", shown)
