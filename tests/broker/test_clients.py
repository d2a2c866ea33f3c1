"""The registries of clients: members of groups, their subscriptions, and notifications."""

import asyncio

import pytest

from broker.fakes import MetadataTables, Notifications
from rmqpy.control.clients.expiry import drop_silent
from rmqpy.control.clients.registry import ConnectedClient, Consumers, Producers
from rmqpy.protocol.requests.clients import ConsumerData, MessageModel, SubscriptionData


def member(connection: int, client_id: str | None = None) -> ConnectedClient:
    return ConnectedClient(connection, client_id or f"client-{connection}", "127.0.0.1:1", "JAVA", 513, 0)


def data(
    *topics: str, group: str = "g", version: int = 1, model: MessageModel = MessageModel.CLUSTERING
) -> ConsumerData:
    return ConsumerData(
        group_name=group,
        message_model=model,
        subscription_data_set=[
            SubscriptionData(topic=topic, sub_string="*", sub_version=version) for topic in topics
        ],
    )


class Registry:
    """A consumer registry and its notifications."""

    def __init__(self) -> None:
        self.metadata = MetadataTables()
        self.notifications = Notifications()
        self.consumers = Consumers(self.metadata, self.notifications)

    def join(self, connection: int, heard: ConsumerData, *, with_subscriptions: bool = True) -> None:
        self.consumers.register(member(connection), heard, with_subscriptions=with_subscriptions)

    async def taken(self) -> list[tuple[str, list[int]]]:
        await asyncio.sleep(0)
        calls, self.notifications.calls = self.notifications.calls, []
        return calls


async def test_all_members_are_notified_of_joins_and_leaves() -> None:
    registry = Registry()
    registry.join(1, data("t"))
    assert await registry.taken() == [("g", [1])]
    registry.join(2, data("t"))
    assert await registry.taken() == [("g", [1, 2])]
    registry.consumers.unregister(1, "g")
    assert await registry.taken() == [("g", [2])]


async def test_unchanged_heartbeat_notifies_no_member() -> None:
    registry = Registry()
    registry.join(1, data("t"))
    await registry.taken()
    registry.join(1, data("t", version=2))
    assert await registry.taken() == []


async def test_closed_connection_removes_its_client_from_every_group() -> None:
    """Go clients never unregister, and a killed Java process cannot."""
    registry = Registry()
    registry.join(1, data("t"))
    registry.join(1, data("t", group="h"))
    registry.join(2, data("t"))
    await registry.taken()
    registry.consumers.drop(1)
    assert await registry.taken() == [("g", [2])]
    assert list(registry.consumers.groups) == ["g"]
    assert list(registry.metadata.subscriptions) == ["g"]
    assert registry.consumers.connections() == [2]


async def test_changes_of_one_turn_make_one_notice() -> None:
    registry = Registry()
    for connection in range(5):
        registry.join(connection, data("t"))
    assert await registry.taken() == [("g", [0, 1, 2, 3, 4])]


async def test_broadcasting_members_are_not_notified() -> None:
    registry = Registry()
    registry.join(1, data("t", model=MessageModel.BROADCASTING))
    assert await registry.taken() == []


async def test_last_heartbeat_defines_the_subscriptions() -> None:
    registry = Registry()
    registry.join(1, data("a", "b", version=1))
    await registry.taken()
    registry.join(1, data("b", "c", version=2))
    assert registry.metadata.subscriptions["g"] == [("b", "TAG", "*", 2), ("c", "TAG", "*", 2)]
    assert await registry.taken() == [("g", [1])]


async def test_an_older_version_of_a_subscription_does_not_replace_a_newer_one() -> None:
    registry = Registry()
    registry.join(1, data("a", version=5))
    registry.join(2, data("a", version=4))
    assert registry.metadata.subscriptions["g"] == [("a", "TAG", "*", 5)]


async def test_a_heartbeat_without_subscriptions_leaves_them_alone() -> None:
    registry = Registry()
    registry.join(1, data("a"))
    registry.join(1, data(), with_subscriptions=False)
    assert registry.metadata.subscriptions["g"] == [("a", "TAG", "*", 1)]


async def test_a_fingerprint_is_compared_with_the_last_one_of_the_group() -> None:
    registry = Registry()
    registry.join(1, data("a"))
    consumers = registry.consumers
    assert not consumers.take_fingerprint("g", 7, without_subscriptions=False)
    assert not consumers.take_fingerprint("g", 7, without_subscriptions=True)
    assert consumers.take_fingerprint("g", 8, without_subscriptions=False)
    assert not consumers.take_fingerprint("g", 8, without_subscriptions=True)


async def test_unknown_fingerprint_requests_the_subscriptions() -> None:
    """After a restart of the broker the client would never send them again."""
    registry = Registry()
    registry.join(1, data(), with_subscriptions=False)
    assert registry.consumers.take_fingerprint("g", 7, without_subscriptions=True)
    assert registry.consumers.take_fingerprint("g", 7, without_subscriptions=True)
    assert not registry.consumers.take_fingerprint("g", 7, without_subscriptions=False)


async def test_a_client_on_two_connections_is_one_member() -> None:
    registry = Registry()
    for connection in (1, 2):
        registry.consumers.register(member(connection, "same"), data("t"))
    assert registry.consumers.groups["g"].client_ids == ["same"]


def test_producers_join_and_leave() -> None:
    producers = Producers()
    producers.register(member(1), "p")
    producers.register(member(2), "p")
    producers.register(member(2), "q")
    producers.drop(2)
    assert {group: list(members) for group, members in producers.groups.items()} == {"p": [1]}
    producers.unregister(1, "p")
    assert producers.connections() == []


class Ages:
    """Connections with the age of their last heartbeat."""

    def __init__(self, ages: dict[int, int | None]) -> None:
        self.ages = ages
        self.closed: list[int] = []

    def heartbeat_age_ms(self, connection: int) -> int | None:
        return self.ages[connection]

    def close_connection(self, connection: int) -> None:
        self.closed.append(connection)


@pytest.mark.parametrize(("age_ms", "is_dropped"), [(None, False), (120_000, False), (120_001, True)])
async def test_silent_client_is_dropped_and_the_others_are_notified(
    age_ms: int | None, is_dropped: bool
) -> None:
    registry = Registry()
    registry.join(1, data("t"))
    registry.join(2, data("t"))
    await registry.taken()
    ages = Ages({1: age_ms, 2: 0})
    drop_silent(registry.consumers, Producers(), ages, 120_000)
    assert ages.closed == ([1] if is_dropped else [])
    assert await registry.taken() == ([("g", [2])] if is_dropped else [])


async def test_connections_with_one_client_id_are_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    registry = Registry()

    def told() -> int:
        return sum("both use the id twin" in record.getMessage() for record in caplog.records)

    def beat(connection: int, model: MessageModel = MessageModel.CLUSTERING, group: str = "g") -> None:
        registry.consumers.register(member(connection, "twin"), data("t", group=group, model=model))

    # A client that returns before its old connection is found dead is one member.
    beat(1)
    beat(2)
    beat(2)
    assert told() == 0
    # The old connection sends again, so there are two members.
    beat(1)
    beat(2)
    beat(1)
    assert told() == 1
    registry.consumers.unregister(1, "g")
    beat(2)
    beat(3)
    beat(2)
    assert told() == 2
    # In a broadcast group every member gets every message anyway.
    for connection in (4, 5, 4):
        beat(connection, MessageModel.BROADCASTING, "everybody")
    assert told() == 2
