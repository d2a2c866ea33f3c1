"""Many topics: registration, start, memory and listing, rmqpy and Apache's broker in turn (`python -m
benchmarks.topics`).

In each round, each side's new cluster gets the topics and one message per queue. Then the broker is stopped in order
and restarted with a new name server. A relay between broker and name server counts the bytes of a registration. Other
load affects wall times, so it is printed with the results.
"""

import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click

import rmqpy
from benchmarks import java, wire
from benchmarks.processes import Child, cpu_seconds
from benchmarks.servers import Apache, Rmqpy, Side
from benchmarks.waiting import until
from rmqpy._native import Call, Client
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.declare import EncodedRequest, encode
from rmqpy.protocol.requests.messages import SendMessage
from rmqpy.protocol.requests.topics import TopicConfigList, UpdateAndCreateTopicList
from rmqpy.protocol.topics import TopicConfig
from rmqpy.remoting.client import BlockingCaller, check_transport, run

#: Topics of one request; each request writes the whole table to the disk once.
TOGETHER = 500
UNDER_WAY_MAX = 64
#: Pause before a message that a busy broker refused is sent again.
BUSY_S = 0.05
WAIT_S = 300.0
#: Until a server answers as it should; one that starts refuses for a while.
_until_ready = partial(until, seconds=WAIT_S, failing=rmqpy.errors.RocketMQError)

#: Both brokers use small files: 40,000 ordinary queue files would fill the disk.
_SETTINGS = "mappedFileSizeConsumeQueue=20000\nmappedFileSizeCommitLog=67108864\n"


class Relay:
    """Forwards bytes between a broker and its name server, and counts the broker's."""

    def __init__(self) -> None:
        self.target = ""
        self.sent = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        """Stop it, with all its later connections."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                broker = self._listener.accept()[0]
                host, _, port = self.target.rpartition(":")
                server = socket.create_connection((host, int(port)))
            except OSError:
                return
            for source, target, is_broker in ((broker, server, True), (server, broker, False)):
                threading.Thread(target=self._hand_on, args=(source, target, is_broker), daemon=True).start()

    def _hand_on(self, source: socket.socket, target: socket.socket, is_broker: bool) -> None:
        try:
            while data := source.recv(1 << 16):
                if is_broker:
                    self.sent += len(data)
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            end.close()


class _Many(Side):
    """A side whose broker reaches its name server through a relay, and can restart with its store."""

    relay: Relay

    def settings(self, is_sync_flush: bool) -> str:
        return f"{super().settings(is_sync_flush)}namesrvAddr={self.relay.address}\n{_SETTINGS}"

    def stop_in_order(self) -> None:
        """Stop both servers; the store stays."""
        for child in (self._broker, self._namesrv):
            assert child is not None
            child.stop(WAIT_S)

    def listen_again(self) -> float:
        """Start the broker with its store; return the seconds until it listens."""
        began = time.monotonic()
        self.start_broker_again()
        _until_ready(lambda: wire.is_listening(self.address))
        return time.monotonic() - began

    def start_again(self) -> float:
        """Start both servers; return the seconds until the broker listens."""
        self._namesrv = Child("namesrv", self._namesrv_command(), self.folder)
        self._namesrv.wait_until(lambda: wire.is_listening(self.namesrv), WAIT_S)
        return self.listen_again()


class ManyRmqpy(_Many, Rmqpy):
    """Ours."""


class ManyApache(_Many, Apache):
    """Apache's."""


def measure(side: _Many, topics: int, queues: int) -> dict[str, float]:
    """Measure one side with this many topics."""
    names = [f"topic-{number:05d}" for number in range(topics)]
    side.relay = Relay()
    side.relay.target = side.namesrv
    side.start()
    with rmqpy.Admin(_patient(side)) as admin:
        empty = side.private_bytes()
        began = time.monotonic()
        _create(side, names, queues)
        _until_ready(lambda: len(admin.topics(with_system=True)) >= topics)
        created = time.monotonic() - began
        _send_everywhere(side, names, queues)
        full = side.private_bytes()
        listing = _rmqpy("topic", "list", "-n", side.namesrv, "--timeout", "60")
        listed = statistics.median(_timed(listing) for _ in range(3))
    side.stop_in_order()
    side.relay.sent = 0
    listening = side.start_again()
    began = time.monotonic()
    with rmqpy.Admin(_patient(side)) as admin:
        _until_ready(lambda: len(admin.topics(with_system=True)) >= topics)
    registration = time.monotonic() - began
    used, sent, private = cpu_seconds(side.pid), side.relay.sent, side.private_bytes()
    side.end_broker(in_order=False)
    return {
        "create_s": created,
        "start_to_listening_s": listening,
        "start_to_registered_s": listening + registration,
        "registration_s": registration,
        "start_to_registered_processor_s": used,
        "killed_to_listening_s": side.listen_again(),
        "registration_bytes": sent,
        "private_bytes_per_queue": (full - empty) / (topics * queues),
        "private_mib_after_restart": private / (1 << 20),
        "topic_list_s": listed,
        "load_average": os.getloadavg()[0],
    }


