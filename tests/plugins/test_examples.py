"""The sample plug-ins, installed as their project installs them."""

import json
import socket
from pathlib import Path

import pytest

import rmqpy
from plugins.installed import install_examples
from rmqpy.errors import BrokerError
from rmqpy.testing import broker
from waiting import until


@pytest.fixture(autouse=True)
def examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in install_examples(tmp_path / "site"):
        monkeypatch.syspath_prepend(folder)


def test_the_sample_plugins_work_together(tmp_path: Path) -> None:
    options = tmp_path / "plugins.toml"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as statsd:
        statsd.bind(("127.0.0.1", 0))
        statsd.settimeout(30)
        options.write_text(
            f'[rates]\nport = {statsd.getsockname()[1]}\n[audit]\nfolder = "{tmp_path}"\n'
            '[team-names]\nteams = ["billing", "shop"]\nqueues_max = 16\n'
        )
        with (
            broker(plugins="audit,rates,team-names", pluginsFile=options) as server,
            rmqpy.Admin(server.namesrv) as admin,
            rmqpy.Producer(server.namesrv) as producer,
        ):
            with pytest.raises(BrokerError, match="its name must begin with one of billing-, shop-"):
                admin.create_topic("orders")
            with pytest.raises(BrokerError, match="17 queues, and 16 are allowed"):
                admin.create_topic("shop-orders", write_queues=17)
            results = [producer.send("shop-orders", b"x", keys=f"order-{number}") for number in range(3)]
            assert statsd.recv(1_000).startswith(b"messages.shop-orders:")
            trail = tmp_path / "audit.jsonl"
            until(lambda: trail.read_text().count("\n") == 3)
    lines = [json.loads(line) for line in trail.read_text().splitlines()]
    assert [line["id"] for line in lines] == [result.message_id for result in results]
    assert [line["keys"] for line in lines] == [["order-0"], ["order-1"], ["order-2"]]


def test_the_audit_trail_has_each_message_once_although_it_is_passed_twice(tmp_path: Path) -> None:
    data = {"data_dir": tmp_path / "data", "namesrv_port": 0, "broker_port": 0, **rmqpy.testing.SMALL}
    options = tmp_path / "plugins.toml"
    options.write_text(f'[audit]\nfolder = "{tmp_path}"\n')
    trail = tmp_path / "audit.jsonl"
    for count in (3, 6):
        with rmqpy.server.Standalone(**data, plugins="audit", pluginsFile=options) as server:
            with rmqpy.Producer(server.namesrv) as producer:
                for _ in range(3):
                    producer.send("orders", b"x")
            until(lambda count=count: trail.read_text().count("\n") == count)
        # As after a kill: the broker's position is lost, and a line is torn.
        [position] = (tmp_path / "data").rglob("audit.json")
        position.write_text('{"position": 0}')
        with trail.open("a") as file:
            file.write('{"position": 99')
    with rmqpy.server.Standalone(**data, plugins="audit", pluginsFile=options) as server:
        with rmqpy.Producer(server.namesrv) as producer:
            last = producer.send("orders", b"x").message_id
        until(lambda: trail.read_text().endswith("\n") and trail.read_text().count("\n") == 7)
    lines = [json.loads(line) for line in trail.read_text().splitlines()]
    assert len({line["position"] for line in lines}) == 7
    assert lines[-1]["id"] == last
