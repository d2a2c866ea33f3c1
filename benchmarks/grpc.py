"""5.x clients: the official Java client at rmqpy and at Apache's proxy in turns (`python -m benchmarks.grpc`).

One JVM for each side sends, and receives and acknowledges. Apache's proxy is a separate process in front of its broker;
rmqpy serves in the broker itself, and by `rmqpy proxy` in front of a broker.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import click

import rmqpy
from benchmarks import java, wire
from benchmarks.interval import RunMetrics
from benchmarks.measure import FULL, QUICK, TOPIC, Pace, bench, take_turns
from benchmarks.processes import Child, busy_seconds, cpu_seconds, exit_on_sigterm, free_ports
from benchmarks.servers import QUEUES, Apache, Rmqpy, Side
from rmqpy.load.report import duration

GROUP = "bench-readers"
#: Work of the client → title.
WORKS: Mapping[tuple[str, int], str] = {
    ("send", 1): "send, 1 thread",
    ("send", 64): "send, 64 threads",
    ("receive", 1): "receive and acknowledge, 1 thread",
    ("receive", 64): "receive and acknowledge, 64 threads",
}
ROUNDS, ATTEMPTS_MAX = 4, 2
#: The warm-up of a side, with many threads: it ends when so many runs were no faster than the best before them.
WARM_THREADS, WARM_RUNS_MAX, STALE_RUNS, STILL_RISING = 64, 30, 3, 1.05
#: Further runs before each work, with its threads.
RAMPS = 2
#: Messages sent ahead of a run of receives: this many, or this multiple of the last run's.
AHEAD_MIN, AHEAD = 20_000, 1.5
READY_SECONDS_MAX = 90.0
STEPS = ("throughput", "p50_us", "p99_us", "cpu_us")
HEADINGS = ("", "", "messages/s", "p50", "p99", "CPU per message", "messages, ratio", "CPU, ratio")


class Served:
    """Name server and broker of a side, the proxy in front of them if there is one, and the client that loads it."""

    def __init__(self, name: str, side: Side, load: str, port: int) -> None:
        self.name, self.side, self.port = name, side, port
        self._load_classes = load
        self._proxy: Child | None = None
        self._load: Child | None = None
        #: Messages of the last run of receives.
        self._received = 0

    def proxy_command(self) -> Sequence[str]:
        """The command of the proxy; empty if the broker serves 5.x clients."""
        return ()

    @property
    def pids(self) -> list[int]:
        """Its processes."""
        return [*self.side.pids, *(child.pid for child in (self._proxy, self._load) if child is not None)]

    def settle(self) -> None:
        """Wait until its broker is registered, and a message of the client is accepted: Apache's proxy remembers for
        seconds that a topic was unknown."""
        self.side.settle()
        self._ask("probe")
        self._line("accepted")

    def start(self) -> None:
        """Start all processes, with a topic that has some messages, and a group that is at its end."""
        self.side.start()
        self._fill(AHEAD_MIN)
        with rmqpy.Admin(self.side.namesrv) as admin:
            admin.create_group(GROUP)
        if command := self.proxy_command():
            self._proxy = Child("proxy", command, self.side.folder)
        address = f"127.0.0.1:{self.port}"
        if self._proxy is not None:
            self._proxy.wait_until(lambda: wire.is_listening(address), READY_SECONDS_MAX)
        home = f"-Duser.home={self.side.folder}"
        load = ["java", "-Xmx512m", home, "-cp", self._load_classes, "bench.Load", address, TOPIC, GROUP]
        self._load = Child("load", load, self.side.folder, is_piped=True)
        self._line("ready")
        # A new group begins at the end of the topic, from its first receive on.
        self.run("receive", 1, 0.1, 1.0, fills=False)

    @property
    def is_up(self) -> bool:
        """Whether it was started."""
        return self._load is not None

    def stop(self) -> None:
        """Leave it up: it is warm for the next work."""

    def close(self) -> None:
        """End all processes and remove the folder."""
        for child in (self._load, self._proxy):
            if child is not None:
                child.kill()
        self._load = self._proxy = None
        self.side.stop()

    def run(
        self, work: str, threads: int, warm_up: float, seconds: float, *, fills: bool = True
    ) -> RunMetrics:
        """One run of the client."""
        if work == "receive" and fills:
            self._fill(max(AHEAD_MIN, round(AHEAD * self._received * (seconds + warm_up) / seconds)))
        self._ask(f"{work} {threads} {warm_up} {seconds}")
        self._line("begin")
        began, used, busy = time.monotonic(), self._used(), busy_seconds()
        counts = json.loads(self._line("{"))
        elapsed, used_after, busy_after = time.monotonic() - began, self._used(), busy_seconds()
        times = json.loads(self._line("{"))
        messages = counts["messages"]
        if work == "receive":
            self._received = messages
        servers, load, all_of_it = (after - before for before, after in zip(used, used_after, strict=True))
        return {
            "throughput": messages / counts["seconds"],
            **times,
            "cpu_us": servers / max(1, messages) * 1e6,
            "load_cpu_us": load / max(1, messages) * 1e6,
            "empty": float(counts["empty"]),
            "other_cores": max(0.0, (busy_after - busy - all_of_it) / elapsed),
        }

    def _used(self) -> tuple[float, float, float]:
        """Processor time of broker and proxy, of the load, and of all processes of this run."""
        servers = cpu_seconds(self.side.pid)
        if self._proxy is not None:
            servers += cpu_seconds(self._proxy.pid)
        assert self._load is not None, "the side is started"
        load = cpu_seconds(self._load.pid)
        name_server = sum(cpu_seconds(pid) for pid in self.side.pids if pid != self.side.pid)
        return servers, load, servers + load + name_server + time.process_time()

    def _ask(self, line: str) -> None:
        assert self._load is not None, "the side is started"
        self._load.stdin.write(f"{line}\n".encode())
        self._load.stdin.flush()

    def _line(self, begin: str) -> str:
        """The next line of the client that begins like this."""
        assert self._load is not None, "the side is started"
        for line in self._load.stdout:
            if line.decode().startswith(begin):
                return line.decode()
        raise RuntimeError(f"{self.name}: the client ended:\n{self._load.log_tail()}")

    def _fill(self, count: int) -> None:
        fill = ("-c", "4", "-w", "8", "--batch", "32", "--queues", str(QUEUES), "--count", str(count))
        bench(self.side, "produce", *fill, "-d", "60", "--warm-up", "0")


class InBroker(Served):
    """Our broker, which serves 5.x clients itself."""

    def __init__(self, place: Path, load: str) -> None:
        side = Rmqpy(place / "in-broker")
        super().__init__("rmqpy", side, load, free_ports(1))
        side.more_settings = {"grpcServerPort": str(self.port)}


class InFront(Served):
    """Our proxy in front of our broker."""

    def __init__(self, place: Path, load: str) -> None:
        side = Rmqpy(place / "in-front")
        super().__init__("proxy", side, load, free_ports(1))
        side.more_settings = {"grpcServerPort": "-1"}

    def proxy_command(self) -> Sequence[str]:
        settings = (f"grpcServerPort={self.port}", "httpPort=-1")
        return [sys.executable, "-m", "rmqpy", "proxy", "-n", self.side.namesrv, *settings]


class ApacheProxy(Served):
    """Apache's proxy in front of Apache's broker."""

    def __init__(self, place: Path, load: str, lib: Path, proxy_lib: Path) -> None:
        super().__init__("apache", Apache(place, lib), load, free_ports(2))
        self._lib = proxy_lib

    def proxy_command(self) -> Sequence[str]:
        settings = {
            "rocketMQClusterName": "bench",
            "namesrvAddr": self.side.namesrv,
            "proxyMode": "CLUSTER",
            "grpcServerPort": self.port,
            "remotingListenPort": self.port + 1,
        }
        config = self.side.folder / "rmq-proxy.json"
        config.write_text(json.dumps(settings))
        main = "org.apache.rocketmq.proxy.ProxyStartup"
        given = ("-n", self.side.namesrv, "-pm", "cluster", "-pc", str(config))
        return java.command(self._lib, self.side.folder, main, *given, options=java.BROKER_OPTIONS)


TITLES: Mapping[str, str] = {
    "rmqpy": "rmqpy, in the broker",
    "proxy": "rmqpy proxy and broker",
    "apache": "Apache's 5.5.0 proxy and broker",
}


@click.command()
@click.option("--quick", is_flag=True, help="Two short runs of each, as a smoke test.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the stores, on a real disk; /tmp by default.",
)
def main(quick: bool, folder: Path | None) -> None:
    """The official Java client of 5.x, compared with Apache's proxy and broker."""
    lib, proxy_lib, load = java.jars("apache"), java.jars("apache-proxy"), java.program("grpc")
    exit_on_sigterm()
    pace = QUICK if quick else replace(FULL, pairs=ROUNDS)
    with tempfile.TemporaryDirectory(prefix="rmqpy-bench-", dir=folder) as name:
        place = Path(name)
        sides = (InBroker(place, load), InFront(place, load), ApacheProxy(place, load, lib, proxy_lib))
        results: dict[str, Sequence[Sequence[RunMetrics]]] = {}
        try:
            for (work, threads), title in WORKS.items():
                click.echo(title)
                runs = Runs(work, threads, pace)
                results[title] = take_turns(
                    sides, runs.prepare, runs.measure, pace, click.echo, attempts_max=ATTEMPTS_MAX
                )
        finally:
            for side in sides:
                side.close()
    click.echo(table(results))


