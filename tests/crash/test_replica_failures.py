"""Failures of replicas as an operator sees them: rows of docs/replicas.md, each reproduced.

`rmqpy cluster replicas` and `rmqpy doctor` are run as by a user; `/metrics` and the broker's log are read. Diverged
logs are tested in broker/test_promotion.py, two brokers of one name in admin/test_doctor.py.
"""

import asyncio
import contextlib
import json
import os
import signal
import struct
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.processes import free_ports
from crash.cable import INSIDE, MASTER_HOST, SLAVE_HOST, cable, needs_networks
from crash.replica_processes import Replica, in_sync, running
from crash.traffic import send_header
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.namesrv import NameServer
from tmpfs import tmpfs
from waiting import until_async
from wire import TIMEOUT_S, Peer

OK, REFUSED, NO_SLAVE, SLAVES_LATE = 0, 1, 11, 12
SLAVE = {"brokerRole": "SLAVE", "brokerId": 1}
SYNC = {"brokerRole": "SYNC_MASTER", "slaveTimeout": 300}
#: The other side of a connection is missed soon.
SOON = {"haHousekeepingInterval": 1_000}
#: Of the file system of a slave: more than a store wants to be free.
DISK_BYTES = 256 << 20


def replica(namesrv: str, folder: Path, **settings: object) -> Replica:
    """A broker with metrics and a log that can be read."""
    given = {"httpPort": free_ports(1), **settings}
    return Replica(namesrv, folder, given, log_file=folder.with_suffix(".log"))


async def logged(broker: Replica, text: str) -> None:
    """Until it stands in the log, which has what happens within a second."""
    assert broker.log_file is not None
    await until_async(broker.log_file.read_text, lambda log: text in log)


def read_metrics(broker: Replica) -> dict[str, float]:
    """Those about replicas, by name without the prefix."""
    url = f"http://127.0.0.1:{broker.settings['httpPort']}/metrics"
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
        lines = answer.read().decode().splitlines()
    found = (line.rpartition(" ") for line in lines if line.startswith(("rmqpy_slave", "rmqpy_replica")))
    return {name.partition("{")[0].removeprefix("rmqpy_"): float(value) for name, _, value in found}


async def metrics(broker: Replica) -> dict[str, float]:
    return await asyncio.to_thread(read_metrics, broker)


async def printed(namesrv: str, *words: str) -> Any:
    """What a command prints, as JSON."""
    command = [sys.executable, "-m", "rmqpy", *words, "-n", namesrv, "-o", "json"]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


@dataclass
class Sight:
    """What the two commands say."""

    #: Rows of `cluster replicas`, by broker id.
    rows: dict[int, dict[str, Any]]
    #: Findings of `doctor` that are not ok, by check: level, what was found and what to do.
    findings: dict[str, str]


async def look(namesrv: str) -> Sight:
    rows, checks = await asyncio.gather(
        printed(namesrv, "cluster", "replicas", "broker-a"),
        printed(namesrv, "doctor", "--disk-free-min", "0"),
    )
    findings = {
        check["check"]: f"{check['level']}: {check['found']}; {check['advice']}"
        for check in checks
        if check["level"] != "ok"
    }
    return Sight({row["id"]: row for row in rows}, findings)


async def until_seen(namesrv: str, is_seen: Callable[[Sight], bool]) -> Sight:
    return await until_async(lambda: look(namesrv), is_seen, pause=0.1)


async def send(broker: Replica, count: int = 1, body: bytes = b"x" * 200) -> set[int]:
    """Codes of the answers."""
    async with await Peer.connect(broker.address) as peer:
        return {(await peer.call(310, send_header("orders", 0), body)).code for _ in range(count)}


