"""Servers of an election: controllers of either kind, a name server, and the brokers of one set, each a process."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import free_ports
from interop.servers import SMALL_JVM, broker_port

BROKER_NAME = "broker-a"
CLUSTER_NAME = "elected"
START_SECONDS_MAX = 60.0
_LOOPBACK = "127.0.0.1"
#: Apache's log of the kind jRaft has objects of Java's library.
_OPEN_JVM = tuple(
    f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.lang", "java.util", "java.util.concurrent")
)
_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Place:
    """The machine of a server: its address, and the prefix of a command that runs there."""

    host: str = _LOOPBACK
    inside: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether other machines reach it."""
        return self.host != _LOOPBACK


class Server:
    """One process, which can be killed, paused and started again."""

    def __init__(
        self, name: str, command: Sequence[str], folder: Path, port: int, place: Place = Place()
    ) -> None:
        self.name = name
        self.port = port
        self.place = place
        self.address = f"{place.host}:{port}"
        self._command = [*place.inside, *command]
        self.folder = folder
        self.log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def wait(self) -> None:
        """Wait until the port is open."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            if self._process is not None and self._process.poll() is not None:
                break
            try:
                socket.create_connection((self.place.host, self.port), 0.2).close()
                return
            except OSError:
                time.sleep(_POLL_SECONDS)
        raise AssertionError(f"{self.name} did not start:\n{self.log.read_text(errors='replace')[-3000:]}")

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None, "the process was started"
        self._process.send_signal(number)

    def revive(self) -> None:
        """Continue if it is paused, start if it has ended."""
        if self._process is None or self._process.poll() is not None:
            self.start()
        else:
            self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Stop in order."""
        assert self._process is not None, "the process was started"
        self._process.terminate()
        self._process.wait(timeout=30)


def controllers(
    folder: Path, count: int, jars: Path | None, places: Sequence[Place] = (), **more: object
) -> list[Server]:
    """Controllers of one group: Apache's with its jars, or ours."""
    ports = [free_ports(1) for _ in range(count)]
    places = list(places) or [Place()] * count
    found = list(zip(places, ports, strict=True))
    peers = ";".join(f"n{number}-{place.host}:{port}" for number, (place, port) in enumerate(found))
    made = []
    for number, (place, port) in enumerate(found):
        home = folder / f"controller-{number}"
        home.mkdir(parents=True)
        settings: dict[str, object] = {
            "controllerDLegerGroup": "group",
            "controllerDLegerPeers": peers,
            "controllerDLegerSelfId": f"n{number}",
            "controllerStorePath": home / "store",
            **({"mappedFileSize": 64 << 20} if jars else {}),
            **(
                {"bindAddress": place.host, "controllerGroupSecret": "0123456789abcdef" * 2}
                if place.is_open
                else {}
            ),
            **more,
        }
        _write(home / "controller.conf", settings)
        command = (
            _java(jars, home, "org.apache.rocketmq.controller.ControllerStartup", "-Xmx128m")
            if jars
            else [sys.executable, "-m", "rmqpy", "controller"]
        )
        made.append(Server(f"controller-{number}", [*command, "-c", "controller.conf"], home, port, place))
    return made


def jraft_controllers(folder: Path, count: int, jars: Path, **more: object) -> list[Server]:
    """Apache's controllers of one group, of the kind jRaft. Brokers and tools use other ports than the group."""
    peers, served = ([f"{_LOOPBACK}:{free_ports(1)}" for _ in range(count)] for _ in range(2))
    made = []
    for number, (peer, address) in enumerate(zip(peers, served, strict=True)):
        home = folder / f"controller-{number}"
        home.mkdir(parents=True)
        settings: dict[str, object] = {
            "controllerType": "jRaft",
            "jRaftGroupId": "group",
            "jRaftServerId": peer,
            "jRaftInitConf": ",".join(peers),
            "jRaftControllerRPCAddr": ",".join(served),
            "controllerStorePath": home / "store",
            **more,
        }
        _write(home / "controller.conf", settings)
        command = _java(
            jars, home, "org.apache.rocketmq.controller.ControllerStartup", "-Xmx256m", *_OPEN_JVM
        )
        port = int(address.rpartition(":")[2])
        made.append(Server(f"controller-{number}", [*command, "-c", "controller.conf"], home, port))
    return made


def name_server(folder: Path, *, controller_port: int | None = None, place: Place = Place()) -> Server:
    """Our name server, with a controller in it on a separate port if it is given."""
    home, port = folder / "namesrv", free_ports(1)
    home.mkdir(parents=True)
    controller = {
        "enableControllerInNamesrv": "true",
        "controllerDLegerPeers": f"n0-127.0.0.1:{controller_port}",
        "controllerDLegerSelfId": "n0",
        "controllerStorePath": home / "controller",
    }
    settings = {
        "listenPort": port,
        "bindAddress": place.host,
        **({} if controller_port is None else controller),
    }
    _write(home / "namesrv.conf", settings)
    command = [sys.executable, "-m", "rmqpy", "namesrv", "-c", "namesrv.conf"]
    return Server("namesrv", command, home, port, place)


def broker(
    folder: Path,
    number: int,
    namesrv: str,
    controller_addresses: str,
    place: Place = Place(),
    *,
    store: Path | None = None,
    **more: object,
) -> Server:
    """One of our brokers of the set. `store` is the folder of its messages."""
    home, port = folder / f"broker-{number}", broker_port()
    home.mkdir(parents=True)
    settings: dict[str, object] = {
        "brokerClusterName": CLUSTER_NAME,
        "brokerName": BROKER_NAME,
        "brokerIP1": place.host,
        **({"brokerIP2": place.host, "bindAddress": place.host} if place.is_open else {}),
        "listenPort": port,
        "haListenPort": port + 1,
        "namesrvAddr": namesrv,
        "storePathRootDir": store or home / "store",
        "mappedFileSizeCommitLog": 16 << 20,
        "enableControllerMode": "true",
        "controllerAddr": controller_addresses,
        "slaveReadEnable": "true",
        "httpPort": -1,
        "grpcServerPort": -1,
        **more,
    }
    _write(home / "broker.conf", settings)
    command = [sys.executable, "-m", "rmqpy", "broker", "-c", "broker.conf"]
    return Server(f"broker-{number}", command, home, port, place)


def _java(jars: Path, home: Path, main: str, *options: str) -> list[str]:
    places = [f"-Duser.home={home}", f"-Drocketmq.home.dir={home}"]
    return ["java", *SMALL_JVM, *options, *places, "-cp", f"{jars / 'lib'}/*", main]


def _write(path: Path, settings: Mapping[str, object]) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
