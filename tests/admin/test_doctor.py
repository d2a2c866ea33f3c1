"""Problems that `rmqpy doctor` finds, with its advice: each set-up is real."""

import json
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import rmqpy
from benchmarks.processes import free_ports
from certificates import Authority
from commandline import Run, runner
from rmqpy._native import Client
from rmqpy.admin import exposure
from rmqpy.broker import Broker
from rmqpy.clock import SystemClock
from rmqpy.config import broker as broker_config
from rmqpy.config import namesrv as namesrv_config
from rmqpy.protocol.requests.registration import RegisterBroker, UnregisterBroker
from rmqpy.remoting.client import BlockingCaller
from rmqpy.remoting.client import run as run_blocking
from rmqpy.server import Standalone, Thread, written
from rmqpy.testing import Cluster
from rmqpy.testing.cluster import SMALL

NOBODY = 65_534


@pytest.fixture
def run(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    return runner(cluster.namesrv, monkeypatch, capfd)


@pytest.fixture
def doctor(run: Run) -> Any:
    """Run `doctor(...)`; return problems and warnings as check → finding and advice, and the exit code."""

    def doctor(*arguments: str) -> tuple[int, dict[str, str]]:
        code, out, err = run("doctor", "--disk-free-min", "0", *arguments, "-o", "json")
        assert out, err
        results = json.loads(out)
        assert all(result["advice"] for result in results if result["level"] != "ok")
        return code, {
            result["check"]: f"{result['found']}; {result['advice']}"
            for result in results
            if result["level"] != "ok"
        }

    return doctor


@contextmanager
def another_broker(cluster: Cluster, folder: Path, clock: Any = None, **settings: Any) -> Iterator[Broker]:
    """A broker of this cluster with other settings; removed afterwards, also from the name servers."""
    given = {
        "brokerName": "broker-x",
        "namesrvAddr": cluster.namesrv,
        "listenPort": 0,
        "storePathRootDir": str(folder / "broker-x"),
        **SMALL,
        **settings,
    }
    broker = Broker(broker_config.read(written(given)).config, clock=clock)
    thread = Thread(broker)
    thread.start()
    try:
        yield broker
    finally:
        thread.stop()


@pytest.fixture
def conf(cluster: Cluster, tmp_path: Path) -> Any:
    """`conf(key=value)`: a broker.conf that works as it is."""

    def write(**settings: Any) -> str:
        given = {
            "brokerName": "broker-y",
            "namesrvAddr": cluster.namesrv,
            "listenPort": free_ports(1),
            "storePathRootDir": tmp_path / "store",
            **settings,
        }
        file = tmp_path / "broker.conf"
        file.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
        return str(file)

    return write


def test_healthy_cluster_has_no_findings(doctor: Any, conf: Any, cluster: Cluster) -> None:
    with rmqpy.Admin(cluster.namesrv) as admin:
        admin.create_topic("healthy")
    assert doctor("-c", conf(), "--topic", "healthy") == (0, {})


def test_broker_of_a_file_is_named_with_its_checked_address(
    run: Run, conf: Any, cluster: Cluster, tmp_path: Path
) -> None:
    def told(file: str) -> tuple[str, str]:
        _, out, _ = run("doctor", "--disk-free-min", "0", "-c", file, "-o", "json")
        (result,) = [each for each in json.loads(out) if each["check"] == "broker broker-y of this file"]
        return result["level"], result["found"]

    folder = tmp_path / "store"
    with another_broker(cluster, tmp_path, brokerName="broker-y", storePathRootDir=str(folder)) as broker:
        port = broker.address.rpartition(":")[2]
        assert told(conf(listenPort=port)) == ("ok", f"runs at 127.0.0.1:{port}")
        level, found = told(conf(listenPort=port, storePathRootDir=tmp_path / "elsewhere"))
        assert level == "warn"
        assert f"has its store in {folder}, not in {tmp_path / 'elsewhere'}" in found
    assert told(conf(listenPort=port)) == ("ok", f"not running: no broker answers at 127.0.0.1:{port}")
    with another_broker(cluster, tmp_path, listenPort=port):
        assert told(conf(listenPort=port)) == ("ok", f"not running: broker-x answers at 127.0.0.1:{port}")


def test_1_a_dead_name_server(doctor: Any, cluster: Cluster) -> None:
    code, found = doctor("-n", f"{cluster.namesrv};127.0.0.1:1", "--topic", "TBW102")
    assert (code, list(found)) == (1, ["name server 127.0.0.1:1"])
    assert "rmqpy namesrv" in found["name server 127.0.0.1:1"]


def test_2_a_broker_that_does_not_answer(doctor: Any, cluster: Cluster, tmp_path: Path) -> None:
    # It advertises an address on which it does not listen.
    settings = {"bindAddress": "127.0.0.2", "brokerIP1": "127.0.0.1"}
    with another_broker(cluster, tmp_path, **settings) as broker:
        code, found = doctor()
    assert (code, list(found)) == (1, [f"broker broker-x at {broker.address}"])
    assert "correct its brokerIP1" in found[f"broker broker-x at {broker.address}"]


def test_3_an_advertised_name_that_cannot_be_resolved(doctor: Any, cluster: Cluster, tmp_path: Path) -> None:
    with another_broker(
        cluster, tmp_path, brokerIP1="no-such-host.invalid", bindAddress="127.0.0.1"
    ) as broker:
        code, found = doctor()
    assert (code, list(found)) == (1, [f"broker broker-x at {broker.address}"])
    assert "set brokerIP1 of broker-x" in found[f"broker broker-x at {broker.address}"]


def test_4_an_advertised_address_where_another_broker_answers(
    doctor: Any, cluster: Cluster, tmp_path: Path
) -> None:
    address = cluster.address("broker-a")
    port = int(address.rpartition(":")[2])
    settings = {"bindAddress": "127.0.0.2", "brokerIP1": "127.0.0.1", "listenPort": port}
    with another_broker(cluster, tmp_path, **settings):
        code, found = doctor()
    assert (code, list(found)) == (1, [f"broker broker-x at {address}"])
    assert "broker-a answers there" in found[f"broker broker-x at {address}"]


def test_4_two_brokers_of_one_name(doctor: Any, cluster: Cluster, tmp_path: Path) -> None:
    with another_broker(cluster, tmp_path) as broker, closing(Client()) as client:
        first, _ = cluster.namesrv.split(";")
        ask = RegisterBroker(
            cluster_name="DefaultCluster",
            broker_name="broker-x",
            broker_addr="127.0.0.1:1",
            broker_id=0,
            ha_server_addr="",
            body=b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"a":{},"b":{}}}}',
        )
        run_blocking(BlockingCaller(client).ask(first, ask, timeout=10))
        code, found = doctor()
        assert code == 1
        addresses = " and ".join(sorted(("127.0.0.1:1", broker.address)))
        assert f"two brokers are called broker-x: {addresses}" in found["broker broker-x"]
        assert "another brokerName" in found["broker broker-x"]
        leave = UnregisterBroker(
            cluster_name="DefaultCluster", broker_name="broker-x", broker_addr="127.0.0.1:1", broker_id=0
        )
        run_blocking(BlockingCaller(client).ask(first, leave, timeout=10))
    assert doctor() == (0, {})


