"""Name server and broker in one process, as a library and as a command."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from rmqpy import errors
from rmqpy.client.producer.producer import Producer
from rmqpy.client.pull.consumer import PullConsumer
from rmqpy.config.keys import HTTP_PORT
from rmqpy.message import MessageQueue
from rmqpy.server import Standalone
from rmqpy.testing import SMALL, Cluster, broker
from waiting import until

READY = re.compile(r"name server (?P<namesrv>\S+), broker (?P<broker>\S+), data in (?P<data>\S+)")


def can_connect(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError:
        return False
    return True


def queues_of(consumer: PullConsumer, topic: str) -> list[MessageQueue]:
    """The topic's queues, as soon as the name servers have heard of it: that is after its first send is answered."""
    return until(lambda: consumer.queues(topic), failing=errors.TopicNotFound)


def bodies(namesrv: str, topic: str) -> list[str]:
    """Every message of a topic, by broker, queue and offset."""
    with PullConsumer("reader", namesrv, auto_commit=False) as consumer:
        queues = queues_of(consumer, topic)
        consumer.assign(queues)
        for queue in queues:
            consumer.seek(queue, "begin")
        ends = {queue: consumer.offsets(queue)[1] for queue in queues}
        messages = []
        while any(consumer.position(queue) < end for queue, end in ends.items()):
            messages += consumer.poll(timeout=1)
    return [each.text() for each in sorted(messages, key=lambda each: (each.queue, each.queue_offset))]


