"""Heartbeats of producers: brokers list their groups while they live."""

import asyncio
import json
import logging
import os

import pytest

import rmqpy
from rmqpy.client import heartbeats
from rmqpy.protocol.codes import RequestCode
from rmqpy.server import Standalone
from waiting import until

from .fakes import Broker, Brokers, NameServer


def listed(server: Standalone) -> dict[str, set[str]]:
    """Client ids of the producers that the broker has, by group."""
    found: dict[str, set[str]] = {}
    with rmqpy.Admin(server.namesrv) as admin:
        for client in admin.clients():
            if client.role == "producer":
                found.setdefault(client.group, set()).add(client.client_id)
    return found


def beats(broker: Broker) -> list[dict[str, object]]:
    return [json.loads(frame.body) for frame in broker.asked if frame.code == RequestCode.HEART_BEAT]


def test_a_broker_lists_producers_from_their_first_send_to_their_end(server: Standalone, topic: str) -> None:
    with rmqpy.Producer(server.namesrv, group="shop") as shop:
        shop.send(topic, b"x")
        until(lambda: "shop" in listed(server))
        with rmqpy.Producer(server.namesrv, group="stock"):
            # It has not sent; the brokers known to its client suffice.
            until(lambda: "stock" in listed(server))
            found = listed(server)
            assert found["shop"] == found["stock"], "one client, one heartbeat"
        until(lambda: "stock" not in listed(server))
        assert "shop" in listed(server)
    until(lambda: "shop" not in listed(server))


def test_a_group_of_two_producers_is_listed_until_the_last_one_ends(server: Standalone, topic: str) -> None:
    first, second = (rmqpy.Producer(server.namesrv, group="twice") for _ in range(2))
    with second:
        with first:
            first.send(topic, b"x")
            until(lambda: "twice" in listed(server))
        assert "twice" in listed(server)
    until(lambda: "twice" not in listed(server))


def test_a_producer_of_an_event_loop_is_listed_too(server: Standalone, topic: str) -> None:
    async def send() -> None:
        async with rmqpy.AsyncProducer(server.namesrv, group="async-shop") as producer:
            await producer.send(topic, b"x")
            await asyncio.to_thread(until, lambda: "async-shop" in listed(server))

    asyncio.run(send())
    until(lambda: "async-shop" not in listed(server))


def test_heartbeats_continue_without_sends(
    monkeypatch: pytest.MonkeyPatch, name_server: NameServer, brokers: Brokers
) -> None:
    monkeypatch.setattr(heartbeats, "HEARTBEAT_S", 0.02)
    with rmqpy.Producer(name_server.address, group="idle") as producer:
        producer.send("orders", b"x")
        until(lambda: all(len(beats(broker)) > 3 for broker in brokers))
    assert {str(beat["producerDataSet"]) for beat in beats(brokers[0])} == {"[{'groupName': 'idle'}]"}
    ended = beats(brokers[0])[0]["clientID"]
    assert str(ended).split("@")[1].startswith(f"{os.getpid()}#")


def test_failed_heartbeats_are_logged_once_and_block_nothing(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name_server: NameServer,
    brokers: Brokers,
) -> None:
    monkeypatch.setattr(heartbeats, "HEARTBEAT_S", 0.02)
    del brokers[0].handlers[RequestCode.HEART_BEAT]
    with caplog.at_level(logging.WARNING), rmqpy.Producer(name_server.address) as producer:
        for _ in range(8):
            assert producer.send("orders", b"x").ok
        until(lambda: len(beats(brokers[0])) > 3 and len(beats(brokers[1])) > 3)
    assert len([one for one in caplog.records if "producer heartbeat failed" in one.message]) == 1
