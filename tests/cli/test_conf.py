"""The configurations in conf/: every key is served, and started programs exist."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

from rmqpy import cli
from rmqpy.config import broker as broker_config
from rmqpy.config import properties
from rmqpy.config.keys import HTTP_PORT
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.config.network import VIP_BELOW
from waiting import until

CONF = Path(__file__).resolve().parent.parent.parent / "conf"
BROKERS = sorted(CONF.rglob("broker*.conf"))
NAME_SERVERS = sorted(CONF.rglob("namesrv.conf"))

#: As tutorials have it, with every path written out.
TUTORIAL = """\
brokerClusterName = DefaultCluster
brokerName = broker-a
brokerId = 0
deleteWhen = 04
fileReservedTime = 48
brokerRole = ASYNC_MASTER
flushDiskType = ASYNC_FLUSH
namesrvAddr = 127.0.0.1:1
listenPort = 0
storePathRootDir = {root}/store
storePathCommitLog = {root}/store/commitlog
storePathConsumeQueue = {root}/store/consumequeue
storePathIndex = {root}/store/index
storeCheckpoint = {root}/store/checkpoint
abortFile = {root}/store/abort
maxMessageSize = 65536
mapedFileSizeCommitLog = 1073741824
mapedFileSizeConsumeQueue = 300000
destroyMapedFileIntervalForcibly = 120000
diskMaxUsedSpaceRatio = 88
sendMessageThreadPoolNums = 128
pullMessageThreadPoolNums = 128
"""


def ids(path: Path) -> str:
    return str(path.relative_to(CONF))


@pytest.mark.parametrize("path", BROKERS + NAME_SERVERS, ids=ids)
def test_every_sample_is_valid_and_every_key_is_served(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    role = ["--namesrv"] if path in NAME_SERVERS else []
    assert cli.run(["config", "validate", str(path), *role, "-o", "json"]) == 0
    notices = json.loads(capsys.readouterr().out)["notices"]
    # The text about an open port is intended.
    assert [notice for notice in notices if "no access control" not in notice] == []


HOSTS = ("10.0.0.1", "10.0.0.2", "10.0.0.3")


@pytest.mark.parametrize("hosts", [(), HOSTS], ids=["this machine", "three machines"])
def test_a_created_set_is_valid_and_each_of_three_machines_has_a_controller(
    hosts: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [text for host in hosts for text in ("--host", host)]
    assert cli.run(["cluster", "create", str(tmp_path / "new"), *given, "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["host"] for row in rows if row["server"] == "broker"] == list(hosts or ("127.0.0.1",) * 3)
    assert [row["host"] for row in rows if row["server"] == "namesrv"] == list(hosts or ("127.0.0.1",))
    found = [properties.parse(Path(row["file"]).read_text()) for row in rows]
    ports = [settings["listenPort"] for settings in found]
    assert len(set(ports)) == (2 if hosts else len(rows)), "ports of one machine differ"
    controllers = [settings for settings in found if settings.get("enableControllerInNamesrv") == "true"]
    assert len(controllers) == (3 if hosts else 1)
    assert len({settings["controllerDLegerPeers"] for settings in controllers}) == 1
    assert len({settings.get("controllerGroupSecret") for settings in controllers}) == 1
    asked = {settings["controllerAddr"] for settings in found if "controllerAddr" in settings}
    assert asked == {";".join(f"{host}:9878" for host in hosts or ("127.0.0.1",))}
    for row in rows:
        role = ["--namesrv"] if row["server"] == "namesrv" else []
        assert cli.run(["config", "validate", row["file"], *role]) == 0
        assert row["command"] == f"rmqpy {row['server']} -c {row['file']}"
    capsys.readouterr()
    assert cli.run(["cluster", "create", str(tmp_path / "new"), *given]) == 2
    assert "namesrv-1.conf exists" in capsys.readouterr().err
    assert cli.run(["cluster", "create", str(tmp_path / "two"), "--host", HOSTS[0], "--host", HOSTS[1]]) == 2
    assert "an elected set needs 3" in capsys.readouterr().err


@pytest.mark.parametrize("path", BROKERS, ids=ids)
def test_samples_explain_their_keys(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    comments = len(re.findall(r"^#", text, re.MULTILINE))
    assert comments >= len(properties.parse(text)) // 2


def test_two_masters_differ_in_name_and_address_alone() -> None:
    one, other = (
        properties.parse((CONF / "two-masters" / f"broker-{name}.conf").read_text()) for name in "ab"
    )
    assert {key for key in one if one[key] != other[key]} == {"brokerName", "brokerIP1"}


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_masters_and_their_slaves_are_on_two_machines(kind: str) -> None:
    folder = CONF / f"two-masters-two-slaves-{kind}"
    found = {path.stem: properties.parse(path.read_text()) for path in folder.glob("broker-*.conf")}
    assert len(found) == 4
    for name in "ab":
        master, slave = found[f"broker-{name}"], found[f"broker-{name}-s"]
        assert master["brokerName"] == slave["brokerName"]
        assert master["brokerIP1"] != slave["brokerIP1"]
        assert master["brokerRole"] == f"{kind.upper()}_MASTER"
    # Servers of one machine share neither port nor folder.
    for key in ("listenPort", "httpPort", "storePathRootDir"):
        assert found["broker-a"][key] != found["broker-b-s"][key]
    assert found["broker-a"]["brokerIP1"] == found["broker-b-s"]["brokerIP1"]


def test_a_broker_conf_from_an_old_tutorial_starts(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(TUTORIAL.format(root=tmp_path))
    command = [
        sys.executable,
        "-m",
        "rmqpy",
        "broker",
        "-c",
        str(path),
        "maxHashSlotNum=1000",
        "maxIndexNum=1000",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "broker-a" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    told = [line for line in err.splitlines() if json.loads(line)["logger"] == "rmqpy.config"]
    assert not [
        line for line in told if "storePath" in line or "storeCheckpoint" in line or "abortFile" in line
    ]
    assert any("destroyMapedFileIntervalForcibly" in line for line in told)


def test_paths_of_an_old_file_that_lead_elsewhere_are_reported(tmp_path: Path) -> None:
    given = properties.parse(TUTORIAL.format(root=tmp_path)) | {"storeCheckpoint": "/elsewhere"}
    [notice] = [each for each in broker_config.read(given).warnings if "storeCheckpoint" in each]
    assert str(tmp_path / "store" / "checkpoint") in notice


def parse(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail unless the command line accepts these words; named files need not exist."""
    monkeypatch.setattr("rmqpy.monitor.logs.install", lambda form, level: None)
    command = cli.root.get_command(click.Context(cli.root), words[0])
    assert command is not None
    for option in command.params:
        if isinstance(option.type, click.Path):
            monkeypatch.setattr(option, "type", click.Path())
    command.make_context("rmqpy", words[1:])


