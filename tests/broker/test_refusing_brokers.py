"""Brokers that cannot serve, with their reports: a port in use, a full disk, a closed log."""

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
from broker.talk import send
from commandline import runner
from rmqpy.broker import Broker
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.namesrv import NameServer
from rmqpy.protocol.requests.routes import GetClusterInfo
from rmqpy.protocol.requests.topics import UpdateAndCreateTopic
from rmqpy.server import Standalone
from tmpfs import tmpfs
from waiting import until_async
from wire import TIMEOUT_S, Peer

ROOT = Path(__file__).resolve().parent.parent.parent
DISK_FULL = 14
#: Of the store's file system: less than a broker wants to be free once it has files.
DISK_BYTES = 120 << 20


@pytest.fixture
def taken() -> Iterator[int]:
    """A port at which another program listens."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


@pytest.mark.parametrize(
    ("key", "below"), [("httpPort", 0), ("haListenPort", 0), ("listenPort", 0), ("listenPort", 2)]
)
async def test_port_in_use_is_named_by_its_setting_before_registration(
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
async def test_port_in_use_of_a_name_server_is_named_by_its_setting(taken: int, key: str) -> None:
    ports = {"listen_port": 0} | {key: taken}
    server = NameServer(NameServerConfig(kv_path="", store_path="", **ports))
    with pytest.raises(OSError, match="is in use") as failed:
        await server.start()
    await server.stop()
    wire = {"listen_port": "listenPort", "http_port": "httpPort"}[key]
    assert str(failed.value).startswith(f"{wire}={taken}: cannot listen on 127.0.0.1:{taken}")


def test_doctor_finds_every_port_in_use(
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
    with tmpfs(tmp_path / "disk", DISK_BYTES) as disk:
        yield disk


def page(address: str | None, path: str) -> tuple[int, str]:
    assert address is not None
    connection = HTTPConnection(address, timeout=TIMEOUT_S)
    connection.request("GET", path)
    with connection.getresponse() as response:
        return response.status, response.read().decode()


async def ready(broker: Broker) -> tuple[int, str]:
    return await asyncio.to_thread(page, broker.http_address, "/readyz")


async def test_full_disk_is_reported_everywhere(
    disk: Path, namesrv: str, caplog: pytest.LogCaptureFixture
) -> None:
    filler = disk / "filler"
    async with made_broker(disk, namesrv, {"httpPort": "0"}) as broker, rmqpy.AsyncAdmin(namesrv) as admin:
        assert (await ready(broker))[0] == 200
        async with await Peer.connect(broker.address) as peer:
            await peer.ask(UpdateAndCreateTopic(topic="orders"))
            filler.write_bytes(bytes(60 << 20))
            await until_async(lambda: send(peer, "orders"), lambda answer: answer.code == DISK_FULL)

        async def sentences() -> list[str]:
            """The same sentence from each place; one may be older, from when the disk was being filled."""
            status, said = await ready(broker)
            assert status == 503
            (state,) = await admin.brokers()
            assert state.refuses
            checks = {each.check: each for each in await admin.health(disk_free_min=0)}
            answers, disk = checks[f"broker broker-a at {broker.address}"], checks["disk of broker-a"]
            assert (answers.level, answers.found) == ("bad", "answers, but refuses messages")
            assert disk.level == "bad"
            return [said.strip(), f"{disk.found}; {disk.advice}", f"{state.fault}; {disk.advice}"]

        said, *_ = await until_async(sentences, lambda told: len(set(told)) == 1)
        assert str(disk / "store") in said
        assert "messages are refused" in said
        await until_async(lambda: logged(caplog, "messages are refused"))
        filler.unlink()
        await until_async(lambda: ready(broker), lambda told: told[0] == 200)
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
