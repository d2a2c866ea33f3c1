"""Sides: a name server and a broker, ours or Apache's, with the same settings, and the floor under both.

Each gets a new folder on the same disk. Only ports and paths differ between the settings files.
"""

import os
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from socket import socket
from typing import Literal

from benchmarks import java, wire
from benchmarks.processes import Child, free_ports
from rmqpy.load import machine

ROOT = Path(__file__).resolve().parent.parent
BROKER_NAME = "broker-a"
QUEUES = 4
_READY_SECONDS_MAX = 90.0
#: Apache's broker takes more than ten seconds to stop in order.
_STOPPED_SECONDS_MAX = 120.0
Profile = Literal["dev", "release"]


class Side(ABC):
    """One side: `start` it, load it at `namesrv`, `stop` it. A new start has a new store."""

    name: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder / self.name
        self.namesrv = f"127.0.0.1:{free_ports(1)}"
        self.port = free_ports(4) + 2
        #: Settings of the broker, in addition to the common ones.
        self.more_settings: Mapping[str, str] = {}
        self._namesrv: Child | None = None
        self._broker: Child | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The broker's process."""
        assert self._broker is not None, "the side is started"
        return self._broker.pid

    @property
    def pids(self) -> list[int]:
        """Its running processes."""
        return [child.pid for child in (self._namesrv, self._broker) if child is not None]

    def private_bytes(self) -> int:
        """The broker's own memory."""
        return machine.private_bytes(self.pid) or 0

    def settings(self, is_sync_flush: bool) -> str:
        """The broker's settings file."""
        values: dict[str, object] = {
            "brokerClusterName": "bench",
            "brokerName": BROKER_NAME,
            "brokerId": 0,
            "brokerIP1": "127.0.0.1",
            "listenPort": self.port,
            "haListenPort": self.port + 1,
            "namesrvAddr": self.namesrv,
            "storePathRootDir": self.folder / "store",
            "flushDiskType": "SYNC_FLUSH" if is_sync_flush else "ASYNC_FLUSH",
            **self.more_settings,
        }
        return "".join(f"{key}={value}\n" for key, value in values.items())

    def namesrv_settings(self) -> str:
        """The name server's."""
        return f"listenPort={self.namesrv.rpartition(':')[2]}\n"

    def load_command(self, work: str, topic: str, *options: str) -> list[str]:
        """`rmqpy bench` against this side, with JSON output."""
        command = [sys.executable, "-m", "rmqpy", "bench", work, topic, *options]
        return [*command, "-n", self.namesrv, "-o", "json"]

    def start(self, *, is_sync_flush: bool = False) -> None:
        """Start both servers with a new store; return when the broker is registered."""
        self.start_name_server()
        self.start_broker(is_sync_flush=is_sync_flush)
        self.settle()

    def settle(self) -> None:
        """Wait until its running broker is registered, at the start and after a pause. A broker whose request timed
        out during the pause closes its connection to the name server, which forgets it until it registers again."""
        if self._broker is not None:
            self._broker.wait_until(lambda: wire.has_master(self.namesrv, "TBW102"), _READY_SECONDS_MAX)

    def start_name_server(self) -> None:
        """Start only the name server, in an empty folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        (self.folder / "namesrv.conf").write_text(self.namesrv_settings())
        self._namesrv = Child("namesrv", self._namesrv_command(), self.folder)
        self._namesrv.wait_until(lambda: wire.is_listening(self.namesrv), _READY_SECONDS_MAX)

    def start_broker(self, *, is_sync_flush: bool = False) -> None:
        """Start the broker with a new store, without waiting."""
        shutil.rmtree(self.folder / "store", ignore_errors=True)
        (self.folder / "broker.conf").write_text(self.settings(is_sync_flush))
        self._broker = Child("broker", self._broker_command(), self.folder)

    def start_broker_again(self) -> None:
        """Start the broker with its existing store after `end_broker`, without waiting."""
        self._broker = Child("broker", self._broker_command(), self.folder)

    def end_broker(self, *, in_order: bool) -> None:
        """Stop or kill only the broker; its store stays."""
        assert self._broker is not None, "the side is started"
        if in_order:
            self._broker.stop(_STOPPED_SECONDS_MAX)
        else:
            self._broker.kill()

    def stop_broker(self) -> None:
        """Kill only the broker; its store may be invalid."""
        if self._broker is not None:
            self._broker.kill()
            self._broker = None

    def stop(self) -> None:
        """Stop everything and remove the folder."""
        self.stop_broker()
        if self._namesrv is not None:
            self._namesrv.kill()
            self._namesrv = None
        shutil.rmtree(self.folder, ignore_errors=True)

    @abstractmethod
    def _namesrv_command(self) -> list[str]: ...

    @abstractmethod
    def _broker_command(self) -> list[str]: ...


class Rmqpy(Side):
    """Our servers."""

    name = "rmqpy"

    def _namesrv_command(self) -> list[str]:
        return [sys.executable, "-m", "rmqpy", "namesrv", "-c", "namesrv.conf"]

    def _broker_command(self) -> list[str]:
        return [sys.executable, "-m", "rmqpy", "broker", "-c", "broker.conf"]


class MappedRmqpy(Rmqpy):
    """Ours, writing through a memory mapping of the log file."""

    name = "rmqpy-mapped"

    def settings(self, is_sync_flush: bool) -> str:
        return super().settings(is_sync_flush) + "commitLogWritePath=mapping\n"


class Apache(Side):
    """Apache's servers."""

    name = "apache"

    def __init__(self, folder: Path, lib: Path) -> None:
        super().__init__(folder)
        self.lib = lib

    def _namesrv_command(self) -> list[str]:
        main = "org.apache.rocketmq.namesrv.NamesrvStartup"
        return java.command(self.lib, self.folder, main, "-c", "namesrv.conf", options=("-Xmx256m",))

    def _broker_command(self) -> list[str]:
        main = "org.apache.rocketmq.broker.BrokerStartup"
        return java.command(self.lib, self.folder, main, "-c", "broker.conf", options=java.BROKER_OPTIONS)


