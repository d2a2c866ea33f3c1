"""The calls of `Admin`: compared with Apache's tool library, and run against a real cluster."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

import rmqpy
from rmqpy import errors
from rmqpy.message import MessageQueue
from rmqpy.testing import Cluster
from waiting import until

#: Each call of Apache's tool library, and the one of `Admin` that does it.
OURS = {
    "addWritePermOfBroker": "set_broker_writable",
    "cleanExpiredConsumerQueue": "clean_queues",
    "cleanExpiredConsumerQueueByAddr": "clean_queues",
    "cleanUnusedTopic": "clean_topics",
    "cleanUnusedTopicByAddr": "clean_topics",
    "cloneGroupOffset": "clone_offsets",
    "consumeMessageDirectly": "consume_directly",
    "createAndUpdateKvConfig": "set_value",
    "createAndUpdateSubscriptionGroupConfig": "create_group",
    "createAndUpdateSubscriptionGroupConfigList": "create_group",
    "createAndUpdateTopicConfig": "create_topic",
    "createAndUpdateTopicConfigList": "create_topic",
    "createOrUpdateOrderConf": "set_value",
    "createTopic": "create_topic",
    "deleteExpiredCommitLog": "delete_expired_log",
    "deleteExpiredCommitLogByAddr": "delete_expired_log",
    "deleteKvConfig": "set_value",
    "createStaticTopic": "create_static_topic",
    "deleteSubscriptionGroup": "delete_group",
    "deleteTopic": "delete_topic",
    "deleteTopicInBroker": "delete_topic",
    "deleteTopicInBrokerConcurrent": "delete_topic",
    "deleteTopicInNameServer": "delete_topic",
    "earliestMsgStoreTime": "earliest_store_time",
    "examineBrokerClusterInfo": "brokers",
    "examineConsumeStats": "progress",
    "examineConsumeStatsConcurrent": "progress",
    "examineConsumerConnectionInfo": "members",
    "examineProducerConnectionInfo": "clients",
    "examineSubscriptionGroupConfig": "group",
    "examineTopicConfig": "topic_settings",
    "examineTopicRouteInfo": "route",
    "examineTopicStats": "topic",
    "examineTopicStatsConcurrent": "topic",
    "fetchAllTopicList": "topics",
    "fetchBrokerRuntimeStats": "broker_runtime",
    "fetchConsumeStatsInBroker": "broker_backlogs",
    "fetchTopicsByCLuster": "cluster_topics",
    "getAllProducerInfo": "clients",
    "getAllSubscriptionGroup": "groups",
    "getAllTopicConfig": "topics",
    "getBrokerConfig": "broker_config",
    "getBrokerHAStatus": "replicas",
    "getClusterList": "route",
    "getConsumeStatus": "positions",
    "getConsumerRunningInfo": "running_info",
    "getKVConfig": "values",
    "getKVListByNamespace": "values",
    "getNameServerConfig": "namesrv_config",
    "getTopicClusterList": "route",
    "getUserSubscriptionGroup": "groups",
    "getUserTopicConfig": "topics",
    "maxOffset": "queue_offsets",
    "messageTrackDetail": "progress",
    "messageTrackDetailConcurrent": "progress",
    "minOffset": "queue_offsets",
    "putKVConfig": "set_value",
    "queryConsumeQueue": "queue_entries",
    "queryConsumeTimeSpan": "progress",
    "queryConsumeTimeSpanConcurrent": "progress",
    "queryMessage": "messages_by_key",
    "querySubscription": "members",
    "queryTopicConsumeByWho": "topic_groups",
    "queryTopicsByConsumer": "group_topics",
    "queryTopicsByConsumerConcurrent": "group_topics",
    "resetOffsetByQueueId": "reset_offsets",
    "resetOffsetByTimestamp": "reset_offsets",
    "resetOffsetByTimestampOld": "reset_offsets",
    "resetOffsetNew": "reset_offsets",
    "resetOffsetNewConcurrent": "reset_offsets",
    "searchOffset": "offset_at",
    "shutdown": "close",
    "start": "__enter__",
    "updateAndGetGroupReadForbidden": "group_readable",
    "updateBrokerConfig": "update_broker_config",
    "updateConsumeOffset": "reset_offsets",
    "updateNameServerConfig": "update_namesrv_config",
    "viewBrokerStatsData": "broker_statistic",
    "viewMessage": "message",
    "wipeWritePermOfBroker": "set_broker_writable",
}
#: Calls without a counterpart, with the reason: they concern unserved requests.
NOT_SERVED = {
    "access control": (
        "createAcl createAndUpdatePlainAccessConfig createUser deleteAcl deletePlainAccessConfig deleteUser "
        "examineBrokerClusterAclConfig examineBrokerClusterAclVersionInfo getAcl getUser listAcl listUser updateAcl "
        "updateGlobalWhiteAddrConfig updateUser"
    ),
    "replicas, controllers and containers of brokers": (
        "addBrokerToContainer cleanControllerBrokerData electMaster getBrokerEpochCache "
        "getControllerConfig getControllerMetaData getInSyncStateData removeBrokerFromContainer resetMasterFlushOffset "
        "updateControllerConfig"
    ),
    "transactions": "resumeCheckHalfMessage",
    "left to `rmqpy mqadmin`": "exportPopRecords setMessageRequestMode",
    "lite topics and engines of timers": (
        "getBrokerLiteInfo getLiteClientInfo getLiteGroupInfo getLiteTopicInfo getParentTopicInfo "
        "switchTimerEngine triggerLiteDispatch"
    ),
    "stores in RocksDB": "checkRocksdbCqWriteProgress exportRocksDBConfigToJson exportRocksDBConsumerQueueData",
    "tiered storage, cold reads and read-ahead": (
        "getColdDataFlowCtrInfo removeColdDataFlowCtrGroupConfig setCommitLogReadAheadMode "
        "updateColdDataFlowCtrGroupConfig"
    ),
    "known to the caller: `Admin(namesrv)`": "getNameServerAddressList",
}


def test_each_call_of_the_originals_tool_library_is_ours_or_has_its_reason() -> None:
    reasons = [name for names in NOT_SERVED.values() for name in names.split()]
    assert len(reasons) == len(set(reasons))
    assert not set(reasons) & OURS.keys()
    for kind in (rmqpy.Admin, rmqpy.AsyncAdmin):
        missing = {call for call in OURS.values() if not hasattr(kind, call)}
        assert missing <= {"__enter__"}, kind


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[rmqpy.Admin]:
    with rmqpy.Admin(cluster.namesrv) as admin:
        yield admin


def fill(cluster: Cluster, admin: rmqpy.Admin, topic: str, count: int) -> MessageQueue:
    """Create a topic with this number of messages in one queue."""
    if topic not in admin.topics():
        admin.create_topic(topic, write_queues=1, read_queues=1)
    queue = MessageQueue(topic, "broker-a", 0)
    with rmqpy.Producer(cluster.namesrv) as producer:
        for number in range(count):
            producer.send(topic, str(number), queue=queue, tag="paid")
    return queue


def test_queue_reports_offsets_times_and_entries(cluster: Cluster, admin: rmqpy.Admin) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    queue = fill(cluster, admin, "queue-calls", 3)
    stored = admin.earliest_store_time(queue)
    assert stored is not None
    assert before <= stored <= datetime.now(UTC)
    assert admin.earliest_store_time(queue._replace(broker="broker-b")) is None
    assert admin.queue_offsets(queue) == (0, 3)
    assert admin.offset_at(queue, before) == 0
    assert admin.offset_at(queue, datetime.now(UTC) + timedelta(hours=1)) == 3
    entries = admin.queue_entries(queue, 1)
    assert [entry.offset for entry in entries] == [1, 2]
    assert {entry.tag_code for entry in entries} == {3433164}
    with pytest.raises(errors.TopicNotFound):
        admin.earliest_store_time(MessageQueue("no-such-topic", "broker-a", 0))
    with pytest.raises(errors.RocketMQError, match="no broker broker-z"):
        admin.queue_offsets(queue._replace(broker="broker-z"))


def test_members_report_state_and_handle_given_messages(cluster: Cluster, admin: rmqpy.Admin) -> None:
    queue = fill(cluster, admin, "member-calls", 1)
    handled: list[str] = []
    consumer = rmqpy.PushConsumer("member-calls-group", cluster.namesrv, start_from="earliest")
    consumer.on("member-calls", handler=lambda message: handled.append(message.message_id))
    with consumer:
        until(lambda: handled)
        [member] = admin.members("member-calls-group")
        assert (member.version, member.release) == (513, "5.5.0")
        info = admin.running_info("member-calls-group", member.client_id)
        assert info["properties"]["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert admin.positions("member-calls-group", "member-calls")[member.client_id][queue] in (0, 1)
        told = admin.consume_directly("member-calls-group", member.client_id, handled[0], "member-calls")
        assert told.result == "CR_SUCCESS"
        assert handled == [handled[0]] * 2
        assert admin.topic_groups("member-calls") == ["member-calls-group"]
    assert "member-calls" in admin.group_topics("member-calls-group")
    assert [one.topic for one in admin.broker_backlogs("broker-a") if one.group == "member-calls-group"]


def test_maintenance_operations_work(cluster: Cluster, admin: rmqpy.Admin) -> None:
    fill(cluster, admin, "upkeep-calls", 1)
    assert "brokerVersionDesc" in admin.broker_runtime("broker-a")
    assert admin.broker_statistic("broker-a", "TOPIC_PUT_NUMS", "no-such-topic") is None
    assert admin.delete_expired_log("broker-a") == admin.clean_queues("broker-a") == ["broker-a"]
    assert admin.clean_topics() == ["broker-a", "broker-b"]
    [name] = {broker.cluster for broker in admin.brokers()}
    assert "upkeep-calls" in admin.cluster_topics(name)
    with pytest.raises(errors.ConfigError, match="no broker"):
        admin.broker_runtime("broker-z")
    assert admin.values("upkeep") == {}
    admin.set_value("upkeep", "one", "1")
    assert admin.values("upkeep") == {"one": "1"}
    admin.set_value("upkeep", "one", None)
    assert admin.values("upkeep") == {}
    try:
        assert admin.set_broker_writable("broker-b", False) > 0
        with rmqpy.Producer(cluster.namesrv) as producer:
            assert {queue.broker for queue in producer.queues("upkeep-calls")} == {"broker-a"}
    finally:
        assert admin.set_broker_writable("broker-b", True) > 0
