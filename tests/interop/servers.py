"""Name servers and brokers to test against, Apache's and ours, each in a separate process on free ports.

Owns their start and the check that they serve. A `Cluster` has the facts a client needs: one name
server, one broker. The given folders are temporary; nothing remains outside of them.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import Child, free_ports

from . import wire

CLUSTER_NAME = "interop"
BROKER_NAME = "broker-a"
DELAY_LEVELS = "1s 5s 1s 2s 3s"
"""The first two as everywhere; a first retry waits on level 3, and each further one on the next."""
APACHE_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
CHECKS = {"transactionTimeOut": 1_000, "transactionCheckInterval": 1_000}
"""Producers are soon asked about transactions, in ms."""
APACHE_CHECKS = {
    "transactionTimeOut": 3_000, "transactionCheckInterval": 3_000, "transactionOpBatchInterval": 200
}  # fmt: skip
"""Longer than ours: a transaction that is marked as ended only after its next check may be committed twice."""
APACHE_SECONDS_MAX = 60.0
RMQPY_SECONDS_MAX = 20.0

SMALL_JVM = ("-Xms32m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
"""Quick to start and small, because Java's speed is not tested."""

_BROKER_JVM = (
    "-Xmx256m",
    "-XX:MaxDirectMemorySize=1g",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
)


@dataclass(frozen=True)
class Cluster:
    """One name server with one broker, as clients see them."""

    namesrv: str
    broker: str
    processes: tuple[Child, ...]
    is_apache: bool = False


@contextmanager
def apache_name_server(jars: Path, folder: Path, **settings: object) -> Iterator[tuple[str, Child]]:
    """Apache's name server; its address and its process."""
    home = _home(folder, "apache-namesrv")
    port = free_ports(1)
    lines = {"listenPort": port} | settings
    (home / "namesrv.conf").write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    command = _java(jars, home, "org.apache.rocketmq.namesrv.NamesrvStartup", "namesrv.conf", "-Xmx128m")
    with Child("apache-namesrv", command, home) as child:
        address = f"127.0.0.1:{port}"
        child.wait_until(lambda: wire.is_serving(address), APACHE_SECONDS_MAX)
        yield address, child
        child.kill()


@contextmanager
def apache_broker(
    jars: Path, folder: Path, namesrv: str, name: str = BROKER_NAME
) -> Iterator[tuple[str, Child]]:
    """Apache's broker, registered at every name server of `namesrv`; its address and its process."""
    home = _home(folder, "apache-broker")
    port = broker_port()
    # On a busy machine a cold JVM would refuse sends that waited for 200 ms; Java's asynchronous sends do not retry.
    settings = APACHE_CHECKS | {"brokerName": name, "waitTimeMillsInSendQueue": 5000}
    write_broker_conf(home / "broker.conf", port, namesrv, **settings)
    with Child("apache-broker", apache_broker_command(jars, home), home) as child:
        child.wait_until(lambda: _is_registered(namesrv, name), APACHE_SECONDS_MAX)
        yield f"127.0.0.1:{port}", child
        child.kill()  # It takes its time to stop, and its store is not read again.


@contextmanager
def rmqpy_name_server(folder: Path, **settings: object) -> Iterator[tuple[str, Child]]:
    """Our name server alone."""
    home = _home(folder, "rmqpy-namesrv")
    port = free_ports(1)
    lines = (f"{key}={value}\n" for key, value in {"listenPort": port, **settings}.items())
    (home / "namesrv.conf").write_text("".join(lines))
    with Child("rmqpy-namesrv", _rmqpy("namesrv", "-c", "namesrv.conf"), home) as child:
        address = f"127.0.0.1:{port}"
        child.wait_until(lambda: wire.is_serving(address), RMQPY_SECONDS_MAX)
        yield address, child