def test_a_server_serves_while_entered_and_leaves_nothing_behind(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with Standalone(tmp_path, namesrv_port=0, broker_port=0, **SMALL) as server:
        namesrv, address = server.namesrv, server.broker
        assert can_connect(namesrv)
        assert can_connect(address)
    assert not can_connect(namesrv)
    assert not can_connect(address)
    assert set(threading.enumerate()) <= before
    assert not (tmp_path / "store" / "abort").exists()


async def test_a_server_runs_on_the_loop_that_enters_it(tmp_path: Path) -> None:
    async with Standalone(tmp_path, namesrv_port=0, broker_port=0, **SMALL) as server:
        assert can_connect(server.namesrv)
        assert can_connect(server.broker)


def test_stopped_server_says_that_it_is_not_running(tmp_path: Path) -> None:
    with pytest.raises(errors.ClosedError, match="enter it first"):
        _ = Standalone(tmp_path).namesrv


def test_two_servers_cannot_share_a_folder(tmp_path: Path) -> None:
    with Standalone(tmp_path, namesrv_port=0, broker_port=0, **SMALL) as first:
        with (
            pytest.raises(errors.StoreError, match="lock"),
            Standalone(tmp_path, namesrv_port=0, broker_port=0, **SMALL),
        ):
            pass
        with Producer(first.namesrv) as producer:
            assert producer.send("orders", "still served").ok


def test_port_in_use_is_an_error_and_releases_the_folder(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            pytest.raises(OSError, match="in use"),
            Standalone(tmp_path, namesrv_port=0, broker_port=port, **SMALL),
        ):
            pass
    with Standalone(tmp_path, namesrv_port=0, broker_port=0, **SMALL) as server:
        assert can_connect(server.broker)


def test_messages_survive_a_restart(tmp_path: Path) -> None:
    for text in ("first", "second"):
        with (
            Standalone(tmp_path, namesrv_port=0, broker_port=0, **SMALL) as server,
            Producer(server.namesrv) as producer,
        ):
            producer.send("orders", text)
            sent = bodies(server.namesrv, "orders")
    assert sorted(sent) == ["first", "second"]


@contextmanager
def standalone(folder: Path, *settings: str) -> Iterator[tuple[subprocess.Popen[str], re.Match[str]]]:
    """`rmqpy standalone` in a process of its own, ready."""
    command = [sys.executable, "-m", "rmqpy", "standalone", "--data-dir", str(folder), "--namesrv-port", "0"]
    small = [f"{name}={value}" for name, value in SMALL.items()]
    process = subprocess.Popen(
        [*command, "--broker-port", "0", *small, *settings],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        ready = READY.search(line)
        assert ready is not None, line + process.communicate(timeout=30)[1]
        yield process, ready
    finally:
        process.kill()
        process.communicate(timeout=30)


def run_rmqpy(*arguments: str, namesrv: str) -> subprocess.CompletedProcess[str]:
    """One command of the command line against a name server."""
    return subprocess.run(
        [sys.executable, "-m", "rmqpy", *arguments],
        env=os.environ | {"NAMESRV_ADDR": namesrv},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_command_prints_its_addresses_and_ends_on_a_signal(tmp_path: Path) -> None:
    with standalone(tmp_path) as (process, ready):
        assert can_connect(ready["namesrv"])
        assert can_connect(ready["broker"])
        assert ready["data"] == str(tmp_path)
        assert (tmp_path / "store" / "abort").exists()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0
    assert not (tmp_path / "store" / "abort").exists()


def http_line(folder: Path, *options: str) -> str:
    """What the command says of HTTP, next to where it serves."""
    with standalone(folder, *options) as (process, _):
        assert process.stdout is not None
        return process.stdout.readline().strip()


def test_http_uses_another_port_by_default_if_its_own_is_in_use(tmp_path: Path) -> None:
    with ExitStack() as stack:
        # Taken by this test, or by somebody else on this machine already.
        with suppress(OSError):
            stack.enter_context(socket.create_server(("127.0.0.1", HTTP_PORT)))
        with standalone(tmp_path) as (process, _):
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.fullmatch(r"  console: http://(127.0.0.1:\d+)/ \(port 8082 is taken\)\n", line)
            assert found, line
            assert can_connect(found[1])


@pytest.mark.parametrize("option", ["--no-http", "httpPort=-1", "--host=127.0.0.2"])
def test_http_is_off_without_its_setting(tmp_path: Path, option: str) -> None:
    assert http_line(tmp_path, option).startswith("rmqpy produce")


def test_configured_port_in_use_prevents_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use"), broker(httpPort=port):
            pass


def test_acknowledged_messages_survive_a_kill(tmp_path: Path) -> None:
    with standalone(tmp_path, "flushDiskType=SYNC_FLUSH") as (process, ready):
        sent = run_rmqpy("produce", "orders", "first", namesrv=ready["namesrv"])
        assert sent.returncode == 0, sent.stderr
        process.kill()
        process.wait(timeout=30)
    assert (tmp_path / "store" / "abort").exists()
    with standalone(tmp_path) as (_, ready):
        got = run_rmqpy("consume", "orders", namesrv=ready["namesrv"])
        assert (got.returncode, got.stdout) == (0, "first\n"), got.stderr


def test_start_refuses_unknown_settings(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rmqpy", "standalone", "--data-dir", str(tmp_path), "brokerNmae=b"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert "unknown key brokerNmae: did you mean brokerName?" in ended.stderr


def test_a_broker_for_a_test_is_one_line() -> None:
    with broker() as server, Producer(server.namesrv) as producer:
        assert producer.send("orders", "hello").ok
        folder = server.data_dir
        assert bodies(server.namesrv, "orders") == ["hello"]
    assert not folder.exists()


def test_restarted_cluster_member_keeps_address_and_messages() -> None:
    with Cluster(name_servers=2, brokers=["broker-a", "broker-b"]) as cluster:
        with Producer(cluster.namesrv) as producer:
            for index in range(64):
                producer.send("orders", f"{index}")
        address = cluster.address("broker-a")
        cluster.stop("broker-a")
        assert not can_connect(address)
        assert can_connect(cluster.address("broker-b"))
        cluster.start("broker-a")
        assert can_connect(address)
        assert sorted(map(int, bodies(cluster.namesrv, "orders"))) == list(range(64))
