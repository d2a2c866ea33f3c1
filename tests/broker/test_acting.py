"""Acting masters: the choice of the slave, the requests it serves, and the hand-over to a returning master."""

import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

import rmqpy
from broker.conftest import made_broker
from broker.records import arrival, records
from broker.replicas import made_slave
from broker.talk import beat, heartbeat, pull, pushed, send
from rmqpy._native import StoppedStore
from rmqpy.broker import Broker
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.config.store import StoreConfig
from rmqpy.control.replicas.acting import ActingMaster
from rmqpy.control.replicas.members import Group
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
from waiting import until_async
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
    """Shorten the rounds of acting slaves."""
    monkeypatch.setattr("rmqpy.control.replicas.acting_duties.ROUND_SECONDS", 0.05)
    monkeypatch.setattr("rmqpy.control.replicas.escape_bridge.ROUTE_SECONDS", 0.1)


class Rounds:
    """Counts the rounds after each of which a slave decides whether to act."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def count(self, broker_id: int) -> None:
        self._counts[broker_id] += 1

    async def complete(self, broker_id: int, count: int = 3) -> None:
        """Wait for so many further rounds of a slave."""

        async def counted() -> int:
            return self._counts[broker_id]

        end = self._counts[broker_id] + count
        await until_async(counted, lambda found: found >= end)


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> Rounds:
    rounds, consider = Rounds(), ActingMaster.consider

    async def counted(acting: ActingMaster, members: Group | None) -> None:
        await consider(acting, members)
        rounds.count(acting._broker_id)

    monkeypatch.setattr(ActingMaster, "consider", counted)
    return rounds


async def acts(peer: Peer) -> bool:
    return bool((await peer.ask(GetBrokerHaStatus())).is_acting)


async def follows(slave: Broker, master: Broker) -> None:
    """Wait until the slave's log has all of its master's."""
    async with await Peer.connect(slave.address) as at_slave, await Peer.connect(master.address) as at_master:
        end = (await at_master.ask(GetBrokerHaStatus())).master_commit_log_max_offset
        await until_async(
            lambda: at_slave.ask(GetBrokerHaStatus()),
            lambda told: told.ha_client_runtime_info.max_offset >= end,
        )


@asynccontextmanager
async def orphaned(folder: Path, namesrv: str, settings: dict[str, str], *sent: str) -> AsyncIterator[Broker]:
    """Yield a slave whose master stopped after one message for each of these properties."""
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
                await until_async(lambda: has_copies(at_slave), bool)
        async with await Peer.connect(slave.address) as at_slave:
            await until_async(lambda: acts(at_slave), bool)
        yield slave


@asynccontextmanager
async def found_by_port(folder: Path, namesrv: str) -> AsyncIterator[Broker]:
    """A master whose slaves connect one port above its main port: without a name server a slave asks the port below."""
    while True:
        async with made_broker(folder, namesrv, ACTS) as master:
            main, replica = (
                int(each.rpartition(":")[2]) for each in (master.address, master.replica_address)
            )
            if replica == main + 1:
                yield master
                return


async def has_copies(peer: Peer) -> bool:
    """Whether the slave has the master's topic and group."""
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


async def test_acting_slave_serves_consumers_and_refuses_producers(tmp_path: Path, namesrv: str) -> None:
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


