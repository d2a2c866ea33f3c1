"""The connector on a standalone Spark cluster: `make spark-cluster`, half a minute on a quiet machine.

Goal: tasks run on executors in processes of their own, each of which keeps one connection to the broker, for reading
and for writing, and makes a new one after the broker was restarted. Method: the example's cluster and stream; /proc
tells who is connected.
"""

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

import rmqpy.testing

pytestmark = pytest.mark.timeout(600)

_ESTABLISHED = "01"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example."""
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[2] / "examples" / "spark"), *sys.path])
    return importlib.import_module("standalone")


@dataclass(frozen=True)
class Worker:
    """A Python process that Spark runs tasks in."""

    pid: int
    executor: int
    connections: int


def connected(address: str) -> list[Worker]:
    """Spark's Python workers that are connected to a server."""
    port = int(address.rpartition(":")[2])
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    sockets = {
        f"socket:[{fields[9]}]"
        for fields in lines
        if int(fields[2].rpartition(":")[2], 16) == port and fields[3] == _ESTABLISHED
    }
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if b"pyspark.daemon" in (process / "cmdline").read_bytes():
                # One socket may have several descriptors.
                own = sockets & {str(link.readlink()) for link in (process / "fd").iterdir()}
                executor = parent(parent(int(process.name)))
                found.append(Worker(int(process.name), executor, len(own)))
        except OSError:
            continue
    return [worker for worker in found if worker.connections]


def parent(pid: int) -> int:
    """Of a worker, the daemon it was forked from; of that, the executor."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_executors_keep_one_connection_each_and_make_it_anew(
    example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        rmqpy.testing.Cluster() as cluster,
        example.spark_cluster(tmp_path) as url,
        example.session(url) as spark,
    ):
        seen: list[list[Worker]] = []
        stop = cluster.stop

        def look_and_stop(name: str) -> None:
            seen.append(connected(cluster.address(name)))
            stop(name)

        monkeypatch.setattr(cluster, "stop", look_and_stop)
        assert example.main(spark, cluster, tmp_path) == 2000
        seen.append(connected(cluster.address("broker-a")))
    for workers in seen:
        assert {worker.connections for worker in workers} == {1}
        assert len({worker.executor for worker in workers}) == example.WORKERS
    assert {worker.executor for worker in seen[0]} == {worker.executor for worker in seen[1]}
