"""Clients at a running broker: heartbeats, membership, notifications, locks, offsets."""

from broker.conftest import Cluster, Start
from broker.talk import beat, heartbeat, pull, pushed, route_once, send
from rmqpy._native import attach_count
from rmqpy.protocol import fastjson
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import encode
from rmqpy.protocol.requests.clients import (
    GetAllProducerInfo,
    GetConsumerConnectionList,
    GetConsumerListByGroup,
    GetProducerConnectionList,
    UnregisterClient,
)
from rmqpy.protocol.requests.groups import GetSubscriptionGroupConfig
from rmqpy.protocol.requests.locks import LockBatch, LockBatchMq, UnlockBatchMq
from rmqpy.protocol.requests.queues import MessageQueue
from rmqpy.protocol.requests.topics import UpdateAndCreateTopic
from wire import JSON, Frame, Peer


async def members(peer: Peer, group: str = "billing") -> list[str]:
    return (await peer.ask(GetConsumerListByGroup(consumer_group=group))).consumer_id_list


async def test_answers_carry_a_release_that_java_lets_filter_by_sql(cluster: Cluster) -> None:
    """The Java client refuses versions below ordinal 232."""
    async with await Peer.connect(cluster.broker.address) as peer:
        ext, body = encode(heartbeat("one", "orders"))
        for encoding in (JSON, 1):
            answer = await peer.call(RequestCode.HEART_BEAT, ext, body or b"", encoding=encoding)
            assert answer.code == 0
            assert 232 <= answer.version < 1 << 15
            assert answer.ext == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}


async def test_a_group_without_members_is_an_error_and_never_an_empty_list(cluster: Cluster) -> None:
    """A Go client releases all of its queues when the list is empty."""
    async with await Peer.connect(cluster.broker.address) as peer:
        answer = await peer.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "billing"})
        assert (answer.code, answer.remark) == (1, "no consumer for this group, billing")
        assert answer.body == b""


async def test_a_member_is_known_when_its_heartbeat_is_answered(cluster: Cluster) -> None:
    """The broker must know the member immediately, also on the VIP port."""
    host, _, port = cluster.broker.address.rpartition(":")
    async with (
        await Peer.connect(cluster.broker.address) as peer,
        await Peer.connect(f"{host}:{int(port) - 2}") as vip,
    ):
        await peer.ask(heartbeat("one", "orders"))
        assert await members(peer) == ["one"]
        assert await members(vip) == ["one"]


async def test_members_are_notified_of_joins_and_broken_connections(cluster: Cluster) -> None:
    """Go clients and killed clients do not unregister; they only close their connection."""
    async with await Peer.connect(cluster.broker.address) as one:
        await one.ask(heartbeat("one", "orders"))
        joined = await pushed(one)
        two = await Peer.connect(cluster.broker.address)
        await two.ask(heartbeat("two", "orders"))
        told = await pushed(one)
        for notification in (joined, told):
            assert notification.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
            assert notification.ext == {"consumerGroup": "billing"}
            assert notification.flag == 2
        assert await members(one) == ["one", "two"]
        await two.close()
        assert (await pushed(one)).code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        assert await members(one) == ["one"]


async def test_leaving_client_is_removed_and_can_rejoin(cluster: Cluster) -> None:
    """The second heartbeat has the bytes of the first, which alone would be answered without asking Python."""
    async with await Peer.connect(cluster.broker.address) as peer:
        await peer.ask(heartbeat("one", "orders", producer="tills"))
        await peer.ask(UnregisterClient(client_id="one", consumer_group="billing", producer_group="tills"))
        refused = await peer.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "billing"})
        assert refused.code == 1
        await peer.ask(heartbeat("one", "orders", producer="tills"))
        assert await members(peer) == ["one"]


async def test_unchanged_heartbeat_does_not_reach_python(cluster: Cluster) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        first = await beat(peer, heartbeat("one", "orders"))
        costs = []
        for _ in range(20):
            before = attach_count()
            again = await beat(peer, heartbeat("one", "orders"))
            costs.append(attach_count() - before)
            assert (again.code, again.ext) == (first.code, first.ext)
        # The broker has other things to do, once: registering the retry topic, telling the members.
        assert costs.count(0) > len(costs) // 2, costs


async def test_a_first_heartbeat_makes_the_retry_topic_known_at_the_name_server(cluster: Cluster) -> None:
    async with (
        await Peer.connect(cluster.broker.address) as peer,
        await Peer.connect(cluster.namesrv) as names,
    ):
        await peer.ask(heartbeat("one", "orders"))
        found = await route_once(names, "%RETRY%billing")
        assert [queue.write_queue_nums for queue in found.queue_datas] == [1]


async def test_heartbeat_of_a_forbidden_group_is_ignored(start: Start) -> None:
    cluster = await start(autoCreateSubscriptionGroup="false")
    async with await Peer.connect(cluster.broker.address) as peer:
        assert (await beat(peer, heartbeat("one", "orders"))).code == 0
        refused = await peer.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "billing"})
        assert refused.code == 1
        assert (await peer.call(352, {"group": "billing"})).code == 26


