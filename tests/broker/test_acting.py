"""A slave that acts for its master while that is gone: who acts, what goes on there and elsewhere, and what the master
takes over when it is back."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

import rmqpy
from broker.conftest import made_broker
from broker.replicas import made_slave, until
from broker.talk import beat, heartbeat, pull, pushed, send
from broker.test_send_back import arrival, records
from rmqpy._native import StoppedStore
from rmqpy.broker import Broker
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.config.store import StoreConfig
from rmqpy.namesrv import NameServer
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.requests.groups import SubscriptionGroup, UpdateAndCreateSubscriptionGroup
from rmqpy.protocol.requests.locks import LockBatch, LockBatchMq
from rmqpy.protocol.requests.offsets import UpdateConsumerOffset
from rmqpy.protocol.requests.queues import MessageQueue
from rmqpy.protocol.requests.registration import NotifyMinBrokerIdChange
from rmqpy.protocol.requests.replicas import ExchangeBrokerHaInfo, GetBrokerHaStatus
from rmqpy.protocol.requests.routes import GetRoute
from rmqpy.protocol.requests.topics import UpdateAndCreateTopic
from wire import Peer, Refusal

ACTS = {"enableSlaveActingMaster": "true", "brokerHeartbeatInterval": "100"}
ESCAPES = ACTS | {"enableRemoteEscape": "true", "messageDelayLevel": "1s 2s"}
KEY = "UNIQ_KEY\x01AC110001000018B4AAC2000000000001\x02"


@pytest.fixture
async def namesrv() -> AsyncIterator[str]:
    config = NameServerConfig(
        listen_port=0, kv_path="", store_path="", acting_master=True, tells_smallest=True
    )
    async with NameServer(config) as server:
        yield server.address


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch, tries_soon: None) -> None:
    """What comes round comes sooner, too."""
    monkeypatch.setattr("rmqpy.control.replicas.acting_duties.ROUND_SECONDS", 0.05)
    monkeypatch.setattr("rmqpy.control.replicas.escape_bridge.ROUTE_SECONDS", 0.1)


async def acts(peer: Peer) -> bool:
    return bool((await peer.ask(GetBrokerHaStatus())).is_acting)


async def follows(slave: Broker, master: Broker) -> None:
    """Once the slave's log has what its master's has."""
    async with await Peer.connect(slave.address) as at_slave, await Peer.connect(master.address) as at_master:
        end = (await at_master.ask(GetBrokerHaStatus())).master_commit_log_max_offset
        await until(
            lambda: at_slave.ask(GetBrokerHaStatus()),
            lambda told: told.ha_client_runtime_info.max_offset >= end,
        )


@asynccontextmanager
async def orphaned(folder: Path, namesrv: str, settings: dict[str, str], *sent: str) -> AsyncIterator[Broker]:
    """A slave whose master has gone, after these messages: properties of each."""
    async with AsyncExitStack() as running:
        async with made_broker(folder, namesrv, settings) as master:
            async with await Peer.connect(master.address) as peer:
                await peer.ask(UpdateAndCreateTopic(topic="orders", read_queue_nums=2, write_queue_nums=2))
                await peer.ask(UpdateAndCreateSubscriptionGroup(body=SubscriptionGroup(group_name="billing")))
                slave = await running.enter_async_context(made_slave(folder, namesrv, **settings))
                for number, properties in enumerate(sent):
                    answer = await send(peer, "orders", f"body {number}".encode(), i=KEY + properties)
                    assert answer.code == 0
            await follows(slave, master)
            async with await Peer.connect(slave.address) as at_slave:
                await until(lambda: has_copies(at_slave), bool)
        async with await Peer.connect(slave.address) as at_slave:
            await until(lambda: acts(at_slave), bool)
        yield slave


async def has_copies(peer: Peer) -> bool:
    """Whether topic and group of the master are at the slave."""
    ask = UpdateConsumerOffset(consumer_group="billing", topic="orders", queue_id=1, commit_offset=0)
    try:
        await peer.ask(ask)
    except Refusal:
        return False
    return True


@asynccontextmanager
async def another(folder: Path, namesrv: str) -> AsyncIterator[Broker]:
    """Another master of the cluster, with the same topic."""
    async with made_broker(folder / "other", namesrv, {"brokerName": "broker-b"}) as other:
        async with await Peer.connect(other.address) as peer:
            await peer.ask(UpdateAndCreateTopic(topic="orders", read_queue_nums=2, write_queue_nums=2))
            await peer.ask(UpdateAndCreateSubscriptionGroup(body=SubscriptionGroup(group_name="billing")))
        yield other


async def test_consumers_are_served_as_by_the_master_and_producers_are_not(
    tmp_path: Path, namesrv: str
) -> None:
    async with orphaned(tmp_path, namesrv, ACTS, "", "") as slave, await Peer.connect(slave.address) as peer:
        async with await Peer.connect(namesrv) as names:
            told = (await names.ask(GetRoute(topic="orders"))).body
        assert [group.broker_addrs for group in told.broker_datas] == [{0: slave.address}]
        assert [queue.perm for queue in told.queue_datas] == [4]
        # Without slaveReadEnable a slave whose master is there refuses this.
        found = await pull(peer, "billing", "orders")
        assert (found.code, (found.ext or {})["suggestWhichBrokerId"]) == (0, "0")
        assert [record.body for record in records(found.body)] == [b"body 0", b"body 1"]
        await peer.ask(
            UpdateConsumerOffset(consumer_group="billing", topic="orders", queue_id=0, commit_offset=1)
        )
        queue = MessageQueue(broker_name="broker-a", queue_id=0, topic="orders")
        ask = LockBatch(consumer_group="billing", client_id="one", mq_set=[queue])
        assert (await peer.ask(LockBatchMq(body=ask))).lock_ok_mq_set == [queue]
        assert (await send(peer, "orders")).code != 0
        async with rmqpy.AsyncAdmin(namesrv) as admin:
            [state] = await admin.replicas("broker-a")
            checks = {check.check: check for check in await admin.health()}
        assert state.acting
        assert checks["master of broker-a"].level == "warn"


async def test_offsets_that_were_committed_at_the_slave_are_the_masters_before_it_serves(
    tmp_path: Path, namesrv: str
) -> None:
    commit = UpdateConsumerOffset(consumer_group="billing", topic="orders", queue_id=0, commit_offset=2)
    async with orphaned(tmp_path, namesrv, ACTS, "", "") as slave, await Peer.connect(slave.address) as peer:
        await peer.ask(commit)
        async with made_broker(tmp_path, namesrv, ACTS) as master, await Peer.connect(master.address) as back:
            found = await back.call(
                RequestCode.QUERY_CONSUMER_OFFSET,
                {"consumerGroup": "billing", "topic": "orders", "queueId": "0"},
            )
            assert (found.code, (found.ext or {})["offset"]) == (0, "2")
            assert not await acts(peer), "it ended before the master served"
            refused = await pull(peer, "billing", "orders")
            assert refused.code == 2
            assert (await send(back, "orders", b"after")).code == 0
            await follows(slave, master)


async def test_a_master_that_has_lost_its_end_takes_no_progress_over_that_speaks_of_it(
    tmp_path: Path, namesrv: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rmqpy.control.replicas.hand_over.FOLLOW_SECONDS", 0.2)
    commit = UpdateConsumerOffset(consumer_group="billing", topic="orders", queue_id=0, commit_offset=2)
    async with orphaned(tmp_path, namesrv, ACTS, "", "") as slave, await Peer.connect(slave.address) as peer:
        await peer.ask(commit)
        end = (await peer.ask(GetBrokerHaStatus())).ha_client_runtime_info.max_offset
        # Two messages of one size, of which a power loss left the first.
        store = StoppedStore(StoreConfig(root=str(tmp_path / "store")), exclusive=True)
        store.cut(end // 2)
        store.release()
        async with made_broker(tmp_path, namesrv, ACTS) as master, await Peer.connect(master.address) as back:
            assert "is not taken over" in caplog.text
            assert await offset(back) in (None, 0)
            assert (await send(back, "orders", b"after")).code == 0
            assert await bodies(back) == [b"body 0", b"after"]


async def test_the_smallest_id_acts_and_the_next_one_after_it(tmp_path: Path, namesrv: str) -> None:
    async with orphaned(tmp_path, namesrv, ACTS) as first, await Peer.connect(first.address) as at_first:
        second = made_slave(tmp_path / "second", namesrv, brokerId="2", **ACTS)
        async with second, await Peer.connect(second.address) as at_second:
            await asyncio.sleep(0.3)
            assert (await acts(at_first), await acts(at_second)) == (True, False)
            await first.stop()
            await until(lambda: acts(at_second), bool)


async def test_a_slave_acts_for_no_master_that_one_name_server_knows(tmp_path: Path, namesrv: str) -> None:
    async with NameServer(NameServerConfig(listen_port=0, kv_path="", store_path="")) as second:
        # Its log does not follow: a port that nobody listens on.
        aside = made_slave(tmp_path, f"{second.address};{namesrv}", haMasterAddress="127.0.0.1:1", **ACTS)
        async with made_broker(tmp_path, namesrv, ACTS), aside, await Peer.connect(aside.address) as peer:
            await asyncio.sleep(0.5)
            assert not await acts(peer)


async def test_nor_for_one_whose_log_it_follows(tmp_path: Path, namesrv: str) -> None:
    async with (
        NameServer(NameServerConfig(listen_port=0, kv_path="", store_path="")) as second,
        made_broker(tmp_path, second.address, ACTS) as master,
        made_slave(tmp_path, namesrv, haMasterAddress=master.replica_address, **ACTS) as slave,
        await Peer.connect(slave.address) as peer,
    ):
        await until(
            lambda: peer.ask(GetBrokerHaStatus()),
            lambda told: bool(told.ha_client_runtime_info.is_connected) and not told.is_acting,
        )
        await asyncio.sleep(0.5)
        assert not await acts(peer)
        await master.stop()
        await until(lambda: acts(peer), bool)


async def test_a_slave_that_acts_goes_on_while_no_name_server_answers(tmp_path: Path) -> None:
    config = NameServerConfig(listen_port=0, kv_path="", store_path="", acting_master=True)
    async with (
        NameServer(config) as server,
        orphaned(tmp_path, server.address, ACTS, "") as slave,
        await Peer.connect(slave.address) as peer,
    ):
        await server.stop()
        await asyncio.sleep(0.5)
        assert (await pull(peer, "billing", "orders")).code == 0
        assert await acts(peer)


async def test_a_slave_that_is_not_told_to_does_not_act(tmp_path: Path, namesrv: str) -> None:
    async with made_slave(tmp_path, namesrv) as slave, await Peer.connect(slave.address) as peer:
        await asyncio.sleep(0.3)
        assert not await acts(peer)
        with pytest.raises(Refusal, match="enableSlaveActingMaster"):
            await peer.ask(
                ExchangeBrokerHaInfo(master_ha_address="127.0.0.1:1", master_address="127.0.0.1:2")
            )
        await peer.ask(NotifyMinBrokerIdChange(min_broker_id=1, broker_name="broker-a", min_broker_addr="x"))


async def test_a_name_server_that_would_not_show_who_acts_is_found(tmp_path: Path) -> None:
    config = NameServerConfig(listen_port=0, kv_path="", store_path="")
    async with (
        NameServer(config) as server,
        made_broker(tmp_path, server.address, ACTS),
        rmqpy.AsyncAdmin(server.address) as admin,
    ):
        found = [check for check in await admin.health() if check.check.startswith("acting masters")]
    assert [(check.level, "broker-a" in check.found) for check in found] == [("warn", True)]


async def test_a_delayed_message_goes_to_another_broker_and_not_once_more_when_the_master_is_back(
    tmp_path: Path, namesrv: str
) -> None:
    async with (
        another(tmp_path, namesrv) as other,
        await Peer.connect(other.address) as at_other,
        orphaned(tmp_path, namesrv, ESCAPES, "DELAY\x012\x02", "DELAY\x012\x02"),
    ):
        first = await arrival(at_other, "orders")
        assert (first.body, "DELAY" in first.properties) == (b"body 0", False)
        await until(lambda: bodies(at_other), lambda found: found == [b"body 0", b"body 1"])
        async with (
            made_broker(tmp_path, namesrv, ESCAPES) as master,
            await Peer.connect(master.address) as back,
        ):
            await after_another_delay(back)
            assert await bodies(back) == [b"last"]
        assert await bodies(at_other) == [b"body 0", b"body 1"]


async def test_an_acting_slave_that_is_promoted_goes_on_where_it_was(tmp_path: Path, namesrv: str) -> None:
    async with (
        another(tmp_path, namesrv) as other,
        await Peer.connect(other.address) as at_other,
        orphaned(tmp_path, namesrv, ESCAPES, "DELAY\x012\x02", "") as slave,
        rmqpy.AsyncAdmin(namesrv) as admin,
    ):
        await until(lambda: bodies(at_other), lambda found: found == [b"body 0"])
        await admin.promote("broker-a", broker_id=1)
        async with await Peer.connect(slave.address) as promoted:
            assert (await promoted.ask(GetBrokerHaStatus())).master
            await after_another_delay(promoted)
            assert await bodies(promoted) == [b"body 1", b"last"]


async def test_a_master_that_takes_nothing_over_delivers_once_more(tmp_path: Path, namesrv: str) -> None:
    skips = ESCAPES | {"skipPreOnline": "true"}
    async with (
        another(tmp_path, namesrv) as other,
        await Peer.connect(other.address) as at_other,
        orphaned(tmp_path, namesrv, ESCAPES, "DELAY\x012\x02"),
    ):
        await until(lambda: bodies(at_other), lambda found: found == [b"body 0"])
        async with (
            made_broker(tmp_path, namesrv, skips) as master,
            await Peer.connect(master.address) as back,
        ):
            await after_another_delay(back)
            assert await bodies(back) == [b"body 0", b"last"]


async def test_a_timed_message_goes_to_another_broker_and_not_once_more_when_the_master_is_back(
    tmp_path: Path, namesrv: str
) -> None:
    at = f"TIMER_DELIVER_MS\x01{time.time_ns() // 1_000_000 + 2_000}\x02"
    async with (
        another(tmp_path, namesrv) as other,
        await Peer.connect(other.address) as at_other,
        orphaned(tmp_path, namesrv, ESCAPES, at, ""),
    ):
        await until(lambda: bodies(at_other), lambda found: found == [b"body 0"])
        async with (
            made_broker(tmp_path, namesrv, ESCAPES) as master,
            await Peer.connect(master.address) as back,
        ):
            await after_another_delay(back)
            assert await bodies(back) == [b"body 1", b"last"]


async def test_our_consumer_goes_on_in_order_at_the_slave_and_at_the_master_again(
    tmp_path: Path, namesrv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqpy.client.push.engine.COMMIT_S", 0.2)
    consumed: list[str] = []
    config = rmqpy.ClientConfig(namesrv=namesrv, route_refresh=0.2)
    consumer = rmqpy.AsyncPushConsumer("billing", config, start_from="earliest", ordered=True)
    consumer.on("orders", "*", lambda message: consumed.append(message.text()))

    async def bodies_so_far() -> list[str]:
        return consumed

    async with orphaned(tmp_path, namesrv, ACTS, *("" for _ in range(20))) as slave, consumer:
        before = [f"body {number}" for number in range(20)]
        await until(bodies_so_far, lambda found: len(found) >= 20)
        async with await Peer.connect(slave.address) as peer:
            await until(lambda: offset(peer), lambda found: found == 20)
        async with made_broker(tmp_path, namesrv, ACTS) as master, await Peer.connect(master.address) as back:
            for number in range(5):
                assert (await send(back, "orders", f"after {number}".encode())).code == 0
            await until(bodies_so_far, lambda found: len(found) >= 25)
            await until(lambda: offset(back), lambda found: found == 25)
            assert consumed == before + [f"after {number}" for number in range(5)]
            await consumer.close()


async def test_without_another_broker_messages_wait_for_the_master(
    tmp_path: Path, namesrv: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with orphaned(tmp_path, namesrv, ESCAPES, "DELAY\x011\x02"):

        async def told() -> bool:
            return "messages of orders that are due wait: no other broker of c1" in caplog.text

        await until(told, bool)
        async with (
            made_broker(tmp_path, namesrv, ESCAPES) as master,
            await Peer.connect(master.address) as back,
        ):
            assert (await arrival(back, "orders")).body == b"body 0"


async def test_an_open_transaction_goes_to_another_broker_whose_producer_decides_about_it(
    tmp_path: Path, namesrv: str
) -> None:
    settings = ESCAPES | {"transactionTimeOut": "1000"}
    async with (
        made_broker(
            tmp_path / "other", namesrv, {"brokerName": "broker-b", "transactionTimeOut": "1"}
        ) as other,
        await Peer.connect(other.address) as at_other,
    ):
        await at_other.ask(UpdateAndCreateTopic(topic="orders", read_queue_nums=2, write_queue_nums=2))
        half = "TRAN_MSG\x01true\x02PGROUP\x01producers\x02"
        assert (await beat(at_other, heartbeat("client", producer="producers"))).code == 0
        async with orphaned(tmp_path, namesrv, settings, half, ""):
            check = await pushed(at_other)
            assert (check.code, (check.ext or {})["bname"]) == (39, "broker-b")
            [record] = records(check.body)
            assert record.body == b"body 0"
            answer = await at_other.call(
                RequestCode.END_TRANSACTION,
                {
                    "producerGroup": "producers",
                    "tranStateTableOffset": (check.ext or {})["tranStateTableOffset"],
                    "commitLogOffset": (check.ext or {})["commitLogOffset"],
                    "commitOrRollback": "8",
                    "fromTransactionCheck": "true",
                    "msgId": (check.ext or {})["msgId"],
                    "transactionId": (check.ext or {})["transactionId"],
                },
            )
            assert answer.code == 0
            await until(lambda: bodies(at_other), lambda found: found == [b"body 0"])
            async with (
                made_broker(tmp_path, namesrv, settings) as master,
                await Peer.connect(master.address) as back,
            ):
                assert (await beat(back, heartbeat("client", producer="producers"))).code == 0
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(pushed(back), 2.5)


async def offset(peer: Peer) -> int | None:
    """What the group has committed in the first queue of the topic."""
    fields = {"consumerGroup": "billing", "topic": "orders", "queueId": "0"}
    answer = await peer.call(RequestCode.QUERY_CONSUMER_OFFSET, fields)
    return int((answer.ext or {})["offset"]) if answer.code == 0 else None


async def bodies(peer: Peer) -> list[bytes]:
    """What the first queue of the topic has."""
    found = await pull(peer, "billing", "orders")
    return [record.body for record in records(found.body)] if found.code == 0 else []


async def after_another_delay(peer: Peer) -> None:
    """A delayed message that is sent now has arrived: what was due before it would have, too."""
    assert (await send(peer, "orders", b"last", i=f"{KEY}DELAY\x011\x02")).code == 0
    await until(lambda: bodies(peer), lambda found: b"last" in found)
