"""Declared messages of a namespace: every topic and group name is translated, outgoing and incoming."""

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest

from rmqpy import protocol
from rmqpy._native import Namespace
from rmqpy.protocol import namespaces, requests
from rmqpy.protocol.declare import RESOURCE
from rmqpy.protocol.requests.clients import ConsumerData, HeartBeat, HeartbeatData, SubscriptionData
from rmqpy.protocol.requests.groups import AllSubscriptionGroups, GroupTable, SubscriptionGroup
from rmqpy.protocol.requests.locks import LockBatch, LockBatchMq
from rmqpy.protocol.requests.offsets import (
    ConsumeOffset,
    ConsumeStats,
    GetMaxOffset,
    OffsetReply,
    ResetOffsets,
)
from rmqpy.protocol.requests.progress import BrokerConsumeStats
from rmqpy.protocol.requests.queues import MessageQueue
from rmqpy.protocol.requests.routes import GetRoute, TopicList
from rmqpy.protocol.topics import DataVersion

SHOP = Namespace("shop")
#: Texts with several names, which no client of ours sends; names of the system; a name in a table of registrations.
_OTHERWISE = {
    # A group of controllers.
    ("ControllerMetadata", "group"),
    ("GroupCall", "group"),
    ("GetConsumeStats", "topic_list"),
    ("PushReplyMessage", "default_topic"),
    ("QueryCorrectionOffset", "filter_groups"),
    ("SendMessage", "default_topic"),
    # Replies are the cluster's, whatever the namespace of their request.
    ("SendReplyMessage", "topic"),
    ("SendReplyMessage", "default_topic"),
    ("SendReplyMessageV2", "topic"),
    ("SendReplyMessageV2", "default_topic"),
    ("UpdateAndCreateTopic", "default_topic"),
    ("UpdateAndCreateStaticTopic", "default_topic"),
    # A lite topic belongs to its parent, which has the namespace.
    ("GetLiteGroupInfo", "lite_topic"),
    ("GetLiteTopicInfo", "lite_topic"),
    ("LiteGroupInfo", "lite_topic"),
    ("LiteLag", "lite_topic"),
    ("LiteTopicInfo", "lite_topic"),
    ("NotifyUnsubscribeLite", "lite_topic"),
}
_NAMES = re.compile(r"(.*_)?(topic|group)s?(_name|_list)?")


def queue(topic: str) -> MessageQueue:
    return MessageQueue(broker_name="broker-a", queue_id=1, topic=topic)


def heartbeat(topic: str, retry: str, group: str) -> HeartBeat:
    subscriptions = [SubscriptionData(topic=topic), SubscriptionData(topic=retry, sub_string="*")]
    member = ConsumerData(group_name=group, subscription_data_set=subscriptions)
    return HeartBeat(body=HeartbeatData(client_id="me", consumer_data_set=[member]))


def locks(group: str, topic: str) -> LockBatchMq:
    return LockBatchMq(body=LockBatch(client_id="me", consumer_group=group, mq_set=[queue(topic)]))


@pytest.mark.parametrize(
    ("plain", "wire"),
    [
        (GetRoute(topic="orders"), GetRoute(topic="shop%orders")),
        (GetRoute(topic="TBW102"), GetRoute(topic="TBW102")),
        (GetMaxOffset(topic="%DLQ%g", queue_id=3), GetMaxOffset(topic="%DLQ%shop%g", queue_id=3)),
        (
            heartbeat("orders", "%RETRY%billing", "billing"),
            heartbeat("shop%orders", "%RETRY%shop%billing", "shop%billing"),
        ),
        (locks("billing", "orders"), locks("shop%billing", "shop%orders")),
        (
            ResetOffsets(offset_table={queue("orders"): 7}),
            ResetOffsets(offset_table={queue("shop%orders"): 7}),
        ),
        (OffsetReply(offset=7), OffsetReply(offset=7)),
        (None, None),
        (b"bytes", b"bytes"),
    ],
    ids=repr,
)
def test_names_are_translated_in_both_directions(plain: object, wire: object) -> None:
    assert namespaces.outward(SHOP, plain) == wire
    assert namespaces.outward(SHOP, wire) == wire
    assert namespaces.inward(SHOP, wire) == plain


def test_lists_and_tables_are_filtered_by_namespace() -> None:
    told = TopicList(topic_list=["shop%orders", "orders", "other%orders", "%RETRY%shop%g", "TBW102"])
    assert namespaces.inward(SHOP, told).topic_list == ["orders", "%RETRY%g", "TBW102"]

    strange = TopicList(topic_list=["shop%a\ud800", "b\ud800"])
    assert namespaces.inward(SHOP, strange).topic_list == ["a" + "\ufffd" * 3]

    settings = {name: SubscriptionGroup(group_name=name) for name in ("shop%billing", "billing")}
    table = GroupTable(data_version=DataVersion(), subscription_group_table=settings)
    seen = namespaces.inward(SHOP, AllSubscriptionGroups(body=table)).body.subscription_group_table
    assert seen == {"billing": SubscriptionGroup(group_name="billing")}

    stats = ConsumeStats(
        offset_table={queue("shop%orders"): ConsumeOffset(broker_offset=9, consumer_offset=7)}
    )
    backlogs = BrokerConsumeStats(
        broker_addr="a:1",
        consume_stats_list=[{"shop%billing": [stats], "billing": [stats]}],
        total_diff=0,
        total_inflight_diff=0,
    )
    (by_group,) = namespaces.inward(SHOP, backlogs).consume_stats_list
    assert [(group, *each.offset_table) for group, (each,) in by_group.items()] == [
        ("billing", queue("orders"))
    ]


def declared() -> Iterator[type]:
    folder = Path(requests.__file__).parent
    modules = [import_module(f"{requests.__name__}.{file.stem}") for file in sorted(folder.glob("[a-z]*.py"))]
    for module in (*modules, import_module(f"{protocol.__name__}.topics")):
        for one in vars(module).values():
            if isinstance(one, type) and is_dataclass(one) and one.__module__ == module.__name__:
                yield one


def test_every_name_of_a_topic_or_group_is_marked() -> None:
    def is_marked(annotation: Any) -> bool:
        if get_origin(annotation) is Annotated:
            return RESOURCE in annotation.__metadata__
        return any(map(is_marked, get_args(annotation)))

    unmarked = {
        (kind.__name__, one.name)
        for kind in declared()
        for one in fields(kind)
        if _NAMES.fullmatch(one.name) and "str" in str(get_type_hints(kind)[one.name])
        if not is_marked(get_type_hints(kind, include_extras=True)[one.name])
    }
    assert unmarked == _OTHERWISE
