"""Apache's commands for servers: mqnamesrv, mqbroker, mqshutdown, as an installation has them."""

import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from rmqpy import cli
from rmqpy.admin.client import Admin
from waiting import until

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
SMALL = ["listenPort=0", "mappedFileSizeCommitLog=1048576", "mappedFileSizeConsumeQueue=20000"]
TIMEOUT_S = 60.0


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with the commands of the wheel, as pip writes them."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, entry in SCRIPTS.items():
        module, _, function = entry.partition(":")
        script = folder / name
        script.write_text(
            f"#!{sys.executable}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n"
        )
        script.chmod(0o755)
    return folder


def start(command: Sequence[str | Path], namesrv: str = "") -> tuple[subprocess.Popen[str], str]:
    """A server, and the line that says it is ready."""
    process = subprocess.Popen(
        list(map(str, command)),
        env={**os.environ, "NAMESRV_ADDR": namesrv},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    return process, process.stdout.readline()


def run(command: Sequence[str | Path], namesrv: str = "") -> tuple[int, str, str]:
    done = subprocess.run(
        list(map(str, command)),
        env={**os.environ, "NAMESRV_ADDR": namesrv},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    return done.returncode, done.stdout, done.stderr


def test_original_commands_start_and_stop_servers(installed: Path, tmp_path: Path) -> None:
    namesrv, ready = start([installed / "mqnamesrv", "listenPort=0"])
    address = ready.split()[4]
    assert ready.endswith("is ready\n")
    broker, ready = start(
        [installed / "mqbroker", *SMALL, "brokerName=broker-q", f"storePathRootDir={tmp_path}/store"], address
    )
    try:
        assert "broker broker-q at" in ready
        with Admin(address) as admin:
            # Found by $NAMESRV_ADDR.
            until(lambda: [state.broker for state in admin.brokers()] == ["broker-q"])
        shutdown = installed / "mqshutdown"
        code, _, told = run([shutdown, "namesrv", "--pid", str(broker.pid)])
        assert code == 1
        assert "No mqnamesrv running" in told
        code, out, _ = run([shutdown, "broker", "--pid", str(broker.pid)])
        assert (code, broker.wait(TIMEOUT_S)) == (0, 0)
        assert f"Send shutdown request to mqbroker({broker.pid}) OK" in out
        assert run([shutdown, "broker", "--pid", str(broker.pid)])[0] == 1
        assert run([shutdown, "namesrv", "--pid", str(namesrv.pid)])[0] == 0
        assert namesrv.wait(TIMEOUT_S) == 0
    finally:
        for process in (broker, namesrv):
            process.kill()
            process.communicate()


def test_mqshutdown_without_a_process_id_stops_all_of_a_kind(installed: Path) -> None:
    """In a space of process ids of its own: servers of other tests are not to be ended."""
    space = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if subprocess.run([*space, "true"], capture_output=True).returncode:
        pytest.skip("a space of process ids of its own needs root")
    script = f"""
        {installed}/mqnamesrv listenPort=0 > {installed}/one &
        {sys.executable} -m rmqpy namesrv listenPort=0 > {installed}/two &
        until grep -q ready {installed}/one && grep -q ready {installed}/two; do sleep 0.1; done
        {installed}/mqshutdown namesrv; wait; {installed}/mqshutdown broker; echo code $?
    """
    code, out, err = run([*space, "sh", "-c", script])
    assert code == 0, err
    assert out.count("Send shutdown request to mqnamesrv(") == 2
    assert "code 1" in out
    assert "No mqbroker running." in err


def test_mqproxy_starts_with_the_flags_of_the_original_and_is_stopped(
    installed: Path, tmp_path: Path
) -> None:
    conf = tmp_path / "rmq-proxy.json"
    conf.write_text('{"rocketMQClusterName": "DefaultCluster", "grpcServerPort": 0}')
    command = [installed / "mqproxy", "-n", "127.0.0.1:9", "-pm", "cluster", "-pc", conf]
    proxy, ready = start(command)
    try:
        assert "proxy 127.0.0.1:" in ready
        code, out, _ = run([installed / "mqshutdown", "proxy", "--pid", str(proxy.pid)])
        assert (code, proxy.wait(TIMEOUT_S)) == (0, 0)
        assert f"Send shutdown request to mqproxy({proxy.pid}) OK" in out
    finally:
        proxy.kill()
        proxy.communicate()
    code, _, told = run([installed / "mqproxy", "-pm", "local"])
    assert code == 2
    assert "a broker serves 5.x clients without a proxy" in told


@pytest.mark.usefixtures("log")
def test_settings_are_printed_and_nothing_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "10.0.0.1:9876")
    (tmp_path / "broker.conf").write_text(f"brokerName=broker-p\nstorePathRootDir={tmp_path}/store\n")

    def printed(*arguments: str) -> dict[str, str]:
        assert cli.run([*arguments]) == 0
        return dict(line.split("=", 1) for line in capfd.readouterr().out.splitlines())

    conf = ("-c", str(tmp_path / "broker.conf"))
    every = printed("broker", *conf, "-p", "listenPort=12345")
    assert (every["brokerName"], every["listenPort"], every["maxMessageSize"]) == (
        "broker-p",
        "12345",
        "4194304",
    )
    assert every["namesrvAddr"] == "10.0.0.1:9876"
    important = printed("broker", *conf, "-m")
    assert important.items() < every.items() | {("listenPort", "10911")}
    assert {"brokerName", "namesrvAddr", "brokerRole", "flushDiskType"} <= important.keys()
    assert "maxMessageSize" not in important
    assert printed("broker", *conf, "-m", "-n", "10.0.0.2:9876")["namesrvAddr"] == "10.0.0.2:9876"
    with (tmp_path / "broker.conf").open("a") as file:
        file.write("namesrvAddr=10.0.0.3:9876\n")
    assert printed("broker", *conf, "-m")["namesrvAddr"] == "10.0.0.3:9876"
    assert printed("namesrv", "-p", "listenPort=1")["listenPort"] == "1"
    assert not (tmp_path / "store").exists()
