"""Feature costs: signed requests, TLS and a confirming slave, at rmqpy and at Apache's broker (`python -m
benchmarks.features`).

Four sides take turns: both brokers without the feature and with it. A broker's *share* is its throughput with the
feature over that without, in the same round. The last column is the ratio of the shares: above 1 the feature costs
Apache's broker more.
"""

import json
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click

import rmqpy
from benchmarks import java, memory, wire
from benchmarks.cells import CELLS, Cell
from benchmarks.interval import RunMetrics
from benchmarks.measure import FULL, QUICK, load, take_turns, warm
from benchmarks.processes import exit_on_sigterm
from benchmarks.servers import Apache, ApacheSlave, Rmqpy, RmqpySlave, Side
from rmqpy.load import machine
from rmqpy.load.report import duration

OUT: Final = Path(__file__).resolve().parent.parent / "target" / "benchmarks"
ROOT_USER: Final = rmqpy.Credentials("root", "root-secret")
USER: Final = rmqpy.Credentials("bench", "bench-secret")
_COPYING_SECONDS_MAX: Final = 60.0
COLUMNS: Final = ("", "", "without", "with", "share", "broker CPU per message", "p99", "share over Apache's")

METRICS: Final = ("throughput", "cpu_us", "p99_us")

#: Cell → side → its runs.
Results = Mapping[str, Mapping[str, Sequence[RunMetrics]]]


@dataclass(frozen=True)
class Feature:
    """Settings of servers and options of a load for one feature."""

    title: str
    cells: tuple[str, ...]
    #: Settings of both brokers.
    settings: Mapping[str, str] = field(default_factory=dict)
    #: Settings of one kind, including the name server with `of_both_servers`.
    ours: Mapping[str, str] = field(default_factory=dict)
    theirs: Mapping[str, str] = field(default_factory=dict)
    of_both_servers: bool = False
    options: tuple[str, ...] = ()
    has_users: bool = False
    has_slave: bool = False


_PROVIDERS: Final = {
    f"{what}{kind}Provider": f"org.apache.rocketmq.auth.{what}.provider.{which}{word}{kind}Provider"
    for what, word in (("authentication", "Authentication"), ("authorization", "Authorization"))
    for kind, which in (("", "Default"), ("Metadata", "Local"))
}

FEATURES: Final[Mapping[str, Feature]] = {
    "acl": Feature(
        "signed requests and policies",
        ("64x1", "4x64"),
        settings={
            "authenticationEnabled": "true",
            "authorizationEnabled": "true",
            "initAuthenticationUser": json.dumps(
                {"username": ROOT_USER.access_key, "password": ROOT_USER.secret_key}
            ),
        },
        theirs=_PROVIDERS,
        options=("--access-key", USER.access_key, "--secret-key", USER.secret_key),
        has_users=True,
    ),
    # Apache's servers generate their certificate by default.
    "tls": Feature(
        "TLS",
        ("64x1", "4x64"),
        ours={"tls.test.mode.enable": "true", "tls.server.mode": "permissive"},
        of_both_servers=True,
        options=("--tls-insecure",),
    ),
    "async-master": Feature(
        "ASYNC_MASTER and one slave",
        ("4x64-1k",),
        settings={"brokerRole": "ASYNC_MASTER"},
        has_slave=True,
    ),
    "sync-master": Feature(
        "SYNC_MASTER and one slave",
        ("1x1", "64x1", "4x64"),
        settings={"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"},
        has_slave=True,
    ),
}


class _Featured(Side):
    """A side with a feature: a mixin before `Rmqpy` or `Apache`."""

    feature: Feature
    only: Mapping[str, str]
    slave: Side | None = None

    def settings(self, is_sync_flush: bool) -> str:
        return super().settings(is_sync_flush) + _lines({**self.feature.settings, **self.only})

    def namesrv_settings(self) -> str:
        more = _lines(self.only) if self.feature.of_both_servers else ""
        return super().namesrv_settings() + more

    def load_command(self, work: str, topic: str, *options: str) -> list[str]:
        pids = [] if self.slave is None else ["--pid", str(self.pid), "--pid", str(self.slave.pid)]
        return super().load_command(work, topic, *options, *self.feature.options, *pids)

    @property
    def pids(self) -> list[int]:
        return [*super().pids, *([] if self.slave is None else self.slave.pids)]

    def start(self, *, is_sync_flush: bool = False) -> None:
        super().start(is_sync_flush=is_sync_flush)
        if self.feature.has_users:
            self._make_user()
        if self.slave is not None:
            self.slave.start_broker()
            self.settle()

    def settle(self) -> None:
        super().settle()
        if self.slave is not None and self.slave.pids:
            assert self._broker is not None
            # Send until both store the message: without the slave the response is an error.
            self._broker.wait_until(lambda: wire.is_accepted(self.address, "copied"), _COPYING_SECONDS_MAX)

    def _make_user(self) -> None:
        config = rmqpy.ClientConfig(namesrv=self.namesrv, credentials=ROOT_USER)
        with rmqpy.Admin(config) as admin:
            admin.create_user(USER.access_key, USER.secret_key)
            for resource, actions in (
                ("Topic:*", ["Pub", "Sub", "Get", "Create", "Update"]),
                ("Group:*", ["Sub"]),
                ("Cluster:*", ["Get"]),
            ):
                admin.set_rule(USER.access_key, resource, actions)

    def stop_broker(self) -> None:
        if self.slave is not None:
            self.slave.stop_broker()
        super().stop_broker()


