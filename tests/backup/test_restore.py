"""Restores up to a time: the log, offsets and progress of delivery end there."""

import time
from datetime import timedelta
from pathlib import Path

import pytest

import rmqpy
from backup.running import backed_up, bodies, is_sound, serving
from rmqpy import cli
from rmqpy.testing import SMALL, broker
from waiting import until

WORDS = [f"{key}={value}" for key, value in SMALL.items()]


def next_second() -> str:
    """Wait for the next full second of local time, and return the one before as text."""
    began = int(time.time())
    until(lambda: time.time() >= began + 1.05)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(began + 1))


def test_restore_until_a_second_has_no_later_message_and_no_offset_beyond(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    backup, data = tmp_path / "backup", tmp_path / "data"
    with broker() as server:
        with rmqpy.Admin(server.namesrv) as admin:
            admin.create_topic("orders", read_queues=1, write_queues=1)
        with rmqpy.Producer(server.namesrv) as producer:
            producer.send("orders", b"first")
            producer.send("orders", b"second")
            second = next_second()
            producer.send("orders", b"third")
        with rmqpy.PullConsumer("billing", server.namesrv, start_from="earliest") as consumer:
            consumer.assign(consumer.queues("orders"))
            until(lambda: [each.text() for each in consumer.poll(timeout=1)][-1:] == ["third"])
            consumer.commit()
        backed_up(server.namesrv, backup)
    assert cli.run(["restore", str(backup), str(data), "--until", second]) == 0
    assert cli.run(["store", "verify", str(data), *WORDS]) == 0
    with serving(data) as server:
        assert bodies(server.namesrv, "orders") == ["first", "second"]
        with rmqpy.Producer(server.namesrv) as producer:
            producer.send("orders", b"fourth")
        assert bodies(server.namesrv, "orders", "billing") == ["fourth"], "no message is skipped"
    assert is_sound(backup), "the backup is unchanged"
    capfd.readouterr()
    # Cut before the first message, and not at all.
    assert cli.run(["restore", str(backup), str(tmp_path / "none"), "--until", "2001-01-31T12:00"]) == 0
    assert cli.run(["restore", str(backup), str(tmp_path / "all"), "--until", "0s"]) == 0
    for name, wanted in (("none", []), ("all", ["first", "second", "third"])):
        with serving(tmp_path / name) as server:
            assert bodies(server.namesrv, "orders") == wanted


def test_delayed_messages_delivered_later_are_delivered_again(tmp_path: Path) -> None:
    backup, data = tmp_path / "backup", tmp_path / "data"
    with broker(messageDelayLevel="2s 1h") as server:
        with rmqpy.Admin(server.namesrv) as admin:
            for topic in ("levels", "timers"):
                admin.create_topic(topic, read_queues=1, write_queues=1)
        with rmqpy.Producer(server.namesrv) as producer:
            producer.send("levels", b"delayed", delay_level=1)
            producer.send("timers", b"timed", deliver_after=timedelta(seconds=2))
        second = next_second()
        for topic in ("levels", "timers"):
            until(lambda topic=topic: bodies(server.namesrv, topic), wanted=lambda found: len(found) == 1)
        backed_up(server.namesrv, backup)
    assert cli.run(["restore", str(backup), str(data), "--until", second]) == 0
    with serving(data) as server:
        for topic, text in (("levels", "delayed"), ("timers", "timed")):
            found = until(lambda topic=topic: bodies(server.namesrv, topic))
            assert found == [text]


def test_folder_in_use_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    backup, data = tmp_path / "backup", tmp_path / "data"
    with broker() as server, rmqpy.Producer(server.namesrv) as producer:
        producer.send("orders", b"first")
        backed_up(server.namesrv, backup)
    data.mkdir()
    (data / "notes.txt").write_text("mine")
    assert cli.run(["restore", str(backup), str(data)]) == 2
    assert "not empty: it contains notes.txt" in capfd.readouterr().err
    assert cli.run(["restore", str(data), str(tmp_path / "new")]) == 2
    assert "is not a backup" in capfd.readouterr().err
    (data / "notes.txt").unlink()
    assert cli.run(["restore", str(backup), str(data)]) == 0
    with serving(data) as server:
        assert bodies(server.namesrv, "orders") == ["first"]
