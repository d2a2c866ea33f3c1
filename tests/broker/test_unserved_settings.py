"""Settings of topics and groups without effect: refused in requests, logged if a file has them."""

import json
import logging
from pathlib import Path

import pytest

from rmqpy.protocol.requests.groups import (
    GroupRetryPolicy,
    SubscriptionGroup,
    UpdateAndCreateSubscriptionGroup,
)
from rmqpy.protocol.requests.topics import UpdateAndCreateTopic
from wire import Peer, Refusal

from .conftest import Cluster, Start


@pytest.mark.parametrize(
    ("group", "reason"),
    [
        ({"group_retry_policy": GroupRetryPolicy(type="EXPONENTIAL")}, "groupRetryPolicy"),
        ({"attributes": {"+lite.sub.wildcard": "true"}}, "lite.sub.wildcard"),
    ],
)
async def test_group_settings_without_effect_are_refused(
    cluster: Cluster, group: dict[str, object], reason: str
) -> None:
    wanted = SubscriptionGroup(group_name="billing", **group)  # type: ignore[arg-type]
    async with await Peer.connect(cluster.broker.address) as peer:
        with pytest.raises(Refusal, match=reason):
            await peer.ask(UpdateAndCreateSubscriptionGroup(body=wanted))


@pytest.mark.parametrize(
    "attribute",
    [
        "reserve.time=86400000",
        "queue.type=BatchCQ",
    ],
)
async def test_topic_with_unserved_settings_is_refused(cluster: Cluster, attribute: str) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        ask = UpdateAndCreateTopic(
            topic="orders", read_queue_nums=1, write_queue_nums=1, perm=6, attributes=f"+{attribute}"
        )
        with pytest.raises(
            Refusal, match=f"{attribute.partition('=')[0]}.* not served( yet: .*; |: messages)"
        ):
            await peer.ask(ask)


async def test_start_logs_ineffective_settings_in_one_line_per_reason(
    tmp_path: Path, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    config = tmp_path / "store" / "config"
    config.mkdir(parents=True)
    version = {"counter": 1, "stateVersion": 0, "timestamp": 1758000000000}
    policy = {
        "type": "EXPONENTIAL",
        "exponentialRetryPolicy": {"initial": 1000, "max": 2000, "multiplier": 2},
    }
    groups = {f"g{n}": {"groupName": f"g{n}", "groupRetryPolicy": policy} for n in range(7)}
    (config / "subscriptionGroup.json").write_text(
        json.dumps({"dataVersion": version, "subscriptionGroupTable": groups, "forbiddenTable": {}})
    )
    topics = {"t": {"topicName": "t", "perm": 6, "attributes": {"reserve.time": "1000"}}}
    (config / "topics.json").write_text(json.dumps({"dataVersion": version, "topicConfigTable": topics}))
    with caplog.at_level(logging.WARNING, logger="rmqpy.control.tables.unserved"):
        await start()
    lines = [
        record.getMessage() for record in caplog.records if record.name == "rmqpy.control.tables.unserved"
    ]
    assert lines == [
        "topic t: reserve.time is not served: messages of every topic are kept for fileReservedTime",
        "group g0, g1, g2, g3, g4 and 2 more: groupRetryPolicy is not served yet: it is for POP consumption",
    ]
