"""Signed clients of Apache at a broker with access control, the tools of both kinds, and Apache's own decisions.

Goal: users of Java 4.9.8, Java 5.5.0 and Go can use their permissions, and get an error beyond them. Method: one JVM
per version, controlled by lines (`java/Signed.java`)."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import rmqpy
from rmqpy import testing

from .clients import InteropClient, ProcessClient
from .messages import MessageSpec
from .mqadmin import ACCESS
from .signed_java import SignedJava

WAIT_S = 60.0
ON: dict[str, Any] = {
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "initAuthenticationUser": json.dumps({"username": "root", "password": "root-secret"}),
}
ROOT = rmqpy.Credentials("root", "root-secret")
PLAIN = """
accounts:
- {accessKey: operator, secretKey: operator-secret, admin: true}
- {accessKey: billing, secretKey: billing-secret, topicPerms: ['orders=PUB|SUB', 'secrets=DENY'],
   groupPerms: ['billing=SUB', 'billing-pull=SUB']}
"""

pytestmark = pytest.mark.timeout(300, func_only=True)


@contextmanager
def of_the_first_kind(folder: Path) -> Iterator[rmqpy.ClientConfig]:
    (folder / "conf").mkdir(exist_ok=True)
    (folder / "conf" / "plain_acl.yml").write_text(PLAIN)
    with testing.broker(aclEnable=True, rocketmqHome=str(folder)) as cluster:
        yield rmqpy.ClientConfig(
            namesrv=cluster.namesrv, credentials=rmqpy.Credentials("operator", "operator-secret")
        )


@contextmanager
def of_the_second_kind(folder: Path) -> Iterator[rmqpy.ClientConfig]:
    with testing.broker(**ON) as cluster:
        config = rmqpy.ClientConfig(namesrv=cluster.namesrv, credentials=ROOT)
        with rmqpy.Admin(config) as admin:
            admin.create_user("operator", "operator-secret", is_super=True)
            admin.create_user("billing", "billing-secret")
            for resource, actions in (
                ("Topic:orders", ["Pub", "Sub", "Get"]),
                ("Group:billing", ["Sub"]),
                ("Group:billing-pull", ["Sub"]),
            ):
                admin.set_rule("billing", resource, actions)
        yield config


KINDS = {"first": of_the_first_kind, "second": of_the_second_kind}


def address_of(config: rmqpy.ClientConfig) -> str:
    return ";".join([config.namesrv] if isinstance(config.namesrv, str) else config.namesrv)


def stored(admin: rmqpy.Admin, topic: str) -> int:
    return sum(queue.end - queue.begin for queue in admin.topic(topic))


@pytest.mark.parametrize("kind", KINDS)
def test_signed_java_clients_get_their_permissions_and_clear_errors(
    signed_java: SignedJava, kind: str, tmp_path: Path
) -> None:
    with KINDS[kind](tmp_path) as config, rmqpy.Admin(config) as admin:
        namesrv = address_of(config)
        for topic in ("orders", "secrets"):
            admin.create_topic(topic)
        assert signed_java.ask("send", "billing", namesrv, "orders", 10).count("SEND_OK") == 10
        assert "consumed 10" in signed_java.ask("push", "billing", namesrv, "orders", "billing", 10)
        assert "consumed 10" in signed_java.ask("pull", "billing", namesrv, "orders", "billing-pull", 10)
        for user, topic, reason in (
            ("billing", "secrets", "no permission to Pub Topic:secrets"),
            ("billing another-secret", "orders", "is unknown, or the signature was not made"),
            ("nobody", "orders", "is unknown, or the signature was not made"),
            ("", "orders", "the request is not signed"),
        ):
            refused = signed_java.ask("send", user, namesrv, topic, 1)
            assert "CODE: 16" in refused, refused
            assert reason in refused, refused
        assert "SEND_OK" in signed_java.ask("send", "operator", namesrv, "secrets", 1)
        # Refused messages were not stored.
        assert stored(admin, "secrets") == 1
        assert stored(admin, "orders") == 10


def test_signed_go_clients_get_their_permissions(client_of: Callable[[str], InteropClient]) -> None:
    client = client_of("go")
    assert isinstance(client, ProcessClient)
    with of_the_second_kind(Path()) as config, rmqpy.Admin(config) as admin:
        namesrv = address_of(config)
        for topic in ("orders", "secrets"):
            admin.create_topic(topic)
        mine = ("billing", "billing-secret")
        messages = [MessageSpec(str(number).encode()) for number in range(10)]
        client.send(namesrv, "orders", messages, credentials=mine)
        listener = client.listen(namesrv, "orders", "billing", credentials=mine)
        try:
            assert len(listener.wait_for(10, WAIT_S)) == 10
        finally:
            listener.stop()
        for credentials, topic, reason in (
            (mine, "secrets", "no permission to Pub Topic:secrets"),
            (("billing", "wrong"), "orders", "signature was not made"),
            (None, "orders", "not signed"),
        ):
            with pytest.raises(RuntimeError, match=reason):
                client.send(namesrv, topic, messages[:1], credentials=credentials)


def test_the_tool_s_commands_for_users_and_policies(originals: Callable[[str], Path], tmp_path: Path) -> None:
    tool = SignedJava(originals("java-5.5.0"), tmp_path)
    try:
        with testing.broker(**ON) as cluster:
            broker = cluster.broker
            for name, command in ACCESS.items():
                words = command.arguments.format(broker=broker).split()
                printed = tool.ask("mqadmin", "root", name, *words, "-n", cluster.namesrv)
                for pattern in command.expected:
                    assert re.search(pattern.format(broker=re.escape(broker)), printed, re.MULTILINE), (
                        name,
                        printed,
                    )
                assert "secret" not in printed
                refused = tool.ask("mqadmin", "nobody", name, *words, "-n", cluster.namesrv)
                assert "CODE: 16" in refused, (name, refused)
    finally:
        tool.close()


def test_the_tool_of_4_9_changes_accounts(originals: Callable[[str], Path], tmp_path: Path) -> None:
    tool = SignedJava(originals("java-4.9.8"), tmp_path)
    try:
        with of_the_first_kind(tmp_path) as config, rmqpy.Admin(config) as admin:
            (broker,) = {part.address for part in admin.brokers()}
            admin.create_topic("orders")
            file = tmp_path / "conf" / "plain_acl.yml"
            name_servers = ("-n", address_of(config))

            def run(user: str, *words: str) -> str:
                return tool.ask("mqadmin", user, *words, "-b", broker, *name_servers)

            created = ("updateAclConfig", "-a", "another", "-s", "another-secret", "-t", "orders=PUB")
            assert "CODE: 16" in run("billing", *created)
            printed = run("operator", *created)
            assert "success" in printed, printed
            assert "SEND_OK" in tool.ask("send", "another", address_of(config), "orders", 1)
            assert "secret" not in run("operator", "clusterAclConfigVersion")
            assert "another" in file.read_text()
            assert "success" in run("operator", "deleteAclConfig", "-a", "another")
            assert "CODE: 16" in tool.ask("send", "another", address_of(config), "orders", 1)
            assert "success" in run("operator", "updateGlobalWhiteAddr", "-g", "127.0.0.1")
            assert "SEND_OK" in tool.ask("send", "", address_of(config), "orders", 1)
    finally:
        tool.close()
