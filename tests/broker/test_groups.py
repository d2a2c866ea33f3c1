"""The group table: creation on first use where allowed, Apache's file, and forbidden topics."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from broker.fakes import MetadataTables
from rmqpy.clock import HandClock
from rmqpy.config import files
from rmqpy.config.broker import BrokerConfig
from rmqpy.control.groups.table import Groups
from rmqpy.errors import StoreError
from rmqpy.protocol.requests.groups import SubscriptionGroup


def made(folder: Path, metadata: MetadataTables | None = None) -> Groups:
    groups = Groups(folder / "subscriptionGroup.json", metadata or MetadataTables(), HandClock())
    groups.load()
    return groups


@pytest.mark.parametrize(
    ("settings", "group", "is_created"),
    [
        ({}, "billing", True),
        ({"auto_create_groups": False}, "billing", False),
        ({"auto_create_groups": False}, "CID_RMQ_SYS_billing", True),
        ({"auto_create_groups": False, "creates_system_groups": False}, "CID_RMQ_SYS_billing", False),
        ({"auto_create_groups": False}, "TOOLS_CONSUMER", True),
        ({}, "bad name", False),
        ({}, "x" * 121, False),
    ],
)
async def test_a_group_is_created_on_first_use_where_that_is_allowed(
    tmp_path: Path, settings: dict[str, Any], group: str, is_created: bool
) -> None:
    metadata = MetadataTables()
    groups = made(tmp_path, metadata)
    found = await groups.ensure(group, BrokerConfig(name="broker-a", **settings))
    assert (found is not None) == is_created == (group in metadata.groups)


async def test_group_created_by_two_concurrent_uses_is_usable_for_both(tmp_path: Path) -> None:
    # A heartbeat and a pull of a new group arrive together; the pull may continue only once the group is published.
    metadata = MetadataTables()
    groups = made(tmp_path, metadata)
    config = BrokerConfig(name="broker-a")

    async def use() -> bool:
        await groups.ensure("billing", config)
        return "billing" in metadata.groups

    assert await asyncio.gather(use(), use()) == [True, True]


async def test_on_a_full_disk_a_new_group_is_used_and_a_configured_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = MetadataTables()
    groups = made(tmp_path, metadata)
    config = BrokerConfig(name="broker-a")
    save = files.save

    def full(path: Path, text: str, **options: bool) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(files, "save", full)
    first, second = await asyncio.gather(groups.ensure("billing", config), groups.ensure("billing", config))
    assert first == second == SubscriptionGroup(group_name="billing")
    assert "billing" in metadata.groups
    with pytest.raises(StoreError, match="No space left"):
        await groups.put(SubscriptionGroup(group_name="audit", retry_max_times=3))
    assert "audit" not in groups.table

    monkeypatch.setattr(files, "save", save)
    await groups.put(SubscriptionGroup(group_name="audit", retry_max_times=3))
    assert {"billing", "audit"} <= set(made(tmp_path).table)


async def test_groups_survive_a_restart(tmp_path: Path) -> None:
    groups = made(tmp_path)
    await groups.put(SubscriptionGroup(group_name="billing", retry_max_times=3))
    await groups.set_readable("billing", "orders", False)
    metadata = MetadataTables()
    again = made(tmp_path, metadata)
    assert again.table["billing"].retry_max_times == 3
    assert metadata.groups["billing"].retry_max_times == 3
    assert metadata.forbidden == {("billing", "orders")}


def test_apaches_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "subscriptionGroup.json").write_text(
        '{"dataVersion":{"counter":2,"stateVersion":0,"timestamp":1758000000000},'
        '"forbiddenTable":{"billing":{"orders":4}},'
        '"subscriptionGroupTable":{"billing":{"attributes":{},"brokerId":0,"consumeEnable":false,'
        '"groupName":"billing","groupRetryPolicy":{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":1000,'
        '"max":2000,"multiplier":2}},"retryMaxTimes":5,"retryQueueNums":2,"someNewField":{"a":1}}}}'
    )
    metadata = MetadataTables()
    groups = made(tmp_path, metadata)
    assert groups.version.counter == 2
    assert not groups.table["billing"].consume_enable
    assert not groups.is_readable("billing", "orders")
    assert metadata.groups["billing"].consume_enable is False


async def test_the_file_has_the_names_apache_reads(tmp_path: Path) -> None:
    groups = made(tmp_path)
    await groups.put(SubscriptionGroup(group_name="billing"))
    written = json.loads((tmp_path / "subscriptionGroup.json").read_text())
    assert written["subscriptionGroupTable"]["billing"] == {
        "attributes": {},
        "brokerId": 0,
        "consumeBroadcastEnable": True,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "consumeMessageOrderly": False,
        "consumeTimeoutMinute": 15,
        "groupName": "billing",
        "groupRetryPolicy": {"type": "CUSTOMIZED"},
        "groupSysFlag": 0,
        "notifyConsumerIdsChangedEnable": True,
        "retryMaxTimes": 16,
        "retryQueueNums": 1,
        "whichBrokerWhenConsumeSlowly": 1,
    }


async def test_allowing_one_topic_again_leaves_the_others_forbidden(tmp_path: Path) -> None:
    metadata = MetadataTables()
    groups = made(tmp_path, metadata)
    await groups.set_readable("billing", "orders", False)
    await groups.set_readable("billing", "refunds", False)
    await groups.set_readable("billing", "orders", True)
    assert metadata.forbidden == {("billing", "refunds")}
    assert groups.is_readable("billing", "orders")
    assert not groups.is_readable("billing", "refunds")


async def test_a_deleted_group_leaves_nothing_behind(tmp_path: Path) -> None:
    metadata = MetadataTables()
    groups = made(tmp_path, metadata)
    await groups.put(SubscriptionGroup(group_name="billing"))
    await groups.set_readable("billing", "orders", False)
    assert await groups.remove("billing")
    assert "billing" not in metadata.groups
    assert metadata.forbidden == set()
    assert not await groups.remove("billing")
