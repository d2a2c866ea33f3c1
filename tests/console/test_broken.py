"""The console of an impaired cluster: available data is shown, and missing data is named."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import rmqpy
from apiclient import Ask, api_of
from brokerprocess import broker_process
from rmqpy.config.client import ClientConfig
from rmqpy.console.dashboard import Dashboard
from rmqpy.server import Thread
from rmqpy.testing import Cluster

#: What the console waits for a broker: these tests have one that never answers.
WAIT_S = 1.0
#: What another one waits, if it has to.
LONG_S = 10.0
LISTS = ("/topics", "/groups", "/dead-letters", "/timers", "/schedules", "/clients")


class Impaired(NamedTuple):
    ask: Ask
    namesrv: str


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Impaired]:
    """A cluster of two brokers, of which one is as a machine that was suspended, and of two name servers, of which one
    has ended."""
    folder: Path = tmp_path_factory.mktemp("broken")
    with Cluster(name_servers=2) as cluster, broker_process(cluster.namesrv, folder, "broker-b") as other:
        with rmqpy.Admin(cluster.namesrv) as admin:
            while len(admin.brokers()) < 2:
                pass
            admin.create_topic("orders")
            admin.create_group("billing")
        with rmqpy.Producer(cluster.namesrv) as producer:
            for _ in range(16):
                producer.send("orders", b"hello")
        cluster.stop("name-server-1")
        config = ClientConfig(namesrv=cluster.namesrv, request_timeout=WAIT_S, connect_timeout=WAIT_S)
        thread = Thread(dashboard := Dashboard(config, port=0))
        thread.start()
        try:
            with other.silent():
                yield Impaired(api_of(dashboard.address), cluster.namesrv)
        finally:
            thread.stop()


@pytest.mark.parametrize("path", LISTS)
def test_list_has_available_data_and_names_the_missing_broker(broken: Impaired, path: str) -> None:
    answer = broken.ask(path)
    assert answer.status == 200, answer.text
    (missing,) = answer.json["missing"]
    assert missing["broker"] == "broker-b"
    assert "did not answer in time" in missing["fault"]
    shown = {row.get("name") or row.get("group") for row in answer.json["rows"]}
    assert {"/topics": "orders", "/groups": "billing"}.get(path) in {None, *shown}


def test_overview_counts_available_data_and_names_the_missing(broken: Impaired) -> None:
    told = broken.ask("/overview").json
    assert [each["broker"] for each in told["missing"]] == ["broker-b"]
    assert (told["topics"] > 0, told["groups"]) == (True, 1)
    faults = {each["broker"]: each["fault"] for each in told["brokers"]}
    assert faults["broker-a"] is None
    assert "did not answer in time" in faults["broker-b"]


@pytest.mark.parametrize(("path", "part"), [("/topics/orders", "queues"), ("/groups/billing", "settings")])
def test_topic_and_group_pages_show_available_data(broken: Impaired, path: str, part: str) -> None:
    answer = broken.ask(path)
    assert answer.status == 200, answer.text
    assert {each["broker"] for each in answer.json["missing"]} == {"broker-b"}
    assert "broker-a" in str(answer.json[part])
    assert "broker-b" not in str(answer.json[part])


@pytest.mark.parametrize("path", ["/overview", "/health", "/topics/orders", "/groups/billing"])
def test_silent_broker_does_not_delay_lists(broken: Impaired, path: str) -> None:
    config = ClientConfig(namesrv=broken.namesrv, request_timeout=LONG_S)
    thread = Thread(dashboard := Dashboard(config, port=0))
    thread.start()
    try:
        ask = api_of(dashboard.address)
        began = time.monotonic()
        answer = ask(path)
        took = time.monotonic() - began
    finally:
        thread.stop()
    assert "did not answer in time" in answer.text
    assert took < LONG_S / 2


def test_checks_name_each_unreachable_server_with_advice(broken: Impaired) -> None:
    wrong = [each for each in broken.ask("/health").json if each["level"] == "bad"]
    assert any(each["check"].startswith("broker broker-b") and each["advice"] for each in wrong)
    assert any(each["check"].startswith("name server") and "start it" in each["advice"] for each in wrong)


def test_unreachable_broker_is_an_error_outside_the_console(broken: Impaired) -> None:
    config = ClientConfig(namesrv=broken.namesrv, request_timeout=WAIT_S, connect_timeout=WAIT_S)
    with rmqpy.Admin(config) as admin, pytest.raises(rmqpy.errors.RequestTimeout):
        admin.group_summaries()
