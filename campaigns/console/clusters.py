"""Clusters for the console: a small busy one in this process, and a large one whose broker is a separate process.

The content of the large one is real: topics, groups and offsets come from requests of administrators, messages from
a producer, dead letters from messages sent back as consumers do.
"""

import re
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import rmqpy
from benchmarks.waiting import until
from brokerprocess import broker_process
from console.hostile import NAMES, TEXTS
from rmqpy._native import Call, Client, StoppedStore
from rmqpy.config.controller import ControllerConfig
from rmqpy.config.store import StoreConfig
from rmqpy.controller import ControllerServer
from rmqpy.errors import RocketMQError
from rmqpy.protocol.declare import Request, encode
from rmqpy.protocol.ids import OffsetId, decode
from rmqpy.protocol.requests.groups import (
    SubscriptionGroup,
    SubscriptionGroupList,
    UpdateAndCreateSubscriptionGroupList,
)
from rmqpy.protocol.requests.messages import ConsumerSendMessageBack
from rmqpy.protocol.requests.offsets import UpdateConsumerOffset
from rmqpy.protocol.requests.topics import TopicConfigList, UpdateAndCreateTopicList
from rmqpy.protocol.topics import TopicConfig
from rmqpy.remoting.client import BlockingCaller, check_transport, run
from rmqpy.server import Standalone, Thread
from rmqpy.testing import Cluster, broker

#: Topics or groups of one request; each writes the whole table to the disk once.
TOGETHER: Final = 500
UNDER_WAY_MAX: Final = 64
WAIT_S: Final = 120.0
#: Until a server answers as it should; one that starts refuses for a while.
_until_ready = partial(until, seconds=WAIT_S, failing=RocketMQError)
#: In a large cluster: connected consumers, and the interval of groups with dead letters.
MEMBERS: Final = 20
LETTERS_EVERY: Final = 10


class Large(NamedTuple):
    """A large cluster, and the process that serves it."""

    http: str
    namesrv: str
    pid: int

    def private_mib(self) -> float:
        """Memory of the process that it shares with no other."""
        rollup = Path(f"/proc/{self.pid}/smaps_rollup").read_text("utf-8")
        found = dict(line.split(":", 1) for line in rollup.splitlines()[1:])
        return sum(int(found[each].split()[0]) for each in ("Private_Clean", "Private_Dirty")) / 1024


@contextmanager
def busy(scale: int) -> Iterator[Standalone]:
    """Topics, groups with lag, dead letters, clients, hostile texts, and traffic."""
    with broker(
        httpPort=0, httpAllowChanges=True, traceTopicEnable=True, prometheusUrl="http://127.0.0.1:9090"
    ) as server:
        with rmqpy.Admin(server.namesrv) as admin, rmqpy.Producer(server.namesrv, group="shop") as producer:
            for number in range(max(2, scale)):
                admin.create_topic(f"orders-{number:05}", read_queues=2, write_queues=2)
                admin.create_group(f"billing-{number:05}")
            for topic in ("orders", *NAMES):
                admin.create_topic(topic, read_queues=2, write_queues=2)
            for number in range(300):
                body = f'{{"order": {number}, "customer": "c-{number % 7}", "price": {number * 1.5}}}'
                producer.send(
                    "orders", body.encode(), tag="paid", keys=f"A-{number}", properties={"region": "EU"}
                )
                if number % 10 == 0:
                    producer.send("orders", b"later", deliver_after=3_600 + 60 * number)
            admin.create_schedule(
                "nightly-report",
                "orders",
                b"make the report",
                cron="0 2 * * *",
                zone="Europe/Berlin",
                tag="report",
            )
            admin.create_schedule(
                "tick", "orders", b'{"tick": true}', every=3_600, catch_up="none", paused=True
            )
            for text in TEXTS:
                producer.send("orders", text.encode("utf-8", "replace"), properties={"hostile": text or " "})
        with tempfile.TemporaryDirectory(prefix="rmqpy-backup-") as backup:
            command = [sys.executable, "-m", "rmqpy", "backup", backup, "-n", server.namesrv]
            subprocess.run(command, check=True, capture_output=True)
            yield server