class Runs:
    """Runs of one work."""

    def __init__(self, work: str, threads: int, pace: Pace) -> None:
        self._work, self._threads, self._pace = work, threads, pace

    def prepare(self, side: Served) -> None:
        """Start a side and warm it up, before the first work; then get used to this work."""
        if not side.is_up:
            side.start()
            for work in ("send", "receive"):
                self._warm(side, work)
        for _ in range(RAMPS):
            side.run(self._work, self._threads, 0.1, self._pace.ramp)

    def _warm(self, side: Served, work: str) -> None:
        """Repeat the load until it gets no faster: Java's compiler takes its time."""
        rates: list[float] = []
        best = 0
        while len(rates) < WARM_RUNS_MAX and len(rates) - best <= STALE_RUNS:
            rates.append(side.run(work, WARM_THREADS, 0.1, self._pace.ramp)["throughput"])
            if len(rates) == 1 or rates[-1] > STILL_RISING * max(rates[:-1]):
                best = len(rates)
        click.echo(f"  {side.name} is warm, {work}: {', '.join(f'{rate:,.0f}/s' for rate in rates)}")

    def measure(self, side: Served) -> RunMetrics:
        """One run."""
        return side.run(self._work, self._threads, self._pace.warm_up, self._pace.seconds)


def table(results: Mapping[str, Sequence[Sequence[RunMetrics]]]) -> str:
    """Format medians as Markdown; a ratio is the median of those of the rounds, to the last side, Apache's."""
    rows: list[tuple[str, ...]] = [HEADINGS, tuple("---" for _ in HEADINGS)]
    names = tuple(TITLES.values())
    for title, rounds in results.items():
        for number, name in enumerate(names):
            median = {key: statistics.median(runs[number][key] for runs in rounds) for key in STEPS}
            ratios = [
                statistics.median(runs[number][key] / runs[-1][key] for runs in rounds)
                for key in ("throughput", "cpu_us")
            ]
            is_ours = number < len(names) - 1
            rows.append(
                (
                    title if number == 0 else "",
                    name,
                    f"{median['throughput']:,.0f}",
                    duration(median["p50_us"]),
                    duration(median["p99_us"]),
                    f"{median['cpu_us']:.1f} us",
                    *(f"{ratio:.2f}×" if is_ours else "" for ratio in ratios),
                )
            )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    main()
