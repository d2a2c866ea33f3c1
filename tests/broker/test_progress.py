"""Consumer progress: by time, over a broker, and copied to another group."""

import logging
from collections.abc import AsyncIterator

import pytest

from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import read_json
from rmqpy.protocol.ids import OffsetId, decode
from rmqpy.protocol.requests.groups import SubscriptionGroup, UpdateAndCreateSubscriptionGroup
from rmqpy.protocol.requests.messages import ConsumerSendMessageBack
from rmqpy.protocol.requests.offsets import (
    GetConsumeStats,
    InvokeBrokerToResetOffset,
    QueryConsumerOffset,
    ResetOffsets,
    UpdateConsumerOffset,
)
from rmqpy.protocol.requests.progress import (
    CloneGroupOffset,
    GetBrokerConsumeStats,
    QueryConsumeTimeSpan,
    QueryCorrectionOffset,
    QuerySubscriptionByConsumer,
)
from rmqpy.protocol.requests.topics import UpdateAndCreateTopic
from wire import Peer, Refusal

from .conftest import Cluster, Start
from .talk import beat, heartbeat, pull, pushed, send


@pytest.fixture
async def peer(cluster: Cluster) -> AsyncIterator[Peer]:
    """Five orders in queue 0, and two groups."""
    async with await Peer.connect(cluster.broker.address) as peer:
        await prepare(peer)
        yield peer


async def prepare(peer: Peer) -> None:
    for number in range(5):
        assert (await send(peer, "orders", str(number).encode())).code == 0
    for group in ("billing", "audit"):
        await peer.ask(UpdateAndCreateSubscriptionGroup(body=SubscriptionGroup(group_name=group)))


async def commit(peer: Peer, group: str, offset: int) -> None:
    await peer.ask(
        UpdateConsumerOffset(consumer_group=group, topic="orders", queue_id=0, commit_offset=offset)
    )


async def position(peer: Peer, group: str) -> int:
    ask = QueryConsumerOffset(consumer_group=group, topic="orders", queue_id=0)
    return (await peer.ask(ask)).offset


async def test_time_span_is_the_age_of_the_next_message(peer: Peer) -> None:
    await commit(peer, "billing", 2)
    spans = (await peer.ask(QueryConsumeTimeSpan(topic="orders", group="billing"))).consume_time_span_set
    [first] = [span for span in spans if span.message_queue.queue_id == 0]
    assert 0 < first.min_time_stamp <= first.consume_time_stamp <= first.max_time_stamp
    await commit(peer, "billing", 5)
    spans = (await peer.ask(QueryConsumeTimeSpan(topic="orders", group="billing"))).consume_time_span_set
    assert {span.delay_time for span in spans} == {0}


async def test_copied_offsets_move_a_group_to_anothers_progress(peer: Peer) -> None:
    await commit(peer, "billing", 3)
    await peer.ask(CloneGroupOffset(src_group="billing", dest_group="audit", topic=""))
    assert await position(peer, "audit") == 3
    with pytest.raises(Refusal) as refused:
        await peer.ask(CloneGroupOffset(src_group="billing", dest_group="absent"))
    assert refused.value.code == 26


async def test_minimum_offset_query_deletes_no_group(peer: Peer) -> None:
    await commit(peer, "billing", 3)
    await commit(peer, "audit", 1)
    ask = QueryCorrectionOffset(topic="orders", filter_groups="audit")
    assert (await peer.ask(ask)).correction_offsets == {0: 3}
    ask = QueryCorrectionOffset(topic="orders", compare_group="audit", filter_groups="")
    assert (await peer.ask(ask)).correction_offsets == {0: 1}
    assert await position(peer, "audit") == 1


async def test_broker_reports_the_lag_of_all_groups(peer: Peer) -> None:
    await commit(peer, "billing", 3)
    await commit(peer, "audit", 1)
    stats = await peer.ask(GetBrokerConsumeStats())
    assert stats.total_diff == 2 + 4
    assert {group for entry in stats.consume_stats_list for group in entry} == {"billing", "audit"}
    [billing] = [entry["billing"] for entry in stats.consume_stats_list if "billing" in entry]
    assert sorted(queue.queue_id for queue in billing[0].offset_table) == [0, 1, 2, 3], (
        "those without a commit, too"
    )


async def test_totals_of_groups_and_of_dead_letters_say_what_all_queues_together_do(peer: Peer) -> None:
    await commit(peer, "billing", 3)
    stored = decode((await send(peer, "orders", b"given up")).ext["msgId"])
    assert isinstance(stored, OffsetId)
    await peer.ask(
        ConsumerSendMessageBack(offset=stored.offset, group="billing", delay_level=-1, origin_topic="orders")
    )
    told = await peer.ask(GetBrokerConsumeStats(wants_group_totals=True, wants_dead_letter_totals=True))
    whole = await peer.ask(GetBrokerConsumeStats())
    assert told.consume_stats_list == []
    assert told.group_totals is not None
    assert told.dead_letter_totals is not None
    billing = told.group_totals["billing"]
    assert (billing.lag, billing.topics, billing.retry_max) == (whole.total_diff, ["orders"], 16)
    assert told.group_totals["audit"].topics == []
    assert {group: each.messages for group, each in told.dead_letter_totals.items()} == {"billing": 1}
    assert told.dead_letter_totals["billing"].last_timestamp > 0
    assert whole.group_totals is whole.dead_letter_totals is None


