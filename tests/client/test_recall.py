"""Recalls of timed messages by producers."""

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta

import pytest

import rmqpy
from rmqpy import errors, testing
from rmqpy.server import Standalone

WAIT = timedelta(minutes=10)


@pytest.fixture
def clock() -> testing.HandClock:
    return testing.HandClock()


@pytest.fixture
def server(clock: testing.HandClock) -> Iterator[Standalone]:
    with testing.broker(clock=clock) as server:
        yield server


def timed(producer: rmqpy.Producer, body: str) -> rmqpy.SendResult:
    return producer.send("letters", body, deliver_after=WAIT)


def handle_of(result: rmqpy.SendResult) -> str:
    assert result.recall_handle is not None
    return result.recall_handle


def delivered(server: Standalone) -> list[str]:
    with rmqpy.Admin(server.namesrv) as admin:
        return sorted(message.text() for message in admin.messages_between("letters"))


def test_recalled_message_is_not_delivered_and_recall_is_idempotent(
    server: Standalone, clock: testing.HandClock
) -> None:
    with rmqpy.Producer(server.namesrv) as producer:
        sent = [timed(producer, body) for body in ("first", "second", "third")]
        clock.advance(300)
        assert producer.recall("letters", handle_of(sent[1])) == sent[1].message_id
        assert producer.recall("letters", handle_of(sent[1])) == sent[1].message_id
        clock.advance(WAIT.total_seconds())
        assert delivered(server) == ["first", "third"]
        with pytest.raises(errors.RecallError, match="too late") as caught:
            producer.recall("letters", handle_of(sent[0]))
        assert (caught.value.code, caught.value.topic) == (604, "letters")


async def test_async_producer_recalls_too(server: Standalone, clock: testing.HandClock) -> None:
    async with rmqpy.AsyncProducer(server.namesrv) as producer:
        sent = await producer.send("letters", "gone", deliver_after=WAIT)
        await producer.send("letters", "stays", deliver_after=WAIT)
        assert await producer.recall("letters", handle_of(sent)) == sent.message_id
        with pytest.raises(errors.RecallError, match="is not a recall handle"):
            await producer.recall("letters", "damaged")
    clock.advance(WAIT.total_seconds())
    assert delivered(server) == ["stays"]


def test_unknown_recall_handle_is_refused(server: Standalone) -> None:
    def made(text: str) -> str:
        return base64.urlsafe_b64encode(text.encode()).decode()

    with rmqpy.Producer(server.namesrv) as producer:
        handle = handle_of(timed(producer, "stays"))
        for topic, wrong, reason in [
            ("letters", "", "is not a recall handle"),
            ("letters", handle[4:], "is not a recall handle"),
            ("letters", made("v2 letters broker-a 1 ID"), "is not a recall handle"),
            ("letters", made("v1 letters broker-a soon ID"), "is not a recall handle"),
            ("others", handle, "names a message to letters, not to others"),
            ("letters", made("v1 letters broker-a 1 ID"), "too late"),
        ]:
            with pytest.raises(errors.RecallError, match=reason):
                producer.recall(topic, wrong)
        with pytest.raises(errors.ConnectError, match="broker-z"):
            producer.recall("letters", made("v1 letters broker-z 1 ID"))
        with pytest.raises(TypeError, match="handle"):
            producer.recall("letters", None)  # type: ignore[arg-type]


def test_broker_without_recalls_names_the_setting() -> None:
    with testing.broker(recallMessageEnable=False) as server, rmqpy.Producer(server.namesrv) as producer:
        handle = handle_of(timed(producer, "stays"))
        with pytest.raises(errors.Unsupported, match="set recallMessageEnable=true"):
            producer.recall("letters", handle)


def test_message_of_a_namespace_is_recalled_by_its_plain_topic(
    server: Standalone, clock: testing.HandClock
) -> None:
    config = rmqpy.ClientConfig(namesrv=server.namesrv, namespace="shop")
    with rmqpy.Producer(config) as producer:
        sent = timed(producer, "gone")
        timed(producer, "stays")
        assert producer.recall("letters", handle_of(sent)) == sent.message_id
        clock.advance(WAIT.total_seconds())
        with rmqpy.Admin(config) as admin:
            assert [message.text() for message in admin.messages_between("letters")] == ["stays"]


def test_only_single_messages_with_a_time_have_a_handle(server: Standalone) -> None:
    with rmqpy.Producer(server.namesrv) as producer:
        assert producer.send("letters", "now").recall_handle is None
        assert producer.send("letters", "delayed", delay_level=1).recall_handle is None


def test_command_line_sends_and_recalls(server: Standalone, clock: testing.HandClock) -> None:
    def rmqpy_command(*arguments: str) -> str:
        command = [sys.executable, "-m", "rmqpy", *arguments, "-n", server.namesrv, "-o", "json"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    with rmqpy.Producer(server.namesrv) as producer:
        timed(producer, "stays")
    sent = rmqpy_command("produce", "letters", "gone", "--deliver-after", "10m")
    handle = json.loads(sent)["recall_handle"]
    assert json.loads(rmqpy_command("message", "recall", "letters", handle))["topic"] == "letters"
    clock.advance(WAIT.total_seconds())
    assert delivered(server) == ["stays"]
