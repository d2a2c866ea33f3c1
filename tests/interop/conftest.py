"""Clients and clusters: each client starts once per session and worker, each cluster on first use; all end with it.

Every scenario runs for the pairs of `PAIRS`. With RMQPY_INTEROP_CONTROL=1 it runs for `CONTROL_PAIRS` as well: the
originals among themselves, to tell a fault of rmqpy from one of the test.
"""

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from benchmarks.processes import Child

from . import servers, wire
from .clients import InteropClient, ProcessClient, start_go, start_java
from .exchange import QUEUES, Exchange
from .servers import Cluster
from .signed_java import SignedJava
from .toolchain import JAVA_CLIENTS, Missing, Originals

FOREIGN_CLIENTS = (*(f"java-{version}" for version in JAVA_CLIENTS), "go")
PAIRS = [(client, "rmqpy") for client in FOREIGN_CLIENTS] + [("rmqpy", "apache")]
CONTROL_PAIRS = [(client, "apache") for client in FOREIGN_CLIENTS] + [("rmqpy", "rmqpy")]

_usage = pytest.StashKey[list[Child]]()
_usage_of_workers = pytest.StashKey[list[str]]()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    is_control = os.environ.get("RMQPY_INTEROP_CONTROL") == "1"
    if "pair" in metafunc.fixturenames:
        pairs = PAIRS + CONTROL_PAIRS * is_control
        if metafunc.definition.get_closest_marker("push"):
            pairs = [(client, cluster) for client, cluster in pairs if client != "rmqpy"]
        ids = [f"{client}-at-{cluster}" for client, cluster in pairs]
        metafunc.parametrize("pair", pairs, ids=ids, scope="session")
    if "cluster_name" in metafunc.fixturenames:
        metafunc.parametrize("cluster_name", ["rmqpy"] + ["apache"] * is_control, scope="session")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_usage] = []
    config.stash[_usage_of_workers] = []
    config.addinivalue_line("markers", "push: only for clients that have a push consumer")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Workers begin with the files that may take longest, so that none is left alone with such a file at the end."""
    if not hasattr(config, "workerinput"):
        return
    longest: dict[Path, float] = {}
    for item in items:
        marker = item.get_closest_marker("timeout")
        seconds = float(marker.args[0] if marker else config.getini("timeout"))
        longest[item.path] = max(seconds, longest.get(item.path, 0))
    items.sort(key=lambda item: (-longest[item.path], item.path))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist passes on the lines of the summary."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["usage"] = _used(session.config)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[_usage_of_workers] += getattr(node, "workeroutput", {}).get("usage", ())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash[_usage_of_workers] + _used(config):
        terminalreporter.line(line)


def _used(config: pytest.Config) -> list[str]:
    """A line for each process of a cluster that has ended."""
    return [
        f"{child.name}: {child.usage.cpu_seconds:.1f} s of CPU, "
        f"{child.usage.private_bytes / 2**20:.0f} MiB private memory at its end"
        for child in config.stash[_usage]
        if child.usage is not None
    ]


@pytest.fixture(scope="session")
def originals() -> Iterator[Callable[[str], Path]]:
    """Folder of an original, by its name; skips the test when a tool for it is missing."""
    builds = Originals()

    def folder(name: str) -> Path:
        try:
            return builds.folder(name)
        except Missing as missing:
            pytest.skip(str(missing))

    yield folder
    builds.close()


@pytest.fixture
def namesrv(tmp_path: Path) -> Iterator[str]:
    """The address of a name server of ours, for brokers that a test starts itself."""
    with servers.rmqpy_name_server(tmp_path) as (address, _):
        yield address


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The homes of all processes of this session."""
    return tmp_path_factory.mktemp("interop")


@pytest.fixture(scope="session")
def until_end(pytestconfig: pytest.Config) -> Iterator[ExitStack]:
    """An exit stack that is closed at the end of the session, whether the tests passed or not."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="session")
def cluster_of(
    originals: Callable[[str], Path], folder: Path, until_end: ExitStack, pytestconfig: pytest.Config
) -> Callable[[str], Cluster]:
    """The cluster called `rmqpy` or `apache`, started on first use."""
    started: dict[str, Cluster] = {}

    def cluster(name: str) -> Cluster:
        if name not in started:
            if name == "rmqpy":
                context = servers.rmqpy_standalone(folder)
            else:
                context = servers.apache(originals("apache"), folder)
            started[name] = until_end.enter_context(context)
            pytestconfig.stash[_usage] += started[name].processes
        return started[name]

    return cluster


@pytest.fixture(scope="session")
def client_of(
    originals: Callable[[str], Path], folder: Path, until_end: ExitStack
) -> Callable[[str], InteropClient]:
    """The client of this name, started on first use."""
    started: dict[str, InteropClient] = {}

    def client(name: str) -> InteropClient:
        if name not in started:
            started[name] = _start(name)
            until_end.callback(started[name].close)
        return started[name]

    def _start(name: str) -> InteropClient:
        if name == "rmqpy":
            from .ours import RmqpyClient

            return RmqpyClient()
        if name.startswith("go"):
            return start_go(originals(name), folder, name)
        return start_java(originals(name), name.removeprefix("java-"), folder, name)

    return client


@pytest.fixture(scope="session")
def member_of_group(
    originals: Callable[[str], Path], folder: Path
) -> Iterator[Callable[[str], ProcessClient]]:
    """Further JVMs, by separate names, which are notified of other members by the broker or not at all."""
    no_timer = "-Drocketmq.client.rebalance.waitInterval=600000"
    with ExitStack() as stack:

        def start(name: str) -> ProcessClient:
            client = start_java(originals("java-5.5.0"), "5.5.0", folder, name, no_timer)
            stack.callback(client.close)
            return client

        yield start


@pytest.fixture(scope="module", params=[f"java-{version}" for version in reversed(JAVA_CLIENTS)])
def signed_java(
    request: pytest.FixtureRequest, originals: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SignedJava]:
    """A JVM of each version whose clients sign."""
    process = SignedJava(originals(request.param), tmp_path_factory.mktemp("java"))
    yield process
    process.close()


_numbers = itertools.count()


@pytest.fixture
def exchange(
    pair: tuple[str, str], client_of: Callable[[str], InteropClient], cluster_of: Callable[[str], Cluster]
) -> Exchange:
    """One client at one cluster, with an unused topic of four queues."""
    client_name, name = pair
    client, cluster = client_of(client_name), cluster_of(name)
    topic = f"{client_name}-{next(_numbers)}".replace(".", "_")
    wire.create_topic(cluster.namesrv, cluster.broker, topic, QUEUES)
    return Exchange(client, cluster, topic)
