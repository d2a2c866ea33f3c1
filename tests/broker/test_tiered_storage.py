"""Tiered storage: messages that left the disk are read as before, and what is not copied stays on it."""

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import rmqpy
from broker.talk import pull
from rmqpy import testing
from rmqpy.errors import ConfigError
from tiered import connected, send, tiered
from waiting import until
from wire import Peer

CHECK = "tiered storage of broker-a"


def read(namesrv: str, topic: str, count: int, group: str = "readers", tags: Any = "*") -> list[int]:
    """The numbers of this many messages, each queue from its beginning."""
    found: list[int] = []
    with rmqpy.PullConsumer(group, namesrv, start_from="earliest") as consumer:
        consumer.subscribe(topic, tags)

        def is_whole() -> bool:
            found.extend(int(each.body.split()[0]) for each in consumer.poll(timeout=1))
            return len(found) >= count

        until(is_whole, seconds=30)
    return found


def test_messages_that_left_the_disk_are_read_in_order(tmp_path: Path) -> None:
    with connected(tmp_path) as (broker, admin, producer):
        admin.create_topic("orders", read_queues=2, write_queues=2)
        send(producer, "orders", range(200))
        broker.expire(admin)
        assert broker.local_files()[0] > 0
        found = read(broker.namesrv, "orders", 200)
        assert sorted(found) == list(range(200))
        for queue in (0, 1):
            assert [each for each in found if each % 2 == queue] == list(range(queue, 200, 2))
        # Tools show what can be read.
        assert [queue.begin for queue in admin.topic("orders")] == [0, 0]


def test_a_restart_finds_what_was_copied(tmp_path: Path) -> None:
    with tiered(tmp_path) as broker, rmqpy.Admin(broker.namesrv) as admin:
        admin.create_topic("orders", read_queues=2, write_queues=2)
        with rmqpy.Producer(broker.namesrv, compress_above=None) as producer:
            send(producer, "orders", range(100))
        broker.expire(admin)
    # The stop may have cut a copy off, which is made again.
    copied = {name for name in os.listdir(broker.storage) if not name.endswith(".part")}
    with tiered(tmp_path) as broker, rmqpy.Admin(broker.namesrv) as admin:
        with rmqpy.Producer(broker.namesrv, compress_above=None) as producer:
            send(producer, "orders", range(100, 200))
        broker.expire(admin)
        assert sorted(read(broker.namesrv, "orders", 200)) == list(range(200))
    assert copied < set(os.listdir(broker.storage))


@pytest.mark.parametrize("tags", ["paid", rmqpy.sql("region = 'EU'")], ids=["tag", "sql"])
def test_filters_apply_to_messages_that_left_the_disk(tmp_path: Path, tags: Any) -> None:
    with connected(tmp_path) as (broker, admin, producer):
        admin.create_topic("orders", read_queues=1, write_queues=1)
        for number in range(100):
            is_wanted = number % 10 == 0
            send(
                producer,
                "orders",
                [number],
                tag="paid" if is_wanted else "open",
                properties={"region": "EU" if is_wanted else "US"},
            )
        broker.expire(admin)
        assert read(broker.namesrv, "orders", 10, tags=tags) == list(range(0, 100, 10))


def test_offsets_are_found_by_time_in_the_storage(tmp_path: Path) -> None:
    clock = testing.HandClock()
    with connected(tmp_path, clock=clock) as (broker, admin, producer):
        admin.create_topic("orders", read_queues=1, write_queues=1)
        times = []
        for number in range(100):
            times.append(clock.wall_ms())
            send(producer, "orders", [number])
            clock.advance(60)
        broker.expire(admin)
        [queue] = admin.topic("orders")
        assert queue.begin == 0
        admin.create_group("seekers")
        for wanted in (0, 1, 42, 99):
            moved = admin.reset_offsets("seekers", "orders", to=times[wanted])
            assert [each.target for each in moved] == [wanted]


def test_nothing_is_deleted_before_it_is_copied(tmp_path: Path) -> None:
    with connected(tmp_path) as (broker, admin, producer):
        admin.create_topic("orders", read_queues=1, write_queues=1)
        # A file in the place of the folder.
        away = tmp_path / "away"
        until(lambda: (broker.storage / "in-use.claim").exists())
        broker.storage.rename(away)
        broker.storage.write_bytes(b"")
        send(producer, "orders", range(100))

        def finding() -> str:
            [found] = [each.found for each in admin.health(disk_free_min=0) if each.check == CHECK]
            return found

        until(lambda: "cannot be copied to the tiered storage" in finding())
        admin.delete_expired_log()
        assert broker.local_files()[0] == 0
        assert sorted(read(broker.namesrv, "orders", 100)) == list(range(100))
        broker.storage.unlink()
        away.rename(broker.storage)
        broker.expire(admin)
        until(lambda: "files, " in finding() and "cannot" not in finding())
        assert sorted(read(broker.namesrv, "orders", 100, group="later")) == list(range(100))


def test_a_lost_storage_refuses_its_messages_and_no_others(tmp_path: Path) -> None:
    away = tmp_path / "away"
    with (
        tiered(tmp_path) as broker,
        rmqpy.Admin(broker.namesrv) as admin,
        rmqpy.Producer(broker.namesrv, compress_above=None) as producer,
        rmqpy.PullConsumer("readers", broker.namesrv, start_from="earliest") as consumer,
    ):
        admin.create_topic("orders", read_queues=1, write_queues=1)
        admin.create_topic("others", read_queues=1, write_queues=1)
        send(producer, "orders", range(100))
        broker.expire(admin)
        broker.storage.rename(away)
        consumer.subscribe("orders")
        assert consumer.poll(timeout=2) == []
        send(producer, "others", [1])
        assert read(broker.namesrv, "others", 1, group="neighbours") == [1]
        away.rename(broker.storage)
        found: list[int] = []

        def is_whole() -> bool:
            found.extend(int(each.body.split()[0]) for each in consumer.poll(timeout=1))
            return len(found) >= 100

        until(is_whole, seconds=30)
        assert found == list(range(100))


