"""Apache's brokers in controller mode under our controller: identities, in-sync sets, elections, tools."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

import rmqpy
import waiting
from benchmarks.processes import Child, free_ports
from interop import servers
from interop.clients import InteropClient, ProcessClient
from rmqpy.cli.mq.tool import Tool
from rmqpy.cli.options import client_config
from rmqpy.errors import ConnectError, RequestTimeout
from rmqpy.protocol.requests.controller import (
    ElectMaster,
    GetControllerMetadata,
    GetReplicaInfo,
    ReplicaInfo,
)
from rmqpy.protocol.requests.leadership import GetBrokerEpochCache

NAME = servers.BROKER_NAME
#: A JVM starts and registers within this time, whatever else runs on the machine.
until = partial(waiting.until, seconds=150.0)

pytestmark = pytest.mark.timeout(600, func_only=True)


class Replicas:
    """A controller and the Apache brokers under it."""

    def __init__(self, jars: Path, folder: Path, namesrv: str) -> None:
        self._jars = jars
        self._folder = folder
        self._namesrv = namesrv
        self.controller = f"127.0.0.1:{free_ports(1)}"
        self.ports = {1: servers.broker_port(), 2: servers.broker_port()}
        self.running: dict[int, Child] = {}
        self.tool = Tool(client_config(namesrv, 5.0))

    def start(self, number: int) -> None:
        """Start a broker, with its files if it ran before."""
        home = self._folder / f"apache-{number}"
        if not home.exists():
            home.mkdir()
            servers.write_broker_conf(
                home / "broker.conf",
                self.ports[number],
                self._namesrv,
                brokerId=-1,
                brokerRole="SLAVE",
                enableControllerMode="true",
                controllerAddr=self.controller,
                allAckInSyncStateSet="true",
                enableAutoInSyncReplicas="false",
            )
        child = Child(f"apache-{number}", servers.apache_broker_command(self._jars, home), home)
        self.running[number] = child.__enter__()

    def kill(self, number: int) -> None:
        """End a broker without any notice."""
        self.running.pop(number).kill()

    def is_served(self) -> bool:
        """Whether the controller answers."""
        try:
            return self.tool.ask(self.controller, GetControllerMetadata()).is_leader
        except (ConnectError, RequestTimeout):
            return False

    def info(self) -> ReplicaInfo:
        try:
            return self.tool.ask(self.controller, GetReplicaInfo(broker_name=NAME))
        except (ConnectError, RequestTimeout, rmqpy.RocketMQError):
            return ReplicaInfo()

    def in_sync(self) -> list[int]:
        body = self.info().body
        return sorted(body.sync_state_set) if body else []

    def close(self) -> None:
        for child in self.running.values():
            child.kill()
        self.tool.close()


@contextmanager
def controlled(jars: Path, folder: Path, namesrv: str, **settings: object) -> Iterator[Replicas]:
    """A controller of ours, with a pair of Apache's brokers in sync."""
    replicas = Replicas(jars, folder, namesrv)
    home = folder / "controller"
    home.mkdir()
    lines = {
        "controllerDLegerPeers": f"n0-{replicas.controller}",
        "controllerStorePath": home / "store",
        **settings,
    }
    (home / "controller.conf").write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    command = servers.rmqpy_controller_command()
    try:
        with Child("controller", command, home) as child:
            child.wait_until(replicas.is_served, servers.RMQPY_SECONDS_MAX)
            replicas.start(1)
            until(lambda: replicas.info().master_broker_id == 1)
            replicas.start(2)
            until(lambda: replicas.in_sync() == [1, 2])
            yield replicas
    finally:
        replicas.close()


@pytest.fixture
def replicated(originals: Callable[[str], Path], tmp_path: Path, namesrv: str) -> Iterator[Replicas]:
    with controlled(originals("apache"), tmp_path, namesrv) as replicas:
        yield replicas


