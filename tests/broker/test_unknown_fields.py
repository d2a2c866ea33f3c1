"""Unknown fields of configuration files: written back unchanged; other files are left alone."""

import json
from pathlib import Path
from typing import Any

import pytest

from broker.conftest import made_broker
from broker.fakes import MetadataTables, OffsetTable
from rmqpy.clock import HandClock
from rmqpy.control.groups.offset_file import OffsetFile
from rmqpy.control.groups.table import Groups
from rmqpy.control.tables.unknown_fields import UnknownFields
from rmqpy.control.topics.table import Topics
from rmqpy.protocol.requests.groups import SubscriptionGroup, UpdateAndCreateSubscriptionGroup
from rmqpy.protocol.requests.offsets import UpdateConsumerOffset
from rmqpy.protocol.requests.topics import DeleteTopicInBroker, UpdateAndCreateTopic
from rmqpy.protocol.topics import TopicConfig
from wire import Peer

TOPICS = """{
	"dataVersion":{"counter":7,"epoch":3,"stateVersion":0,"timestamp":1758000000000},
	"generation":{"of":[1,{"a":null}]},
	"topicConfigTable":{
		"orders":{"attributes":{},"order":false,"owner":"Müller","perm":6,"readQueueNums":3,"tiers":{0:"hot",1:"cold"},
			"topicFilterType":"SINGLE_TAG","topicName":"orders","topicSysFlag":0,"writeQueueNums":2},
		"plain":{"perm":6,"readQueueNums":3,"topicName":"plain","writeQueueNums":2}
	}
}"""

GROUPS = """{
	"dataVersion":{"counter":2,"stateVersion":0,"timestamp":1758000000000},
	"forbiddenTable":{"billing":{"orders":1}},
	"quotas":{"billing":9},
	"subscriptionGroupTable":{"billing":{"consumeEnable":true,"groupName":"billing","groupRetryPolicy":{"jitter":0.5,
		"type":"CUSTOMIZED"},"owner":"Müller","retryMaxTimes":3,
		"subscriptionDataSet":[{"expression":"*","expressionType":"TAG","since":5,"topic":"orders","version":1}]}}
}"""

OFFSETS = """{
	"dataVersion":{"counter":11,"stateVersion":0,"timestamp":1758000000000},
	"groupTopicMap":{"billing":["orders"]},
	"offsetTable":{"orders@billing":{0:250,1:243}},
	"pullOffsetTable":{"orders@billing":{0:251}}
}"""


def written(path: Path) -> Any:
    return json.loads(path.read_text())


def topics_of(path: Path, text: str = TOPICS) -> Topics:
    path.write_text(text)
    topics = Topics(path, MetadataTables(), [], HandClock())
    topics.load()
    return topics


