"""Backups of running brokers: complete, incremental, continued, and refused where they do not fit."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import rmqpy
from backup.running import backed_up, bodies, is_sound, serving
from rmqpy import cli
from rmqpy.backup.manifest import MANIFEST, load
from rmqpy.errors import ConfigError, RocketMQError
from rmqpy.testing import SMALL, Cluster, broker
from waiting import until


class Load:
    """A producer that sends in a thread, and the bodies of its acknowledged messages."""

    def __init__(self, namesrv: str) -> None:
        self.acknowledged: list[str] = []
        self._producer = rmqpy.Producer(namesrv)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def _send(self) -> None:
        number = 0
        while not self._stop.is_set():
            body = f"{number} {'x' * 500}"
            self._producer.send("orders", body.encode(), keys=str(number))
            self.acknowledged.append(body)
            number += 1

    @contextmanager
    def running(self) -> Iterator["Load"]:
        with self._producer:
            self._thread.start()
            try:
                yield self
            finally:
                self._stop.set()
                self._thread.join()


def sent(namesrv: str, *texts: str, topic: str = "orders") -> None:
    with rmqpy.Producer(namesrv) as producer:
        for text in texts:
            producer.send(topic, text.encode())


def incompressible(seed: int, size: int) -> str:
    """Text of twice as many characters, which producers cannot make shorter than half of it."""
    return random.Random(seed).randbytes(size).hex()


def committed(namesrv: str, count: int) -> set[str]:
    """Consume that many messages as `billing`, and commit them."""
    with rmqpy.PullConsumer("billing", namesrv, start_from="earliest") as consumer:
        consumer.assign(consumer.queues("orders"))
        found: set[str] = set()
        while len(found) < count:
            found |= {message.text() for message in consumer.poll(timeout=5)}
        consumer.commit()
    return found


def test_backup_under_load_has_acknowledged_messages_and_offsets(tmp_path: Path) -> None:
    backup, data = tmp_path / "backup", tmp_path / "data"
    with broker() as server, Load(server.namesrv).running() as load_:
        until(lambda: len(load_.acknowledged) > 200)
        consumed = committed(server.namesrv, 50)
        promised = list(load_.acknowledged)
        done = backed_up(server.namesrv, backup)
        assert done.is_new
        assert len(load_.acknowledged) > len(promised), "it was sent to meanwhile"
    assert done.manifest.log_end >= done.manifest.master_end > 0
    assert is_sound(backup)
    words = [f"{key}={value}" for key, value in SMALL.items()]
    assert cli.run(["restore", str(backup), str(data)]) == 0
    assert cli.run(["store", "verify", str(data), *words]) == 0
    with serving(data) as server:
        assert not set(promised) - set(bodies(server.namesrv, "orders"))
        rest = bodies(server.namesrv, "orders", "billing")
        assert not consumed & set(rest), "it continues at its offsets"
        assert set(promised) <= consumed | set(rest)


def test_further_run_copies_only_the_new_part_of_the_log(tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    # Several files of the log, of which the first is full.
    with broker(mappedFileSizeCommitLog=1 << 20) as server:
        sent(server.namesrv, *(incompressible(number, 25_000) for number in range(40)))
        first = backed_up(server.namesrv, backup)
        log = backup / "store" / "commitlog" / f"{0:020}"
        before = log.stat()
        sent(server.namesrv, "new")
        second = backed_up(server.namesrv, backup)
        assert (first.is_new, second.is_new) == (True, False)
        assert second.copied == second.manifest.log_end - first.manifest.log_end
        assert 0 < second.copied < 1_000
        assert log.stat().st_mtime_ns == before.st_mtime_ns
        third = backed_up(server.namesrv, backup)
        assert third.copied == 0
    assert is_sound(backup)


def has_log(backup: Path) -> bool:
    """Whether a run has written topics and the first bytes of the log."""
    log = backup / "store" / "commitlog" / f"{0:020}"
    if not (log.exists() and (backup / "store" / "config" / "topics.json").exists()):
        return False
    with log.open("rb") as file:
        return any(file.read(4))


def test_killed_run_is_incomplete_and_continued(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    backup = tmp_path / "backup"
    with broker() as server:
        # Some 30 MB.
        texts = [incompressible(number, 100_000) for number in range(300)]
        sent(server.namesrv, *texts)
        environment = {**os.environ, "NAMESRV_ADDR": server.namesrv}
        command = [sys.executable, "-m", "rmqpy", "backup", str(backup)]
        process = subprocess.Popen(command, env=environment)
        until(lambda: has_log(backup), pause=0.001)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)
        assert not load(backup).is_complete
        assert cli.run(["backup", str(backup), "--verify"]) == 2
        assert "incomplete" in capfd.readouterr().err
        assert cli.run(["restore", str(backup), str(tmp_path / "refused")]) == 2
        assert "incomplete" in capfd.readouterr().err
        # The master may be gone for good.
        assert cli.run(["restore", str(backup), str(tmp_path / "some"), "--incomplete"]) == 0
        done = backed_up(server.namesrv, backup)
        assert done.copied < done.manifest.log_end, "it continued"
    assert is_sound(backup)
    with serving(tmp_path / "some") as server:
        assert set(bodies(server.namesrv, "orders")) <= set(texts)


def test_diverged_or_other_broker_is_refused_and_the_backup_stays_sound(tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    with broker() as server:
        sent(server.namesrv, "one", "two", "three")
        backed_up(server.namesrv, backup)
    with broker() as server:
        sent(server.namesrv, *map(str, range(100)))
        with pytest.raises(RocketMQError, match=r"diverges.*new folder"):
            backed_up(server.namesrv, backup)
    assert is_sound(backup)
    with broker(brokerName="broker-b") as server, pytest.raises(ConfigError, match="not of broker-b"):
        backed_up(server.namesrv, backup)
    assert is_sound(backup)


def test_broker_with_a_shorter_log_is_refused(tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    with broker() as server:
        sent(server.namesrv, "one", "two", "three")
        backed_up(server.namesrv, backup)
    with broker() as server:
        sent(server.namesrv, "one")
        with pytest.raises(RocketMQError, match="diverges"):
            backed_up(server.namesrv, backup)
    assert is_sound(backup)


def test_expired_messages_in_between_are_refused(tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    with broker(mappedFileSizeCommitLog=1 << 20, fileReservedTime=0) as server:
        sent(server.namesrv, "first")
        backed_up(server.namesrv, backup)
        sent(server.namesrv, *(incompressible(number, 25_000) for number in range(60)))
        with rmqpy.Admin(server.namesrv) as admin:
            until(
                lambda: (
                    admin.delete_expired_log(),
                    int(admin.broker_runtime("broker-a")["commitLogMinOffset"]),
                )[1]
            )
        with pytest.raises(RocketMQError, match=r"have expired.*new folder"):
            backed_up(server.namesrv, backup)
        assert is_sound(backup)
        done = backed_up(server.namesrv, tmp_path / "new")
        assert done.manifest.log_begin > 0
    assert is_sound(tmp_path / "new")
    assert cli.run(["restore", str(tmp_path / "new"), str(tmp_path / "data")]) == 0
    with serving(tmp_path / "data") as server:
        assert 0 < len(bodies(server.namesrv, "orders")) < 61


def test_foreign_folder_and_unnamed_broker_are_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with Cluster(brokers=["broker-a", "broker-b"]) as cluster:
        with pytest.raises(ConfigError, match="not a backup"):
            backed_up(cluster.namesrv, tmp_path, "broker-a")
        with pytest.raises(ConfigError, match="choose one of the brokers broker-a, broker-b"):
            backed_up(cluster.namesrv, tmp_path / "new")
        with pytest.raises(ConfigError, match="no broker 'other'"):
            backed_up(cluster.namesrv, tmp_path / "new", "other")
        assert not (tmp_path / "new").exists()


def test_changed_missing_and_additional_files_are_found(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    backup = tmp_path / "backup"
    with broker() as server:
        sent(server.namesrv, "x" * 3_000)
        backed_up(server.namesrv, backup)
    log, topics = backup / f"store/commitlog/{0:020}", backup / "store/config/topics.json"
    with log.open("r+b") as file:
        file.seek(log.read_bytes().index(b"x" * 1_000) + 100)
        file.write(b"y")
    topics.unlink()
    (backup / "store/config/other.json").write_text("{}")
    assert cli.run(["backup", str(backup), "--verify", "-o", "json"]) == 1
    out, err = capfd.readouterr()
    assert json.loads(out)["different_files"] == 3
    assert f"commitlog/{0:020} differs" in err
    assert "topics.json is missing" in err
    assert "other.json is not in the manifest" in err
    assert cli.run(["restore", str(backup), str(tmp_path / "data")]) == 1
    assert "damaged" in capfd.readouterr().err
    assert not (tmp_path / "data" / "store").exists()


def test_damaged_manifest_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text("{")
    with pytest.raises(ConfigError, match=MANIFEST):
        load(tmp_path)
    (tmp_path / MANIFEST).write_text(json.dumps({"kind": "rmqpy backup", "format": 1, "state": "complete"}))
    with pytest.raises(ConfigError, match="files"):
        load(tmp_path)


def test_super_user_backs_up_users_and_rules_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    backup = tmp_path / "backup"
    first = json.dumps({"username": "root", "password": "root-secret"})
    with broker(
        authenticationEnabled=True, authorizationEnabled=True, initAuthenticationUser=first
    ) as server:
        root = rmqpy.ClientConfig(
            namesrv=server.namesrv, credentials=rmqpy.Credentials("root", "root-secret")
        )
        with rmqpy.Admin(root) as admin:
            admin.create_topic("orders")
            admin.create_user("ann", "ann-secret")
            admin.set_rule("ann", "Topic:orders", ["Pub"])
            admin.set_rule("ann", "Cluster:DefaultCluster", ["Get", "Update"])
        monkeypatch.setenv("NAMESRV_ADDR", server.namesrv)
        monkeypatch.setenv("RMQPY_ACCESS_KEY", "ann")
        monkeypatch.setenv("RMQPY_SECRET_KEY", "ann-secret")
        assert cli.run(["backup", str(backup)]) == 5
        assert "super user" in capfd.readouterr().err
        assert not backup.exists()
        monkeypatch.setenv("RMQPY_ACCESS_KEY", "root")
        monkeypatch.setenv("RMQPY_SECRET_KEY", "root-secret")
        assert cli.run(["backup", str(backup)]) == 0
        assert "without their secrets" in capfd.readouterr().err
    text = (backup / "access.json").read_text()
    assert "secret" not in text
    found = json.loads(text)
    assert {user["name"]: user["super"] for user in found["users"]} == {"root": True, "ann": False}
    assert {rule["resource"] for rule in found["rules"]} == {"Topic:orders", "Cluster:DefaultCluster"}
    assert is_sound(backup)
