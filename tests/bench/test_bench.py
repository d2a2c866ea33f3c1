"""The load generator: its counts equal the broker's, it reports a missed schedule, and errors are clear."""

import json
import socket
import threading
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import rmqpy
from commandline import Run, runner
from rmqpy import cli
from rmqpy._native import Load
from rmqpy.load import machine
from rmqpy.load.plan import LoadPlan
from rmqpy.server import Standalone
from rmqpy.testing import SMALL

Result = dict[str, Any]


@pytest.fixture
def run(server: Standalone, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """`run("produce", ...)`: exit code, stdout, stderr of `rmqpy bench`."""
    return runner(server.namesrv, monkeypatch, capfd, "bench")


@pytest.fixture
def measure(run: Any) -> Any:
    """`measure("produce", ...)`: the result of `rmqpy bench` as it is printed for programs."""

    def measure(*arguments: str) -> Result:
        code, out, err = run(*arguments, "-o", "json")
        assert code == 0, err
        result: Result = json.loads(out)
        return result

    return measure


@pytest.fixture
def held(run: Any, capfd: pytest.CaptureFixture[str]) -> Any:
    """`held(topic)` returns the number of messages that the broker holds in each queue."""

    def held(topic: str) -> list[int]:
        assert cli.run(["topic", "describe", topic, "-o", "json"]) == 0
        return [queue["messages"] for queue in json.loads(capfd.readouterr().out)]

    return held


def read(server: Standalone, topic: str, count: int) -> list[rmqpy.ReceivedMessage]:
    """The first `count` messages of a topic."""
    found: list[rmqpy.ReceivedMessage] = []
    with rmqpy.PullConsumer("check", server.namesrv, start_from="earliest") as consumer:
        consumer.assign(consumer.queues(topic))
        while len(found) < count and (messages := consumer.poll(timeout=30)):
            found += messages
    return found


@pytest.mark.parametrize("header", ["json", "binary"])
def test_report_counts_what_the_broker_holds(
    measure: Any, held: Any, server: Standalone, header: str
) -> None:
    topic = f"counted-{header}"
    result = measure(
        "produce", topic, "-c", "3", "-w", "7", "--threads", "2", "--count", "1000", "--warm-up", "0",
        "--header", header, "-s", "77",
    )  # fmt: skip
    assert (result["messages"], result["messages_total"], result["requests_total"]) == (1000, 1000, 1000)
    assert (result["bytes"], result["latency_us"]["samples"]) == (77_000, 1000)
    assert (result["refused"], result["unanswered"], result["schedule"]) == ([], 0, None)
    assert sum(held(topic)) == 1000
    assert {len(message.body) for message in read(server, topic, 1000)} == {77}


def test_messages_have_unique_ids_and_spread_over_queues(measure: Any, held: Any, server: Standalone) -> None:
    measure("produce", "ids", "-c", "2", "-w", "4", "--count", "400", "--warm-up", "0", "--queues", "4")
    assert held("ids") == [100] * 4
    assert len({message.message_id for message in read(server, "ids", 400)}) == 400


@pytest.mark.parametrize("header", ["json", "binary"])
def test_a_transaction_counts_when_it_is_committed(
    measure: Any, held: Any, server: Standalone, header: str
) -> None:
    topic = f"transactions-{header}"
    result = measure(
        "transaction", topic, "-c", "3", "-w", "7", "--threads", "2", "--count", "500", "--warm-up", "0",
        "--header", header, "-s", "77",
    )  # fmt: skip
    assert (result["messages"], result["messages_total"], result["requests_total"]) == (500, 500, 500)
    assert (result["bytes"], result["latency_us"]["samples"]) == (38_500, 500)
    assert (result["refused"], result["unanswered"]) == ([], 0)
    assert sum(held(topic)) == 500
    assert len({message.message_id for message in read(server, topic, 500)}) == 500


@pytest.mark.parametrize("header", ["json", "binary"])
def test_authorized_load_works_with_tls_and_access_control(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], header: str
) -> None:
    guarded = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": json.dumps({"username": "root", "password": "root-secret"}),
        "tls.test.mode.enable": "true",
        "tls.server.mode": "enforcing",
    }
    with Standalone(tmp_path, namesrv_port=0, broker_port=0, **SMALL, **guarded) as server:
        run = runner(server.namesrv, monkeypatch, capfd, "bench")
        root = ("--tls-insecure", "--access-key", "root", "--secret-key", "root-secret")
        size = ("-c", "3", "-w", "7", "--count", "400", "--warm-up", "0", "--header", header, "-o", "json")
        # Several messages in one record of TLS, one message in several records, and answers of many records.
        for work in (
            ("produce", "orders", "--batch", "4", "-s", "20000"),
            ("produce", "orders"),
            ("transaction", "orders"),
            ("consume", "orders"),
        ):
            code, out, err = run(*work, *root, *size)
            assert code == 0, err
            result: Result = json.loads(out)
            assert (result["refused"], result["unanswered"]) == ([], 0)
            assert result["messages"] >= 400
        code, _, err = run("produce", "orders", *root[:3], "--secret-key", "another", *size)
        assert code != 0
        assert "root" in err
        code, _, err = run("produce", "orders", *root[1:], *size)
        assert code != 0
        assert "TLS" in err


