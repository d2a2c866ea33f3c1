"""The topic table: durable before use, growing versions, Apache's file."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from broker.fakes import MetadataTables
from rmqpy.clock import HandClock
from rmqpy.config import files
from rmqpy.config.broker import BrokerConfig
from rmqpy.control.topics.built_in import built_in_topics
from rmqpy.control.topics.table import Topics
from rmqpy.errors import ConfigError, StoreError
from rmqpy.protocol.topics import TopicConfig, TopicFilterType

APACHE_FILE = """{
	"dataVersion":{"counter":7,"stateVersion":0,"timestamp":1758000000000},
	"topicConfigTable":{"orders":{"attributes":{"message.type":"FIFO"},"order":false,"perm":6,
		"readQueueNums":3,"topicFilterType":"MULTI_TAG","topicName":"orders","topicSysFlag":0,"writeQueueNums":2}}
}"""


def made(
    folder: Path, metadata: MetadataTables | None = None, *, auto_create: bool = True, **callbacks: Any
) -> Topics:
    built_in = built_in_topics(BrokerConfig(name="broker-a", cluster="c1", auto_create_topics=auto_create))
    topics = Topics(
        folder / "config/topics.json", metadata or MetadataTables(), built_in, HandClock(), **callbacks
    )
    topics.load()
    return topics


def on_disk(folder: Path) -> dict[str, object]:
    return dict(json.loads((folder / "config/topics.json").read_text())["topicConfigTable"])


def topic(name: str, queues: int = 4) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)


async def test_topic_is_saved_before_it_is_published(tmp_path: Path) -> None:
    class Watched(MetadataTables):
        def put_topic(self, entry: TopicConfig) -> None:
            super().put_topic(entry)
            if entry.topic_name == "orders":
                assert "orders" in on_disk(tmp_path)

    metadata = Watched()
    topics = made(tmp_path, metadata)
    await topics.put(topic("orders"))
    assert metadata.topics["orders"].write_queue_nums == 4


async def test_a_topic_that_cannot_be_written_does_not_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = MetadataTables()
    topics = made(tmp_path, metadata)

    def full(path: Path, text: str, **options: bool) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(files, "save", full)
    with pytest.raises(StoreError, match="No space left"):
        await topics.put(topic("orders"))
    assert "orders" not in topics.table
    assert "orders" not in metadata.topics


async def test_concurrent_topics_share_a_few_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = made(tmp_path)
    writes = 0
    save = files.save

    def counted(path: Path, text: str, **options: bool) -> None:
        nonlocal writes
        writes += 1
        save(path, text, **options)

    monkeypatch.setattr(files, "save", counted)
    await asyncio.gather(*(topics.put(topic(f"orders-{number}")) for number in range(100)))
    assert writes <= 3
    assert len([name for name in on_disk(tmp_path) if name.startswith("orders-")]) == 100


async def test_every_change_moves_the_version_and_no_change_does_not(tmp_path: Path) -> None:
    """Name servers ignore a table with a known version."""
    topics = made(tmp_path)
    versions = [topics.version]
    await topics.put(topic("orders"))
    versions.append(topics.version)
    await topics.put(topic("orders"))
    versions.append(topics.version)
    await topics.remove("orders")
    versions.append(topics.version)
    counters = [version.counter for version in versions]
    assert counters == [counters[0], counters[0] + 1, counters[0] + 1, counters[0] + 2]


def test_the_version_moves_with_each_start(tmp_path: Path) -> None:
    """Name servers must accept a broker that returns with another permission."""
    assert made(tmp_path).version.counter < made(tmp_path).version.counter


def test_apaches_file_takes_precedence_over_built_in_topics(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config/topics.json").write_text(APACHE_FILE)
    metadata = MetadataTables()
    topics = made(tmp_path, metadata)
    assert topics.version.counter == 8
    assert metadata.topics["orders"] == TopicConfig(
        topic_name="orders",
        read_queue_nums=3,
        write_queue_nums=2,
        perm=6,
        topic_filter_type=TopicFilterType.MULTI_TAG,
        attributes={"message.type": "FIFO"},
    )
    assert topics.table["SCHEDULE_TOPIC_XXXX"].write_queue_nums == 18


def test_damaged_file_is_replaced_by_its_backup(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config/topics.json").write_text(APACHE_FILE[:100])
    (tmp_path / "config/topics.json.bak").write_text(APACHE_FILE)
    assert "orders" in made(tmp_path).table


def test_without_a_readable_file_the_broker_does_not_start_empty(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config/topics.json").write_text('{"topicConfigTable":{')
    with pytest.raises(ConfigError, match=r"topics\.json"):
        made(tmp_path)


def test_the_template_for_new_topics_goes_with_its_setting(tmp_path: Path) -> None:
    assert "TBW102" in made(tmp_path, auto_create=True).table
    assert "TBW102" not in made(tmp_path, auto_create=False).table
    assert "TBW102" in made(tmp_path, auto_create=True).table


def test_a_configuration_the_data_plane_cannot_hold_is_damage(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config/topics.json").write_text(
        APACHE_FILE.replace('"readQueueNums":3', '"readQueueNums":-3')
    )
    with pytest.raises(ConfigError, match="topic orders"):
        made(tmp_path)


@pytest.mark.parametrize(
    ("template", "queues", "auto_create", "expected"),
    [
        ("TBW102", 4, True, 4),
        ("TBW102", 99, True, 8),
        ("TBW102", 4, False, None),
        ("c1", 99, False, 16),
        ("SELF_TEST_TOPIC", 4, True, None),
        ("missing", 4, True, None),
    ],
)
async def test_a_send_creates_a_topic_from_a_template_that_may_be_inherited(
    tmp_path: Path, template: str, queues: int, auto_create: bool, expected: int | None
) -> None:
    topics = made(tmp_path, auto_create=auto_create)
    created = await topics.create_for_send("orders", template, queues, 0, auto_create=auto_create)
    assert (created and created.write_queue_nums) == expected
    assert created is None or created.perm == 6


async def test_names_of_the_system_are_not_created_by_sends(tmp_path: Path) -> None:
    topics = made(tmp_path)
    for name in ("rmq_sys_something", "TRANS_CHECK_MAX_TIME_TOPIC", "../etc", "", "x" * 128):
        assert await topics.create_for_send(name, "TBW102", 4, 0, auto_create=True) is None


async def test_topic_created_by_two_concurrent_sends_is_usable_for_both(tmp_path: Path) -> None:
    metadata = MetadataTables()
    topics = made(tmp_path, metadata)

    async def want() -> bool:
        await topics.create_for_send("orders", "TBW102", 4, 0, auto_create=True)
        return "orders" in metadata.topics

    async def want_derived() -> bool:
        await topics.ensure_derived("%RETRY%billing", 1)
        return "%RETRY%billing" in metadata.topics

    assert await asyncio.gather(want(), want(), want_derived(), want_derived()) == [True] * 4


async def test_a_change_is_announced_after_it_is_usable(tmp_path: Path) -> None:
    metadata = MetadataTables()
    heard: list[str] = []

    def announced(changed: list[TopicConfig]) -> None:
        assert all(topic.topic_name in metadata.topics for topic in changed)
        heard.extend(topic.topic_name for topic in changed)

    topics = made(tmp_path, metadata, on_change=announced)
    await topics.put(topic("a"), topic("b"))
    await topics.put(topic("a"))
    assert heard == ["a", "b"]
