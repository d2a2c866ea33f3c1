"""The parts of a push consumer, each alone."""

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

import rmqpy
from rmqpy import errors
from rmqpy.client.cluster import ClusterConnection
from rmqpy.client.consume_result import BatchResult, ConsumeResult, Retry, interpret
from rmqpy.client.group.offsets import BrokerOffsets, LocalOffsets, Places
from rmqpy.client.group.rebalance import View
from rmqpy.client.group.subscription import Subscriptions, java_hash
from rmqpy.client.push.process_queue import Limits, ProcessQueue
from rmqpy.client.push.worker_pool import Worker
from rmqpy.message import MessageQueue, ReceivedMessage
from rmqpy.remoting.client import BlockingCaller, run
from waiting import until

from .fakes import Network, record

QUEUE = MessageQueue("orders", "broker-a", 0)
QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(4)]


def messages(*offsets: int) -> list[ReceivedMessage]:
    return [ReceivedMessage(record(b"x", offset=offset), None, QUEUE) for offset in offsets]


def process_queue(
    count: int = 100, size: int = 1 << 20, span: int = 1000
) -> tuple[ProcessQueue, list[ProcessQueue]]:
    woken: list[ProcessQueue] = []
    return ProcessQueue(QUEUE, 10, Limits(count, size, span), woken.append), woken


def put(into: ProcessQueue, *offsets: int, size: int = 0) -> list[ReceivedMessage]:
    fetched = messages(*offsets)
    assert into.put(fetched, offsets[-1] + 1, size)
    return fetched


# --- progress ---


def test_progress_stays_before_the_oldest_unfinished_message() -> None:
    queue, _ = process_queue()
    fetched = put(queue, 10, 11, 12)
    slow, quick = Worker[ProcessQueue](), Worker[ProcessQueue]()
    assert queue.take(slow, 1) == (fetched[0],)
    assert queue.take(quick, 1) == (fetched[1],)
    assert queue.take(quick, 1) == (fetched[2],)
    queue.leave(quick)
    assert (queue.progress, queue.count) == (10, 1)
    queue.leave(slow)
    assert (queue.progress, queue.count) == (13, 0)


def test_progress_advances_over_filtered_messages() -> None:
    queue, _ = process_queue()
    queue.put([], 50, 0)
    assert queue.progress == 50


def test_message_being_sent_back_is_unfinished_until_stored() -> None:
    queue, _ = process_queue()
    failed, _ = put(queue, 10, 11)
    worker = Worker[ProcessQueue]()
    batch = queue.take(worker, 1)
    assert batch
    queue.hold(batch)
    assert queue.take(worker, 1)
    queue.leave(worker)
    assert (queue.progress, queue.count) == (10, 1)
    queue.release(failed)
    assert (queue.progress, queue.count) == (12, 0)


def test_overdue_message_is_revoked_from_its_worker_once() -> None:
    queue, _ = process_queue()
    [late] = put(queue, 10)
    worker = Worker[ProcessQueue]()
    batch = queue.take(worker, 1)
    assert queue.overdue(worker, worker.began_at) is None
    now = time.monotonic() + 1
    assert queue.overdue(worker, now) == (late,)
    assert worker.revoked is batch
    assert queue.overdue(worker, now) is None
    assert queue.progress == 10
    queue.release(late)
    assert queue.progress == 11
    assert queue.is_busy


