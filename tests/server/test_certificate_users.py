"""Users identified by the certificates of their connections: permissions, and effects on others."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

import rmqpy
from apiclient import CHANGE, api_of
from certificates import Authority, Files
from rmqpy.errors import AuthError, SendDenied, SendError
from rmqpy.server import Standalone
from rmqpy.testing import SMALL
from waiting import until

ROOT = rmqpy.Credentials("root", "root-secret")


class Certified(NamedTuple):
    """Servers that know users by certificates, and the authority of both."""

    server: Standalone
    authority: Authority

    def config(self, name: str | None, credentials: rmqpy.Credentials | None = None) -> rmqpy.ClientConfig:
        """Of a client with a certificate of this name, if any."""
        files = self.authority.issue(name, [name]) if name else None
        tls = rmqpy.TLS(
            ca=str(self.authority.ca), cert=files.cert if files else None, key=files.key if files else None
        )
        return rmqpy.ClientConfig(namesrv=self.server.namesrv, tls=tls, credentials=credentials)

    def send(self, topic: str, name: str | None, credentials: rmqpy.Credentials | None = None) -> None:
        with rmqpy.Producer(self.config(name, credentials), retries=0) as producer:
            producer.send(topic, b"x")


@contextmanager
def serving(folder: Path, own: str = "server", **settings: object) -> Iterator[Certified]:
    """With a user `alice` who may send to `orders` and receive from it. `own` is the name in the servers' certificate
    for their own connections."""
    authority = Authority(folder / "certificates")
    files: Files = authority.issue("listening")
    calling = authority.issue(own, [own])
    given: dict[str, object] = {
        "tls.server.certPath": files.cert,
        "tls.server.keyPath": files.key,
        "tls.server.need.client.auth": "optional",
        "tls.server.trustCertPath": files.ca,
        "tls.client.trustCertPath": files.ca,
        "tls.client.certPath": calling.cert,
        "tls.client.keyPath": calling.key,
        "authenticationEnabled": True,
        "authorizationEnabled": True,
        "certificateAuthenticationEnabled": True,
        "initAuthenticationUser": json.dumps({"username": "root", "password": "root-secret"}),
        "innerClientAuthenticationCredentials": json.dumps(
            {"accessKey": "inner", "secretKey": "inner-secret"}
        ),
    }
    with Standalone(
        folder / "data", namesrv_port=0, broker_port=0, http_port=0, **{**SMALL, **given, **settings}
    ) as server:
        made = Certified(server, authority)
        with rmqpy.Admin(made.config(None, ROOT)) as admin:
            for topic in ("orders", "bills"):
                admin.create_topic(topic, read_queues=1, write_queues=1)
            admin.create_user("alice", "alice-secret")
            admin.set_rule("alice", "Topic:orders", ["Pub", "Sub", "Get"])
            admin.set_rule("alice", "Group:readers", ["Sub"])
        yield made


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Certified]:
    with serving(tmp_path_factory.mktemp("certified")) as made:
        yield made


def test_a_user_needs_no_signature_with_a_certificate_and_does_what_its_policies_say(
    certified: Certified, caplog: pytest.LogCaptureFixture
) -> None:
    config = certified.config("alice")
    certified.send("orders", "alice")
    with rmqpy.PullConsumer("readers", config, auto_commit=False) as consumer:
        consumer.assign(consumer.queues("orders"))
        for queue in consumer.assignment():
            consumer.seek(queue, "begin")
        assert [message.text() for message in consumer.poll(timeout=10)][:1] == ["x"]
    with caplog.at_level(logging.WARNING, "rmqpy.audit"):
        with pytest.raises(SendDenied, match="User:alice has no permission to Pub Topic:bills") as denied:
            certified.send("bills", "alice")
        assert isinstance(denied.value, AuthError), "whoever handles what is not allowed hears of sends, too"
        with rmqpy.Admin(config) as admin, pytest.raises(AuthError, match="User:alice has no permission"):
            admin.create_topic("made")
        until(lambda: "User:alice has no permission to Pub Topic:bills" in caplog.text)


def test_certificate_of_an_unknown_user_and_missing_ones_are_refused(
    certified: Certified,
) -> None:
    with pytest.raises(SendError, match="User:mallory, named by the client's certificate, is unknown"):
        certified.send("orders", "mallory")
    with pytest.raises(SendError, match="the request is not signed"):
        certified.send("orders", None)


def test_signature_takes_precedence_over_the_certificate(certified: Certified) -> None:
    certified.send("bills", "alice", ROOT)
    with pytest.raises(SendError, match="User:alice has no permission"):
        certified.send("bills", "root", rmqpy.Credentials("alice", "alice-secret"))
    with pytest.raises(SendError, match="User:root is unknown, or the signature was not made"):
        certified.send("orders", "alice", rmqpy.Credentials("root", "guessed"))


def test_revoked_user_is_refused_on_open_connections(certified: Certified) -> None:
    with (
        rmqpy.Admin(certified.config(None, ROOT)) as admin,
        rmqpy.Producer(certified.config("bob"), retries=0) as producer,
    ):
        admin.create_user("bob", "bob-secret")
        admin.set_rule("bob", "Topic:orders", ["Pub"])
        producer.send("orders", b"x")
        admin.update_user("bob", is_enabled=False)
        with pytest.raises(SendError, match="User:bob is disabled"):
            producer.send("orders", b"x")
        admin.update_user("bob", is_enabled=True)
        producer.send("orders", b"x")
        admin.delete_rule("bob", "Topic:orders")
        with pytest.raises(SendError, match="User:bob has no permission"):
            producer.send("orders", b"x")
        admin.delete_user("bob")
        with pytest.raises(SendError, match="User:bob, named by the client's certificate, is unknown"):
            producer.send("orders", b"x")


def test_a_name_server_knows_users_by_their_certificates_too(certified: Certified) -> None:
    with rmqpy.Admin(certified.config("root")) as admin:
        assert admin.namesrv_config()
        assert {user.name for user in admin.users()} >= {"alice", "root"}
    with rmqpy.Admin(certified.config("alice")) as admin, pytest.raises(AuthError, match="User:alice"):
        admin.namesrv_config()


def test_certificate_identifies_no_user_unless_enabled(tmp_path: Path) -> None:
    with serving(tmp_path, certificateAuthenticationEnabled=False) as servers:
        servers.send("orders", None, ROOT)
        with pytest.raises(SendError, match="the request is not signed"):
            servers.send("orders", "root")


def test_brokers_own_certificate_grants_no_console_access(tmp_path: Path) -> None:
    with serving(tmp_path, own="root", **{"tls.server.mode": "permissive", "tls.enable": True}) as servers:
        ask = api_of(servers.server.http)
        assert ask("/topics").status == 401

        def log_in(secret: str) -> int:
            body = {"user": "root", "secret": secret}
            return ask("/session", method="POST", body=body, headers=CHANGE).status

        assert log_in("guessed") == 403
        assert log_in("root-secret") == 200