async def test_ages_of_groups_say_what_the_time_spans_of_their_queues_do(peer: Peer) -> None:
    await commit(peer, "billing", 1)
    await commit(peer, "audit", 1)
    await send(peer, "orders", b"pending")
    told = await peer.ask(GetBrokerConsumeStats(ages_of="billing\nnowhere"))
    assert told.consume_stats_list == []
    assert told.group_ages is not None
    assert list(told.group_ages) == ["billing"]
    spans = (await peer.ask(QueryConsumeTimeSpan(topic="orders", group="billing"))).consume_time_span_set
    oldest = max(span.delay_time for span in spans)
    assert 0 <= told.group_ages["billing"] <= oldest
    assert oldest - told.group_ages["billing"] < 30_000
    assert (await peer.ask(GetBrokerConsumeStats())).group_ages is None


async def test_messages_in_flight_are_counted_separately(peer: Peer) -> None:
    await commit(peer, "billing", 1)
    assert (await pull(peer, "billing", "orders", 1, maxMsgNums="3")).code == 0
    stats = await peer.ask(GetConsumeStats(consumer_group="billing", topic="orders"))
    [first] = [offset for queue, offset in stats.offset_table.items() if queue.queue_id == 0]
    assert (first.consumer_offset, first.pull_offset, first.broker_offset) == (1, 4, 5)
    assert (await peer.ask(GetBrokerConsumeStats())).total_inflight_diff == 3
    await commit(peer, "billing", 5)
    assert (await peer.ask(GetBrokerConsumeStats())).total_inflight_diff == 0


async def test_consume_stats_cover_all_topics_or_only_ordered_ones(peer: Peer) -> None:
    async def told(*, is_order: bool) -> int:
        return len((await peer.ask(GetBrokerConsumeStats(is_order=is_order))).consume_stats_list)

    await commit(peer, "billing", 3)
    assert (await told(is_order=False), await told(is_order=True)) == (1, 0)
    await peer.ask(
        UpdateAndCreateTopic(topic="orders", read_queue_nums=4, write_queue_nums=4, perm=6, order=True)
    )
    assert (await told(is_order=False), await told(is_order=True)) == (1, 1)


async def test_topics_without_subscription_have_no_lag(peer: Peer) -> None:
    await commit(peer, "billing", 3)
    await beat(peer, heartbeat("one", "bills"))
    assert (await peer.ask(GetBrokerConsumeStats())).consume_stats_list == []


async def test_consumption_of_a_group_by_topic_can_be_queried(peer: Peer) -> None:
    await beat(peer, heartbeat("one", "orders"))
    found = await peer.ask(QuerySubscriptionByConsumer(group="billing", topic="orders"))
    assert found.subscription_data is not None
    assert found.subscription_data.sub_string == "*"
    assert (await peer.ask(QuerySubscriptionByConsumer(group="x", topic="y"))).subscription_data is None


async def test_members_are_asked_to_reset_if_the_broker_does_not(start: Start) -> None:
    cluster = await start(useServerSideResetOffset="false")
    ask = InvokeBrokerToResetOffset(group="billing", topic="orders", timestamp=-1)
    async with (
        await Peer.connect(cluster.broker.address) as admin,
        await Peer.connect(cluster.broker.address) as member,
    ):
        await prepare(admin)
        with pytest.raises(Refusal) as refused:
            await admin.ask(ask)
        assert refused.value.code == 206
        await beat(member, heartbeat("one", "orders"))
        for queue_id in range(4):
            await admin.ask(
                UpdateConsumerOffset(
                    consumer_group="billing", topic="orders", queue_id=queue_id, commit_offset=0
                )
            )
        for is_force, target in ((False, 0), (True, 5)):
            forced = InvokeBrokerToResetOffset(
                group="billing", topic="orders", timestamp=-1, is_force=is_force
            )
            table = (await admin.ask(forced)).offset_table
            assert {queue.queue_id: offset for queue, offset in table.items()}[0] == target
            while (notification := await pushed(member)).code != RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
                pass
            assert read_json(ResetOffsets, notification.body).offset_table == table
        assert await position(admin, "billing") == 0


async def test_members_with_different_subscriptions_are_logged_once(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    def warnings() -> list[str]:
        return [record.message for record in caplog.records if record.levelno == logging.WARNING]

    async with (
        await Peer.connect(cluster.broker.address) as one,
        await Peer.connect(cluster.broker.address) as two,
    ):
        await beat(one, heartbeat("client-one", "orders", "%RETRY%billing"))
        await beat(two, heartbeat("client-two", "orders"))
        assert warnings() == []
        await beat(two, heartbeat("client-two", "invoices"))
        await beat(one, heartbeat("client-one", "orders"))
        [warning] = warnings()
        assert "client-one to orders (*)" in warning
        assert "client-two to invoices (*)" in warning