def test_a_topic_made_again_has_no_messages_of_its_predecessor(tmp_path: Path) -> None:
    with connected(tmp_path) as (broker, admin, producer):
        admin.create_topic("orders", read_queues=1, write_queues=1)
        admin.create_topic("others", read_queues=1, write_queues=1)
        send(producer, "orders", range(100))
        broker.expire(admin)
        admin.delete_topic("orders")
        admin.create_topic("orders", read_queues=1, write_queues=1)
        send(producer, "orders", range(500, 600))
        send(producer, "others", range(100))
        broker.expire(admin)
        assert read(broker.namesrv, "orders", 100) == list(range(500, 600))
    with tiered(tmp_path) as broker:
        assert read(broker.namesrv, "orders", 100, group="later") == list(range(500, 600))


def test_files_leave_the_storage_after_their_time(tmp_path: Path) -> None:
    clock = testing.HandClock()
    with connected(tmp_path, clock=clock, tieredStorageReservedTime=24) as (broker, admin, producer):
        admin.create_topic("orders", read_queues=1, write_queues=1)
        send(producer, "orders", range(100))
        clock.advance(60)
        broker.expire(admin)
        assert any(name.endswith(".log") for name in os.listdir(broker.storage))
        clock.advance(3_600 * 30)
        send(producer, "orders", range(100, 140))
        until(lambda: f"{0:020}.log" not in os.listdir(broker.storage), seconds=15)
        until(lambda: admin.topic("orders")[0].begin > 0)
        begin = admin.topic("orders")[0].begin
        assert read(broker.namesrv, "orders", 140 - begin) == list(range(begin, 140))


def test_a_damaged_object_is_named_and_skips_nothing(tmp_path: Path) -> None:
    with connected(tmp_path) as (broker, admin, producer):
        admin.create_topic("orders", read_queues=1, write_queues=1)
        send(producer, "orders", range(100))
        broker.expire(admin)
        damaged = broker.storage / f"{0:020}.log"
        damaged.write_bytes(bytes(damaged.stat().st_size))
        with rmqpy.PullConsumer("readers", broker.namesrv, start_from="earliest") as consumer:
            consumer.subscribe("orders")
            assert consumer.poll(timeout=2) == []
            consumer.commit()
        assert [each.lag for each in admin.group_summaries() if each.group == "readers"] == [100]


def test_a_storage_of_another_log_is_not_touched(tmp_path: Path) -> None:
    with tiered(tmp_path) as broker, rmqpy.Admin(broker.namesrv) as admin:
        with rmqpy.Producer(broker.namesrv, compress_above=None) as producer:
            admin.create_topic("orders", read_queues=1, write_queues=1)
            send(producer, "orders", range(100))
        broker.expire(admin)
    copied = sorted(os.listdir(broker.storage))
    (tmp_path / "store").rename(tmp_path / "lost")
    with connected(tmp_path) as (broker, admin, producer):
        admin.create_topic("orders", read_queues=1, write_queues=1)
        send(producer, "orders", range(100))

        def findings() -> list[str]:
            return [each.found for each in admin.health(disk_free_min=0) if each.check == CHECK]

        until(lambda: any("files of another log" in each for each in findings()))
        admin.delete_expired_log()
        assert broker.local_files()[0] == 0
    assert sorted(os.listdir(broker.storage)) == copied


def test_an_unknown_scheme_is_refused_at_the_start(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigError, match="ftp is not one of"),
        tiered(tmp_path, tieredStorage="ftp://host/log"),
    ):
        pass


def test_a_storage_that_is_away_since_the_start_moves_no_consumer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(tmp_path) as (broker, admin, producer):
        admin.create_topic("orders", read_queues=1, write_queues=1)
        send(producer, "orders", range(100))
        broker.expire(admin)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_ENDPOINT", "http://127.0.0.1:1")

    async def answer(address: str) -> tuple[int, str]:
        async with await Peer.connect(address) as peer:
            found = await pull(peer, "readers", "orders", 0)
            return found.code, found.remark or ""

    with tiered(tmp_path, tieredStorage="s3://bucket/log") as broker:
        code, remark = asyncio.run(answer(broker.server.broker))
        assert (code, remark) == (
            1,
            "s3://bucket/log/DefaultCluster/broker-a could not be read since the start",
        )
    with tiered(tmp_path) as broker:
        assert read(broker.namesrv, "orders", 100) == list(range(100))


def test_a_storage_that_is_not_mounted_moves_no_consumer(tmp_path: Path) -> None:
    with connected(tmp_path) as (broker, admin, producer):
        admin.create_topic("orders", read_queues=1, write_queues=1)
        send(producer, "orders", range(100))
        broker.expire(admin)
    away = tmp_path / "away"
    (tmp_path / "tier").rename(away)

    async def answer(address: str) -> int:
        async with await Peer.connect(address) as peer:
            return (await pull(peer, "readers", "orders", 0)).code

    with tiered(tmp_path) as broker, rmqpy.Admin(broker.namesrv) as admin:
        assert asyncio.run(answer(broker.server.broker)) == 1

        def findings() -> list[str]:
            return [each.found for each in admin.health(disk_free_min=0) if each.check == CHECK]

        until(lambda: any("mount it" in each for each in findings()))
        shutil.rmtree(tmp_path / "tier")
        away.rename(tmp_path / "tier")
        assert read(broker.namesrv, "orders", 100) == list(range(100))