def test_a_burst_of_timed_messages_is_accepted_and_then_seen_delivered(
    measure: Any, run: Any, server: Standalone
) -> None:
    result = measure("timer", "burst", "-c", "2", "-w", "16", "--count", "300", "-s", "77", "--lead", "2")
    assert (result["messages"], result["delivery"]["messages"]) == (300, 300)
    assert 0 < result["delivery"]["first_s"] <= result["delivery"]["last_s"]
    due_ms = result["command"]["due_ms"]
    for message in read(server, "burst", 300):
        assert due_ms <= int(message.properties["TIMER_DELIVER_MS"]) < due_ms + 1_000
        assert message.stored_at.timestamp() * 1_000 >= int(message.properties["TIMER_DELIVER_MS"])
    code, _, told = run(
        "timer", "burst", "-c", "1", "-w", "1", "--rate", "20", "--count", "100", "--lead", "1"
    )
    assert code != 0
    assert "--lead" in told


def test_a_batch_counts_as_the_messages_in_it(measure: Any, held: Any) -> None:
    result = measure(
        "produce", "batches", "-c", "2", "-w", "2", "--batch", "32", "--count", "320", "--warm-up", "0"
    )
    assert (result["messages"], result["requests_total"], result["latency_us"]["samples"]) == (320, 10, 10)
    assert sum(held("batches")) == 320


def test_a_timed_load_measures_its_interval_and_counts_the_rest_apart(measure: Any, held: Any) -> None:
    result = measure("produce", "timed", "-c", "1", "-w", "1", "-d", "0.3", "--warm-up", "0.2")
    assert result["interval_s"] == pytest.approx(0.3)
    assert 0 < result["messages"] < result["messages_total"] == result["requests_total"]
    assert sum(held("timed")) == result["messages_total"]
    latency = result["latency_us"]
    assert 0 < latency["min"] <= latency["p50"] <= latency["p99"] <= latency["max"]


@pytest.mark.parametrize("header", ["json", "binary"])
def test_pulls_count_messages_and_start_again_at_the_end(measure: Any, header: str) -> None:
    measure("produce", "pulled", "-w", "16", "--count", "512", "--warm-up", "0")
    result = measure(
        "consume", "pulled", "-c", "2", "-w", "1", "--count", "2000", "--warm-up", "0", "--header", header
    )
    # The last reply of each connection may bring more than was wanted.
    assert 2000 <= result["messages"] <= 2000 + 2 * 32
    assert result["empty_pulls"] > 0
    assert result["refused"] == []


def test_open_loop_sends_only_due_messages(measure: Any, held: Any) -> None:
    result = measure(
        "latency", "open", "--rate", "500", "-d", "0.6", "--warm-up", "0.2", "-c", "3", "--threads", "2"
    )
    assert (result["messages_total"], result["messages"]) == (400, 300)
    assert result["schedule"]["rate"] == 500
    assert result["schedule"]["unsent"] == 0
    assert sum(held("open")) == 400


class Slow(threading.Thread):
    """A relay to a broker that holds every answer back for a while."""

    def __init__(self, address: str, hold_s: float) -> None:
        super().__init__(daemon=True)
        self.hold_s = hold_s
        host, _, port = address.rpartition(":")
        self.broker = socket.create_connection((host, int(port)))
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.stopped = threading.Event()
        self.start()

    def run(self) -> None:
        peer, _ = self.listener.accept()
        with peer, self.broker:
            threading.Thread(target=self._pass_on, args=(peer,), daemon=True).start()
            while answers := self.broker.recv(1 << 16):
                self.stopped.wait(self.hold_s)
                peer.sendall(answers)

    def _pass_on(self, peer: socket.socket) -> None:
        while asked := peer.recv(1 << 16):
            self.broker.sendall(asked)
        self.broker.shutdown(socket.SHUT_WR)