@click.command()
@click.option("--topics", type=click.IntRange(1), default=10_000, show_default=True)
@click.option("--queues", type=click.IntRange(1), default=4, show_default=True, help="Of each topic.")
@click.option("--rounds", type=click.IntRange(1), default=2, show_default=True)
@click.option("--ours", is_flag=True, help="Without Apache's broker.")
@click.option("--lib", type=click.Path(file_okay=False, path_type=Path), help="Apache's jars, else Maven's.")
def main(topics: int, queues: int, rounds: int, ours: bool, lib: Path | None) -> None:
    """Many topics: start, registration, memory, listing; compared with Apache's broker."""
    if not ours:
        _check_limits(topics * queues)
    lib = None if ours else lib or java.jars("apache")
    results: dict[str, list[dict[str, float]]] = {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="rmqpy-topics-") as folder:
            sides: list[_Many] = [ManyRmqpy(Path(folder))]
            if lib is not None:
                sides.append(ManyApache(Path(folder), lib))
            for side in sides:
                with _ended(side):
                    metrics = measure(side, topics, queues)
                results.setdefault(side.name, []).append(metrics)
                click.echo(
                    f"{side.name} {json.dumps({key: round(value, 3) for key, value in metrics.items()})}"
                )
    click.echo(json.dumps(_medians(results), indent=1))


def _check_limits(files: int) -> None:
    """Apache's broker holds a descriptor and a mapping of every queue file, and stops dispatching without them."""
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    mappings = int(Path("/proc/sys/vm/max_map_count").read_text())
    for has, needs, name in (
        (descriptors, files + 1_000, "descriptors (ulimit -Hn)"),
        (mappings, files + 1_000, "mappings (sysctl vm.max_map_count)"),
    ):
        if has < needs:
            raise click.UsageError(
                f"Apache's broker needs {needs:,} {name} for {files:,} queue files and may have {has:,} here: "
                "raise that, ask for fewer --queues, or measure only --ours"
            )


def _patient(side: Side) -> rmqpy.ClientConfig:
    return rmqpy.ClientConfig(namesrv=side.namesrv, connect_timeout=WAIT_S, request_timeout=WAIT_S)


def _create(side: Side, names: list[str], queues: int) -> None:
    client = Client()
    caller = BlockingCaller(client)
    try:
        for start in range(0, len(names), TOGETHER):
            configs = [
                TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)
                for name in names[start : start + TOGETHER]
            ]
            ask = UpdateAndCreateTopicList(body=TopicConfigList(topic_config_list=configs))
            run(caller.ask(side.address, ask, timeout=WAIT_S))
    finally:
        client.close()


def _send_everywhere(side: Side, names: list[str], queues: int) -> None:
    """Send one message to each queue, so that each has its files."""
    client = Client()
    caller = BlockingCaller(client)
    under_way: deque[tuple[Call, SendMessage, EncodedRequest]] = deque()

    def settle() -> None:
        call, ask, sent = under_way.popleft()
        run(caller.wait(call))
        check_transport(call, side.address)
        if call.code == ResponseCode.SYSTEM_BUSY:
            time.sleep(BUSY_S)
            start(ask, sent)
        else:
            assert call.code == 0, call.remark

    def start(ask: SendMessage, sent: EncodedRequest) -> None:
        call = caller.start(side.address, ask.code, sent.ext, sent.body, timeout=WAIT_S)
        under_way.append((call, ask, sent))

    try:
        for name in names:
            for queue_id in range(queues):
                ask = SendMessage(
                    producer_group="bench",
                    topic=name,
                    queue_id=queue_id,
                    born_timestamp=round(time.time() * 1_000),
                    flag=0,
                    properties="",
                    body=b"x" * 128,
                )
                start(ask, encode(ask))
                if len(under_way) == UNDER_WAY_MAX:
                    settle()
        while under_way:
            settle()
    finally:
        client.close()


def _rmqpy(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "rmqpy", *arguments]


def _timed(command: list[str]) -> float:
    began = time.monotonic()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, timeout=WAIT_S)
    return time.monotonic() - began


@contextmanager
def _ended(side: _Many) -> Iterator[None]:
    try:
        yield
    finally:
        side.stop()
        side.relay.close()


def _medians(results: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    return {
        name: {key: round(statistics.median(each[key] for each in rounds), 3) for key in rounds[0]}
        for name, rounds in results.items()
    }


if __name__ == "__main__":
    main()