def test_unknown_members_are_written_back_at_every_level(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    topics_of(path)
    tree = written(path)
    assert tree["generation"] == {"of": [1, {"a": None}]}
    assert (tree["dataVersion"]["epoch"], tree["dataVersion"]["counter"]) == (3, 8)
    orders = tree["topicConfigTable"]["orders"]
    assert (orders["owner"], orders["tiers"]) == ("Müller", {"0": "hot", "1": "cold"})
    assert "owner" not in tree["topicConfigTable"]["plain"]


async def test_unknown_fields_of_a_topic_live_as_long_as_the_topic(
    tmp_path: Path,
) -> None:
    path = tmp_path / "topics.json"
    topics = topics_of(path)
    await topics.put(TopicConfig(topic_name="orders", read_queue_nums=9, write_queue_nums=9))
    orders = written(path)["topicConfigTable"]["orders"]
    assert (orders["readQueueNums"], orders["owner"]) == (9, "Müller")
    await topics.remove("orders")
    await topics.put(TopicConfig(topic_name="orders"))
    assert "owner" not in written(path)["topicConfigTable"]["orders"]
    assert written(path)["generation"]


async def test_groups_keep_unknown_fields_in_policies_and_lists(tmp_path: Path) -> None:
    path = tmp_path / "subscriptionGroup.json"
    path.write_text(GROUPS)
    groups = Groups(path, MetadataTables(), HandClock())
    groups.load()
    await groups.put(SubscriptionGroup(group_name="other"))
    tree, before = written(path), json.loads(GROUPS)
    assert (tree["quotas"], tree["forbiddenTable"]) == (before["quotas"], before["forbiddenTable"])
    billing, was = tree["subscriptionGroupTable"]["billing"], before["subscriptionGroupTable"]["billing"]
    assert was.items() <= billing.items()
    await groups.put(SubscriptionGroup(group_name="billing", retry_max_times=5))
    billing = written(path)["subscriptionGroupTable"]["billing"]
    assert (billing["owner"], billing["retryMaxTimes"]) == ("Müller", 5)
    assert "subscriptionDataSet" not in billing, "it was changed, and what stood in it is gone"
    await groups.remove("billing")
    await groups.put(SubscriptionGroup(group_name="billing"))
    assert "owner" not in written(path)["subscriptionGroupTable"]["billing"]


async def test_offset_file_keeps_unknown_tables_but_not_derived_ones(tmp_path: Path) -> None:
    path = tmp_path / "consumerOffset.json"
    path.write_text(OFFSETS)
    table = OffsetTable()
    file = OffsetFile(path, table, HandClock())
    file.load(lambda topic, queue_id: True, lambda topic, queue_id: 1_000)
    table.commit("orders@billing", 0, 260)
    await file.save()
    tree = written(path)
    assert tree["offsetTable"] == {"orders@billing": {"0": 260, "1": 243}}
    assert tree["pullOffsetTable"] == {"orders@billing": {"0": 251}}
    assert "groupTopicMap" not in tree


@pytest.mark.parametrize(
    ("found", "wrote", "expected"),
    [
        ({"a": 1}, {"a": 1}, {"a": 1}),
        ({"a": "1"}, {"a": 1}, {"a": 1}),
        ({"A": 1}, {"a": 1}, {"a": 1}),
        ({"a": 1, "b": None}, {"a": 1}, {"a": 1}),
        ({"a": 1, "b": 0}, {"a": 1}, {"a": 1, "b": 0}),
        ({"t": {"0": {"x": 1}}}, {"t": {0: {}}}, {"t": {0: {"x": 1}}}),
        ({"l": [{"x": 1}]}, {"l": [{}]}, {"l": [{"x": 1}]}),
    ],
)
def test_unknown_fields_are_not_stored_twice(found: Any, wrote: Any, expected: Any) -> None:
    assert UnknownFields.between(found, wrote).put_back(wrote) == expected


#: Files of Apache's broker next to the tables that this broker serves.
OTHERS = (
    "brokerMetadata",
    "consumerFilter.json",
    "consumerOrderInfo.json",
    "lmqConsumerOffset.json",
    "timercheck",
    "topicQueueMapping.json",
    "topicQueueMapping.json.bak",
)


async def test_files_of_unserved_features_are_unchanged(tmp_path: Path) -> None:
    config = tmp_path / "store" / "config"
    config.mkdir(parents=True)
    texts = {name: f'{{"dataVersion":{{}},"of":"{name}",0:1}}' for name in OTHERS}
    for name, text in texts.items():
        (config / name).write_text(text)
    async with made_broker(tmp_path, "", {}) as broker, await Peer.connect(broker.address) as peer:
        await peer.ask(UpdateAndCreateTopic(topic="orders"))
        await peer.ask(UpdateAndCreateSubscriptionGroup(body=SubscriptionGroup(group_name="billing")))
        await peer.ask(
            UpdateConsumerOffset(consumer_group="billing", topic="orders", queue_id=0, commit_offset=0)
        )
        await peer.ask(DeleteTopicInBroker(topic="orders"))
    assert {name: (config / name).read_text() for name in OTHERS} == texts
