"""Shell blocks of the pages about tasks run as they stand, apart from ports."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import rmqpy
from benchmarks.processes import free_ports
from rmqpy.server import Standalone
from rmqpy.testing import SMALL

ROOT = Path(__file__).parents[2]
#: Of sends while the master changes, on a loaded machine.
PAUSE_S_MAX = 15.0


def script(page: str, *changes: tuple[str, str]) -> str:
    """The `sh` blocks of a page as one script, with words replaced."""
    text = "\n".join(re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / page).read_text("utf-8"), re.DOTALL))
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


def run(text: str, folder: Path, namesrv: str) -> str:
    environment = {
        **os.environ,
        "NAMESRV_ADDR": namesrv,
        "HOME": str(folder),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    text = f"trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT\n{text}"
    done = subprocess.run(
        ["bash", "-euc", text], cwd=folder, env=environment, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def test_backup_is_restored_and_exported(tmp_path: Path) -> None:
    port = free_port()
    small = " ".join(f"{key}={value}" for key, value in SMALL.items())
    options = f"--namesrv-port {port} --broker-port 0 --http 0"
    text = script(
        "backup.md",
        *(
            (f"standalone --data-dir {name} &", f"standalone {options} --data-dir {name} {small} &")
            for name in ("data", "restored")
        ),
        ("rmqpy cluster health", "rmqpy cluster health --disk-free-min 0"),
    )
    out = run(text, tmp_path, f"127.0.0.1:{port}").splitlines()
    assert {"first order", "second order"} <= set(out)
    assert (tmp_path / "earlier" / "store" / "commitlog").is_dir()


def test_broker_changes_over_on_its_folder(tmp_path: Path) -> None:
    port = free_port()
    namesrv = f"127.0.0.1:{port}"
    with (
        Standalone(tmp_path, namesrv_port=0, broker_port=0, **SMALL) as server,
        rmqpy.Producer(server.namesrv) as producer,
    ):
        producer.send("orders", b"first order")
    settings = {"namesrvAddr": namesrv, "listenPort": 0, "storePathRootDir": "store", **SMALL}
    (tmp_path / "broker.conf").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    (tmp_path / "namesrv.conf").write_text(f"listenPort={port}\nbindAddress=127.0.0.1\n")
    until = "until rmqpy consume orders --count 1 2>/dev/null; do sleep 0.2; done"
    assert (
        "first order" in run(f"{script('migrate-from-apache.md')}\n{until}", tmp_path, namesrv).splitlines()
    )


def test_three_brokers_replace_their_master(tmp_path: Path) -> None:
    # A broker also takes the port above its own, and the second below.
    servers = ("9876", "9878", "10911", "10921", "10931")
    ports = {port: str(free_ports(4) + 2) for port in servers}
    ports |= dict.fromkeys(("8081", "8091", "8101", "8082", "8092", "8102"), "-1")
    edits = " ".join(f"-e s/{port}$/{chosen}/ -e s/:{port}/:{chosen}/" for port, chosen in ports.items())
    small = "".join(f"{key}={value}\\n" for key, value in SMALL.items())
    create = "rmqpy cluster create trial"
    page = script(
        "self-healing.md",
        (
            create,
            f"{create}; sed -i {edits} trial/*; for f in trial/broker-*.conf; do printf '{small}' >> $f; done",
        ),
    )
    text = re.sub(
        "|".join(f"127.0.0.1:{port}" for port in servers), lambda found: _moved(found[0], ports), page
    )
    out = run(text, tmp_path, f"127.0.0.1:{ports['9876']}").splitlines()
    pauses = [float(line.split()[0]) for line in out if line.endswith("s without an accepted send")]
    assert 0 < max(pauses) < PAUSE_S_MAX, out
    [accepted] = [int(line.split()[0]) for line in out if line.endswith(" accepted")]
    [consumed] = [int(line) for line in out if line.isdigit()]
    assert consumed > accepted > 0


def _moved(address: str, ports: Mapping[str, str]) -> str:
    host, _, port = address.rpartition(":")
    return f"{host}:{ports[port]}"


@pytest.mark.parametrize("page", ["migrate-from-kafka.md"])
def test_commands_of_a_page_succeed(page: str, tmp_path: Path) -> None:
    with rmqpy.testing.broker() as server:
        run(script(page), tmp_path, server.namesrv)
        with rmqpy.PullConsumer("ledger", server.namesrv, start_from="earliest") as consumer:
            consumer.subscribe("payments")
            [message] = consumer.poll(timeout=10)
            assert (message.text(), message.sharding_key, message.keys) == ("80.00", "customer-7", ("P-1",))