class Slave(Side):
    """A slave of another side, sharing its name server: a mixin before `Rmqpy` or `Apache`."""

    name = "slave"

    def follow(self, master: Side) -> None:
        """The master it follows from the next start on."""
        self.namesrv = master.namesrv

    def settings(self, is_sync_flush: bool) -> str:
        # The later line counts.
        return super().settings(is_sync_flush) + "brokerId=1\nbrokerRole=SLAVE\n"

    def start_broker(self, *, is_sync_flush: bool = False) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        super().start_broker(is_sync_flush=is_sync_flush)


class RmqpySlave(Slave, Rmqpy):
    """Ours."""


class ApacheSlave(Slave, Apache):
    """Apache's."""


class Floor(Rmqpy):
    """The floor: the cost of a send for one thread that only appends and responds, the minimum of any broker."""

    name = "floor"

    def __init__(self, folder: Path, profile: Profile = "release") -> None:
        super().__init__(folder)
        self._program = example("append_floor", profile)
        self._registration: socket | None = None

    def start_broker(self, *, is_sync_flush: bool = False) -> None:
        """The program, as the only broker of the name server."""
        assert not is_sync_flush, "it writes to no disk"
        self._broker = Child("append_floor", self._broker_command(), self.folder)
        self._broker.wait_until(lambda: wire.is_listening(self.address), _READY_SECONDS_MAX)
        self.register()

    def load_command(self, work: str, topic: str, *options: str) -> list[str]:
        self.register()
        return super().load_command(work, topic, *options)

    def register(self) -> None:
        """The name server forgets a broker that is silent for two minutes, or whose connection ends."""
        if self._registration is not None:
            self._registration.close()
        topics = ("TBW102", "bench")
        self._registration = wire.register(self.namesrv, BROKER_NAME, self.address, topics, QUEUES)

    def stop_broker(self) -> None:
        if self._registration is not None:
            self._registration.close()
            self._registration = None
        super().stop_broker()

    def _broker_command(self) -> list[str]:
        return [str(self._program), str(self.port)]


def example(name: str, profile: Profile = "release") -> Path:
    """Build a program of this tree that is not installed."""
    command = ["cargo", "build", "--quiet", "--locked", "--profile", profile, "--example", name]
    subprocess.run(command, cwd=ROOT, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / ("debug" if profile == "dev" else profile) / "examples" / name