async def test_returning_master_takes_offsets_committed_at_the_slave_before_it_serves(
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


async def test_master_that_lost_the_end_of_its_log_ignores_progress_beyond_it(
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
            assert "cannot take over from" in caplog.text
            assert await offset(back) in (None, 0)
            assert (await send(back, "orders", b"after")).code == 0
            assert await bodies(back) == [b"body 0", b"after"]


async def test_slave_with_the_smallest_id_acts_and_the_next_one_follows(
    tmp_path: Path, namesrv: str, rounds: Rounds
) -> None:
    async with orphaned(tmp_path, namesrv, ACTS) as first, await Peer.connect(first.address) as at_first:
        second = made_slave(tmp_path / "second", namesrv, brokerId="2", **ACTS)
        async with second, await Peer.connect(second.address) as at_second:
            await rounds.complete(2)
            assert (await acts(at_first), await acts(at_second)) == (True, False)
            await first.stop()
            await until_async(lambda: acts(at_second), bool)


async def test_slave_does_not_act_while_one_name_server_knows_the_master(
    tmp_path: Path, namesrv: str, rounds: Rounds
) -> None:
    async with NameServer(NameServerConfig(listen_port=0, kv_path="", store_path="")) as second:
        # The slave's log does not follow: nothing listens on that port.
        aside = made_slave(tmp_path, f"{second.address};{namesrv}", haMasterAddress="127.0.0.1:1", **ACTS)
        async with made_broker(tmp_path, namesrv, ACTS), aside, await Peer.connect(aside.address) as peer:
            await rounds.complete(1)
            assert not await acts(peer)


async def test_slave_does_not_act_while_it_follows_the_log_of_its_master(
    tmp_path: Path, namesrv: str, rounds: Rounds
) -> None:
    async with (
        NameServer(NameServerConfig(listen_port=0, kv_path="", store_path="")) as second,
        found_by_port(tmp_path, second.address) as master,
        made_slave(tmp_path, namesrv, haMasterAddress=master.replica_address, **ACTS) as slave,
        await Peer.connect(slave.address) as peer,
    ):
        await until_async(
            lambda: peer.ask(GetBrokerHaStatus()),
            lambda told: bool(told.ha_client_runtime_info.is_connected) and not told.is_acting,
        )
        await rounds.complete(1)
        assert not await acts(peer)
        await master.stop()
        await until_async(lambda: acts(peer), bool)


async def test_acting_slave_continues_without_name_servers(tmp_path: Path, rounds: Rounds) -> None:
    config = NameServerConfig(listen_port=0, kv_path="", store_path="", acting_master=True)
    async with (
        NameServer(config) as server,
        orphaned(tmp_path, server.address, ACTS, "") as slave,
        await Peer.connect(slave.address) as peer,
    ):
        await server.stop()
        await rounds.complete(1)
        assert (await pull(peer, "billing", "orders")).code == 0
        assert await acts(peer)


async def test_slave_does_not_act_without_the_setting(tmp_path: Path, namesrv: str) -> None:
    async with made_slave(tmp_path, namesrv) as slave, await Peer.connect(slave.address) as peer:
        with pytest.raises(Refusal, match="enableSlaveActingMaster"):
            await peer.ask(
                ExchangeBrokerHaInfo(master_ha_address="127.0.0.1:1", master_address="127.0.0.1:2")
            )
        await peer.ask(NotifyMinBrokerIdChange(min_broker_id=1, broker_name="broker-a", min_broker_addr="x"))
        assert not await acts(peer)


async def test_doctor_warns_of_a_name_server_that_hides_acting_masters(tmp_path: Path) -> None:
    config = NameServerConfig(listen_port=0, kv_path="", store_path="")
    async with (
        NameServer(config) as server,
        made_broker(tmp_path, server.address, ACTS),
        rmqpy.AsyncAdmin(server.address) as admin,
    ):
        found = [check for check in await admin.health() if check.check.startswith("acting masters")]
    assert [(check.level, "broker-a" in check.found) for check in found] == [("warn", True)]


async def test_delayed_message_escapes_to_another_broker_exactly_once(tmp_path: Path, namesrv: str) -> None:
    async with (
        another(tmp_path, namesrv) as other,
        await Peer.connect(other.address) as at_other,
        orphaned(tmp_path, namesrv, ESCAPES, "DELAY\x012\x02", "DELAY\x012\x02"),
    ):
        first = await arrival(at_other, "orders")
        assert (first.body, "DELAY" in first.properties) == (b"body 0", False)
        await until_async(lambda: bodies(at_other), lambda found: found == [b"body 0", b"body 1"])
        async with (
            made_broker(tmp_path, namesrv, ESCAPES) as master,
            await Peer.connect(master.address) as back,
        ):
            await after_another_delay(back)
            assert await bodies(back) == [b"last"]
        assert await bodies(at_other) == [b"body 0", b"body 1"]


async def test_promoted_acting_slave_continues_its_deliveries(tmp_path: Path, namesrv: str) -> None:
    async with (
        another(tmp_path, namesrv) as other,
        await Peer.connect(other.address) as at_other,
        orphaned(tmp_path, namesrv, ESCAPES, "DELAY\x012\x02", "") as slave,
        rmqpy.AsyncAdmin(namesrv) as admin,
    ):
        await until_async(lambda: bodies(at_other), lambda found: found == [b"body 0"])
        await admin.promote("broker-a", broker_id=1)
        async with await Peer.connect(slave.address) as promoted:
            assert (await promoted.ask(GetBrokerHaStatus())).master
            await after_another_delay(promoted)
            assert await bodies(promoted) == [b"body 1", b"last"]


async def test_master_that_skips_the_hand_over_delivers_again(tmp_path: Path, namesrv: str) -> None:
    skips = ESCAPES | {"skipPreOnline": "true"}
    async with (
        another(tmp_path, namesrv) as other,
        await Peer.connect(other.address) as at_other,
        orphaned(tmp_path, namesrv, ESCAPES, "DELAY\x012\x02"),
    ):
        await until_async(lambda: bodies(at_other), lambda found: found == [b"body 0"])
        async with (
            made_broker(tmp_path, namesrv, skips) as master,
            await Peer.connect(master.address) as back,
        ):
            await after_another_delay(back)
            assert await bodies(back) == [b"body 0", b"last"]


async def test_timed_message_escapes_to_another_broker_exactly_once(tmp_path: Path, namesrv: str) -> None:
    # Not before the master has stopped, also on a busy machine.
    at = f"TIMER_DELIVER_MS\x01{time.time_ns() // 1_000_000 + 10_000}\x02"
    async with (
        another(tmp_path, namesrv) as other,
        await Peer.connect(other.address) as at_other,
        orphaned(tmp_path, namesrv, ESCAPES, at, ""),
    ):
        await until_async(lambda: bodies(at_other), lambda found: found == [b"body 0"])
        async with (
            made_broker(tmp_path, namesrv, ESCAPES) as master,
            await Peer.connect(master.address) as back,
        ):
            await after_another_delay(back)
            assert await bodies(back) == [b"body 1", b"last"]


async def test_consumer_continues_in_order_at_the_slave_and_then_at_the_master(
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
        await until_async(bodies_so_far, lambda found: len(found) >= 20)
        async with await Peer.connect(slave.address) as peer:
            await until_async(lambda: offset(peer), lambda found: found == 20)
        async with made_broker(tmp_path, namesrv, ACTS) as master, await Peer.connect(master.address) as back:
            for number in range(5):
                assert (await send(back, "orders", f"after {number}".encode())).code == 0
            await until_async(bodies_so_far, lambda found: len(found) >= 25)
            await until_async(lambda: offset(back), lambda found: found == 25)
            assert consumed == before + [f"after {number}" for number in range(5)]
            await consumer.close()


async def test_due_messages_wait_for_the_master_without_another_broker(
    tmp_path: Path, namesrv: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with orphaned(tmp_path, namesrv, ESCAPES, "DELAY\x011\x02"):

        async def told() -> bool:
            return "due messages of orders are waiting: no other broker of c1" in caplog.text

        await until_async(told, bool)
        async with (
            made_broker(tmp_path, namesrv, ESCAPES) as master,
            await Peer.connect(master.address) as back,
        ):
            assert (await arrival(back, "orders")).body == b"body 0"


async def test_open_transaction_escapes_to_a_broker_whose_producer_decides_it(
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
            await until_async(lambda: bodies(at_other), lambda found: found == [b"body 0"])
            async with (
                made_broker(tmp_path, namesrv, settings) as master,
                await Peer.connect(master.address) as back,
            ):
                assert (await beat(back, heartbeat("client", producer="producers"))).code == 0
                # The first transaction would be due before this one.
                assert (await send(back, "orders", b"another", i=KEY + half)).code == 0
                [record] = records((await pushed(back)).body)
                assert record.body == b"another"


async def offset(peer: Peer) -> int | None:
    """The group's committed offset in the first queue."""
    fields = {"consumerGroup": "billing", "topic": "orders", "queueId": "0"}
    answer = await peer.call(RequestCode.QUERY_CONSUMER_OFFSET, fields)
    return int((answer.ext or {})["offset"]) if answer.code == 0 else None


async def bodies(peer: Peer) -> list[bytes]:
    """The bodies in the first queue."""
    found = await pull(peer, "billing", "orders")
    return [record.body for record in records(found.body)] if found.code == 0 else []


async def after_another_delay(peer: Peer) -> None:
    """Wait for a delayed message sent now: earlier ones would have arrived before it."""
    assert (await send(peer, "orders", b"last", i=f"{KEY}DELAY\x011\x02")).code == 0
    await until_async(lambda: bodies(peer), lambda found: b"last" in found)
