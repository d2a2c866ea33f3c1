"""Divergence with Apache's broker, which compares nothing: a master returns without the end of its log, unlike its
slave.

The slave is refused, or refuses; either is reported, and the master's new end never follows the slave's old one."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import rmqpy
import waiting
from rmqpy.admin.replicas import ReplicaState

from . import wire
from .folders import Folder, master_and_slave

SECONDS_MAX = 60.0
until = partial(waiting.until, seconds=SECONDS_MAX)

pytestmark = pytest.mark.timeout(200, func_only=True)


def send(namesrv: str, name: str, count: int) -> None:
    config = rmqpy.ClientConfig(namesrv=namesrv, route_refresh=0.5)
    with rmqpy.Producer(config, send_timeout=30.0) as producer:
        until(lambda: takes_messages(producer))
        for future in [producer.submit("orders", f"{name} {number}") for number in range(count)]:
            future.result(timeout=SECONDS_MAX)


def takes_messages(producer: rmqpy.Producer) -> bool:
    """Return whether the master is registered, together with its slave."""
    try:
        producer.send("orders", "one more")
    except rmqpy.errors.NoWritableQueue:
        return False
    return True


def log(folder: Folder) -> bytes:
    """Return the written bytes, without the zeros behind them."""
    files = sorted((folder.home / "store" / "commitlog").iterdir())
    return b"".join(file.read_bytes() for file in files).rstrip(b"\0")


def copy(master: Folder, slave: Folder) -> None:
    until(lambda: log(slave) == log(master))


def diverged(admin: rmqpy.Admin) -> ReplicaState | None:
    return next((state for state in admin.replicas("broker-a") if state.is_diverged), None)


@pytest.mark.parametrize(("leads", "follows"), [("apache", "rmqpy"), ("rmqpy", "apache")])
def test_slave_with_messages_its_master_lost_is_reported_and_does_not_follow(
    originals: Callable[[str], Path], namesrv: str, tmp_path: Path, leads: str, follows: str
) -> None:
    master, slave = master_and_slave(tmp_path, namesrv, originals("apache"))
    with master.served_by(leads):
        until(lambda: wire.knows(namesrv, "broker-a"))
        send(namesrv, "first", 50)
    shutil.copytree(master.home / "store", tmp_path / "earlier")
    with master.served_by(leads), slave.served_by(follows):
        send(namesrv, "lost", 20)
        copy(master, slave)
    had = log(slave)
    shutil.rmtree(master.home / "store")
    shutil.move(tmp_path / "earlier", master.home / "store")
    with master.served_by(leads), slave.served_by(follows), rmqpy.Admin(namesrv) as admin:
        until(lambda: diverged(admin) is not None)
        found = diverged(admin)
        assert found is not None
        assert found.is_master == (leads == "rmqpy")
        assert "lost" in (found.fault or "")
        bad = [check for check in admin.health(disk_free_min=0) if check.level == "bad"]
        assert any("have diverged" in check.found for check in bad)
        assert log(slave) == had
        if follows == "rmqpy":
            # The master has other bytes where the slave's are, and more of them: it still does not fit.
            send(namesrv, "other", 100)
            until(lambda: "goes beyond it now" in (((state := diverged(admin)) and state.fault) or ""))
            assert log(slave) == had
