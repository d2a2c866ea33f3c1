"""Permissions of groups: they apply to our consumers, whose pulls carry their filter, and end them with an error."""

from pathlib import Path

import pytest

import rmqpy
from rmqpy import errors
from rmqpy.server import Standalone
from waiting import until

from .live import WAIT_S, Seen, send


def test_no_consumer_reads_a_forbidden_topic(server: Standalone, topic: str) -> None:
    seen = Seen()
    consumer = rmqpy.PushConsumer("forbidden-group", server.namesrv, start_from="earliest")
    consumer.on(topic, handler=seen)
    with rmqpy.Admin(server.namesrv) as admin, consumer:
        send(server, topic, ["before"])
        until(lambda: seen.has("before"))
        assert set(admin.group_readable("forbidden-group", topic).values()) == {True}
        assert set(admin.group_readable("forbidden-group", topic, False).values()) == {False}
        send(server, topic, [f"after-{number}" for number in range(8)])
        with pytest.raises(errors.AuthError, match="is forbidden for topic"):
            consumer.wait(WAIT_S)
        with pytest.raises(errors.AuthError, match="is forbidden for topic"):
            consumer.wait()
        with rmqpy.PullConsumer("forbidden-group", server.namesrv, start_from="earliest") as puller:
            puller.assign(puller.queues(topic))
            with pytest.raises(errors.AuthError, match="is forbidden for topic"):
                puller.poll(WAIT_S)
        with rmqpy.PullConsumer("another-group", server.namesrv, start_from="earliest") as puller:
            puller.assign(puller.queues(topic))
            assert puller.poll(WAIT_S)
        admin.group_readable("forbidden-group", topic, True)
    again = rmqpy.PushConsumer("forbidden-group", server.namesrv)
    again.on(topic, handler=seen)
    with again:
        until(lambda: seen.has(*(f"after-{number}" for number in range(8))))


def test_broadcast_by_a_forbidden_group_is_refused(server: Standalone, topic: str, tmp_path: Path) -> None:
    with rmqpy.Admin(server.namesrv) as admin:
        admin.create_group("no-broadcast", broadcast=False)
    consumer = rmqpy.PushConsumer(
        "no-broadcast", server.namesrv, broadcast=True, start_from="earliest", offset_folder=tmp_path
    )
    consumer.on(topic, handler=Seen())
    with consumer, pytest.raises(errors.AuthError, match="can not consume by broadcast way"):
        consumer.wait(WAIT_S)
    seen = Seen()
    sharing = rmqpy.PushConsumer("no-broadcast", server.namesrv, start_from="earliest")
    sharing.on(topic, handler=seen)
    with sharing:
        until(lambda: seen.has("first"))
