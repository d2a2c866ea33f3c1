"""Registration: all name servers in parallel, complete first, changes immediately, removed at a stop."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.fakes import MetadataTables
from rmqpy.clock import HandClock
from rmqpy.config.broker import BrokerConfig
from rmqpy.control import registration
from rmqpy.control.identity import Identity
from rmqpy.control.registration import Registration
from rmqpy.control.topics.built_in import built_in_topics
from rmqpy.control.topics.static_topics import StaticTopics
from rmqpy.control.topics.table import Topics
from rmqpy.errors import BrokerError, ConnectError, Unsupported
from rmqpy.protocol.requests.registration import (
    KvTable,
    RegisterBroker,
    Registered,
    UnregisterBroker,
    checksum,
    unpack,
)
from rmqpy.protocol.requests.routes import QueueData, RegisterTopic
from rmqpy.protocol.topics import TopicConfig, TopicTable

Answer = Callable[[Any], Awaitable[Any]]


async def agree(ask: Any) -> Any:
    return Registered() if isinstance(ask, RegisterBroker) else None


class NameServer:
    """Records its requests, and answers as configured."""

    def __init__(self, answer: Answer = agree) -> None:
        self.answer = answer
        self.asked: asyncio.Queue[Any] = asyncio.Queue()

    async def call(self, ask: Any, *, timeout: float) -> Any:  # noqa: ASYNC109
        self.asked.put_nowait(ask)
        return await self.answer(ask)

    async def next_table(self) -> TopicTable:
        """The table of the next registration."""
        ask = await asyncio.wait_for(self.asked.get(), 10)
        assert isinstance(ask, RegisterBroker)
        assert ask.body_crc32 == checksum(ask.body)
        return unpack(ask, 513).topic_config_serialize_wrapper

    async def next_topic(self) -> tuple[str, list[QueueData]]:
        """The topic that is registered next, and its queues."""
        ask = await asyncio.wait_for(self.asked.get(), 10)
        assert isinstance(ask, RegisterTopic)
        return ask.topic, ask.body.queue_datas


def topics_in(folder: Path) -> Topics:
    built_in = built_in_topics(BrokerConfig(name="broker-a", cluster="c1"))
    topics = Topics(folder / "topics.json", MetadataTables(), built_in, HandClock())
    topics.load()
    return topics


@asynccontextmanager
async def running(
    topics: Topics,
    servers: Mapping[str, NameServer],
    *,
    permission: int | Callable[[], int] = 6,
    interval: float = 30.0,
) -> AsyncIterator[Registration]:
    registration = Registration(
        lambda: Identity("c1", "broker-a", "127.0.0.1:10911", "127.0.0.1:10912"),
        servers,
        permission=(lambda: permission) if isinstance(permission, int) else permission,
        interval_seconds=interval,
        timeout_seconds=10,
    )
    topics._on_change = registration.changed
    registration.start(topics, StaticTopics(Path("none"), "broker-a", MetadataTables(), HandClock()))
    try:
        yield registration
    finally:
        await registration.stop()


def orders(queues: int = 4) -> TopicConfig:
    return TopicConfig(topic_name="orders", read_queue_nums=queues, write_queue_nums=queues)


async def test_the_first_registration_is_the_complete_table(tmp_path: Path) -> None:
    """A name server refuses the registration of one topic by a broker that it does not know."""
    topics, server = topics_in(tmp_path), NameServer()
    async with running(topics, {"one": server}):
        table = await server.next_table()
    assert table.topic_config_table.keys() == topics.table.keys()
    assert len(table.topic_config_table) > 1


async def test_change_reaches_every_name_server_immediately(tmp_path: Path) -> None:
    topics, servers = topics_in(tmp_path), {"one": NameServer(), "two": NameServer()}
    async with running(topics, servers, permission=4):
        for server in servers.values():
            await server.next_table()
        await topics.put(orders())
        after = [await server.next_topic() for server in servers.values()]
    queues = QueueData(broker_name="broker-a", read_queue_nums=4, write_queue_nums=4, perm=4)
    assert after == [("orders", [queues])] * 2


async def test_a_change_reaches_a_name_server_of_an_early_release_with_a_new_version(tmp_path: Path) -> None:
    """A name server ignores a change with the old version."""

    async def early(ask: Any) -> Any:
        if isinstance(ask, RegisterTopic):
            raise Unsupported("request type 217 not supported", code=3)
        return await agree(ask)

    topics, server = topics_in(tmp_path), NameServer(early)
    async with running(topics, {"one": server}):
        before = await server.next_table()
        await topics.put(orders())
        assert await server.next_topic()
        after = [await server.next_table()]
        await topics.put(orders(8))
        after.append(await server.next_table())
    assert all(list(table.topic_config_table) == ["orders"] for table in after)
    versions = [table.data_version.counter for table in (before, *after)]
    assert versions == sorted(set(versions))


async def test_many_changes_are_sent_as_the_complete_table(tmp_path: Path) -> None:
    topics, server = topics_in(tmp_path), NameServer()
    async with running(topics, {"one": server}):
        await server.next_table()
        made = [TopicConfig(topic_name=f"topic-{number}") for number in range(registration.CHANGES_MAX + 1)]
        await topics.put(*made)
        assert (await server.next_table()).topic_config_table.keys() == topics.table.keys()


async def test_change_during_a_registration_is_sent_immediately(
    tmp_path: Path,
) -> None:
    asked, may_answer = asyncio.Event(), asyncio.Event()

    async def slow(ask: Any) -> Any:
        asked.set()
        await may_answer.wait()
        return await agree(ask)

    topics, server = topics_in(tmp_path), NameServer(slow)
    permission = 6
    async with running(topics, {"one": server}, permission=lambda: permission) as registration:
        await asked.wait()
        permission = 4
        registration.everything_changed()
        may_answer.set()
        await server.next_table()
        table = await server.next_table()
    assert {topic.perm for topic in table.topic_config_table.values()} <= {0, 4}


async def test_registration_continues_after_an_unexpected_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(registration, "RETRY_SECONDS_MIN", 0.001)
    faults: list[str | None] = []

    async def break_down(ask: Any) -> Any:
        server.answer = note_fault
        raise RuntimeError("out of order")

    async def note_fault(ask: Any) -> Any:
        faults.append(registrations.fault)
        return await agree(ask)

    topics, server = topics_in(tmp_path), NameServer()
    async with running(topics, {"one": server}) as registrations:
        await server.next_table()
        server.answer = break_down
        await topics.put(orders())
        await server.next_topic()
        assert "orders" in (await server.next_table()).topic_config_table
    assert faults[0] == "no name server knows this broker: RuntimeError: out of order"
    assert [record.levelname for record in caplog.records if record.exc_info] == ["ERROR"]


async def test_a_name_server_that_does_not_answer_delays_no_other(tmp_path: Path) -> None:
    async def hang(ask: Any) -> Any:
        await asyncio.Event().wait()

    topics, dead, alive = topics_in(tmp_path), NameServer(hang), NameServer()
    async with running(topics, {"dead": dead, "alive": alive}) as registration:
        await dead.asked.get()
        await alive.next_table()
        await topics.put(orders())
        assert (await alive.next_topic())[0] == "orders"
        assert await registration.first_round(0.01) == {"dead": "no answer yet", "alive": None}


async def test_complete_table_is_registered_after_a_failure(tmp_path: Path, monkeypatch: Any) -> None:
    """A name server that was started again knows nothing of the broker."""
    monkeypatch.setattr(registration, "RETRY_SECONDS_MIN", 0.001)

    topics, server = topics_in(tmp_path), NameServer()
    async with running(topics, {"one": server}):
        await server.next_table()

        async def refuse(ask: Any) -> Any:
            server.answer = agree
            raise BrokerError("register broker failed", code=1)

        server.answer = refuse
        await topics.put(orders())
        assert (await server.next_topic())[0] == "orders"
        again = await server.next_table()
    assert again.topic_config_table.keys() == topics.table.keys()


async def test_the_complete_table_is_repeated_every_interval(tmp_path: Path) -> None:
    topics, server = topics_in(tmp_path), NameServer()
    async with running(topics, {"one": server}, interval=0.01):
        tables = [await server.next_table() for _ in range(3)]
    assert all(table.topic_config_table.keys() == topics.table.keys() for table in tables)


async def test_the_permission_of_the_broker_masks_that_of_every_topic(tmp_path: Path) -> None:
    topics, server = topics_in(tmp_path), NameServer()
    async with running(topics, {"one": server}, permission=4):
        table = await server.next_table()
    assert {topic.perm for topic in table.topic_config_table.values()} <= {0, 4}


async def test_a_stop_takes_the_broker_off_the_name_servers_that_know_it(tmp_path: Path) -> None:
    async def fail(ask: Any) -> Any:
        raise ConnectError("connection refused")

    topics, gone, alive = topics_in(tmp_path), NameServer(fail), NameServer()
    async with running(topics, {"gone": gone, "alive": alive}) as registration:
        faults = await registration.first_round(10)
    assert faults["alive"] is None
    assert "connection refused" in str(faults["gone"])
    asked = [alive.asked.get_nowait() for _ in range(alive.asked.qsize())]
    assert asked[-1] == UnregisterBroker(
        cluster_name="c1", broker_name="broker-a", broker_addr="127.0.0.1:10911", broker_id=0
    )
    asked = [gone.asked.get_nowait() for _ in range(gone.asked.qsize())]
    assert all(isinstance(ask, RegisterBroker) for ask in asked)


@pytest.mark.parametrize("ticks", range(4))
async def test_a_stop_just_after_a_change_ends(tmp_path: Path, ticks: int) -> None:
    """A cancelled wait that is over already still ends its task: `asyncio.wait_for` of Python 3.11 returns instead."""
    topics, server = topics_in(tmp_path), NameServer()
    async with running(topics, {"one": server}) as registration:
        await server.next_table()
        # It has the answer, and waits for a change.
        for _ in range(20):
            await asyncio.sleep(0)
        registration.everything_changed()
        for _ in range(ticks):
            await asyncio.sleep(0)
        await asyncio.wait_for(registration.stop(), 10)


async def test_order_topics_of_a_name_server_become_order_topics_here_and_are_announced(
    tmp_path: Path,
) -> None:
    async def with_order(ask: Any) -> Any:
        table = {"orders": "broker-a:4", "elsewhere": "broker-b:4"}
        return Registered(body=KvTable(table=table)) if isinstance(ask, RegisterBroker) else None

    topics, server = topics_in(tmp_path), NameServer(with_order)
    await topics.put(orders())
    async with running(topics, {"ns": server}):
        assert not (await server.next_table()).topic_config_table["orders"].order
        assert (await server.next_topic())[0] == "orders"
        assert topics.table["orders"].order
        assert "elsewhere" not in topics.table
    assert json.loads((tmp_path / "topics.json").read_text())["topicConfigTable"]["orders"]["order"] is True
