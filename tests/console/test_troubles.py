"""Troubles that the status strip has to name, each made with real servers."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import certificates
import rmqpy
from apiclient import Ask, api_of
from brokerprocess import broker_process
from rmqpy.config.client import ClientConfig
from rmqpy.config.controller import ControllerConfig
from rmqpy.console.dashboard import Dashboard
from rmqpy.controller import ControllerServer
from rmqpy.server import Standalone, Thread
from rmqpy.testing import SMALL, Cluster, broker
from waiting import until


@contextmanager
def console(config: ClientConfig) -> Iterator[Ask]:
    thread = Thread(dashboard := Dashboard(config, port=0))
    thread.start()
    try:
        yield api_of(dashboard.address)
    finally:
        thread.stop()


def items(ask: Ask, check: str) -> list[Any]:
    return [each for each in ask("/status").json["items"] if each["check"] == check]


def test_pending_messages_without_a_member_are_a_warning_that_leads_to_the_group() -> None:
    with broker(httpPort=0) as server, rmqpy.Admin(server.namesrv) as admin:
        ask = api_of(server.http)
        admin.create_topic("orders", read_queues=1, write_queues=1)
        admin.create_group("billing")
        with rmqpy.Producer(server.namesrv) as producer:
            for _ in range(3):
                producer.send("orders", b"hello")
        assert items(ask, "group billing") == []
        with rmqpy.PullConsumer("billing", server.namesrv, start_from="earliest") as consumer:
            consumer.commit(dict.fromkeys(consumer.queues("orders"), 1))
        [found] = until(lambda: items(ask, "group billing"))
        assert found["level"] == "warn"
        assert found["found"] == "2 messages are pending and no member is online"
        assert found["steps"] == [{"kind": "group", "name": "billing", "broker_id": 0}]
        assert ask("/status").json["level"] == "warn"


def test_new_dead_letters_are_a_warning_that_leads_to_them_until_they_are_sent_again() -> None:
    def refuse(message: rmqpy.ReceivedMessage) -> None:
        raise ValueError("no such customer")

    with broker(httpPort=0) as server:
        ask = api_of(server.http)
        consumer = rmqpy.PushConsumer("billing", server.namesrv, start_from="earliest", max_attempts=1)
        consumer.on("orders", handler=refuse)
        with rmqpy.Admin(server.namesrv) as admin, rmqpy.Producer(server.namesrv) as producer:
            admin.create_topic("orders", read_queues=1, write_queues=1)
            with consumer:
                producer.send("orders", b"poison")
                [found] = until(lambda: items(ask, "dead letters of billing"))
            [(queue, letter)] = list(admin.dlq("billing"))
            admin.resend("billing", queue, letter)
            # The letter stays where it is.
            until(lambda: items(ask, "dead letters of billing"), wanted=lambda found: found == [])
    assert found["found"].startswith("1 message was given up after its last attempt, the newest at 20")
    assert "rmqpy dlq list billing" in found["advice"]
    assert found["steps"] == [{"kind": "dead-letters", "name": "billing", "broker_id": 0}]


def test_silent_slave_has_its_lag_as_the_master_knows_it(tmp_path: Path) -> None:
    as_slave = {"brokerRole": "SLAVE", "brokerId": "1"}
    with (
        Cluster(brokers=[]) as cluster,
        broker_process(cluster.namesrv, tmp_path / "master", "broker-a"),
        broker_process(cluster.namesrv, tmp_path / "slave", "broker-a", **as_slave) as slave,
        rmqpy.Admin(cluster.namesrv) as admin,
        rmqpy.Producer(cluster.namesrv, retries=10) as producer,
        console(ClientConfig(namesrv=cluster.namesrv, request_timeout=1)) as ask,
    ):
        until(lambda: any(each.in_sync for each in admin.replicas("broker-a")))
        admin.create_topic("orders", read_queues=1, write_queues=1)
        producer.send("orders", b"before")
        until(lambda: not any(each.behind_bytes for each in admin.replicas("broker-a")))
        with slave.silent():
            producer.send("orders", bytes(range(256)) * 16)
            [found] = until(lambda: items(ask, "slave 1 of broker-a"))
            assert found["level"] == "bad"
            behind = re.fullmatch(
                r"does not answer at (\S+), silent for \d+ s, at least (\d+) bytes behind its master",
                found["found"],
            )
            assert behind is not None
            assert 0 < int(behind[2]) < 10_000
            [row] = [each for each in ask("/replicas").json["rows"] if each["broker_id"] == 1]
            assert (row["address"], row["in_sync"]) == (behind[1], False)
            assert 0 < row["behind_bytes"] < 10_000
            assert row["fault"].startswith("does not answer at")
            assert found["steps"] == [{"kind": "replicas", "name": "broker-a", "broker_id": 0}]


def test_paused_slave_is_one_problem_whose_lag_is_known_without_a_connection(tmp_path: Path) -> None:
    soon = {"haHousekeepingInterval": "2000", "haSendHeartbeatInterval": "500"}
    as_slave = {"brokerRole": "SLAVE", "brokerId": "1", **soon}
    with (
        Cluster(brokers=[]) as cluster,
        broker_process(cluster.namesrv, tmp_path / "master", "broker-a", **soon),
        broker_process(cluster.namesrv, tmp_path / "slave", "broker-a", **as_slave) as slave,
        rmqpy.Admin(cluster.namesrv) as admin,
        rmqpy.Producer(cluster.namesrv, retries=10) as producer,
        console(ClientConfig(namesrv=cluster.namesrv, request_timeout=1)) as ask,
    ):
        until(lambda: any(each.in_sync for each in admin.replicas("broker-a")))
        admin.create_topic("orders", read_queues=1, write_queues=1)
        producer.send("orders", b"before")
        until(lambda: not any(each.behind_bytes for each in admin.replicas("broker-a")))
        with slave.silent():
            producer.send("orders", bytes(range(256)) * 16)
            # The master has closed the connection.
            [found] = until(
                lambda: ask("/status").json["items"],
                wanted=lambda found: len(found) == 1 and "0 of 1 slaves are connected" in found[0]["found"],
            )
            assert found["check"] == "slave 1 of broker-a"
            assert re.search(r"silent for \d+ s, at least \d+ bytes behind its master", found["found"])
            [row] = [each for each in ask("/replicas").json["rows"] if each["broker_id"] == 1]
            assert row["silent_seconds"] >= 1
            assert 0 < row["behind_bytes"] < 10_000


def test_both_brokers_of_one_name_have_rows_that_name_them(tmp_path: Path) -> None:
    with (
        Cluster(brokers=[]) as cluster,
        broker_process(cluster.namesrv, tmp_path / "one", "broker-a") as first,
        ExitStack() as running,
        console(ClientConfig(namesrv=cluster.namesrv)) as ask,
    ):
        # A broker does not start while another one of its name answers.
        with first.silent():
            running.enter_context(broker_process(cluster.namesrv, tmp_path / "two", "broker-a"))
        [found] = until(lambda: items(ask, "broker broker-a"))
        addresses = re.findall(r"127\.0\.0\.1:\d+", found["found"])
        for path in ("/brokers", "/replicas"):
            rows = until(lambda path=path: ask(path).json["rows"], wanted=lambda rows: len(rows) == 2)
            assert sorted(row["address"] for row in rows) == sorted(addresses)
            for row in rows:
                assert all(address in row["fault"] for address in addresses), row


def test_expired_certificate_is_named_in_place_of_the_connection_that_fails(tmp_path: Path) -> None:
    authority = certificates.Authority(tmp_path / "authority")
    files = authority.issue()
    given = {**SMALL, **certificates.settings(files)}
    with Standalone(tmp_path / "data", namesrv_port=0, broker_port=0, **given) as server:
        certificates.replace(files, authority.issue("expired-", days=0))
        address = server.namesrv
        certificates.wait_until_shown(files.cert, address)
        with console(ClientConfig(namesrv=address, tls=rmqpy.TLS(ca=files.ca))) as ask:
            told = ask("/status").json
    [found] = told["items"]
    assert (found["check"], told["level"]) == (f"certificate of {address}", "bad")
    assert found["found"].startswith("has expired, ")
    assert "replace the file of tls.server.certPath" in found["advice"]
    assert found["steps"] == [], "no page has anything to show"


def test_certificate_that_expires_soon_is_named_by_a_console_without_tls(tmp_path: Path) -> None:
    files = certificates.write(tmp_path / "certificates", days=2)
    given = {**SMALL, **certificates.settings(files, tls_server_mode="permissive")}
    with (
        Standalone(tmp_path / "data", namesrv_port=0, broker_port=0, **given) as server,
        console(ClientConfig(namesrv=server.namesrv)) as ask,
    ):
        [found] = items(ask, f"certificate of {server.broker}")
    assert (found["level"], found["steps"][0]["kind"]) == ("warn", "brokers")
    assert found["found"].startswith("expires in 2 days, ")


def test_master_whose_lease_has_ended_refuses_messages_and_leads_to_the_controllers(tmp_path: Path) -> None:
    config = ControllerConfig(
        listen_port=0,
        controller_path=str(tmp_path / "controller"),
        store_path=str(tmp_path / "controller.properties"),
    )
    controller = Thread(server := ControllerServer(config))
    controller.start()
    with ExitStack() as running:
        running.callback(controller.stop)
        elected = {"enableControllerMode": True, "controllerAddr": server.address}
        with (
            Cluster(brokers=[]) as cluster,
            broker_process(cluster.namesrv, tmp_path / "one", "broker-a", **elected),
            broker_process(cluster.namesrv, tmp_path / "two", "broker-a", **elected),
            rmqpy.Admin(cluster.namesrv) as admin,
            console(ClientConfig(namesrv=cluster.namesrv)) as ask,
        ):
            until(lambda: sum(each.in_sync for each in admin.elections().replicas) == 2)
            until(lambda: ask("/status").json.get("accepting") == 1)
            running.close()
            [found] = until(lambda: items(ask, "role of broker-a"))
            assert "does not reach its controllers" in found["found"]
            assert found["steps"] == [{"kind": "controllers", "name": "", "broker_id": 0}]
            until(lambda: ask("/status").json["accepting"] == 0)
            assert len(ask("/status").json["items"]) == 1, "the refusal is not repeated"


def test_topic_of_a_broker_without_a_master_is_not_said_to_be_missing(tmp_path: Path) -> None:
    as_slave = {"brokerRole": "SLAVE", "brokerId": "1"}
    with (
        Cluster(brokers=[]) as cluster,
        ExitStack() as running,
        broker_process(cluster.namesrv, tmp_path / "slave", "broker-a", **as_slave),
        console(ClientConfig(namesrv=cluster.namesrv)) as ask,
        rmqpy.Admin(cluster.namesrv) as admin,
    ):
        running.enter_context(broker_process(cluster.namesrv, tmp_path / "master", "broker-a"))
        until(lambda: any(each.in_sync for each in admin.replicas("broker-a")))
        admin.create_topic("orders", read_queues=1, write_queues=1)
        running.close()
        until(lambda: items(ask, "master of broker-a"))
        found = ask("/topics/orders")
    assert found.status == 404
    assert "may exist: broker-a has no master" in found.json["error"]
    assert "topic create" not in found.json["hint"]