def send(namesrv: str, count: int, label: str) -> list[str]:
    bodies = [f"{label} {number}" for number in range(count)]
    with rmqpy.Producer(namesrv) as producer:
        for body in bodies:
            producer.send("orders", body)
    return bodies


def received(namesrv: str) -> set[str]:
    with rmqpy.PullConsumer("audit", namesrv, start_from="earliest", auto_commit=False) as consumer:
        consumer.assign(consumer.queues("orders"))
        found: set[str] = set()
        while messages := consumer.poll(timeout=5.0):
            found |= {message.text() for message in messages}
        return found


def test_a_killed_master_is_replaced_and_comes_back_in_sync(replicated: Replicas, namesrv: str) -> None:
    with rmqpy.Admin(namesrv) as admin:
        until(lambda: _try(lambda: admin.create_topic("orders", read_queues=1, write_queues=1) or True))
    sent = send(namesrv, 50, "before")
    began = time.monotonic()
    replicated.kill(1)
    until(lambda: replicated.info().master_broker_id == 2)
    elected = time.monotonic() - began
    until(lambda: bool(_try(lambda: send(namesrv, 1, "first"))))
    print(f"elected after {elected:.2f} s, accepted after {time.monotonic() - began:.2f} s")
    sent += send(namesrv, 50, "after")
    replicated.start(1)
    until(lambda: replicated.in_sync() == [1, 2])
    assert replicated.info().master_broker_id == 2
    assert set(sent) <= received(namesrv)
    epochs = [
        entry.epoch
        for entry in replicated.tool.ask(_address(replicated, 2), GetBrokerEpochCache()).body.epoch_list
    ]
    assert epochs == [1, 2]


def test_a_tool_moves_the_leadership(replicated: Replicas) -> None:
    ask = ElectMaster(cluster_name=servers.CLUSTER_NAME, broker_name=NAME, broker_id=2, designate_elect=True)
    elected = replicated.tool.ask(replicated.controller, ask)
    assert (elected.master_broker_id, elected.master_epoch) == (2, 2)
    until(lambda: replicated.in_sync() == [1, 2])
    with pytest.raises(rmqpy.RocketMQError, match="still alive"):
        replicated.tool.ask(replicated.controller, ask)


def test_the_last_replica_of_the_set_leads_again(replicated: Replicas) -> None:
    replicated.kill(2)
    until(lambda: replicated.in_sync() == [1])
    replicated.kill(1)
    until(lambda: replicated.info().master_broker_id is None)
    replicated.start(1)
    until(lambda: replicated.info().master_broker_id == 1)
    replicated.start(2)
    until(lambda: replicated.in_sync() == [1, 2])


def _address(replicated: Replicas, number: int) -> str:
    return f"127.0.0.1:{replicated.ports[number]}"


def _try(work: Callable[[], object]) -> object | None:
    try:
        return work()
    except rmqpy.RocketMQError:
        return None


def test_apaches_tool_reads_our_controller(
    replicated: Replicas, client_of: Callable[[str], InteropClient], namesrv: str
) -> None:
    tool = client_of("java-5.5.0")
    assert isinstance(tool, ProcessClient)

    def mqadmin(command: str, *arguments: str) -> str:
        return tool.mqadmin(command, "-n", namesrv, *arguments)

    shown = mqadmin("getControllerMetaData", "-a", replicated.controller)
    assert re.search(rf"#ControllerLeaderAddress\s+{re.escape(replicated.controller)}", shown)
    shown = mqadmin("getSyncStateSet", "-a", replicated.controller, "-b", NAME)
    assert re.search(r"#MasterBrokerId\s+1", shown)
    assert re.search(r"#SyncStateSetNums\s+2", shown)
    shown = mqadmin(
        "electMaster", "-a", replicated.controller, "-b", "2", "-bn", NAME, "-c", servers.CLUSTER_NAME
    )
    assert re.search(r"#MasterEpoch\s+2", shown)