async def test_heartbeats_of_version_2_send_their_subscriptions_once(cluster: Cluster) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        full = heartbeat("one", "orders", heartbeat_fingerprint=7)
        assert not (await peer.ask(full)).is_subscription_changed
        short = encode(heartbeat("one", "orders", heartbeat_fingerprint=7, without_sub=True))
        body = (short.body or b"").replace(b'"topic":"orders"', b'"topic":"none"')
        answer = await peer.call(34, short.ext, body)
        assert (answer.ext or {})["IS_SUB_CHANGE"] == "false"
        listed = await peer.ask(GetConsumerConnectionList(consumer_group="billing"))
        assert list(listed.subscription_table) == ["orders"]


async def test_cplusplus_heartbeats_are_understood(cluster: Cluster) -> None:
    """The C++ client sends ordinals for enumerations and numbers as text, and omits sets."""
    body = (
        b'{"clientID":"cpp","consumerDataSet":[{"consumeFromWhere":0,"consumeType":1,"groupName":"billing",'
        b'"messageModel":1,"subscriptionDataSet":[{"codeSet":[0],"subString":"A","subVersion":"1700000000000",'
        b'"tagsSet":["A"],"topic":"orders"}]}]}'
    )
    async with await Peer.connect(cluster.broker.address) as peer:
        assert (await peer.call(34, {}, body, language="CPP", version=333)).code == 0
        listed = await peer.ask(GetConsumerConnectionList(consumer_group="billing"))
        assert [(one.client_id, one.language, one.version) for one in listed.connection_set] == [
            ("cpp", "CPP", 333)
        ]
        assert (listed.message_model.name, listed.consume_type.name) == ("CLUSTERING", "CONSUME_PASSIVELY")


async def test_tools_list_connected_clients(cluster: Cluster) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        assert (await peer.call(203, {"consumerGroup": "billing"})).code == 206
        assert (await peer.call(204, {"producerGroup": "tills"})).code == 1
        await peer.ask(heartbeat("one", producer="tills"))
        listed = await peer.ask(GetProducerConnectionList(producer_group="tills"))
        assert [one.client_id for one in listed.connection_set] == ["one"]
        everybody = (await peer.ask(GetAllProducerInfo())).data
        assert [one.client_id for one in everybody["tills"]] == ["one"]


async def test_expressions_are_checked_before_a_consumer_starts(cluster: Cluster) -> None:
    def asking(kind: str) -> bytes:
        return fastjson.dumps(
            {"clientId": "one", "group": "g", "subscriptionData": {"topic": "t", "expressionType": kind}}
        ).encode()

    async with await Peer.connect(cluster.broker.address) as peer:
        codes = [(await peer.call(46, {}, asking(kind))).code for kind in ("TAG", "", "SQL92", "ODD")]
        assert codes == [0, 0, 1, 23]


async def test_queues_are_locked_for_one_client_of_a_group(cluster: Cluster) -> None:
    queues = [MessageQueue(broker_name="broker-a", queue_id=number, topic="orders") for number in range(2)]

    def batch(client_id: str) -> LockBatch:
        return LockBatch(client_id=client_id, consumer_group="billing", mq_set=queues)

    async with await Peer.connect(cluster.broker.address) as peer:
        await send(peer, "orders")
        await peer.ask(heartbeat("one", "orders"))
        assert (await peer.ask(LockBatchMq(body=batch("one")))).lock_ok_mq_set == queues
        assert (await peer.ask(LockBatchMq(body=batch("two")))).lock_ok_mq_set == []
        await peer.ask(UnlockBatchMq(body=batch("one")))
        assert (await peer.ask(LockBatchMq(body=batch("two")))).lock_ok_mq_set == queues


async def test_a_pull_of_an_unknown_group_creates_it_where_that_is_allowed(start: Start) -> None:
    cluster = await start()
    async with await Peer.connect(cluster.broker.address) as peer:
        await send(peer, "orders")
        assert (await pull(peer, "new-group", "orders")).code == 0
        found = await peer.ask(GetSubscriptionGroupConfig(group="new-group"))
        assert found.retry_max_times == 16


async def test_a_pull_of_an_unknown_group_is_refused_where_groups_are_made_by_hand(start: Start) -> None:
    cluster = await start(autoCreateSubscriptionGroup="false")
    async with await Peer.connect(cluster.broker.address) as peer:
        await peer.ask(UpdateAndCreateTopic(topic="orders"))
        assert (await pull(peer, "new-group", "orders")).code == 26


async def test_an_offset_that_was_never_committed_is_not_found(cluster: Cluster) -> None:
    """Any answer with code 0 would decide where a new group starts."""
    async with await Peer.connect(cluster.broker.address) as peer:
        await peer.ask(UpdateAndCreateTopic(topic="orders", read_queue_nums=4, write_queue_nums=4))
        ext = {"consumerGroup": "billing", "topic": "orders", "queueId": "0"}
        assert (await peer.call(RequestCode.QUERY_CONSUMER_OFFSET, ext)).code == 22


async def test_one_way_requests_are_never_answered(cluster: Cluster) -> None:
    """The flag decides, not the code."""
    async with await Peer.connect(cluster.broker.address) as peer:
        await peer.send(9_999, {}, flag=2)
        await peer.send(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "absent"}, flag=2)
        answered: Frame = await peer.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "absent"})
        assert answered.opaque == 2