def test_a_schedule_that_is_missed_is_reported_and_charged_to_the_latency(server: Standalone) -> None:
    # One request at a time, each answered after 50 ms, 100 due each second: four of five wait for those before.
    with rmqpy.Producer(server.namesrv) as producer:
        producer.send("missed", b"x")
    relay = Slow(server.broker, 0.05)
    load = Load(
        LoadPlan(
            "produce",
            "missed",
            "g",
            [(relay.address, "broker-a", [(0, 0)])],
            rate=100,
            duration_s=1.0,
            timeout=5,
        )
    )
    assert load.wait(30)
    result = json.loads(load.report() or "")
    relay.stopped.set()
    schedule, latency = result["schedule"], result["latency_us"]
    assert schedule["late"] > 0
    assert schedule["unsent"] > 50
    assert schedule["lag_max_us"] > 100_000
    # Every message due is counted once, those never sent with the time they have waited.
    assert latency["samples"] == 100
    assert latency["p99"] > 500_000


def test_a_broker_that_does_not_answer_ends_the_load() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        load = Load(LoadPlan("produce", "t", "g", [(address, "b", [(0, 0)])], timeout=0.3))
        assert load.wait(30)
        with pytest.raises(rmqpy.errors.RequestTimeout, match=address):
            load.report()


def test_a_connection_that_breaks_ends_the_load() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        load = Load(LoadPlan("produce", "t", "g", [(address, "b", [(0, 0)])]))
        server.accept()[0].close()
        assert load.wait(30)
        with pytest.raises(rmqpy.errors.ConnectError, match=address):
            load.report()


def test_without_a_broker_the_command_says_so(run: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    code, out, err = run("produce", "-n", f"127.0.0.1:{port}")
    assert (code, out) == (3, "")
    assert str(port) in err


def test_pulling_from_nowhere_or_from_nothing_is_an_error(run: Any) -> None:
    code, _, err = run("consume", "nowhere")
    assert code == 4
    assert "nowhere" in err
    assert cli.run(["topic", "create", "nothing"]) == 0
    code, _, err = run("consume", "nothing")
    assert code == 2
    assert "rmqpy bench produce nothing" in err


@pytest.mark.parametrize(
    "settings",
    [
        {"connections": 0},
        {"window": 0},
        {"rate": 0.0},
        {"body_bytes": 0},
        {"messages_each": 0},
        {"duration_s": 0.0},
    ],
)
def test_settings_out_of_bounds_are_refused_before_anything_is_sent(settings: dict[str, Any]) -> None:
    with pytest.raises(rmqpy.errors.ConfigError):
        Load(LoadPlan("produce", "t", "g", [("127.0.0.1:1", "b", [(0, 0)])], **settings))


def test_refusals_are_counted_with_what_the_broker_said(server: Standalone) -> None:
    load = Load(
        LoadPlan(
            "consume",
            "no-such-topic",
            "g",
            [(server.broker, "b", [(0, 0)])],
            duration_s=0.2,
            messages_each=32,
        )
    )
    assert load.wait(30)
    (refused,) = json.loads(load.report() or "")["refused"]
    assert refused["code"] == 17
    assert "no-such-topic" in refused["remark"]


def test_people_get_a_table_and_a_drawing(run: Any, tmp_path: Path) -> None:
    plot = tmp_path / "latency.svg"
    code, out, _ = run("produce", "shown", "-d", "0.2", "--warm-up", "0", "--plot", str(plot))
    assert code == 0
    for row in ("throughput", "latency", "broker", "processors"):
        assert row in out
    drawing = ElementTree.parse(plot).getroot()
    assert drawing.find("{http://www.w3.org/2000/svg}polyline") is not None


def test_the_process_behind_a_port_is_found(server: Standalone) -> None:
    import os

    assert machine.listener(server.broker) == os.getpid()
    assert machine.listener("192.0.2.1:1") is None
    assert (machine.private_bytes(os.getpid()) or 0) > 1 << 20