@contextmanager
def rmqpy_broker(
    folder: Path, namesrv: str, name: str = BROKER_NAME, cluster: str = CLUSTER_NAME
) -> Iterator[tuple[str, Child]]:
    """Our broker alone, with the configuration file Apache's would get."""
    home = _home(folder, "rmqpy-broker")
    port = broker_port()
    write_broker_conf(home / "broker.conf", port, namesrv, brokerName=name, brokerClusterName=cluster)
    with Child("rmqpy-broker", rmqpy_broker_command(), home) as child:
        child.wait_until(lambda: _is_registered(namesrv, name), RMQPY_SECONDS_MAX)
        yield f"127.0.0.1:{port}", child


@contextmanager
def rmqpy_standalone(folder: Path) -> Iterator[Cluster]:
    """Servers of `rmqpy standalone`: name server and broker in one process."""
    home = _home(folder, "rmqpy-standalone")
    namesrv_port, port = free_ports(1), broker_port()
    command = _rmqpy(
        "standalone",
        "--namesrv-port", str(namesrv_port), "--broker-port", str(port), "--data-dir", str(home / "data"),
        f"brokerClusterName={CLUSTER_NAME}", f"brokerName={BROKER_NAME}", f"messageDelayLevel={DELAY_LEVELS}",
        *(f"{key}={value}" for key, value in CHECKS.items()),
    )  # fmt: skip
    with Child("rmqpy-standalone", command, home) as child:
        namesrv = f"127.0.0.1:{namesrv_port}"
        child.wait_until(lambda: _is_registered(namesrv, BROKER_NAME), RMQPY_SECONDS_MAX)
        yield Cluster(namesrv, f"127.0.0.1:{port}", (child,))


@contextmanager
def apache(jars: Path, folder: Path) -> Iterator[Cluster]:
    """Apache's name server with Apache's broker."""
    with (
        apache_name_server(jars, folder) as (namesrv, first),
        apache_broker(jars, folder, namesrv) as (broker, second),
    ):
        yield Cluster(namesrv, broker, (first, second), is_apache=True)


def apache_broker_command(jars: Path, home: Path) -> list[str]:
    """Command that starts Apache's broker with the broker.conf in `home`."""
    return _java(jars, home, "org.apache.rocketmq.broker.BrokerStartup", "broker.conf", *_BROKER_JVM)


def rmqpy_broker_command() -> list[str]:
    """Command that starts our broker with the broker.conf in its working directory."""
    return _rmqpy("broker", "-c", "broker.conf")


def rmqpy_controller_command() -> list[str]:
    """Command that starts our controller with the controller.conf in its working directory."""
    return _rmqpy("controller", "-c", "controller.conf")


def _is_registered(namesrv: str, name: str) -> bool:
    return all(wire.knows(address, name) for address in namesrv.split(";"))


def broker_port() -> int:
    """The main port of a broker; its VIP port is two below, its replication port one above."""
    return free_ports(4) + 2


def write_broker_conf(file: Path, port: int, namesrv: str, **more: object) -> None:
    """The settings a broker of either kind is started with; `more` wins."""
    settings: dict[str, object] = {
        "brokerClusterName": CLUSTER_NAME,
        "brokerName": BROKER_NAME,
        "brokerId": 0,
        "brokerIP1": "127.0.0.1",
        "listenPort": port,
        "haListenPort": port + 1,
        "namesrvAddr": namesrv,
        "storePathRootDir": file.parent / "store",
        "mappedFileSizeCommitLog": 64 << 20,
        "autoCreateTopicEnable": "true",
        "traceTopicEnable": "true",
        "enablePropertyFilter": "true",
        "recallMessageEnable": "true",
        "messageDelayLevel": DELAY_LEVELS,
        **more,
    }
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))


def _java(jars: Path, home: Path, main: str, conf: str, *options: str) -> list[str]:
    places = [f"-Duser.home={home}", f"-Drocketmq.home.dir={home}"]
    return ["java", *SMALL_JVM, *options, *places, "-cp", f"{jars / 'lib'}/*", main, "-c", conf]


def _rmqpy(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "rmqpy", *arguments]


def _home(folder: Path, name: str) -> Path:
    home = folder / name
    home.mkdir(parents=True)
    return home