@pytest.mark.parametrize("role", ["SYNC_MASTER", "ASYNC_MASTER"])
async def test_1_a_slave_that_is_down_is_missed(tmp_path: Path, namesrv: str, role: str) -> None:
    master = replica(namesrv, tmp_path / "a", **SYNC | {"brokerRole": role})
    slave = replica(namesrv, tmp_path / "b", **SLAVE)
    async with running(master, slave):
        await in_sync(master)
        await until_async(lambda: has_metric(master, "slaves_expected", 1))
        assert (await look(namesrv)).findings == {}
        await slave.end(signal.SIGKILL)
        await until_async(lambda: has_metric(master, "slaves", 0))
        sight = await look(namesrv)
        finding = sight.findings["replicas of broker-a"]
        if role == "SYNC_MASTER":
            assert await send(master) == {NO_SLAVE}
            assert finding.startswith(
                "bad: 1 of 2 replicas are in sync: messages are stored, and answered with 11"
            )
        else:
            assert await send(master) == {OK}
            assert finding.startswith("warn: 0 of 1 slaves are connected")
        assert sight.rows[0]["fault"] in finding
        await logged(master, "the connection of the slave")
        await slave.start()
        await until_seen(namesrv, lambda sight: sight.findings == {})


async def has_metric(broker: Replica, name: str, value: float) -> bool:
    return (await metrics(broker))[name] == value


async def test_2_a_slave_that_is_slow_is_seen_at_its_master(tmp_path: Path, namesrv: str) -> None:
    master = replica(namesrv, tmp_path / "a", **SYNC, haMaxGapNotInSync=1_000, minInSyncReplicas=2)
    slave = replica(namesrv, tmp_path / "b", **SLAVE)
    async with running(master, slave):
        await in_sync(master)
        assert await send(master) == {OK}
        await slave.stand_still()
        # The first ones wait for it, and then it is too far behind to count.
        await until_async(lambda: is_answered(master, REFUSED))
        assert (await metrics(master))["slave_behind_bytes_max"] >= 1_000
        sight = await look(namesrv)
        assert "does not answer" in sight.rows[1]["fault"]
        assert "1 of 2 replicas are in sync: messages are refused" in sight.findings["replicas of broker-a"]
        assert f"broker broker-a at {slave.address}" in sight.findings
        slave.signal(signal.SIGCONT)
        await in_sync(master)
        await until_async(lambda: is_answered(master, OK))


async def is_answered(broker: Replica, code: int) -> bool:
    return await send(broker) == {code}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with tmpfs(tmp_path / "disk", DISK_BYTES) as disk:
        yield disk


async def test_3_slave_with_a_full_disk_resumes_when_space_is_free(
    tmp_path: Path, namesrv: str, disk: Path
) -> None:
    master = replica(namesrv, tmp_path / "a")
    slave = replica(namesrv, disk / "b", **SLAVE)
    slave.log_file = tmp_path / "b.log"
    async with running(master, slave):
        await in_sync(master)
        assert await send(master) == {OK}
        filler = disk / "filler"
        await until_async(lambda: is_filled(filler, master, slave))
        sight = await look(namesrv)
        assert "the disk is full" in sight.findings["slave 1 of broker-a"]
        assert sight.rows[1]["behind_bytes"] > 0
        assert "disk of broker-a" in sight.findings
        await until_async(lambda: is_apart(slave))
        await logged(slave, "the disk is full")
        filler.unlink()
        await in_sync(master)


async def is_apart(slave: Replica) -> bool:
    return (await metrics(slave))["replica_connected"] == 0


async def is_filled(filler: Path, master: Replica, slave: Replica) -> bool:
    """Whether the slave has found out that nothing is left."""
    room = os.statvfs(filler.parent)
    # Something else may take the last of it meanwhile.
    with filler.open("ab") as file, contextlib.suppress(OSError):
        os.posix_fallocate(file.fileno(), file.tell(), max(1, room.f_bavail * room.f_frsize))
    await send(master, 500, b"x" * 1_000)
    return "disk is full" in ((await slave.status()).ha_client_runtime_info.fault or "")


