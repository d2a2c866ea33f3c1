"""The link of charts to Prometheus: its setting, and the metrics it names."""

import re
from pathlib import Path

import pytest

import rmqpy
from apiclient import api_of
from rmqpy.config.client import ClientConfig
from rmqpy.console import site
from rmqpy.console.dashboard import Dashboard
from rmqpy.errors import ConfigError
from rmqpy.server import Standalone, Thread
from rmqpy.testing import broker

URL = "http://127.0.0.1:9090"
QUERIES = (Path(site.__file__).parent / "assets" / "prometheus.js").read_text("utf-8")


def test_pages_know_the_configured_address(reading: Standalone) -> None:
    assert api_of(reading.http)("/console/about.json", api=False).json["prometheus"] == ""
    with broker(httpPort=0, prometheusUrl=URL) as server:
        assert api_of(server.http)("/console/about.json", api=False).json["prometheus"] == URL
    thread = Thread(dashboard := Dashboard(ClientConfig(namesrv=reading.namesrv), port=0, prometheus=URL))
    thread.start()
    try:
        assert api_of(dashboard.address)("/console/about.json", api=False).json["prometheus"] == URL
    finally:
        thread.stop()


@pytest.mark.parametrize("wrong", ["127.0.0.1:9090", "javascript:alert(1)", "http://"])
def test_other_addresses_are_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match="is not the URL of Prometheus"):
        Dashboard(ClientConfig(namesrv="127.0.0.1:1"), prometheus=wrong)


def test_visitor_without_a_login_does_not_see_the_address() -> None:
    first = '{"username": "root", "password": "root-secret"}'
    access = {"authenticationEnabled": True, "initAuthenticationUser": first}
    with broker(httpPort=0, prometheusUrl=URL, **access) as server:
        assert api_of(server.http)("/console/about.json", api=False).json["prometheus"] == ""


def test_queries_name_metrics_and_labels_that_brokers_have(changing: Standalone) -> None:
    with rmqpy.Admin(changing.namesrv) as admin, rmqpy.Producer(changing.namesrv) as producer:
        admin.create_topic("seen", read_queues=1, write_queues=1)
        producer.send("seen", b"x")
    with rmqpy.PullConsumer("watchers", changing.namesrv, start_from="earliest") as consumer:
        consumer.subscribe("seen")
        assert consumer.poll(timeout=30)
        consumer.commit()
    text = api_of(changing.http)("/metrics", api=False).text
    named = set(re.findall(r"\b(?:rocketmq|rmqpy)_\w+", QUERIES))
    assert len(named) == 8
    for metric in named:
        assert re.search(rf"^(?:# TYPE )?{metric.removesuffix('_bucket')}\b", text, re.M), metric
    for metric, label in re.findall(r"\b(rocketmq_consumer_\w+|rmqpy_disk\w+)\{(\w+)=", QUERIES):
        assert re.search(rf'^{metric}{{[^}}]*{label}="', text, re.M), (metric, label)
