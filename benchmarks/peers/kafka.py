"""Kafka: a broker that is its own controller, and the performance tools among its jars."""

import re
import uuid
from collections.abc import Mapping
from typing import ClassVar

from benchmarks import java
from benchmarks.cells import Cell
from benchmarks.peers.system import READY_SECONDS_MAX, TOPIC, OtherSystem, Printed
from benchmarks.processes import Child
from benchmarks.servers import QUEUES

_JAVA: Mapping[str, str] = {"java": "apt-get install default-jdk-headless", "mvn": "apt-get install maven"}
_SENT = re.compile(
    r"(\d+)(?: steady state)? records sent, ([\d.]+) records/sec .* "
    r"(\d+) ms 50th, \d+ ms 95th, (\d+) ms 99th, (\d+) ms 99\.9th"
)
_COLUMNS = (
    "start.time",
    "end.time",
    "data.consumed.in.MB",
    "MB.sec",
    "data.consumed.in.nMsg",
    "nMsg.sec",
    "rebalance.time.ms",
    "fetch.time.ms",
    "fetch.MB.sec",
    "fetch.nMsg.sec",
)


class Kafka(OtherSystem):
    """A broker that is its own controller."""

    name = "Kafka"
    client = "confluent-kafka"
    module = "confluent_kafka"
    verbs = ("kafka-send", "kafka-submit", "kafka-poll")
    programs: ClassVar = _JAVA
    tools: ClassVar = _JAVA
    durability = (
        "`acks=all`, of one replica: in the page cache of its log; the system decides when to flush it"
    )
    options = ("-Xms2g", "-Xmx2g", "-XX:+UseG1GC")
    partitions = QUEUES
    loads: ClassVar = {
        # One record has room in a buffer of this size, so the next one waits for its acknowledgement.
        "1x1": ("batch.size=0", "linger.ms=0", "buffer.memory=400"),
        "batch-16k": (),
        "bulk": ("batch.size=1000000",),
        "pull-1": (),
    }
    fill: ClassVar = ("batch-16k", 2_000_000)
    has_endless_reader = False
    abilities: ClassVar = (
        "`kafka-producer-perf-test`, `kafka-consumer-perf-test`",
        "one producer, one consumer",
        "at most 5 requests (the default) and `buffer.memory` bytes; one record by a buffer of one",
        "yes, by bytes and time (`batch.size`, `linger.ms`), not by count",
        "`acks` (default: all)",
        "from the call of `send`, so waiting for the batch counts; whole milliseconds",
        "ahead of the reader, up to 1 MiB a partition; no latency",
        "half of the records (`--warmup-records`); the reader has none",
    )

    def version(self) -> str:
        jar = next(java.jars("kafka").glob("kafka_2.13-*.jar"))
        return f"Kafka {jar.stem.rpartition('-')[2]}"

    def configuration(self) -> str:
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
            # As in its example file. The reader joins a group, which would wait for more members.
            "group.initial.rebalance.delay.ms": 0,
            # Otherwise, suspended during the turns of others, it would be declared dead and lose its partitions.
            "broker.session.timeout.ms": 600_000,
        }
        return "".join(f"{key}={value}\n" for key, value in values.items())

    def command(self) -> list[str]:
        file = self.folder / "server.properties"
        file.write_text(self.configuration())
        lib = java.jars("kafka")
        formatting = ("format", "--cluster-id", uuid.uuid4().hex[:22], "--config", str(file))
        with Child(
            "format", java.command(lib, self.folder, "kafka.tools.StorageTool", *formatting), self.folder
        ) as child:
            child.wait_until(lambda: "Formatting" in child.printed(), READY_SECONDS_MAX)
            child.wait(READY_SECONDS_MAX)
        return java.command(lib, self.folder, "kafka.Kafka", str(file), options=self.options)

    def prepare(self, cell: Cell) -> None:
        """Do nothing: each run of the reader is a new group, and sends append."""

    def tool(self, cell: Cell, count: int) -> list[str]:
        common = ("--bootstrap-server", self.address, "--topic", TOPIC)
        if cell.kind == "consume":
            # A JVM and a group may take longer to start than the tool waits by default.
            wait = ("--timeout", str(round(READY_SECONDS_MAX * 1_000)))
            return self._java("ConsumerPerformance", *common, *wait, "--num-records", str(count))
        # Each run has a new JVM, which compiles the producer's code meanwhile.
        counts = ("--num-records", str(2 * count), "--warmup-records", str(count), "--throughput", "-1")
        settings = self.loads[cell.name]
        properties = ("--command-property", *settings) if settings else ()
        size = ("--record-size", str(cell.body_bytes))
        return self._java("ProducerPerformance", *common, *size, *counts, *properties)

    def read(self, output: str, cell: Cell, count: int) -> Printed:
        return _received(output, count) if cell.kind == "consume" else _sent(output, count)

    def _java(self, tool: str, *arguments: str) -> list[str]:
        # Its numbers have a point.
        return java.command(
            java.jars("kafka"),
            self.folder,
            f"org.apache.kafka.tools.{tool}",
            *arguments,
            options=("-Duser.language=en",),
        )


def _sent(output: str, count: int) -> Printed:
    """Read the last line, of the steady state; the one before is about all records."""
    lines = _SENT.findall(output)
    if len(lines) != 2 or [int(line[0]) for line in lines] != [2 * count, count]:
        raise ValueError(f"not all of {2 * count} records were sent:\n{output[-1000:]}")
    _, rate, *percentiles = lines[1]
    # A zero is anything below a millisecond.
    p50, p99, p999 = (float(text) * 1000 or None for text in percentiles)
    return Printed(2 * count, float(rate), p50, p99, p999)


def _received(output: str, count: int) -> Printed:
    """Read the line below the names; its rate leaves out the time until the group has its partitions."""
    rows = [line.split(", ") for line in output.splitlines() if line.count(", ") == len(_COLUMNS) - 1]
    if len(rows) != 2 or tuple(rows[0]) != _COLUMNS:
        raise ValueError(f"not one row of results:\n{output[-1000:]}")
    row = dict(zip(*rows, strict=True))
    messages = int(row["data.consumed.in.nMsg"])
    if messages < count:
        raise ValueError(f"only {messages} of {count} messages were read:\n{output[-1000:]}")
    return Printed(messages, float(row["fetch.nMsg.sec"]))