def test_5_broker_unknown_to_one_name_server(doctor: Any, cluster: Cluster, tmp_path: Path) -> None:
    first, second = cluster.namesrv.split(";")
    with another_broker(cluster, tmp_path, namesrvAddr=first):
        code, found = doctor()
    assert (code, list(found)) == (1, [f"name server {second}"])
    assert "does not know broker-x; add" in found[f"name server {second}"]


class FastClock(SystemClock):
    """An hour ahead."""

    def wall_ms(self) -> int:
        return super().wall_ms() + 3_600_000


def test_6_a_clock_that_is_off(doctor: Any, cluster: Cluster, tmp_path: Path) -> None:
    with another_broker(cluster, tmp_path, clock=FastClock()):
        code, found = doctor()
    assert (code, list(found)) == (1, ["clock of broker-x"])
    assert "s ahead of this machine's" in found["clock of broker-x"]


def test_7_a_disk_with_little_room_left(doctor: Any, conf: Any, tmp_path: Path) -> None:
    # For every disk: the required free space exceeds any disk.
    code, found = doctor("-c", conf(), "--disk-free-min", str(1 << 40))
    assert code == 1
    assert set(found) == {"disk of broker-a", "disk of broker-b", f"disk of {tmp_path / 'store'}"}
    assert all("delete other files there" in text for text in found.values())