@needs_networks
@pytest.mark.parametrize("how", ["both", "one way"])
async def test_7_a_network_that_is_cut_is_seen_at_both_ends(tmp_path: Path, how: str) -> None:
    server = NameServerConfig(bind_address=MASTER_HOST, listen_port=0, kv_path="", store_path="")
    with cable() as network:
        async with NameServer(server) as name_server:
            namesrv = name_server.address
            master = replica(namesrv, tmp_path / "a", **SYNC, **SOON)
            slave = replica(namesrv, tmp_path / "b", **SLAVE, **SOON)
            master.host, slave.host, slave.inside = MASTER_HOST, SLAVE_HOST, INSIDE
            async with running(master, slave):
                await in_sync(master)
                network.cut(how)
                await until_async(lambda: has_metric(master, "slaves", 0))
                assert await send(master) == {NO_SLAVE}
                sight = await look(namesrv)
                assert "1 of 2 replicas are in sync" in sight.findings["replicas of broker-a"]
                assert f"broker broker-a at {slave.address}" in sight.findings
                assert sight.rows[1]["fault"]
                await logged(master, "the slave sent nothing for too long")
                await logged(slave, "master")
                network.mend()
                await in_sync(master)
                assert await send(master) == {OK}
                await until_seen(namesrv, lambda sight: "replicas of broker-a" not in sight.findings)


async def test_8_slave_of_another_cluster_is_recognized(tmp_path: Path, namesrv: str) -> None:
    master = replica(namesrv, tmp_path / "a", brokerClusterName="c1")
    slave = replica(namesrv, tmp_path / "b", **SLAVE, brokerClusterName="c2")
    async with running(master, slave):
        sight = await look(namesrv)
        assert "0 in c1, 1 in c2" in sight.findings["cluster of broker-a"]


async def test_8_a_slave_that_is_sent_to_another_master_finds_out(tmp_path: Path, namesrv: str) -> None:
    master = replica(namesrv, tmp_path / "a")
    port = free_ports(1)
    other = replica(namesrv, tmp_path / "c", brokerName="broker-b", haListenPort=port)
    async with running(master, other):
        assert await send(master, 3) == {OK}
        assert await send(other, 9, b"y" * 300) == {OK}
        slave = replica(namesrv, tmp_path / "b", **SLAVE, haMasterAddress=f"127.0.0.1:{port}")
        async with running(slave):
            sight = await until_seen(
                namesrv, lambda sight: "haMasterAddress" in (sight.rows[1]["fault"] or "")
            )
            assert sight.findings["slave 1 of broker-a"].startswith("bad: ")
            assert (await metrics(slave))["replica_connected"] == 0
            assert sight.rows[1]["in_sync"] is False
            assert await slave.log_end() == 0, "nothing was copied"
            await logged(other, "the ticket is unknown to this master")


async def test_9_slave_with_another_protocol_is_reported(tmp_path: Path, namesrv: str) -> None:
    port = free_ports(1)
    master = replica(namesrv, tmp_path / "a", haListenPort=port)
    async with running(master):
        assert await send(master) == {OK}
        # A scanner of ports is no slave.
        assert await ended(port, b"GET / HTTP/1.1\r\n\r\n") == b""
        assert await ended(port, struct.pack(">ihhq", 1, 0, 0, 2)) == b""
        sight = await until_seen(namesrv, lambda sight: "log of broker-a" in sight.findings)
        assert "enableControllerMode=false" in sight.findings["log of broker-a"]
        assert (await metrics(master))["slaves_refused"] == 1
        await logged(master, "this is not a replication stream")


async def ended(port: int, first: bytes) -> bytes:
    """What a peer gets before its connection is closed that begins so."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(first)
    found = b""
    # It is reset where some of what it sent was not read.
    with contextlib.suppress(ConnectionResetError):
        found = await reader.read()
    writer.close()
    return found


async def test_10_a_port_for_slaves_that_is_closed_is_named(tmp_path: Path, namesrv: str) -> None:
    master = replica(namesrv, tmp_path / "a")
    slave = replica(namesrv, tmp_path / "b", **SLAVE, haMasterAddress="127.0.0.1:1")
    async with running(master, slave):
        assert await send(master) == {OK}
        sight = await until_seen(namesrv, lambda sight: bool(sight.rows[1]["fault"]))
        assert "127.0.0.1:1: no connection: Connection refused" in sight.rows[1]["fault"]
        assert "haListenPort" in sight.findings["slave 1 of broker-a"]
        assert (await metrics(slave))["replica_connected"] == 0
        await logged(slave, "127.0.0.1:1: no connection")
