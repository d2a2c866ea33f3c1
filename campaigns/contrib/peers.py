"""Brokers of a comparison under Celery: rmqpy, Redis and RabbitMQ, each started in a folder on free ports.

Each is set up to keep accepted tasks over a kill, as its documentation says: Redis with an append-only file that is
synchronized on each write, RabbitMQ with a durable queue.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar


class Peer(ABC):
    """One broker, which can be killed and started again on its folder."""

    name: ClassVar[str]
    program: ClassVar[str]
    #: Options of Celery's `broker_transport_options`.
    transport_options: ClassVar[dict[str, object]] = {}

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = random.randrange(20_000, 30_000)
        self.process: subprocess.Popen[bytes] | None = None

    @classmethod
    def is_installed(cls) -> bool:
        """Whether the program is on the machine."""
        return shutil.which(cls.program) is not None

    @property
    @abstractmethod
    def url(self) -> str:
        """The address for Celery."""

    @abstractmethod
    def command(self) -> tuple[list[str], dict[str, str]]:
        """Return the command, and variables of its environment."""

    def start(self) -> None:
        """Start it, and wait until it accepts connections."""
        self.folder.mkdir(parents=True, exist_ok=True)
        command, variables = self.command()
        with (self.folder / "broker.log").open("ab") as log:
            self.process = subprocess.Popen(
                command,
                env={**os.environ, **variables},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        until = time.monotonic() + 90
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(
                    f"{self.name} did not start: {(self.folder / 'broker.log').read_text()[-2000:]}"
                )
            time.sleep(0.1)

    def is_ready(self) -> bool:
        """Whether it accepts connections."""
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """End it as a crash does."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def close(self) -> None:
        """End it, and what it has started elsewhere."""
        self.kill()

    @property
    def pid(self) -> int:
        """The process group."""
        assert self.process is not None
        return self.process.pid


class Rmqpy(Peer):
    """rmqpy's name server and broker."""

    name = "rmqpy"
    program = sys.executable
    transport_options: ClassVar[dict[str, object]] = {"visibility_timeout": 5}

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.broker_port = random.randrange(30_000, 32_000)

    @property
    def url(self) -> str:
        """As `Peer.url`."""
        return f"rocketmq://127.0.0.1:{self.port}"

    def command(self) -> tuple[list[str], dict[str, str]]:
        """As `Peer.command`."""
        command = [
            sys.executable,
            "-m",
            "rmqpy",
            "standalone",
            "--data-dir",
            str(self.folder / "data"),
            "--no-http",
        ]
        command += ["--namesrv-port", str(self.port), "--broker-port", str(self.broker_port)]
        return [*command, "--log-level", "error"], {}

    def is_ready(self) -> bool:
        """As `Peer.is_ready`, for the broker."""
        try:
            socket.create_connection(("127.0.0.1", self.broker_port), 1).close()
        except OSError:
            return False
        return super().is_ready()


class Redis(Peer):
    """Redis, with each write on the disk before its answer."""

    name = "redis"
    program = "redis-server"
    fsync: ClassVar[str] = "always"
    # As for rmqpy, so that tasks of killed workers come back in the same time.
    transport_options: ClassVar[dict[str, object]] = {"visibility_timeout": 5}

    @property
    def url(self) -> str:
        """As `Peer.url`."""
        return f"redis://127.0.0.1:{self.port}/0"

    def command(self) -> tuple[list[str], dict[str, str]]:
        """As `Peer.command`."""
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        options += ["--appendonly", "yes", "--appendfsync", self.fsync, "--save", ""]
        return ["redis-server", *options], {}


class RedisEverySecond(Redis):
    """Redis, with writes on the disk within a second: as rmqpy's default, which survives its own crash."""

    name = "redis-everysec"
    fsync = "everysec"


class RabbitMQ(Peer):
    """RabbitMQ, with Celery's durable queues."""

    name = "rabbitmq"
    # Debian's own command in /usr/sbin changes to another user, who has no access to the folder.
    program = "/usr/lib/rabbitmq/bin/rabbitmq-server"

    @property
    def url(self) -> str:
        """As `Peer.url`."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}//"

    def command(self) -> tuple[list[str], dict[str, str]]:
        """As `Peer.command`."""
        config = self.folder / "rabbitmq.conf"
        config.write_text(f"listeners.tcp.default = 127.0.0.1:{self.port}\nloopback_users = none\n")
        return [self.program], {
            "HOME": str(self.folder),
            "RABBITMQ_NODENAME": f"campaign{self.port}@localhost",
            "RABBITMQ_CONFIG_FILE": str(config),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder),
            "RABBITMQ_DIST_PORT": str(self.port + 10_000),
            "RABBITMQ_PLUGINS_EXPAND_DIR": str(self.folder / "plugins"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "enabled_plugins"),
            "ERL_EPMD_PORT": str(self.port + 20_000),
            "ERL_CRASH_DUMP": str(self.folder / "erl_crash.dump"),
        }

    def close(self) -> None:
        """As `Peer.close`, with the daemon of Erlang's names."""
        super().close()
        subprocess.run(["epmd", "-port", str(self.port + 20_000), "-kill"], capture_output=True, check=False)


PEERS: dict[str, type[Peer]] = {peer.name: peer for peer in (Rmqpy, Redis, RedisEverySecond, RabbitMQ)}