def test_7_a_disk_on_which_brokers_refuse_messages(
    doctor: Any, conf: Any, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: size._replace(used=size.total * 95 // 100))
    code, found = doctor("-c", conf())
    assert (code, set(found)) == (
        1,
        {"disk of broker-a", "disk of broker-b", f"disk of {tmp_path / 'store'}"},
    )
    assert all("messages are refused from 90 %" in text for text in found.values())
    # With 100 a broker refuses by free bytes alone.
    assert doctor("-c", conf(diskSpaceWarningLevelRatio=100))[1].keys() == {
        "disk of broker-a",
        "disk of broker-b",
    }


def test_8_a_folder_that_may_not_be_written(doctor: Any, conf: Any, cluster: Cluster) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "broker.conf")
        file.write_text(Path(conf(storePathRootDir=f"{folder}/closed/store")).read_text())
        closed = Path(folder, "closed")
        closed.mkdir(mode=0o555)
        os.chmod(folder, 0o755)
        assert doctor()[0] == 0  # everything is imported
        with as_unprivileged_user():
            code, found = doctor("-c", str(file))
    # The brokers of this cluster are in this process: they lose their user for a moment, too.
    assert code == 1
    assert "chown" in found[f"store {closed}/store"]


@contextmanager
def as_unprivileged_user() -> Iterator[None]:
    """Root can write everywhere."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


def test_9_a_port_that_is_in_use(doctor: Any, conf: Any) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        code, found = doctor("-c", conf(listenPort=port))
    assert (code, list(found)) == (1, [f"port 127.0.0.1:{port}"])
    assert "ss -ltnp" in found[f"port 127.0.0.1:{port}"]


def test_10_the_store_of_a_broker_that_runs(doctor: Any, conf: Any, cluster: Cluster) -> None:
    store = cluster.folder / "broker-a"
    code, found = doctor("-c", conf(storePathRootDir=store))
    assert (code, list(found)) == (1, [f"store {store}"])
    assert "in use by another running broker" in found[f"store {store}"]


def test_11_topic_that_accepts_no_messages(doctor: Any, cluster: Cluster) -> None:
    with rmqpy.Admin(cluster.namesrv) as admin:
        admin.create_topic("readable", perm="R")
    code, found = doctor("--topic", "readable")
    assert (code, list(found)) == (1, ["topic readable"])
    assert "rmqpy topic alter readable --perm RW" in found["topic readable"]


def test_12_a_topic_that_does_not_exist(doctor: Any) -> None:
    code, found = doctor("--topic", "nowhere")
    assert (code, list(found)) == (1, ["topic nowhere"])
    assert "rmqpy topic create nowhere" in found["topic nowhere"]


def test_13_a_setting_that_stops_the_start(doctor: Any, conf: Any) -> None:
    file = conf(enableControllerMode="true")
    code, found = doctor("-c", file)
    assert (code, list(found)) == (1, [f"configuration {file}"])
    assert "enableControllerMode=true" in found[f"configuration {file}"]


def test_14_a_misspelt_setting_is_a_warning(doctor: Any, conf: Any) -> None:
    file = conf(flushDiskTyp="SYNC_FLUSH")
    code, found = doctor("-c", file)
    assert (code, list(found)) == (0, [f"configuration {file}"])
    assert "did you mean flushDiskType?" in found[f"configuration {file}"]


def test_15_a_broker_that_is_closed_for_writing_is_a_warning(
    doctor: Any, cluster: Cluster, tmp_path: Path
) -> None:
    with another_broker(cluster, tmp_path, brokerPermission=4) as broker:
        code, found = doctor()
        assert (code, list(found)) == (0, [f"broker broker-x at {broker.address}", "permission of broker-x"])
    assert "rmqpy config set broker-x brokerPermission=6" in found["permission of broker-x"]


def test_broker_running_from_this_file_is_not_a_problem(doctor: Any, conf: Any, cluster: Cluster) -> None:
    port = cluster.address("broker-a").rpartition(":")[2]
    file = conf(brokerName="broker-a", listenPort=port, storePathRootDir=cluster.folder / "broker-a")
    assert doctor("-c", file) == (0, {})


def test_a_certificate_that_expires_within_a_month_is_warned_of(run: Run, conf: Any, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    for days, level, told in ((2, "warn", "expires in 2 days"), (365, None, None), (0, "bad", "has expired")):
        files = authority.issue(f"of-{days}", days=days)
        settings = {
            "tls.server.certPath": files.cert,
            "tls.server.keyPath": files.key,
            "tls.client.authServer": "false",
        }

        def findings(*arguments: str) -> dict[str, tuple[str, str]]:
            _, out, _ = run("doctor", "--disk-free-min", "0", *arguments, "-o", "json")
            rows = [row for row in json.loads(out) if row["check"].startswith("certificate")]
            return {row["check"]: (row["level"], row["found"]) for row in rows}

        with Standalone(tmp_path / f"data-{days}", namesrv_port=0, broker_port=0, **settings) as server:
            found = findings("-n", server.namesrv, "--tls-insecure")
            wanted = {f"certificate of {address}" for address in (server.namesrv, server.broker)}
            assert {*found} == (wanted if level else set())
            assert all(each[0] == level and told in each[1] for each in found.values())
            of_file = findings("-c", conf(**settings), "-n", server.namesrv, "--tls-insecure")
            own = of_file.get(f"certificate {files.cert}")
            assert own is None if level is None else own is not None and own[0] == level


ACCESS = {"authenticationEnabled": "true", "authorizationEnabled": "true"}
CERTIFICATE = {"tls.server.certPath": "cert.pem", "tls.server.keyPath": "key.pem"}


@pytest.mark.parametrize(
    ("settings", "at_broker", "at_name_server"),
    [
        ({}, ["access control is off"], ["access control is off"]),
        ({"bindAddress": "127.0.0.1"}, [], []),
        (ACCESS, ["not encrypted"], ["not encrypted"]),
        (ACCESS | CERTIFICATE, [], []),
        (ACCESS | CERTIFICATE | {"tls.server.mode": "permissive"}, ["permissive"], ["permissive"]),
        (ACCESS | CERTIFICATE | {"tls.server.mode": "disabled"}, ["not encrypted"], ["not encrypted"]),
        ({"aclEnable": "true", "rocketmqHome": "/none"}, ["not encrypted"], ["not encrypted"]),
        (
            {"authenticationEnabled": "true", **CERTIFICATE},
            ["authorizationEnabled is off"],
            [],
        ),
    ],
)
def test_open_port_warning_names_access_and_eavesdropping(
    settings: dict[str, str], at_broker: list[str], at_name_server: list[str]
) -> None:
    given = {"bindAddress": "0.0.0.0", **settings}
    of_broker = broker_config.read({"brokerName": "broker-a", **given}).config.write()
    of_name_server = namesrv_config.read(given).config.write()
    found = list(exposure.of_broker("10.0.0.7:10911", of_broker))
    assert [word in each.found for word, each in zip(at_broker, found, strict=True)] == [True] * len(found)
    found = list(exposure.of_name_server("10.0.0.7:9876", of_name_server))
    assert [word in each.found for word, each in zip(at_name_server, found, strict=True)] == [True] * len(
        found
    )
    unsigned = namesrv_config.read(given | {"registrationAuthenticationEnabled": "false"}).config.write()
    if "authenticationEnabled" in settings:
        assert "register and remove" in next(exposure.of_name_server("10.0.0.7:9876", unsigned)).found


def test_open_port_with_access_control_is_advised_to_use_tls(run: Run, tmp_path: Path) -> None:
    first = {"initAuthenticationUser": json.dumps({"username": "root", "password": "root-secret"})}
    opened = {"bindAddress": "0.0.0.0", "brokerIP1": "127.0.0.1"}
    with Standalone(tmp_path, namesrv_port=0, broker_port=0, **SMALL, **ACCESS, **first, **opened) as server:
        keys = ("--access-key", "root", "--secret-key", "root-secret")
        _, out, _ = run("doctor", "--disk-free-min", "0", "-n", server.namesrv, *keys, "-o", "json")
        rows = {row["check"]: row for row in json.loads(out)}
        assert "not encrypted" in rows["exposure of broker-a"]["found"]
        assert "docs/tls.md" in rows["exposure of broker-a"]["advice"]
        assert f"exposure of name server {server.namesrv}" not in rows