@contextmanager
def impaired() -> Iterator[str]:
    """Serve a cluster with every fault together: a stopped name server, `broker-b`, which is like a suspended
    machine, `broker-c`, whose disk is full, and a slave of `broker-d` whose log has other bytes. Yields the name
    servers."""
    with (
        tempfile.TemporaryDirectory(prefix="rmqpy-impaired-") as temporary,
        Cluster(name_servers=2) as cluster,
        ExitStack() as stack,
    ):
        folder, namesrv = Path(temporary), cluster.namesrv
        away = stack.enter_context(broker_process(namesrv, folder, "broker-b"))
        stack.enter_context(
            broker_process(namesrv, folder, "broker-c", around=on_a_small_disk(folder / "broker-c"))
        )
        _diverge(stack, namesrv, folder)
        with rmqpy.Admin(namesrv) as admin, rmqpy.Producer(namesrv, group="shop", retries=10) as producer:
            _until_ready(lambda: len(admin.brokers()) == 5)
            admin.create_topic("orders", read_queues=2, write_queues=2)
            admin.create_group("billing")
            for number in range(20):
                producer.send("orders", f"order {number}".encode())
        cluster.stop("name-server-1")
        stack.enter_context(away.silent())
        yield namesrv


@contextmanager
def elected() -> Iterator[str]:
    """Serve a set of two brokers whose master a controller elects. Yields the name servers."""
    with tempfile.TemporaryDirectory(prefix="rmqpy-elected-") as temporary, ExitStack() as stack:
        folder = Path(temporary)
        config = ControllerConfig(
            listen_port=0,
            controller_path=str(folder / "controller"),
            store_path=str(folder / "controller.properties"),
        )
        thread = Thread(controller := ControllerServer(config))
        thread.start()
        stack.callback(thread.stop)
        namesrv = stack.enter_context(Cluster(brokers=[])).namesrv
        given = {"enableControllerMode": True, "controllerAddr": controller.address}
        for each in ("one", "two"):
            stack.enter_context(broker_process(namesrv, folder / each, "broker-a", **given))
        with rmqpy.Admin(namesrv) as admin:
            _until_ready(lambda: sum(each.in_sync for each in admin.elections().replicas) == 2)
        yield namesrv


def on_a_small_disk(folder: Path, mib: int = 60) -> list[str]:
    """Return a command that gives another one a separate file system there. With 60 MiB it accepts no message."""
    folder.mkdir(parents=True)
    script = f'mount -t tmpfs -o size={mib}m none "$0" && exec "$@"'
    return ["unshare", "--mount", "--map-root-user", "sh", "-c", script, str(folder)]


def _diverge(stack: ExitStack, namesrv: str, folder: Path) -> None:
    """Make a master that lost the end of its log and has written other messages since, and its slave."""
    master, slave = folder / "master", folder / "slave"
    as_slave = {"brokerRole": "SLAVE", "brokerId": "1"}
    with rmqpy.Admin(namesrv) as admin:

        def fill(body: bytes) -> int:
            """Return the end of the master's log, once its slave, if any, has all of it."""
            admin.create_topic("payments", read_queues=1, write_queues=1, exist_ok=True)
            place = rmqpy.MessageQueue("payments", "broker-d", 0)
            with rmqpy.Producer(namesrv) as producer:
                for _ in range(10):
                    producer.send("payments", body, queue=place)
            _until_ready(lambda: not any(each.behind_bytes for each in admin.replicas("broker-d")))
            return max(each.log_end or 0 for each in admin.replicas("broker-d"))

        with (
            broker_process(namesrv, master, "broker-d"),
            broker_process(namesrv, slave, "broker-d", **as_slave),
        ):
            _until_ready(lambda: any(each.in_sync for each in admin.replicas("broker-d")))
            kept = fill(b"paid")
            fill(b"paid")
        store = StoppedStore(StoreConfig(root=str(master / "broker-d")), exclusive=True)
        store.cut(kept)
        store.release()
        stack.enter_context(broker_process(namesrv, master, "broker-d"))
        _until_ready(lambda: any(each.broker == "broker-d" for each in admin.brokers()))
        fill(b"other")
        stack.enter_context(broker_process(namesrv, slave, "broker-d", **as_slave))
        _until_ready(lambda: any(each.is_diverged for each in admin.replicas("broker-d")))