class _FeaturedRmqpy(_Featured, Rmqpy):
    def __init__(self, place: Path, feature: Feature) -> None:
        super().__init__(place)
        self.feature, self.only = feature, feature.ours
        if feature.has_slave:
            self.slave = RmqpySlave(self.folder)
            self.slave.follow(self)

    name = "rmqpy-with"


class _FeaturedApache(_Featured, Apache):
    def __init__(self, place: Path, lib: Path, feature: Feature) -> None:
        super().__init__(place, lib)
        self.feature, self.only = feature, feature.theirs
        if feature.has_slave:
            self.slave = ApacheSlave(self.folder, lib)
            self.slave.follow(self)

    name = "apache-with"


def _lines(settings: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())


@click.command()
@click.argument("features", nargs=-1, type=click.Choice(list(FEATURES)))
@click.option("--quick", is_flag=True, help="Two short runs of each, as a smoke test.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the stores, on a real disk; /tmp by default.",
)
def main(features: Sequence[str], quick: bool, folder: Path | None) -> None:
    """Measure the cost of these features, or all of them, and compare with Apache's broker."""
    lib = java.jars("apache")
    exit_on_sigterm()
    by_name = {cell.name: cell for cell in CELLS}
    results: dict[str, Mapping[str, Sequence[RunMetrics]]] = {}
    with tempfile.TemporaryDirectory(prefix="rmqpy-bench-", dir=folder) as name:
        place = Path(name)
        for feature in (FEATURES[chosen] for chosen in features or FEATURES):
            for cell in (by_name[one] for one in feature.cells):
                title = f"{feature.title}, {cell.title}"
                click.echo(title)
                if not quick:
                    memory.make("warm", place)
                results[title] = _measured(place, lib, feature, cell, quick)
                click.echo(table({title: results[title]}))
    OUT.mkdir(parents=True, exist_ok=True)
    whole = {"machine": machine.facts(), "runs": results}
    (OUT / "features.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    click.echo(table(results))


def _measured(
    place: Path, lib: Path, feature: Feature, cell: Cell, quick: bool
) -> Mapping[str, Sequence[RunMetrics]]:
    pace = QUICK if quick else FULL
    sides: tuple[Side, ...] = (
        Rmqpy(place),
        _FeaturedRmqpy(place, feature),
        Apache(place, lib),
        _FeaturedApache(place, lib, feature),
    )

    def prepare(side: Side) -> None:
        side.start()
        warm(side, cell, pace, click.echo)

    rounds = take_turns(sides, prepare, lambda side: load(side, cell, pace), pace, click.echo)
    return {side.name: [runs[number] for runs in rounds] for number, side in enumerate(sides)}


def table(results: Results) -> str:
    """Format medians as Markdown; shares are medians over the rounds."""
    rows: list[tuple[str, ...]] = [COLUMNS, tuple("---" for _ in COLUMNS)]
    for title, sides in results.items():
        shares = {
            name: [
                run["throughput"] / plain["throughput"]
                for run, plain in zip(sides[f"{name}-with"], sides[name], strict=True)
            ]
            for name in ("rmqpy", "apache")
        }
        over = statistics.median(
            our / their for our, their in zip(shares["rmqpy"], shares["apache"], strict=True)
        )
        for name, share in shares.items():
            plain, featured = (
                {key: statistics.median(run[key] for run in sides[side]) for key in METRICS}
                for side in (name, f"{name}-with")
            )
            first = name == "rmqpy"
            rows.append(
                (
                    title if first else "",
                    name,
                    f"{plain['throughput']:,.0f}/s",
                    f"{featured['throughput']:,.0f}/s",
                    f"{statistics.median(share):.2f}",
                    f"{plain['cpu_us']:.2f} → {featured['cpu_us']:.2f} us",
                    f"{duration(plain['p99_us'])} → {duration(featured['p99_us'])}",
                    f"{over:.2f}" if first else "",
                )
            )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    main()