def test_concurrent_workers_take_each_message_once() -> None:
    queue, _ = process_queue(count=100_000, span=1_000_000)
    expected = put(queue, *range(10, 20_010))
    taken: list[list[ReceivedMessage]] = [[], [], [], []]
    highest = 0
    passed: list[tuple[int, int]] = []

    def take(mine: list[ReceivedMessage]) -> None:
        worker = Worker[ProcessQueue]()
        while batch := queue.take(worker, 1):
            # Not finished before `leave`: no progress beyond it may have been seen.
            if highest > batch[0].queue_offset:
                passed.append((highest, batch[0].queue_offset))
            mine += batch
            queue.leave(worker)
        queue.leave(worker)

    def look() -> None:
        nonlocal highest
        while highest < 20_010:
            highest = max(highest, queue.progress)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=take, args=(mine,)) for mine in taken]
        threads += [threading.Thread(target=look)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert passed == []
    assert sorted((one for mine in taken for one in mine), key=lambda one: one.queue_offset) == expected
    assert (queue.progress, queue.is_busy) == (20_010, False)


@pytest.mark.parametrize("limits", [{"count": 2}, {"size": 200}, {"span": 2}], ids=str)
def test_reading_stops_at_each_limit_and_resumes_below_it(limits: dict[str, int]) -> None:
    queue, woken = process_queue(**limits)
    put(queue, 10, 11, size=200)
    assert not queue.has_room()
    worker = Worker[ProcessQueue]()
    while queue.take(worker, 1):
        pass
    queue.leave(worker)
    assert woken == [queue]
    assert queue.has_room()


def test_batch_from_a_retry_queue_has_one_topic() -> None:
    retries = MessageQueue("%RETRY%billing", "broker-a", 0)
    queue = ProcessQueue(retries, 0, Limits(100, 1 << 20, 1000), lambda _: None)
    fetched = [
        ReceivedMessage(record(b"x", offset=offset, topic=topic), None, retries)
        for offset, topic in enumerate(["orders", "orders", "refunds", "orders"])
    ]
    queue.put(fetched, 4, 0)
    worker, batches = Worker[ProcessQueue](), []
    while batch := queue.take(worker, 10):
        batches.append([message.queue_offset for message in batch])
    assert batches == [[0, 1], [2], [3]]


def test_no_message_of_a_released_queue_is_started() -> None:
    queue, _ = process_queue()
    put(queue, 10, 11)
    worker = Worker[ProcessQueue]()
    assert queue.take(worker, 1)
    queue.drop()
    assert queue.take(worker, 1) is None
    assert not queue.put(messages(12), 13, 0)


def test_messages_finished_after_a_queue_stops_still_count() -> None:
    queue, woken = process_queue()
    put(queue, 10)
    worker = Worker[ProcessQueue]()
    assert queue.take(worker, 1)
    queue.stop()
    assert queue.is_busy
    assert not woken
    queue.leave(worker)
    assert woken == [queue]
    assert (queue.progress, queue.is_busy) == (11, False)


# --- order ---


def test_one_worker_attends_to_a_queue_until_it_is_empty() -> None:
    queue, _ = process_queue()
    put(queue, 10, 11)
    assert queue.attend()
    put(queue, 12)
    assert not queue.attend()
    worker = Worker[ProcessQueue]()
    handled: list[int] = []
    while front := queue.front(worker, 1):
        assert (queue.progress, queue.count) == (front[0].queue_offset, 13 - front[0].queue_offset)
        queue.advance(front)
        queue.leave(worker)
        handled += [message.queue_offset for message in front]
    assert handled == [10, 11, 12]
    put(queue, 13)
    assert queue.attend()


def test_queue_without_its_lock_waits_for_the_next_one() -> None:
    queue, _ = process_queue()
    put(queue, 10)
    assert queue.attend()
    queue.locked_until = 0.0
    assert not queue.front(Worker[ProcessQueue](), 1)
    queue.locked_until = float("inf")
    assert queue.attend()
    assert len(queue.front(Worker[ProcessQueue](), 1)) == 1


# --- consume results ---


@pytest.mark.parametrize("answer", [None, True, ConsumeResult.SUCCESS])
def test_message_is_finished(answer: object) -> None:
    assert not interpret(answer, messages(1)).failed


@pytest.mark.parametrize("answer", [False, ConsumeResult.RETRY])
def test_message_is_redelivered(answer: object) -> None:
    assert interpret(answer, messages(1))[:4] == (messages(1), 0, None, False)


def test_a_message_is_discarded() -> None:
    assert interpret(ConsumeResult.DISCARD, messages(1)).is_discarded


@pytest.mark.parametrize(
    ("after", "level"), [(0, 1), (1, 1), (2, 2), (60, 5), (61, 6), (7200, 18), (99999, 18)]
)
def test_a_delay_becomes_the_next_longer_level(after: float, level: int) -> None:
    assert interpret(Retry(after), messages(1)).level == level


def test_only_failed_messages_of_a_batch_are_redelivered() -> None:
    batch: Sequence[ReceivedMessage] = messages(1, 2, 3)
    assert interpret(BatchResult(failed=batch[1:2]), batch).failed == (batch[1],)


def test_meaningless_return_value_is_an_error() -> None:
    with pytest.raises(TypeError, match="return None when the message is done"):
        interpret("ok", messages(1))


# --- subscriptions, shares ---


def test_subscription_has_the_hashes_of_its_tags() -> None:
    table = Subscriptions("%RETRY%billing")
    table.put("orders", "paid || TagA||")
    data = table.table["orders"].data()
    assert (data.tags_set, data.code_set) == (["TagA", "paid"], [2598919, java_hash("paid")])
    assert table.table["%RETRY%billing"].data().tags_set == []


def test_the_version_of_a_subscription_grows_with_each_change_and_only_then() -> None:
    table = Subscriptions()
    versions = []
    for tags in ("a", "a", "b", "a"):
        table.put("orders", tags)
        versions.append(table.table["orders"].version)
    assert versions[0] == versions[1] < versions[2] < versions[3]


def test_queues_of_an_unknown_topic_stay_and_of_a_deleted_one_go() -> None:
    other, gone = (MessageQueue(topic, "broker-a", 0) for topic in ("refunds", "returns"))
    view = View(
        frozenset(QUEUES[:2]),
        frozenset({"refunds"}),
        frozenset({"returns"}),
        is_stranger=False,
        is_alone=True,
        readable={},
    )
    assert view.given([*QUEUES[1:3], other, gone]) == {QUEUES[2], gone}
    assert view.taken([*QUEUES[1:3], other, gone]) == {QUEUES[0]}


# --- progress at brokers ---


def test_progress_query_follows_a_moved_broker(network: Network) -> None:
    old, new = network.broker("broker-a"), network.broker("broker-a")
    new.committed[0] = 7
    servers = network.name_server([old], {"orders": 1})
    cluster = ClusterConnection(rmqpy.ClientConfig(namesrv=servers.address, request_timeout=2.0))
    store = BrokerOffsets(Places(cluster, BlockingCaller(cluster.client)), "billing")

    def has_moved() -> bool:
        try:
            return run(store.load(QUEUE)) == 7
        except errors.ConnectError:
            return False

    assert run(store.load(QUEUE)) is None
    old.stop()
    servers.brokers[:] = [new]
    until(has_moved)
    cluster.close()


# --- local progress ---


async def test_local_progress_is_found_again_and_has_a_backup(tmp_path: Path) -> None:
    store = LocalOffsets(tmp_path, "10.0.0.1@DEFAULT", "billing")
    assert await store.load(QUEUE) is None
    assert await store.save({QUEUE: 5}) == set()
    assert await store.save({QUEUE: 7, QUEUES[1]: 9}) == set()
    file = tmp_path / "10.0.0.1@DEFAULT" / "billing" / "offsets.json"
    # Objects as keys, as Apache's client writes and reads them.
    assert file.read_text().startswith(
        '{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:7,'
    )
    again = LocalOffsets(tmp_path, "10.0.0.1@DEFAULT", "billing")
    assert (await again.load(QUEUE), await again.load(QUEUES[1])) == (7, 9)
    file.write_text("{torn")
    older = LocalOffsets(tmp_path, "10.0.0.1@DEFAULT", "billing")
    assert await older.load(QUEUE) == 5


async def test_failed_progress_write_is_retried(tmp_path: Path) -> None:
    (tmp_path / "me").write_text("a file where the folder should be")
    store = LocalOffsets(tmp_path, "me", "billing")
    assert await store.save({QUEUE: 5}) == {QUEUE}


class CountingLock:
    """A lock, and the number of threads that have asked for it."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self.count = 0

    def __enter__(self) -> None:
        self.count += 1
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


async def test_one_thread_writes_at_a_time_and_the_newest_progress_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalOffsets(tmp_path, "me", "billing")
    writers, most, gate, fsync = 0, 0, threading.Event(), os.fsync

    def slow(file: int) -> None:
        nonlocal writers, most
        # Servers of this process write, too.
        if not os.readlink(f"/proc/self/fd/{file}").startswith(str(tmp_path)):
            fsync(file)
            return
        writers += 1
        most = max(most, writers)
        gate.wait(10)
        fsync(file)
        writers -= 1

    monkeypatch.setattr(os, "fsync", slow)
    first = asyncio.create_task(store.save({QUEUE: 1}))
    await asyncio.to_thread(until, lambda: writers)
    # As the commits of a consumer that ends; its thread goes on.
    first.cancel()
    store._writing = waiting = CountingLock(store._writing)
    last = [asyncio.create_task(store.save({QUEUE: at})) for at in range(2, 6)]
    await asyncio.to_thread(until, lambda: waiting.count == 4)
    gate.set()
    assert [await one for one in last] == [set()] * 4
    assert most == 1
    assert await LocalOffsets(tmp_path, "me", "billing").load(QUEUE) == 5


async def test_the_file_of_a_java_client_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "me" / "billing"
    folder.mkdir(parents=True)
    key = json.dumps({"brokerName": "broker-a", "queueId": 0, "topic": "orders"}, indent=2)
    (folder / "offsets.json").write_text('{\n\t"offsetTable":{' + key + ":42\n\t}\n}")
    assert await LocalOffsets(tmp_path, "me", "billing").load(QUEUE) == 42


def test_restarted_queue_keeps_predecessors_with_running_handlers() -> None:
    first, _ = process_queue()
    put(first, 10)
    worker = Worker[ProcessQueue]()
    assert first.take(worker, 1)
    last = first
    for position in range(3):
        last.drop()
        last = ProcessQueue(QUEUE, position, Limits(100, 1 << 20, 1000), lambda _: None, last.at_work)
        assert last.at_work is first
    first.leave(worker)
    assert last.at_work is None
    assert not last.is_busy
