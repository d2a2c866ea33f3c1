"""A controller of ours, and brokers of one set under it, Apache's or of both kinds, each in a separate process."""

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import rmqpy
import waiting
from benchmarks import wire
from benchmarks.processes import Child, free_ports
from rmqpy.cli.mq.tool import Tool
from rmqpy.cli.options import client_config
from rmqpy.errors import ConnectError, RequestTimeout
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.controller import GetControllerMetadata, GetReplicaInfo, ReplicaInfo
from rmqpy.protocol.requests.leadership import GetBrokerEpochCache
from rmqpy.protocol.requests.routes import GetClusterInfo

from . import servers

NAME = servers.BROKER_NAME
#: A JVM starts and registers within this time, whatever else runs on the machine.
until = partial(waiting.until, seconds=150.0)
_UNREACHABLE = (ConnectError, RequestTimeout, rmqpy.RocketMQError, OSError)


class ForeignSet:
    """The controller and the brokers, which are numbered by their ids."""

    def __init__(self, jars: Path, folder: Path, namesrv: str, ours: Collection[int] = ()) -> None:
        """`ours` has the ids of brokers of rmqpy."""
        self.namesrv = namesrv
        self.controller = f"127.0.0.1:{free_ports(1)}"
        self.tool = Tool(client_config(namesrv, 5.0))
        self._ours = frozenset(ours)
        self._jars = jars
        self._folder = folder
        self._ports: dict[int, int] = {}
        self._running: dict[int, Child] = {}
        self._controller: Child | None = None

    # ---- servers ---------------------------------------------------------------------------------------

    def start_controller(self) -> None:
        """Start the controller, with its log if it ran before."""
        home = self._folder / "controller"
        home.mkdir(exist_ok=True)
        lines = {
            "controllerDLegerPeers": f"n0-{self.controller}",
            "controllerStorePath": home / "store",
            "httpPort": -1,
        }
        (home / "controller.conf").write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        self._controller = Child("controller", servers.rmqpy_controller_command(), home)
        self._controller.wait_until(self._is_led, servers.RMQPY_SECONDS_MAX)

    def kill_controller(self) -> None:
        if self._controller is not None:
            self._controller.kill()
            self._controller = None

    def start(self, number: int, **settings: object) -> None:
        """Start a broker, with its files and settings if it ran before."""
        home = self._folder / f"broker-{number}"
        if number not in self._ports:
            self._ports[number] = servers.broker_port()
            home.mkdir()
            elected = {
                "brokerId": -1,
                "brokerRole": "SLAVE",
                "enableControllerMode": "true",
                "controllerAddr": self.controller,
                "allAckInSyncStateSet": "true",
                "enableAutoInSyncReplicas": "false",
                "haMaxTimeSlaveNotCatchup": 3_000,
                "checkSyncStateSetPeriod": 1_000,
            }
            servers.write_broker_conf(
                home / "broker.conf", self._ports[number], self.namesrv, **elected, **settings
            )
        is_ours = number in self._ours
        command = (
            servers.rmqpy_broker_command() if is_ours else servers.apache_broker_command(self._jars, home)
        )
        self._running[number] = Child(f"broker-{number}", command, home)

    def kill(self, number: int) -> None:
        """End a broker without any notice."""
        self._running.pop(number).kill()

    def pid(self, number: int) -> int:
        return self._running[number].pid

    def revive(self, *numbers: int) -> None:
        """Start what does not run, and wait until these brokers are in sync."""
        if self._controller is None:
            self.start_controller()
        for number in numbers:
            if number not in self._running:
                self.start(number)
        self.wait_in_sync(*numbers)

    def show(self) -> None:
        """Print the ends of the brokers' output."""
        for number, child in self._running.items():
            print(f"---- broker {number}\n{child.log_tail()}")

    def close(self) -> None:
        for child in self._running.values():
            child.kill()
        self.kill_controller()
        self.tool.close()

    # ---- states ----------------------------------------------------------------------------------------

    def address(self, number: int) -> str:
        return f"127.0.0.1:{self._ports[number]}"

    def info(self) -> ReplicaInfo:
        """The master, and the replicas in sync; nothing while no controller knows the set."""
        try:
            return self.tool.ask(self.controller, GetReplicaInfo(broker_name=NAME))
        except _UNREACHABLE:
            return ReplicaInfo()

    def in_sync(self) -> list[int]:
        body = self.info().body
        return sorted(body.sync_state_set) if body else []

    def wait_in_sync(self, *ids: int) -> None:
        until(self.in_sync, wanted=lambda found: found == list(ids))

    def master(self) -> int:
        """The id of the master."""
        found = until(lambda: self.info().master_broker_id, wanted=lambda number: number is not None)
        assert found is not None
        return found

    def wait_master(self, number: int) -> None:
        until(lambda: self.info().master_broker_id, wanted=lambda found: found == number)

    def accepts(self, number: int, topic: str) -> bool:
        """Whether a broker stores a message."""
        return self.send_code(number, topic) == 0

    def send_code(self, number: int, topic: str) -> int | None:
        """The code of a broker's answer to a send; `None` without an answer."""
        return wire.send_code(self.address(number), topic)

    def wait_fenced(self, number: int, topic: str) -> None:
        """Wait until a broker that has started refuses messages; it has no role, so no name server knows it."""
        refusals = (ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE)
        until(lambda: self.send_code(number, topic), wanted=lambda code: code in refusals)
        known = self.tool.ask(self.namesrv, GetClusterInfo()).broker_addr_table.get(NAME)
        assert known is None or self.address(number) not in known.broker_addrs.values()

    def wait_accepting(self, number: int, topic: str) -> float:
        """Wait until a broker stores a message; return the seconds."""
        began = time.monotonic()
        until(lambda: self.accepts(number, topic))
        return time.monotonic() - began

    def log_end(self, number: int) -> int:
        return self.tool.ask(self.address(number), GetBrokerEpochCache()).body.max_offset

    def epochs(self, number: int) -> list[int]:
        """The epochs of a broker's log."""
        cache = self.tool.ask(self.address(number), GetBrokerEpochCache()).body
        return [entry.epoch for entry in cache.epoch_list]

    def log_of(self, number: int) -> bytes:
        """The begin of a broker's log up to its present end."""
        end = self.log_end(number)
        files = sorted((self._folder / f"broker-{number}" / "store" / "commitlog").iterdir())
        found = b""
        for file in files:
            with file.open("rb") as content:
                found += content.read(end - len(found))
        return found

    # ---- messages --------------------------------------------------------------------------------------

    def make_topic(self, topic: str) -> None:
        """Create a topic of one queue at the master."""
        with rmqpy.Admin(self.namesrv) as admin:
            until(
                lambda: bool(admin.create_topic(topic, read_queues=1, write_queues=1) or True),
                failing=rmqpy.RocketMQError,
            )

    def send(self, topic: str, count: int, label: str) -> list[str]:
        """Send messages; return their bodies."""
        bodies = [f"{label} {number}" for number in range(count)]
        with rmqpy.Producer(self.namesrv) as producer:
            for body in bodies:
                producer.send(topic, body)
        return bodies

    def received(self, topic: str) -> set[str]:
        """The bodies of all messages."""
        with rmqpy.PullConsumer("audit", self.namesrv, start_from="earliest", auto_commit=False) as consumer:
            consumer.assign(consumer.queues(topic))
            found: set[str] = set()
            while messages := consumer.poll(timeout=5.0):
                found |= {message.text() for message in messages}
            return found

    def _is_led(self) -> bool:
        try:
            return self.tool.ask(self.controller, GetControllerMetadata()).is_leader
        except _UNREACHABLE:
            return False


@contextmanager
def foreign_set(
    jars: Path, folder: Path, namesrv: str, *, count: int = 2, ours: Collection[int] = ()
) -> Iterator[ForeignSet]:
    """A controller of ours, and brokers in sync, Apache's but for `ours`; the one with the id 1 leads at first."""
    elected = ForeignSet(jars, folder, namesrv, ours)
    try:
        elected.start_controller()
        for number in range(1, count + 1):
            elected.start(number)
            elected.wait_in_sync(*range(1, number + 1))
        yield elected
    except BaseException:
        elected.show()
        raise
    finally:
        elected.close()
