"""The kombu transport without Celery: URLs, credentials, exchanges, requeued and foreign messages."""

import json
import uuid
from collections.abc import Iterator
from queue import Empty

import pytest
from kombu import Connection, Exchange, Queue

import rmqpy
import rmqpy.contrib.kombu
from rmqpy.contrib.kombu.settings import Options, client_config
from rmqpy.errors import ConfigError
from rmqpy.server import Standalone
from rmqpy.testing import broker
from waiting import until


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("rocketmq://", {"namesrv": ("127.0.0.1:9876",)}),
        ("rocketmq://host/shop", {"namesrv": ("host:9876",), "namespace": "shop"}),
        (
            "rocketmq://us%2Fer:se%40cret@host:1/a%7Cb",
            {
                "namesrv": ("host:1",),
                "namespace": "a|b",
                "credentials": rmqpy.Credentials("us/er", "se@cret"),
            },
        ),
        (
            "rocketmq://user:secret@a:1;b:2/shop",
            {
                "namesrv": ("a:1", "b:2"),
                "namespace": "shop",
                "credentials": rmqpy.Credentials("user", "secret"),
            },
        ),
        (
            ["rocketmq://a:1/shop", "rocketmq://b:2/shop"],
            {"namesrv": ("a:1", "b:2"), "namespace": "shop"},
        ),
        ("rocketmqs://[::1]:2", {"namesrv": ("[::1]:2",), "tls": rmqpy.TLS()}),
        ("rocketmqs://a?ssl_ca_certs=/ca.pem", {"namesrv": ("a:9876",), "tls": rmqpy.TLS(ca="/ca.pem")}),
    ],
    ids=str,
)
def test_url_names_the_cluster(
    monkeypatch: pytest.MonkeyPatch, url: str | list[str], expected: dict[str, object]
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    config = client_config(Connection(url))
    want = rmqpy.ClientConfig(**{"connect_timeout": 5.0, **expected})
    if expected["namesrv"] == ("127.0.0.1:9876",):
        want = rmqpy.ClientConfig(namesrv="localhost", connect_timeout=5.0)
    assert config == want


def test_wrong_options_are_refused() -> None:
    assert Options.of({"group": "g", "max_retries": 3}) == Options(group="g")
    with pytest.raises(ConfigError, match="visibility_timeout must be a number of at least 1"):
        Options.of({"visibility_timeout": 0})


def test_unreachable_cluster_is_a_connection_error() -> None:
    connection = Connection("rocketmq://127.0.0.1:1", connect_timeout=1)
    with connection, pytest.raises(connection.connection_errors):
        connection.connect()


@pytest.fixture
def connection(server: Standalone) -> Iterator[Connection]:
    with Connection(f"rocketmq://{server.namesrv}/{uuid.uuid4().hex[:8]}") as connection:
        yield connection


def test_messages_are_got_requeued_and_acknowledged(connection: Connection) -> None:
    with connection.SimpleQueue("images.high") as queue:
        queue.put({"path": "1.png"}, headers={"id": "t-1", "task": "resize"})
        queue.put(b"\x00\xff", content_type="application/data", content_encoding="binary")
        assert queue.qsize() == 2
        first, second = sorted((queue.get(timeout=60) for _ in range(2)), key=lambda m: m.content_type)
        assert (first.payload, second.payload) == (b"\x00\xff", {"path": "1.png"})
        first.ack()
        second.requeue()
        again = queue.get(timeout=60)
        assert again.payload == {"path": "1.png"}
        assert again.delivery_info["redelivered"]
        again.ack()
        with pytest.raises(Empty):
            queue.get(timeout=0.2)


def test_prefetch_limits_unacknowledged_messages(connection: Connection) -> None:
    channel = connection.default_channel
    channel.basic_qos(0, 2)
    seen = []
    producer = connection.Producer()
    for number in range(5):
        producer.publish({"number": number}, routing_key="jobs", declare=[Queue("jobs")])
    with connection.Consumer([Queue("jobs")], callbacks=[lambda body, message: seen.append(message)]):
        for _ in range(2):
            connection.drain_events(timeout=5)
        with pytest.raises(TimeoutError):
            connection.drain_events(timeout=0.3)
        seen[0].ack()
        connection.drain_events(timeout=5)
        assert len(seen) == 3


def test_exchanges_route(connection: Connection) -> None:
    seen: list[tuple[str, str]] = []
    news = Exchange("news", type="topic")
    everyone = Exchange("everyone", type="fanout")
    queues = [
        Queue("sport", news, routing_key="sport.#"),
        Queue("all", news, routing_key="#", auto_delete=True),
        Queue("one", everyone, auto_delete=True),
        Queue("two", everyone, auto_delete=True),
    ]
    with connection.Consumer(
        queues, callbacks=[lambda body, message: seen.append((body, message.delivery_info["routing_key"]))]
    ):
        producer = connection.Producer()
        producer.publish("goal", exchange=news, routing_key="sport.football")
        producer.publish("rain", exchange=news, routing_key="weather")
        producer.publish("hello", exchange=everyone)
        for _ in range(4):
            connection.drain_events(timeout=5)
    assert sorted(body for body, _ in seen) == ["goal", "hello", "hello", "rain"]


def test_message_that_is_not_kombus_becomes_a_dead_letter(server: Standalone, connection: Connection) -> None:
    config = client_config(connection)
    with connection.SimpleQueue("mixed") as queue, rmqpy.Producer(config) as producer:
        producer.send("mixed", json.dumps([1, 2, 3]))
        queue.put("ours")
        message = queue.get(timeout=60)
        assert message.payload == "ours"
        message.ack()
        with rmqpy.Admin(config) as admin:
            until(lambda: [row.messages for row in admin.dead_letters()] == [1])


def test_credentials_of_the_url_sign_requests() -> None:
    settings = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": json.dumps({"username": "root", "password": "root-secret"}),
        "innerClientAuthenticationCredentials": json.dumps({"accessKey": "in", "secretKey": "in-secret"}),
    }
    with broker(**settings) as server:
        signed = Connection(f"rocketmq://root:root-secret@{server.namesrv}")
        with signed, signed.SimpleQueue("jobs") as queue:
            queue.put("signed")
            message = queue.get(timeout=60)
            message.ack()
            assert message.payload == "signed"
        refused = Connection(f"rocketmq://root:wrong@{server.namesrv}")
        with refused, pytest.raises(rmqpy.errors.AuthError):
            refused.SimpleQueue("jobs").put("refused")
