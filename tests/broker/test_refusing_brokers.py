"""A broker that cannot serve says so where it is asked: a port that is taken, a disk without room, a closed log."""

import asyncio
import json
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

import rmqpy
from benchmarks.processes import free_ports
from broker.conftest import made_broker
from broker.replicas import until
from broker.talk import send
from commandline import runner
from rmqpy.broker import Broker
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.namesrv import NameServer
from rmqpy.protocol.requests.routes import GetClusterInfo
from rmqpy.protocol.requests.topics import UpdateAndCreateTopic
from rmqpy.server import Standalone
from wire import TIMEOUT_S, Peer

ROOT = Path(__file__).resolve().parent.parent.parent
DISK_FULL = 14
#: Of the file system of a store: less than a broker wants to be free once there is something on it.
DISK_BYTES = 100 << 20


@pytest.fixture
def taken() -> Iterator[int]:
    """A port at which another program listens."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


@pytest.mark.parametrize(
    ("key", "below"), [("httpPort", 0), ("haListenPort", 0), ("listenPort", 0), ("listenPort", 2)]
)
async def test_a_taken_port_is_named_by_its_setting_and_nothing_is_registered(
    tmp_path: Path, namesrv: str, taken: int, key: str, below: int
) -> None:
    broker = made_broker(tmp_path, namesrv, {key: str(taken + below)})
    with pytest.raises(OSError, match="is in use") as failed:
        await broker.start()
    await broker.stop()
    text = str(failed.value)
    assert text.startswith(f"{key}={taken + below}: cannot listen on 127.0.0.1:{taken}")
    assert f"sport = :{taken}" in text
    async with await Peer.connect(namesrv) as peer:
        assert not (await peer.ask(GetClusterInfo())).broker_addr_table
    assert not (tmp_path / "store" / "commitlog").exists(), "it is found out before the store is opened"


@pytest.mark.parametrize("key", ["listen_port", "http_port"])
async def test_a_taken_port_of_a_name_server_is_named_by_its_setting(taken: int, key: str) -> None:
    ports = {"listen_port": 0} | {key: taken}
    server = NameServer(NameServerConfig(kv_path="", store_path="", **ports))
    with pytest.raises(OSError, match="is in use") as failed:
        await server.start()
    await server.stop()
    wire = {"listen_port": "listenPort", "http_port": "httpPort"}[key]
    assert str(failed.value).startswith(f"{wire}={taken}: cannot listen on 127.0.0.1:{taken}")


def test_doctor_finds_every_port_that_is_taken(
    tmp_path: Path, taken: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run = runner("127.0.0.1:1", monkeypatch, capfd)
    for key in ("httpPort", "haListenPort"):
        file = tmp_path / f"{key}.conf"
        file.write_text(
            f"brokerName=a\nlistenPort={free_ports(3) + 2}\nstorePathRootDir={tmp_path}/s\n{key}={taken}\n"
        )
        _, out, _ = run("doctor", "-c", str(file), "--disk-free-min", "0", "-o", "json")
        (found,) = [each for each in json.loads(out) if each["check"] == f"port 127.0.0.1:{taken}"]
        assert found["level"] == "bad"
        assert found["found"].startswith(f"{key}={taken}: cannot listen on 127.0.0.1:{taken}")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a file system of its own needs root")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def page(address: str | None, path: str) -> tuple[int, str]:
    assert address is not None
    connection = HTTPConnection(address, timeout=TIMEOUT_S)
    connection.request("GET", path)
    with connection.getresponse() as response:
        return response.status, response.read().decode()


async def ready(broker: Broker) -> tuple[int, str]:
    return await asyncio.to_thread(page, broker.http_address, "/readyz")


async def test_a_disk_without_room_is_said_by_every_surface(
    disk: Path, namesrv: str, caplog: pytest.LogCaptureFixture
) -> None:
    filler = disk / "filler"
    async with made_broker(disk, namesrv, {"httpPort": "0"}) as broker, rmqpy.AsyncAdmin(namesrv) as admin:
        assert (await ready(broker))[0] == 200
        async with await Peer.connect(broker.address) as peer:
            await peer.ask(UpdateAndCreateTopic(topic="orders"))
            filler.write_bytes(bytes(60 << 20))
            await until(lambda: send(peer, "orders"), lambda answer: answer.code == DISK_FULL)
        status, said = await ready(broker)
        assert status == 503
        sentence = said.partition(";")[0]
        assert str(disk / "store") in sentence
        assert "messages are refused" in sentence
        (state,) = await admin.brokers()
        assert (state.refuses, state.fault) == (True, sentence)
        checks = {each.check: each for each in await admin.health(disk_free_min=0)}
        assert (checks["disk of broker-a"].level, checks["disk of broker-a"].found) == ("bad", sentence)
        assert f"{checks['disk of broker-a'].found}; {checks['disk of broker-a'].advice}" == said.strip()
        answers = checks[f"broker broker-a at {broker.address}"]
        assert (answers.level, answers.found) == ("bad", "answers, and takes no messages")
        await until(lambda: logged(caplog, sentence), bool)
        filler.unlink()
        await until(lambda: ready(broker), lambda told: told[0] == 200)
        assert not [each for each in await admin.health(disk_free_min=0) if each.level != "ok"]


async def logged(caplog: pytest.LogCaptureFixture, text: str) -> bool:
    return any(text in each.message for each in caplog.records)


def test_the_health_check_of_the_container_needs_no_token(tmp_path: Path) -> None:
    text = (ROOT / "conf" / "Containerfile").read_text()
    (line,) = [each for each in text.splitlines() if each.startswith("HEALTHCHECK")]
    command = json.loads(line.partition("CMD")[2])
    on = {"authenticationEnabled": True, "authorizationEnabled": True, "httpToken": "the-token"}
    with Standalone(
        tmp_path, host="0.0.0.0", namesrv_port=0, broker_port=0, http_port=0, brokerIP1="127.0.0.1", **on
    ) as server:
        port = str(server.http).rpartition(":")[2]
        words = [sys.executable, *(each.replace(":8082", f":{port}") for each in command[1:])]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
        assert done.returncode == 0, f"{shlex.join(words)}: {done.stderr[-300:]}"
