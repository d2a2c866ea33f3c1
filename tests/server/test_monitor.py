"""Monitoring of a server: metrics for Prometheus, health for its supervisor."""

import asyncio
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import rmqpy
from rmqpy.broker import Broker
from rmqpy.config.broker import read
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.monitor import application
from rmqpy.monitor.application import HEAD_BYTES_MAX
from rmqpy.monitor.exposition import Family, expose, plain
from rmqpy.namesrv import NameServer
from rmqpy.server import Standalone, Thread
from rmqpy.testing import broker

#: One sample: name, labels, value.
SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)\{(.*)\} (\S+)$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"(?:,|$)')


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    folder = tmp_path_factory.mktemp("watched")
    with Standalone(folder, namesrv_port=0, broker_port=0, http_port=0) as server:
        yield server


def get(address: str | None, path: str, method: str = "GET", accept: str = "*/*") -> tuple[int, str, str]:
    """Status, content type and body of a page."""
    assert address is not None
    connection = HTTPConnection(address, timeout=30)
    try:
        connection.request(method, path, headers={"Accept": accept})
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type", ""), answer.read().decode()
    finally:
        connection.close()


def samples(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """The samples by name, with every line checked."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    kinds: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in kinds, "one block for each name"
            kinds[name] = kind
        elif not line.startswith("#"):
            match = SAMPLE.match(line)
            assert match, line
            whole, _, ending = match[1].rpartition("_")
            assert match[1] in kinds or (kinds[whole] == "histogram" and ending in ("bucket", "sum", "count"))
            labels = {name: value.replace('\\"', '"') for name, value in LABEL.findall(match[2])}
            found.setdefault(match[1], []).append((labels, float(match[3])))
    return found


def value(server: Standalone, name: str, **labels: str) -> float:
    """The one sample of this name that has these labels."""
    status, kind, text = get(server.http, "/metrics")
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    [found] = [number for own, number in samples(text).get(name, []) if labels.items() <= own.items()]
    return found


def test_every_sample_names_its_broker(server: Standalone) -> None:
    text = get(server.http, "/metrics")[2]
    for each in samples(text).values():
        for labels, _ in each:
            assert labels["cluster"] == "DefaultCluster"
            assert (labels["node_type"], labels["node_id"]) == ("broker", "broker-a")


def test_lag_counts_unconsumed_messages(server: Standalone) -> None:
    with rmqpy.Admin(server.namesrv) as admin, rmqpy.Producer(server.namesrv) as producer:
        admin.create_topic("orders", read_queues=1, write_queues=1)
        admin.create_group("billing")
        for _ in range(5):
            producer.send("orders", b"x")
    with rmqpy.PullConsumer("billing", server.namesrv, start_from="earliest") as consumer:
        [queue] = consumer.queues("orders")
        consumer.commit({queue: 2})
        group = {"topic": "orders", "consumer_group": "billing", "is_retry": "false", "is_system": "false"}
        assert value(server, "rocketmq_consumer_lag_messages", **group) == 3
        assert 0 <= value(server, "rocketmq_consumer_lag_latency", **group) < 600_000
        consumer.commit({queue: 5})
        assert value(server, "rocketmq_consumer_lag_messages", **group) == 0
        assert value(server, "rocketmq_consumer_lag_latency", **group) == 0


def test_queues_in_which_a_group_has_committed_nothing_count_for_its_lag(server: Standalone) -> None:
    group = {"topic": "wide", "consumer_group": "narrow"}
    with rmqpy.Admin(server.namesrv) as admin, rmqpy.Producer(server.namesrv) as producer:
        admin.create_topic("wide", read_queues=4, write_queues=4)
        admin.create_group("narrow")
        with rmqpy.PullConsumer("narrow", server.namesrv, start_from="earliest") as consumer:
            queues = consumer.queues("wide")
            for queue in queues:
                for _ in range(5):
                    producer.send("wide", b"x", queue=queue)
            consumer.commit({queues[0]: 5, queues[1]: 3})
        assert value(server, "rocketmq_consumer_lag_messages", **group) == 2 + 5 + 5
        assert value(server, "rocketmq_consumer_ready_messages", **group) == 2 + 5 + 5
        assert value(server, "rocketmq_consumer_lag_latency", **group) > 0
        # Queues that producers no longer use must still be consumed.
        admin.update_topic("wide", write_queues=1)
        assert value(server, "rocketmq_consumer_lag_messages", **group) == 12
        [summary] = [each for each in admin.group_summaries() if each.group == "narrow"]
        assert summary.lag == 12
        assert sum(row.lag for row in admin.progress("narrow")) == 12
        assert (
            sum(
                each.end - each.committed
                for each in admin.broker_backlogs("broker-a")
                if each.group == "narrow"
            )
            == 12
        )


def test_popped_messages_are_in_flight_until_they_are_acknowledged(server: Standalone) -> None:
    with (
        rmqpy.Admin(server.namesrv) as admin,
        rmqpy.Producer(server.namesrv) as producer,
        rmqpy.SimpleConsumer("porters", server.namesrv, start_from="earliest") as consumer,
    ):
        admin.create_topic("trunks", read_queues=1, write_queues=1)
        for _ in range(5):
            producer.send("trunks", b"x")
        consumer.subscribe("trunks")
        held = consumer.receive(1, wait=5)
        while len(held) < 3:
            held += consumer.receive(1, wait=5)
        group = {"topic": "trunks", "consumer_group": "porters"}

        def counts() -> list[float]:
            names = ("inflight_messages", "ready_messages", "lag_messages")
            return [value(server, f"rocketmq_consumer_{name}", **group) for name in names]

        assert counts() == [3, 2, 5]
        [row] = [row for row in admin.progress("porters") if row.topic == "trunks"]
        assert (row.in_flight, row.lag) == (3, 2)
        consumer.ack(*held)
        assert counts() == [0, 2, 2]


def test_messages_in_flight_and_waiting_have_separate_metrics(server: Standalone) -> None:
    with rmqpy.Admin(server.namesrv) as admin, rmqpy.Producer(server.namesrv) as producer:
        admin.create_topic("flights", read_queues=1, write_queues=1)
        admin.create_group("pilots")
        for _ in range(5):
            producer.send("flights", b"x")
        with rmqpy.PullConsumer(
            "pilots", server.namesrv, start_from="earliest", auto_commit=False
        ) as consumer:
            [queue] = consumer.queues("flights")
            group = {"topic": "flights", "consumer_group": "pilots"}

            def waiting() -> dict[str, float]:
                names = ("inflight_messages", "ready_messages", "lag_messages", "queueing_latency")
                return {name: value(server, f"rocketmq_consumer_{name}", **group) for name in names}

            consumer.commit({queue: 0})
            before = waiting()
            assert (before["inflight_messages"], before["ready_messages"]) == (0, 5)
            assert before["queueing_latency"] >= 0
            consumer.assign([queue])
            assert consumer.poll(timeout=30)
            given = waiting()
            assert given == {
                "inflight_messages": 5,
                "ready_messages": 0,
                "lag_messages": 5,
                "queueing_latency": 0,
            }
            consumer.commit({queue: 2})
            assert waiting()["inflight_messages"] == 3


def test_answers_are_counted_by_request_and_by_how_long_they_took(server: Standalone) -> None:
    def answers(request: str, **labels: str) -> dict[str, float]:
        found = samples(get(server.http, "/metrics")[2])
        own = {"protocol_type": "remoting", "request_code": request, "result": "success", **labels}
        return {
            each["le"]: number
            for each, number in found["rocketmq_rpc_latency_bucket"]
            if own.items() <= each.items()
        }

    with rmqpy.Admin(server.namesrv) as admin, rmqpy.Producer(server.namesrv) as producer:
        admin.create_topic("quick", read_queues=1, write_queues=1)
        sends = {"response_code": "SUCCESS", "is_long_polling": "false"}
        before = answers("SEND_MESSAGE_V2", **sends).get("+Inf", 0)
        for _ in range(20):
            producer.send("quick", b"x")
        after = answers("SEND_MESSAGE_V2", **sends)
        assert after["+Inf"] == before + 20
        assert {"1.0", "3.0", "5.0", "7.0", "10.0", "100.0", "1000.0", "2000.0", "3000.0"} < set(after)
        below = [le for le in after if le != "+Inf" and float(le) < 1]
        assert (below[0], len(below)) == ("0.001", 9), "most answers take less than a millisecond"
        assert "10000.0" in after
        assert list(after.values()) == sorted(after.values())
        # Requests answered by Python are included, and so are held pulls.
        assert answers("UPDATE_AND_CREATE_TOPIC", response_code="SUCCESS")["+Inf"] >= 1
        with rmqpy.PullConsumer("patient", server.namesrv) as consumer:
            consumer.assign(consumer.queues("quick"))
            deadline = time.monotonic() + 30
            while not answers("PULL_MESSAGE", is_long_polling="true", response_code="SUCCESS"):
                assert time.monotonic() < deadline
                producer.send("quick", b"y")
                consumer.poll(timeout=0.2)


def test_an_answer_that_waits_for_the_disk_is_counted_when_it_leaves() -> None:
    with broker(httpPort=0, flushDiskType="SYNC_FLUSH") as server:
        with rmqpy.Admin(server.namesrv) as admin, rmqpy.Producer(server.namesrv) as producer:
            admin.create_topic("safe")
            for _ in range(3):
                producer.send("safe", b"x")
        sends = {"request_code": "SEND_MESSAGE_V2", "response_code": "SUCCESS"}
        assert value(server, "rocketmq_rpc_latency_count", **sends) == 3


def test_messages_are_counted_by_size(server: Standalone) -> None:
    def sizes() -> list[float]:
        found = samples(get(server.http, "/metrics")[2])["rocketmq_message_size_bucket"]
        return [number for _, number in found]

    before = sizes()
    with rmqpy.Producer(server.namesrv, compress_above=None) as producer:
        for size in (10, 2_000, 5_000, 600_000, 3 << 20):
            producer.send("sizes", b"x" * size)
    assert [now - then for now, then in zip(sizes(), before, strict=True)] == [1, 2, 3, 4, 4, 5, 5]


def test_messages_in_and_out_are_counted_by_topic_and_group(server: Standalone) -> None:
    with rmqpy.Admin(server.namesrv) as admin, rmqpy.Producer(server.namesrv) as producer:
        admin.create_topic("traffic", read_queues=1, write_queues=1, message_type="FIFO")
        for _ in range(5):
            producer.send("traffic", b"x" * 100, sharding_key="customer-7")
    sent = {"topic": "traffic", "message_type": "fifo", "is_system": "false"}
    assert value(server, "rocketmq_messages_in_total", **sent) == 5
    assert 500 < value(server, "rocketmq_throughput_in_total", **sent) < 5_000
    with rmqpy.PullConsumer("reader", server.namesrv, start_from="earliest") as consumer:
        consumer.assign(consumer.queues("traffic"))
        count = 0
        while count < 5:
            count += len(consumer.poll(timeout=30))
    taken = {"topic": "traffic", "consumer_group": "reader", "is_retry": "false"}
    assert value(server, "rocketmq_messages_out_total", **taken) == 5
    assert value(server, "rocketmq_throughput_out_total", **taken) == value(
        server, "rocketmq_throughput_in_total", **sent
    )


def test_connected_clients_are_counted(server: Standalone) -> None:
    with (
        rmqpy.Producer(server.namesrv) as producer,
        rmqpy.PullConsumer("counted", server.namesrv) as consumer,
    ):
        producer.send("counted", b"x")
        consumer.subscribe("counted")
        consumer.poll(0)
        assert value(server, "rocketmq_consumer_connections", consumer_group="counted") == 1


def test_the_counters_of_the_data_plane_are_read_when_they_are_scraped(server: Standalone) -> None:
    before = value(server, "rmqpy_puts_total")
    with rmqpy.Producer(server.namesrv) as producer:
        for _ in range(10):
            producer.send("counters", b"x")
    assert value(server, "rmqpy_puts_total") == before + 10
    assert value(server, "rocketmq_storage_size") > 0
    assert value(server, "rocketmq_storage_dispatch_behind_bytes") == 0
    assert 0 < value(server, "rocketmq_storage_message_reserve_time") < 3_600_000
    assert value(server, "rocketmq_processor_watermark", processor="admin") == 0
    assert value(server, "rocketmq_broker_permission") == 6
    assert value(server, "rocketmq_topic_number") >= 10
    assert value(server, "rmqpy_accepts_messages") == 1
    assert value(server, "process_resident_memory_bytes") > 1 << 20
    assert value(server, "rmqpy_dropped_series") == 0


def test_a_server_that_serves_is_alive_healthy_and_ready(server: Standalone) -> None:
    for path in ("/livez", "/healthz", "/readyz"):
        assert get(server.http, path) == (200, "text/plain; charset=utf-8", "ok\n")


def test_a_broker_that_no_name_server_knows_is_not_ready() -> None:
    with broker(httpPort=0, namesrvAddr="127.0.0.1:1") as server:
        assert get(server.http, "/healthz")[0] == 200
        status, _, text = get(server.http, "/readyz")
        assert status == 503
        assert "no name server knows this broker" in text


async def test_a_broker_that_has_no_name_server_to_register_at_is_ready(tmp_path: Path) -> None:
    settings = {"listenPort": "0", "httpPort": "0", "storePathRootDir": str(tmp_path), "namesrvAddr": ""}
    async with Broker(read(settings).config) as alone:
        assert await asyncio.to_thread(get, alone.http_address, "/readyz") == (
            200,
            "text/plain; charset=utf-8",
            "ok\n",
        )


def test_name_server_has_metrics(tmp_path: Path) -> None:
    with broker() as other:
        server = NameServer(NameServerConfig(listen_port=0, kv_path="", store_path="", http_port=0))
        thread = Thread(server)
        thread.start()
        try:
            found = samples(get(server.http_address, "/metrics")[2])
            assert found["rmqpy_topics"][0][1] == 0
            assert found["rmqpy_topics"][0][0]["node_type"] == "nameserver"
            assert get(server.http_address, "/readyz")[0] == 200
        finally:
            thread.stop()
        assert server.http_address is None
        assert other.http is None


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("GET", "/metrics?x=1", 200, "# HELP"),
        ("GET", "/nowhere", 404, "/metrics\n/livez\n/healthz\n/readyz\n"),
        ("POST", "/metrics", 405, "only GET and HEAD\n"),
    ],
)
def test_other_requests_are_answered_as_http_asks(
    server: Standalone, method: str, path: str, status: int, text: str
) -> None:
    answer = get(server.http, path, method)
    assert answer[0] == status
    assert answer[2].startswith(text)


@pytest.mark.parametrize("said", [b"x" * (2 * HEAD_BYTES_MAX), b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 8_000])
def test_peer_with_an_oversized_request_is_disconnected(
    server: Standalone, said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    assert server.http is not None
    host, port = server.http.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as peer, suppress(ConnectionError):
        peer.sendall(said)
        heard = b"".join(iter(lambda: peer.recv(4096), b""))
        assert heard.startswith(b"HTTP/1.1 400 ")
    assert get(server.http, "/healthz")[0] == 200
    assert not caplog.records


def connected(server: Standalone) -> socket.socket:
    assert server.http is not None
    host, port = server.http.split(":")
    return socket.create_connection((host, int(port)), timeout=30)


def test_silent_peer_is_disconnected(server: Standalone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "PEER_TIMEOUT_S", 0.05)
    with connected(server) as peer, suppress(ConnectionError):
        assert peer.recv(1) == b""
    monkeypatch.undo()
    assert get(server.http, "/healthz")[0] == 200


def test_open_metrics_are_served_on_request(server: Standalone) -> None:
    accept = "text/plain;version=0.0.4;q=0.3,application/openmetrics-text;version=1.0.0;q=0.6"
    status, kind, text = get(server.http, "/metrics", accept=accept)
    assert (status, kind) == (200, "application/openmetrics-text; version=1.0.0; charset=utf-8")
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert text.endswith("# EOF\n")
    assert families["rmqpy_puts"].type == "counter"
    plain_names = samples(get(server.http, "/metrics")[2]).keys()
    assert plain_names == {each.name for family in families.values() for each in family.samples}


def test_running_version_is_a_metric(server: Standalone) -> None:
    assert value(server, "rmqpy_build_info", version=rmqpy.__version__) == 1


UNUSED = """
import http.client, sys, threading
from rmqpy.testing import broker
LATE = {"uvicorn", "starlette", "prometheus_client"}
with broker(httpPort=0) as server:
    names = {each.name for each in threading.enumerate()}
    print(sorted(LATE & set(sys.modules)), "rmqpy-http" in names)
    connection = http.client.HTTPConnection(server.http)
    connection.request("GET", "/metrics")
    print(connection.getresponse().status)
    names = {each.name for each in threading.enumerate()}
    print(sorted(LATE & set(sys.modules)), "rmqpy-http" in names)
print("rmqpy-http" in {each.name for each in threading.enumerate()})
"""


def test_http_server_is_imported_on_the_first_connection() -> None:
    done = subprocess.run([sys.executable, "-c", UNUSED], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "[] False",
        "200",
        "['prometheus_client', 'starlette', 'uvicorn'] True",
        "False",
    ]


def test_a_server_stops_while_a_peer_is_connected() -> None:
    with broker(httpPort=0) as server:
        assert get(server.http, "/healthz")[0] == 200
        peer = connected(server)
    with peer, suppress(ConnectionError):
        assert peer.recv(1) == b""


def test_the_head_of_a_page_has_no_body(server: Standalone) -> None:
    assert server.http is not None
    host, port = server.http.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as peer:
        peer.sendall(b"HEAD /healthz HTTP/1.1\r\nHost: broker\r\n\r\n")
        said = b"".join(iter(lambda: peer.recv(4096), b""))
    assert said.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"content-length: 3\r\n" in said.lower()
    assert said.endswith(b"\r\n\r\n")


def test_labels_are_escaped_and_series_beyond_the_limit_are_counted() -> None:
    hostile = 'a"b\\c\nd'
    families = [plain("up", "gauge", "Up.", 1), Family("lag", "gauge", "Lag.", [({"t": hostile}, 2.5)] * 3)]
    text = expose(families, {"node": "n"}, series_max=3).text
    assert 'lag{node="n",t="a\\"b\\\\c\\nd"} 2.5' in text
    found = samples(text)
    assert len(found["up"]) + len(found["lag"]) == 3
    assert found["rmqpy_dropped_series"] == [({"node": "n"}, 1)]
