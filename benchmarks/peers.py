"""Other brokers, for the clients of Python that go with them: Kafka by Maven, NATS where it is installed.

Each serves one process on free ports of this machine and stores in a folder of its own, with its defaults.
"""

import shutil
import uuid
from abc import ABC, abstractmethod
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from benchmarks import java, wire
from benchmarks.processes import Child, free_ports
from benchmarks.servers import QUEUES

_READY_SECONDS_MAX = 60.0


class Peer(ABC):
    """One broker, started when entered; `address` is what its clients connect to."""

    name: str
    #: The Python client, as PyPI calls it, and the verbs of `client_load` it has.
    client: str
    module: str
    verbs: tuple[str, ...]

    def __init__(self, folder: Path) -> None:
        self.folder = folder / self.name.lower()
        self.port = free_ports(2)
        self.address = f"127.0.0.1:{self.port}"
        self._child: Child | None = None

    @classmethod
    def missing(cls) -> str | None:
        """What has to be installed first; None when everything is there."""
        return None if find_spec(cls.module) else f"pip install {cls.client}"

    def title(self) -> str:
        """The client with its version."""
        return f"{self.client} {metadata.version(self.client)} at {self.name}"

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True)
        self._child = Child(self.name.lower(), self.command(), self.folder)
        self._child.wait_until(lambda: wire.is_listening(self.address), _READY_SECONDS_MAX)
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            self._child.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    @abstractmethod
    def command(self) -> list[str]:
        """What starts it, after its folder has been prepared."""


class Kafka(Peer):
    """A broker that is its own controller."""

    name = "Kafka"
    client = "confluent-kafka"
    module = "confluent_kafka"
    verbs = ("kafka-send", "kafka-submit", "kafka-poll")
    partitions = QUEUES

    def command(self) -> list[str]:
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{self.port + 1}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.port + 1}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self.folder / "store",
            "num.partitions": self.partitions,
            "offsets.topic.replication.factor": 1,
        }
        file = self.folder / "server.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        lib = java.jars("kafka")
        formatting = ("format", "--cluster-id", uuid.uuid4().hex[:22], "--config", str(file))
        with Child(
            "format", java.command(lib, self.folder, "kafka.tools.StorageTool", *formatting), self.folder
        ) as child:
            child.wait_until(lambda: "Formatting" in child.printed(), _READY_SECONDS_MAX)
            child.wait(_READY_SECONDS_MAX)
        return java.command(
            lib, self.folder, "kafka.Kafka", str(file), options=("-Xms2g", "-Xmx2g", "-XX:+UseG1GC")
        )


class Nats(Peer):
    """A server with JetStream on disk."""

    name = "NATS"
    client = "nats-py"
    module = "nats"
    verbs = ("nats-send", "nats-submit", "nats-poll")

    @classmethod
    def missing(cls) -> str | None:
        return super().missing() if shutil.which("nats-server") else "apt-get install nats-server"

    def command(self) -> list[str]:
        return [
            "nats-server",
            "-a",
            "127.0.0.1",
            "-p",
            str(self.port),
            "-js",
            "-sd",
            str(self.folder / "store"),
        ]


PEERS: tuple[type[Peer], ...] = (Kafka, Nats)