@contextmanager
def large(topics: int, groups: int, messages: int) -> Iterator[Large]:
    """Topics with the messages shared among them; every group is behind in two of them, some have dead letters."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="rmqpy-large-"))
        cluster = stack.enter_context(_process(Path(folder)))
        names = [f"orders-{number:05}" for number in range(topics)]
        with rmqpy.Admin(cluster.namesrv) as admin:
            (address,) = [each.address for each in admin.brokers()]
            # A broker that creates them one by one writes its whole table for each.
            given_up = [f"%DLQ%billing-{number:05}" for number in range(0, groups, LETTERS_EVERY)]
            _ask_all(address, _topic_requests([*names, *given_up]))
            _ask_all(address, _group_requests(groups))
            _until_ready(lambda: len(admin.topics()) >= topics)
        ids = _send(cluster.namesrv, names, messages)
        _ask_all(address, _progress_requests(names, groups))
        _ask_all(address, _letter_requests(names, ids, groups))
        for number in range(min(MEMBERS, groups)):
            consumer = rmqpy.PullConsumer(f"billing-{number:05}", cluster.namesrv)
            stack.enter_context(consumer)
            consumer.subscribe(names[2 * number % topics])
            consumer.poll(timeout=0)
        yield cluster


@contextmanager
def _process(folder: Path) -> Iterator[Large]:
    settings = {"mappedFileSizeConsumeQueue": 20_000, "mappedFileSizeCommitLog": 512 << 20}
    options = [
        "--data-dir",
        folder,
        "--namesrv-port",
        0,
        "--broker-port",
        0,
        "--http",
        0,
        "--log-level",
        "warning",
    ]
    command = [sys.executable, "-m", "rmqpy", "standalone", *map(str, options)]
    process = subprocess.Popen(
        [*command, *(f"{key}={value}" for key, value in settings.items())], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        ready = process.stdout.readline() + process.stdout.readline()
        addresses = re.search(r"name server ([^ ,]+),.*\n *console: http://([^/]+)/", ready)
        assert addresses is not None, f"the servers did not start: {ready!r}"
        yield Large(addresses[2], addresses[1], process.pid)
    finally:
        process.terminate()
        process.wait(timeout=WAIT_S)


def _topic_requests(names: list[str]) -> Iterator[Request[None]]:
    for start in range(0, len(names), TOGETHER):
        made = [
            TopicConfig(topic_name=name, read_queue_nums=1, write_queue_nums=1)
            for name in names[start : start + TOGETHER]
        ]
        yield UpdateAndCreateTopicList(body=TopicConfigList(topic_config_list=made))


def _group_requests(groups: int) -> Iterator[Request[None]]:
    for start in range(0, groups, TOGETHER):
        made = [
            SubscriptionGroup(group_name=f"billing-{number:05}")
            for number in range(start, min(groups, start + TOGETHER))
        ]
        yield UpdateAndCreateSubscriptionGroupList(body=SubscriptionGroupList(group_config_list=made))


def _send(namesrv: str, names: list[str], messages: int) -> list[str]:
    """Send the messages and return the broker's id of the first message of each topic."""
    ids = []
    with rmqpy.Producer(namesrv, group="shop", send_timeout=WAIT_S) as producer:
        share, rest = divmod(messages, len(names))
        for number, name in enumerate(names):
            bodies = [f'{{"order": {order}}}'.encode() for order in range(share + (number < rest))]
            if bodies:
                sent = producer.send_batch([rmqpy.Message(name, body) for body in bodies])
                ids.append(sent[0].offset_message_id)
    return ids


def _progress_requests(names: list[str], groups: int) -> Iterator[Request[None]]:
    for number in range(groups):
        for place in (2 * number, 2 * number + 1):
            yield UpdateConsumerOffset(
                consumer_group=f"billing-{number:05}",
                topic=names[place % len(names)],
                queue_id=0,
                commit_offset=number % 50,
            )


def _letter_requests(names: list[str], ids: list[str], groups: int) -> Iterator[Request[None]]:
    for number in range(0, min(groups, len(ids)), LETTERS_EVERY):
        yield ConsumerSendMessageBack(
            offset=_position(ids[number]),
            group=f"billing-{number:05}",
            delay_level=-1,
            origin_topic=names[number],
        )


def _position(message_id: str) -> int:
    found = decode(message_id)
    assert isinstance(found, OffsetId), message_id
    return found.offset


def _ask_all(address: str, requests: Iterable[Request[Any]]) -> None:
    """Send all requests, many in flight at a time, and wait for the answers."""
    client = Client()
    caller = BlockingCaller(client)
    under_way: deque[Call] = deque()

    def settle() -> None:
        call = under_way.popleft()
        run(caller.wait(call))
        check_transport(call, address)
        assert call.code == 0, call.remark

    try:
        for ask in requests:
            if len(under_way) == UNDER_WAY_MAX:
                settle()
            sent = encode(ask)
            under_way.append(caller.start(address, ask.code, sent.ext, sent.body, timeout=WAIT_S))
        while under_way:
            settle()
    finally:
        client.close()