def test_the_unit_of_the_broker_drains_its_store_after_a_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (CONF / "systemd" / "rmqpy-broker.service").read_text()
    [drain] = re.findall(r"^ExecStopPost=-(.*)$", text, re.MULTILINE)
    parse(shlex.split(drain)[1:], monkeypatch)


@pytest.mark.parametrize(("sent", "code", "drains"), [("TERM", 0, False), ("KILL", 137, True)])
def test_the_container_forwards_its_stop_signal_and_drains_after_a_kill(
    tmp_path: Path, sent: str, code: int, drains: bool
) -> None:
    program = tmp_path / "rmqpy"
    program.write_text(
        f"""#!{sys.executable}
import pathlib, signal, sys, time
if sys.argv[1] == "broker":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    pathlib.Path("{tmp_path}/pid").write_text(str(__import__("os").getpid()) + " ")
    signal.pause()
else:
    pathlib.Path("{tmp_path}/drained").write_text(" ".join(sys.argv[1:]))
"""
    )
    program.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "RMQPY_DATA": "/d"}
    with subprocess.Popen([CONF / "rmqpy-container", "broker"], env=environment) as process:
        pid = tmp_path / "pid"
        until(lambda: pid.exists() and pid.read_text().endswith(" "))
        if sent == "TERM":
            process.terminate()
        else:
            os.kill(int(pid.read_text()), signal.SIGKILL)
        assert process.wait(30) == code
    drained = tmp_path / "drained"
    assert (drained.read_text() if drained.exists() else "") == ("store drain /d" if drains else "")


@pytest.mark.parametrize("path", sorted((CONF / "systemd").iterdir()), ids=ids)
def test_units_start_commands_that_exist_with_files_that_ship(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [start] = re.findall(r"^ExecStart=(.*)$", path.read_text(), re.MULTILINE)
    program, *words = shlex.split(start)
    assert program.endswith("/rmqpy")
    parse(words, monkeypatch)
    assert (CONF / "single" / Path(words[-1]).name).exists()


def test_the_image_starts_a_command_that_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (CONF / "Containerfile").read_text()
    [command] = re.findall(r"^CMD (.*)$", text, re.MULTILINE)
    parse(json.loads(command), monkeypatch)


def test_the_image_publishes_every_port_that_clients_use() -> None:
    broker = broker_config.read({}).config
    main = broker.listen_port
    used = {NameServerConfig().listen_port, main - VIP_BELOW, main, broker.grpc_port, HTTP_PORT}
    text = (CONF / "Containerfile").read_text()
    [exposed] = re.findall(r"^EXPOSE (.*)$", text, re.MULTILINE)
    assert {int(port) for port in exposed.split()} == used
    [service] = yaml.safe_load((CONF / "compose.yml").read_text())["services"].values()
    assert sorted(service["ports"]) == sorted(f"{port}:{port}" for port in used)
    for page in (text, (CONF.parent / "docs" / "kubernetes.md").read_text()):
        [command] = re.findall(r"podman run (.*)$", page, re.MULTILINE)
        assert set(re.findall(r"-p (\S+)", command)) == set(service["ports"])
