"""The load tools of other brokers: their outputs are understood, and their counts are those of the brokers.

Tests that start a broker are skipped where it or its tool is missing; nothing else needs them.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import java
from benchmarks.cells import Cell
from benchmarks.interval import RunMetrics
from benchmarks.peers import OTHER_SYSTEMS, Kafka, Nats, OtherSystem, Redis
from benchmarks.peers.cells import PEER_CELLS, named
from benchmarks.peers.ours import Ours
from benchmarks.peers.report import ABILITIES, Side, document, rows
from benchmarks.peers.system import TOPIC, Printed
from benchmarks.peers.watch import run, watch

# A cold Maven fetches Kafka's jars.
pytestmark = pytest.mark.timeout(600)

NOWHERE = Path("nowhere")
COUNT = 1_000
SENDS = {cell.name: cell for cell in PEER_CELLS if cell.kind == "produce"}
[SEND], [PULL] = named("4x64"), named("pull-1")


def sends_of(kind: type[OtherSystem]) -> list[str]:
    return [name for name in kind.loads if name in SENDS]


def pulls_of(kind: type[OtherSystem]) -> list[str]:
    return [name for name in kind.loads if name not in SENDS]


def started(kind: type[OtherSystem], folder: Path) -> Iterator[OtherSystem]:
    if missing := kind.missing_tool():
        pytest.skip(missing)
    with kind(folder) as system:
        yield system


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtherSystem]:
    yield from started(Kafka, tmp_path_factory.mktemp("kafka"))


@pytest.fixture(scope="module")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtherSystem]:
    yield from started(Nats, tmp_path_factory.mktemp("nats"))


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtherSystem]:
    yield from started(Redis, tmp_path_factory.mktemp("redis"))


def loaded(system: OtherSystem, cell: Cell) -> Printed:
    system.prepare(cell)
    return system.read(watch(system.tool(cell, COUNT), system.pids, system.folder).output, cell, COUNT)


def kafka_holds(kafka: OtherSystem) -> int:
    """The sum of the ends of all partitions."""
    asking = ("--bootstrap-server", kafka.address, "--topic", TOPIC)
    command = java.command(java.jars("kafka"), kafka.folder, "org.apache.kafka.tools.GetOffsetShell", *asking)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return sum(int(line.rpartition(":")[2]) for line in done.stdout.splitlines())


@pytest.mark.parametrize("name", sends_of(Kafka))
def test_kafka_holds_what_its_tool_counts(kafka: OtherSystem, name: str) -> None:
    # The first send creates the topic.
    loaded(kafka, SENDS[name])
    before = kafka_holds(kafka)
    printed = loaded(kafka, SENDS[name])
    # The first half is the warm-up.
    assert kafka_holds(kafka) - before == printed.messages == 2 * COUNT
    assert printed.per_second > 0


@pytest.mark.parametrize("name", pulls_of(Kafka))
def test_kafkas_reader_starts_at_the_begin_each_time(kafka: OtherSystem, name: str) -> None:
    loaded(kafka, SENDS["batch-16k"])
    [cell] = named(name)
    assert all(loaded(kafka, cell).messages >= COUNT for _ in range(2))


def nats_holds(server: OtherSystem) -> int:
    command = ["nats", "--server", f"nats://{server.address}", "stream", "info", "benchstream", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(json.loads(done.stdout)["state"]["messages"])


@pytest.mark.parametrize("name", sends_of(Nats))
def test_nats_holds_what_its_tool_counts(nats_server: OtherSystem, name: str) -> None:
    printed = loaded(nats_server, SENDS[name])
    assert nats_holds(nats_server) == printed.messages == COUNT
    assert printed.p50_us is not None
    assert printed.p999_us is not None
    assert 0 < printed.p50_us <= printed.p999_us


@pytest.mark.parametrize("name", pulls_of(Nats))
def test_natss_reader_starts_at_the_begin_each_time(nats_server: OtherSystem, name: str) -> None:
    loaded(nats_server, SEND)
    [cell] = named(name)
    # A consumer that continued would find nothing.
    assert all(loaded(nats_server, cell).per_second > 0 for _ in range(2))


def redis_holds(redis: OtherSystem) -> int:
    assert isinstance(redis, Redis)
    done = subprocess.run(redis.cli("XLEN", TOPIC), capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.parametrize("name", sends_of(Redis))
def test_redis_holds_what_its_tool_counts(redis: OtherSystem, name: str) -> None:
    printed = loaded(redis, SENDS[name])
    # It sends whole pipelines.
    assert redis_holds(redis) == printed.messages == (1024 if name.startswith("4x64") else COUNT)
    assert printed.p99_us is not None


@pytest.mark.parametrize("name", pulls_of(Redis))
def test_redis_reads_32_messages_a_request(redis: OtherSystem, name: str) -> None:
    loaded(redis, SEND)
    [cell] = named(name)
    # A thousand is not a multiple of 32.
    assert loaded(redis, cell).messages == 1024


def test_a_run_reports_processor_time_of_tool_and_broker(redis: OtherSystem, tmp_path: Path) -> None:
    metrics = run(redis, SENDS["1x1"], 5_000, tmp_path)
    assert metrics["cpu_us"] > 0
    assert metrics["load_cores"] > 0
    assert "p999_us" not in metrics


def test_a_tool_that_fails_ends_the_run_with_its_output(redis: OtherSystem, tmp_path: Path) -> None:
    subprocess.run([*Redis.cli(redis, "SET", "other", "1")], check=True, stdout=subprocess.DEVNULL)
    with pytest.raises(subprocess.CalledProcessError) as caught:
        watch([*redis.tool(SEND, 10)[:-5], "XADD", "other", "*", "b", "x"], redis.pids, tmp_path)
    assert "WRONGTYPE" in caught.value.stdout + caught.value.stderr


SENT = (
    "{count}{steady} records sent, {rate} records/sec (3.21 MB/sec), 1.50 ms avg latency, 203.00 ms max latency, "
    "{p50} ms 50th, 4 ms 95th, 7 ms 99th, 12 ms 99.9th.\n"
)
READ = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, "
    "fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec\n"
    "2026-11-28 12:00:00:000, 2026-11-28 12:00:01:000, 0.0610, 0.0610, {count}, 500.0, 900, 100, 0.61, 5000.5\n"
)


def test_kafkas_steady_state_counts_and_zero_milliseconds_are_unknown() -> None:
    kafka = Kafka(NOWHERE)
    whole = SENT.format(count=200, steady="", rate="10.0", p50=9)
    steady = SENT.format(count=100, steady=" steady state", rate="26315.789474", p50=0)
    printed = kafka.read(whole + steady, SEND, 100)
    assert printed == Printed(200, 26315.789474, None, 7000.0, 12000.0)
    with pytest.raises(ValueError, match="not all of 200 records"):
        kafka.read(whole, SEND, 100)
    with pytest.raises(ValueError, match="not all of 202 records"):
        kafka.read(whole + steady, SEND, 101)


def test_kafkas_reader_is_measured_without_its_rebalance() -> None:
    kafka = Kafka(NOWHERE)
    assert kafka.read(READ.format(count=500), PULL, 500) == Printed(500, 5000.5)
    with pytest.raises(ValueError, match="only 499 of 500"):
        kafka.read(READ.format(count=499), PULL, 500)
    with pytest.raises(ValueError, match="not one row"):
        kafka.read("Exception in thread main\n", PULL, 500)


ONE_CLIENT = (
    "NATS JetStream synchronous publisher stats: 12,709 msgs/sec ~ 1.6 MiB/sec ~ min: 60.1us ~ avg: 78us ~ "
    "max: 1,234.5us ~ P50: 74.25us ~ P90: 90us ~ P99: 1,138us ~ P99.9: 2,204.5us\n"
)
TWO_CLIENTS = (
    " [1] 3,000 msgs/sec ~ 375 KiB/sec ~ min: 1us ~ avg: 1us ~ max: 1us ~ P50: 1us ~ P90: 1us ~ P99: 1us ~ "
    "P99.9: 1us (500 msgs)\n\n NATS JetStream asynchronous publisher aggregated stats: 6,100 msgs/sec ~ 762 KiB/sec\n"
    " message rates min 3,000 | avg 3,050 | max 3,100 | stddev 50 msgs\n"
    " latencies per operation min 60us | avg 70us | max 1,300us | stddev 9us | P50 71us | P90 80us | P99 1,200us | "
    "P99.9: 1,300us\n"
)


def test_the_sum_over_natss_clients_counts() -> None:
    nats = Nats(NOWHERE)
    assert nats.read(ONE_CLIENT, SEND, 1000) == Printed(1000, 12709, 74.25, 1138, 2204.5)
    assert nats.read(TWO_CLIENTS, SEND, 1000) == Printed(1000, 6100, 71, 1200, 1300)
    # Of a fetch it times only the start.
    assert nats.read(ONE_CLIENT, PULL, 1000) == Printed(1000, 12709)
    with pytest.raises(ValueError, match="warning"):
        nats.read(ONE_CLIENT + "WARNING: These results are not optimal!", SEND, 1000)


def test_redis_counts_requests() -> None:
    redis = Redis(NOWHERE)
    names = ("avg", "min", "p50", "p95", "p99", "max")
    head = ",".join(f'"{name}"' for name in ("test", "rps", *(f"{name}_latency_ms" for name in names)))
    output = f'{head}\n"XREAD COUNT 32 STREAMS bench 0","1000.50","0.1","0.1","0.105","0.2","0.3","0.9"\n'
    assert redis.read(output, PULL, 100) == Printed(128, 32016, 105, 300)
    assert redis.read(output, SEND, 100) == Printed(128, 1000.5, 105, 300)
    with pytest.raises(ValueError, match="not one row"):
        redis.read(head, SEND, 100)


def test_our_tool_fails_on_refused_sends() -> None:
    ours = Ours(NOWHERE)
    result = {
        "refused": [],
        "unanswered": 0,
        "messages_total": 100,
        "messages_per_s": 5.0,
        "latency_us": {"p50": 1.0, "p99": 2.0, "p999": 3.0},
    }
    assert ours.read(json.dumps(result) + "\na warning", SEND, 100) == Printed(100, 5.0, 1.0, 2.0, 3.0)
    with pytest.raises(ValueError, match="not all of 100"):
        ours.read(json.dumps(result | {"refused": [{"code": 1}]}), SEND, 100)


def metrics(scale: float, *missing: str) -> RunMetrics:
    names = ("throughput", "p50_us", "p99_us", "p999_us", "cpu_us", "load_cores", "other_cores", "refused")
    return {name: 100 * scale for name in names if name not in missing}


def test_peers_are_listed_in_order_with_ratios() -> None:
    ours = [metrics(2), metrics(9), metrics(4)]
    theirs = [metrics(1), metrics(3, "p999_us"), metrics(8)]
    written = rows(SEND, {"rmqpy": ours, "Kafka": theirs, "NATS": ours})
    assert [row[1] for row in written] == ["rmqpy", "Kafka", "NATS", "*rmqpy / Kafka*", "*rmqpy / NATS*"]
    assert written[1][2] == "300 (100 – 800)"
    # Turns are compared, not medians: 2, 3 and a half.
    assert [row[2] for row in written[3:]] == ["2", "1"]
    assert [row[6] for row in (written[1], written[3], written[4])] == ["–", "–", "1"]


def test_the_report_says_what_each_tool_can_express() -> None:
    results = {cell: {"rmqpy": [metrics(1)], "Kafka": [metrics(1)]} for cell in PEER_CELLS}
    sides = [
        Side(kind.name, f"{kind.name} 1", kind.durability, kind.abilities, ("a-tool -c 1",), "a=b")
        for kind in (Ours, *OTHER_SYSTEMS)
    ]
    text = document(results, sides, "about")
    assert all(cell.title in text for cell in results)
    assert all(question in text for question in ABILITIES)
    assert all(kind.durability in text for kind in OTHER_SYSTEMS)
    assert text.count("a-tool -c 1") == text.count("a=b") == len(sides)


def test_cells_of_the_tools_have_names() -> None:
    names = {cell.name for cell in PEER_CELLS}
    assert len(names) == len(PEER_CELLS)
    assert all(names >= {*kind.loads, kind.fill[0]} for kind in OTHER_SYSTEMS)
    # Each cell compares something.
    assert all(any(name in kind.loads for kind in OTHER_SYSTEMS) for name in names)
