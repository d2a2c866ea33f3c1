"""`Admin` and `AsyncAdmin` at a real cluster: two forms of the same coroutines."""

import inspect
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import rmqpy
from rmqpy import errors
from rmqpy.testing import Cluster

ROOT = Path(__file__).resolve().parents[2]
#: Methods that only one of the two has: each is opened and closed in its own way.
OWN = {"close"}


def methods(kind: type) -> dict[str, Any]:
    return {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_") and name not in OWN}


def test_both_forms_have_the_same_methods_with_the_same_arguments_and_docstrings() -> None:
    blocking, suspending = methods(rmqpy.Admin), methods(rmqpy.AsyncAdmin)
    assert blocking.keys() == suspending.keys()
    for name in blocking:
        assert inspect.signature(blocking[name]) == inspect.signature(suspending[name])
        assert blocking[name].__doc__ == suspending[name].__doc__
        assert blocking[name].__doc__


def test_topic_is_created_used_and_deleted(cluster: Cluster) -> None:
    with rmqpy.Admin(cluster.namesrv) as admin:
        assert admin.create_topic("life", read_queues=4, write_queues=4, message_type="FIFO") == [
            "broker-a",
            "broker-b",
        ]
        assert "life" in admin.topics()
        assert len(admin.topic("life")) == 8
        settings = admin.topic_settings("life")["broker-a"]
        assert (settings.write_queue_nums, settings.attributes) == (4, {"message.type": "FIFO"})
        admin.update_topic("life", write_queues=2, perm="R")
        settings = admin.topic_settings("life")["broker-b"]
        assert (settings.read_queue_nums, settings.write_queue_nums, settings.perm) == (4, 2, 4)
        # Settings that were not named stay unchanged.
        assert settings.attributes == {"message.type": "FIFO"}
        assert {data.broker_name for data in admin.route("life").queue_datas} == {"broker-a", "broker-b"}
        admin.delete_topic("life")
        with pytest.raises(errors.TopicNotFound):
            admin.topic("life")


def test_a_message_is_found_by_each_of_its_ids_by_key_and_by_time(cluster: Cluster) -> None:
    with rmqpy.Admin(cluster.namesrv) as admin, rmqpy.Producer(cluster.namesrv) as producer:
        admin.create_topic("found")
        sent = producer.send("found", b"body", keys=["A-1", "A-2"], tag="paid")
        producer.send("found", b"other", keys="B-1")
        for message in (
            admin.message(sent.offset_message_id),
            admin.message(sent.message_id, "found"),
            *admin.messages_by_key("found", "A-2"),
        ):
            assert (message.body, message.tag, message.topic) == (b"body", "paid", "found")
            assert message.queue.queue_id == sent.queue.queue_id
            assert message.queue_offset == sent.queue_offset
        now = datetime.now(UTC)
        assert {message.body for message in admin.messages_between("found")} == {b"body", b"other"}
        assert list(admin.messages_between("found", now + timedelta(hours=1))) == []
        assert list(admin.messages_between("found", None, now - timedelta(hours=1))) == []
        assert admin.messages_by_key("found", "A-1", begin=now + timedelta(hours=1)) == []
        assert admin.messages_by_key("found", "C-1") == []


def test_keys_with_equal_hashes_are_distinguished(cluster: Cluster) -> None:
    with rmqpy.Admin(cluster.namesrv) as admin, rmqpy.Producer(cluster.namesrv) as producer:
        admin.create_topic("hashed")
        producer.send("hashed", b"body", keys="Aa")
        assert [message.body for message in admin.messages_by_key("hashed", "Aa")] == [b"body"]
        assert admin.messages_by_key("hashed", "BB") == []


def test_missing_message_is_named(cluster: Cluster) -> None:
    host, _, port = cluster.address("broker-a").partition(":")
    place = "".join(f"{int(part):02X}" for part in host.split(".")) + f"{int(port):08X}{1 << 40:016X}"
    with rmqpy.Admin(cluster.namesrv) as admin:
        with pytest.raises(errors.MessageNotFound, match=place):
            admin.message(place)
        with pytest.raises(errors.ConfigError, match="--topic"):
            admin.message("7F0000010000A1B2C3D4000000000001")


def test_brokers_are_listed_including_unreachable_ones(cluster: Cluster) -> None:
    with rmqpy.Admin(rmqpy.ClientConfig(namesrv=cluster.namesrv, request_timeout=30)) as admin:
        states = {state.broker: state for state in admin.brokers()}
        assert set(states) == {"broker-a", "broker-b"}
        assert states["broker-a"].address == cluster.address("broker-a")
        assert states["broker-a"].is_master
        assert states["broker-a"].fault is None
        assert 0 < (states["broker-a"].disk_used or 0) <= 1


def test_settings_are_read_and_changed_while_the_server_runs(cluster: Cluster) -> None:
    with rmqpy.Admin(cluster.namesrv) as admin:
        admin.update_broker_config("broker-b", {"splitMetadataSize": "1000"})
        assert admin.broker_config("broker-b")["splitMetadataSize"] == "1000"
        assert admin.broker_config("broker-a")["splitMetadataSize"] == "2000"
        with pytest.raises(errors.ConfigError, match="with a restart"):
            admin.update_broker_config("broker-b", {"listenPort": "1"})
        with pytest.raises(errors.ConfigError, match="broker-a, broker-b"):
            admin.broker_config("broker-c")
        admin.update_namesrv_config({"orderMessageEnable": "true"})
        assert {each["orderMessageEnable"] for each in admin.namesrv_config().values()} == {"true"}
        admin.update_namesrv_config({"orderMessageEnable": "false"})


@pytest.mark.parametrize(
    ("server", "misspelt", "meant"),
    [
        ("broker-a", "brokerPermision", "brokerPermission"),
        ("namesrv", "orderMessageEnabl", "orderMessageEnable"),
    ],
)
def test_misspelt_setting_is_refused(run: Any, server: str, misspelt: str, meant: str) -> None:
    code, out, told = run("config", "set", server, f"{misspelt}=6")
    assert (code, out) == (2, None)
    assert f"has no setting {misspelt}; did you mean {meant}?" in told
    assert run("config", "set", server, "quite=other")[0] == 2


def test_clients_are_listed_with_role_and_group(cluster: Cluster) -> None:
    with (
        rmqpy.Admin(cluster.namesrv) as admin,
        rmqpy.PullConsumer("listed", cluster.namesrv) as consumer,
    ):
        admin.create_topic("listened")
        consumer.subscribe("listened")
        consumer.poll(0)
        [client] = admin.clients("listed")
        assert (client.role, client.group) == ("consumer", "listed")
        assert (client.language, client.release) == ("PYTHON", "5.5.0")
        assert client.brokers == ("broker-a", "broker-b")
        assert client in admin.clients()


async def test_async_admin_does_the_same(cluster: Cluster) -> None:
    async with rmqpy.AsyncAdmin(cluster.namesrv) as admin:
        await admin.create_topic("looped")
        assert "looped" in await admin.topics()
        assert [message async for message in admin.messages_between("looped")] == []
        assert all(check.level != "bad" for check in await admin.health(disk_free_min=0))
    with pytest.raises(errors.ClosedError):
        admin.topics()


def test_advertised_addresses_can_be_replaced(cluster: Cluster) -> None:
    moved = {cluster.address("broker-a"): "127.0.0.1:1"}
    with rmqpy.Admin(rmqpy.ClientConfig(namesrv=cluster.namesrv, address_map=moved)) as admin:
        faults = {state.broker: state.fault for state in admin.brokers()}
    assert faults["broker-b"] is None
    assert "127.0.0.1:1" in (faults["broker-a"] or "")


def test_type_checkers_know_both_forms_of_an_operation(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        """
from collections.abc import AsyncIterator, Iterator
from typing import assert_type

from rmqpy import Admin, AsyncAdmin, ReceivedMessage


def blocking(admin: Admin) -> None:
    assert_type(admin.topics(with_system=True), list[str])
    assert_type(admin.tail("orders", 3, follow=True), Iterator[ReceivedMessage])
    admin.topics(all=True)  # type: ignore[call-arg]


async def awaited(admin: AsyncAdmin) -> None:
    assert_type(await admin.topics(with_system=True), list[str])
    assert_type(admin.tail("orders", 3, follow=True), AsyncIterator[ReceivedMessage])
    await admin.create_topic("orders", perm="X")  # type: ignore[arg-type]
"""
    )
    mypy = [sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores", str(program)]
    done = subprocess.run(mypy, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout
