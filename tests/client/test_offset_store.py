"""Offset stores of applications: progress is read and written there, and brokers have none."""

import logging
import threading
from collections.abc import Collection

import pytest

import rmqpy
from rmqpy.message import MessageQueue
from rmqpy.server import Standalone
from waiting import until

from .live import BODIES, Seen, committed, send


class Table:
    """A store in memory that checks its calls."""

    def __init__(self) -> None:
        self.kept: dict[MessageQueue, int] = {}
        self.calls: list[str] = []
        self.is_failing = False
        self._fresh: dict[MessageQueue, int] = {}
        self._alone = threading.Lock()

    def load(self) -> None:
        self._enter("load")

    def read(self, queue: MessageQueue) -> int | None:
        self._enter("read")
        return self.kept.get(queue)

    def update(self, queue: MessageQueue, offset: int) -> None:
        self._enter("update")
        self._fresh[queue] = offset

    def persist(self, queues: Collection[MessageQueue]) -> None:
        self._enter("persist")
        for queue in queues:
            self.kept[queue] = self._fresh[queue]

    def _enter(self, name: str) -> None:
        assert self._alone.acquire(blocking=False), "one call at a time"
        self.calls.append(name)
        self._alone.release()
        if self.is_failing:
            raise OSError("the database is away")


def consumer(
    server: Standalone, topic: str, store: rmqpy.OffsetStore, seen: Seen, **options: bool
) -> rmqpy.PushConsumer:
    made = rmqpy.PushConsumer(
        f"stored-{topic}"[:100], server.namesrv, start_from="earliest", offset_store=store, **options
    )
    made.on(topic, handler=seen)
    return made


@pytest.mark.parametrize("broadcast", [False, True])
def test_progress_is_only_in_the_offset_store(server: Standalone, topic: str, broadcast: bool) -> None:
    table, seen, again = Table(), Seen(), Seen()
    send(server, topic, BODIES)
    with consumer(server, topic, table, seen, broadcast=broadcast):
        until(lambda: seen.has("first", *BODIES))
    assert sum(offset for queue, offset in table.kept.items() if queue.topic == topic) == len(BODIES) + 1
    assert table.calls[0] == "load"
    assert table.calls.count("load") == 1
    assert table.calls[-1] == "persist"
    assert committed(server, f"stored-{topic}"[:100], topic) == 0
    send(server, topic, ["after"])
    with consumer(server, topic, table, again, broadcast=broadcast):
        until(lambda: again.has("after"))
    assert again.bodies == ["after"]


def test_failing_offset_store_is_retried_while_queues_wait(
    server: Standalone, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    table, seen = Table(), Seen()
    table.is_failing = True
    with pytest.raises(OSError, match="the database is away"):
        consumer(server, topic, table, seen).start()
    table.is_failing = False
    with caplog.at_level(logging.CRITICAL), consumer(server, topic, table, seen) as running:
        until(lambda: seen.has("first"))
        table.is_failing = True
        send(server, topic, ["second"])
        until(lambda: seen.has("second"))
        calls = len(table.calls)
        until(lambda: len(table.calls) > calls)
        table.is_failing = False
        assert running.queues()
    assert sum(offset for queue, offset in table.kept.items() if queue.topic == topic) == 2
