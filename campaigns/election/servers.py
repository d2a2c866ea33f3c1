"""Servers of an election: controllers of either kind, a name server, and the brokers of one set, each a process."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.processes import free_ports
from interop.servers import SMALL_JVM, broker_port

BROKER_NAME = "broker-a"
CLUSTER_NAME = "elected"
START_SECONDS_MAX = 60.0
_POLL_SECONDS = 0.05


class Server:
    """One process, which can be killed, paused and started again."""

    def __init__(self, name: str, command: Sequence[str], folder: Path, port: int) -> None:
        self.name = name
        self.port = port
        self.address = f"127.0.0.1:{port}"
        self._command = list(command)
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
                socket.create_connection(("127.0.0.1", self.port), 0.2).close()
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


def controllers(folder: Path, count: int, jars: Path | None, **more: object) -> list[Server]:
    """Controllers of one group: Apache's with its jars, or ours."""
    ports = [free_ports(1) for _ in range(count)]
    peers = ";".join(f"n{place}-127.0.0.1:{port}" for place, port in enumerate(ports))
    made = []
    for place, port in enumerate(ports):
        home = folder / f"controller-{place}"
        home.mkdir(parents=True)
        settings: dict[str, object] = {
            "controllerDLegerGroup": "group",
            "controllerDLegerPeers": peers,
            "controllerDLegerSelfId": f"n{place}",
            "controllerStorePath": home / "store",
            **({"mappedFileSize": 64 << 20} if jars else {}),
            **more,
        }
        _write(home / "controller.conf", settings)
        command = (
            _java(jars, home, "org.apache.rocketmq.controller.ControllerStartup", "-Xmx128m")
            if jars
            else [sys.executable, "-m", "rmqpy", "controller"]
        )
        made.append(Server(f"controller-{place}", [*command, "-c", "controller.conf"], home, port))
    return made


def name_server(folder: Path, *, controller_port: int | None = None) -> Server:
    """Our name server, with a controller in it on a separate port if it is given."""
    home, port = folder / "namesrv", free_ports(1)
    home.mkdir(parents=True)
    controller = {
        "enableControllerInNamesrv": "true",
        "controllerDLegerPeers": f"n0-127.0.0.1:{controller_port}",
        "controllerDLegerSelfId": "n0",
        "controllerStorePath": home / "controller",
    }
    settings = {"listenPort": port, **({} if controller_port is None else controller)}
    _write(home / "namesrv.conf", settings)
    return Server("namesrv", [sys.executable, "-m", "rmqpy", "namesrv", "-c", "namesrv.conf"], home, port)


def broker(folder: Path, number: int, namesrv: str, controller_addresses: str, **more: object) -> Server:
    """One of our brokers of the set."""
    home, port = folder / f"broker-{number}", broker_port()
    home.mkdir(parents=True)
    settings: dict[str, object] = {
        "brokerClusterName": CLUSTER_NAME,
        "brokerName": BROKER_NAME,
        "brokerIP1": "127.0.0.1",
        "listenPort": port,
        "haListenPort": port + 1,
        "namesrvAddr": namesrv,
        "storePathRootDir": home / "store",
        "mappedFileSizeCommitLog": 16 << 20,
        "enableControllerMode": "true",
        "controllerAddr": controller_addresses,
        "slaveReadEnable": "true",
        "httpPort": -1,
        "grpcServerPort": -1,
        **more,
    }
    _write(home / "broker.conf", settings)
    return Server(
        f"broker-{number}", [sys.executable, "-m", "rmqpy", "broker", "-c", "broker.conf"], home, port
    )


def _java(jars: Path, home: Path, main: str, *options: str) -> list[str]:
    places = [f"-Duser.home={home}", f"-Drocketmq.home.dir={home}"]
    return ["java", *SMALL_JVM, *options, *places, "-cp", f"{jars / 'lib'}/*", main]


def _write(path: Path, settings: Mapping[str, object]) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
