"""Reading by offset, against brokers whose log the test writes."""

import asyncio
import threading
import time
from datetime import UTC, datetime
from typing import Any

import pytest

import rmqpy
from rmqpy import errors
from rmqpy.client.pull import fetcher
from rmqpy.message import MessageQueue
from rmqpy.remoting.backoff import Backoff
from waiting import until, until_async
from wire import Frame

from .fakes import CLOSE, Broker, Network, properties, record

Q0, Q1 = (MessageQueue("orders", "broker-a", number) for number in range(2))


@pytest.fixture
def broker(network: Network) -> Broker:
    broker = network.broker("broker-a")
    for queue_id in range(2):
        broker.log[queue_id] = [
            record(
                str(offset).encode(),
                queue_id=queue_id,
                offset=offset,
                props=properties(TAGS="ab"[offset % 2]),
            )
            for offset in range(100)
        ]
    return broker


@pytest.fixture
def namesrv(network: Network, broker: Broker) -> str:
    return network.name_server([broker], {"orders": 2}).address


def consumer(namesrv: str, **asked: Any) -> rmqpy.PullConsumer:
    options: dict[str, Any] = {"start_from": "earliest", "auto_commit": False, **asked}
    return rmqpy.PullConsumer("g", namesrv, **options)


def read(consumer: rmqpy.PullConsumer, count: int) -> list[rmqpy.ReceivedMessage]:
    found: list[rmqpy.ReceivedMessage] = []
    until(lambda: (found.extend(consumer.poll(0.5)), len(found) >= count)[1])
    return found


def test_every_message_comes_once_and_in_the_order_of_its_queue(namesrv: str) -> None:
    with consumer(namesrv, max_batch=7) as reader:
        reader.assign(reader.queues("orders"))
        assert reader.assignment() == {Q0, Q1}
        found = read(reader, 200)
        for queue in (Q0, Q1):
            assert [m.queue_offset for m in found if m.queue == queue] == list(range(100))
            assert reader.position(queue) == 100
        assert reader.poll(0.01) == []


def test_poll_without_a_topic_names_the_missing_call(namesrv: str) -> None:
    with consumer(namesrv) as reader:
        for read_some in (lambda: reader.poll(60), lambda: reader.arrow(60), lambda: next(iter(reader))):
            with pytest.raises(RuntimeError, match=r"subscribe\(topic\) or assign\(queues\)"):
                read_some()
        reader.assign(reader.queues("orders"))
        assert reader.poll(30)


async def test_async_poll_without_a_topic_names_the_missing_call(namesrv: str) -> None:
    async with rmqpy.AsyncPullConsumer("g", namesrv, auto_commit=False) as reader:
        with pytest.raises(RuntimeError, match="subscribe"):
            await reader.poll(60)


def test_group_begins_at_its_commit_or_at_start_from(namesrv: str, broker: Broker) -> None:
    broker.committed[0] = 90
    with consumer(namesrv) as reader:
        reader.assign([Q0, Q1])
        assert (reader.position(Q0), reader.position(Q1)) == (90, 0)
        assert (reader.committed(Q0), reader.committed(Q1)) == (90, None)
    with consumer(namesrv, start_from="latest") as reader:
        # The group has progress in the topic: a queue without any appeared later.
        reader.assign([Q1])
        assert reader.position(Q1) == 0
    broker.committed.clear()
    with consumer(namesrv, start_from="latest") as reader:
        reader.assign([Q1])
        assert reader.position(Q1) == 100


def test_seek_drops_prefetched_messages(namesrv: str, broker: Broker) -> None:
    broker.handlers[29] = lambda ask: Frame(0, ext={"offset": "42"})
    with consumer(namesrv) as reader:
        reader.assign([Q0])
        read(reader, 10)
        for place, expected in ((50, 50), ("begin", 0), (datetime(2024, 1, 1, tzinfo=UTC), 42)):
            reader.seek(Q0, place)  # type: ignore[arg-type]
            assert reader.poll(20, max_messages=1)[0].queue_offset == expected
        reader.seek(Q0, "end")
        assert reader.position(Q0) == 100
        with pytest.raises(ValueError, match="not assigned"):
            reader.seek(Q1, 0)
        with pytest.raises(ValueError, match="seek to"):
            reader.seek(Q0, -1)


def test_commit_covers_only_received_messages(namesrv: str, broker: Broker) -> None:
    with consumer(namesrv) as reader:
        reader.assign([Q0])
        reader.poll(20, max_messages=3)
        reader.commit()
        assert broker.committed == {0: 3}
        reader.commit({Q0: 2, Q1: 9})
        assert broker.committed == {0: 2, 1: 9}


def test_progress_is_committed_periodically_and_at_close(namesrv: str, broker: Broker) -> None:
    with consumer(namesrv, auto_commit=0.01) as reader:
        reader.assign([Q0])
        reader.poll(20, max_messages=3)
        assert broker.committed.get(0, 0) == 0, "what is still being processed"
        until(lambda: (reader.poll(0.02, max_messages=1), broker.committed.get(0, 0) >= 3)[1])
        last = reader.position(Q0)
    assert broker.committed == {0: last}


def test_client_drops_unwanted_tags(namesrv: str) -> None:
    with consumer(namesrv) as reader:
        reader.assign([Q0], tags="b || c")
        found = read(reader, 50)
        assert {message.tag for message in found} == {"b"}
        reader.poll(0.05)
        assert reader.position(Q0) == 100


def test_offset_out_of_range_resumes_within_it(namesrv: str, broker: Broker) -> None:
    broker.begin, broker.log[0] = 60, broker.log[0][60:]
    with consumer(namesrv) as reader:
        reader.assign([Q0])
        for missing in (10, 1000):
            reader.seek(Q0, missing)
            reader.poll(0.05)
        reader.seek(Q0, 10)
        assert reader.poll(20, max_messages=1)[0].queue_offset == 60


def test_lost_connection_is_reopened(namesrv: str, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetcher, "FAILING", Backoff(0.01, 0.01))
    falls = iter([CLOSE, CLOSE])
    broker.handlers[11] = lambda ask: next(falls, None) or broker.pull(ask)
    with consumer(namesrv) as reader:
        reader.assign([Q0])
        assert len(read(reader, 100)) == 100


def test_permanent_error_is_raised_and_polling_can_continue(
    namesrv: str, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher, "FAILING", Backoff(0.001, 0.001))
    with consumer(namesrv) as reader:
        reader.assign([Q0])
        for code, kind in ((26, errors.GroupNotFound), (16, errors.AuthError), (1, errors.BrokerError)):
            broker.handlers[11] = lambda ask, code=code: Frame(code, remark="no")  # type: ignore[misc]
            before = broker.count(11)
            with pytest.raises(kind):
                read(reader, 1)
            # What cannot pass is raised at once, what may pass after some attempts.
            assert broker.count(11) - before == (fetcher.FAILURES_MAX if code == 1 else 1)
        broker.handlers[11] = broker.pull
        assert len(read(reader, 100)) == 100


def test_paused_queue_keeps_buffered_messages(namesrv: str) -> None:
    with consumer(namesrv) as reader:
        reader.assign([Q0, Q1])
        reader.pause(Q0)
        assert {message.queue for message in read(reader, 100)} == {Q1}
        reader.resume(Q0)
        assert {message.queue for message in read(reader, 100)} == {Q0}


def test_pause_during_an_iteration_holds_the_current_batch(namesrv: str) -> None:
    with consumer(namesrv) as reader:
        reader.assign([Q0, Q1])
        seen: list[rmqpy.ReceivedMessage] = []
        for message in reader:
            seen.append(message)
            if len(seen) == 1:
                reader.pause(message.queue)
            if len(seen) == 101:
                break
        first = seen[0].queue
        assert [message.queue for message in seen[1:]] == [Q1 if first == Q0 else Q0] * 100
        assert reader.position(first) == seen[0].queue_offset + 1
        reader.resume(first)
        left = read(reader, 99)
        assert [message.queue_offset for message in left] == list(range(1, 100))


def test_buffered_messages_are_available_as_columns(namesrv: str) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    with consumer(namesrv) as reader:
        reader.assign([Q0], tags="a")
        offsets: list[int] = []
        while len(offsets) < 50:
            offsets += pyarrow.record_batch(reader.arrow(20)).column("queueOffset").to_pylist()
        assert offsets == list(range(0, 100, 2))
        reader.commit()
        assert reader.committed(Q0) == reader.position(Q0) >= 99
        assert len(reader.arrow(0.01)) == 0


def test_a_second_thread_is_refused(namesrv: str) -> None:
    with consumer(namesrv, start_from="latest") as reader:
        reader.assign([Q0])
        polling = threading.Thread(target=reader.poll, args=(1.0,))
        polling.start()
        deadline = time.monotonic() + 30
        refusal = None
        while refusal is None and time.monotonic() < deadline:
            try:
                reader.poll(0)
            except RuntimeError as error:
                refusal = error
        polling.join()
        assert "not thread-safe" in str(refusal)


def test_close_ends_a_poll_and_an_iteration_in_other_threads(namesrv: str, broker: Broker) -> None:
    ended: list[str] = []

    def iterate(reader: rmqpy.PullConsumer) -> None:
        for _ in reader:
            pass
        ended.append("iteration")

    def poll(reader: rmqpy.PullConsumer) -> None:
        try:
            reader.poll(60)
        except errors.ClosedError:
            ended.append("poll")

    for work in (iterate, poll):
        reader = consumer(namesrv, start_from="latest")
        reader.assign([Q0])
        thread = threading.Thread(target=work, args=(reader,))
        pulls = broker.count(11)
        thread.start()
        until(lambda before=pulls: broker.count(11) > before)
        reader.close()
        thread.join(30)
    assert ended == ["iteration", "poll"]


def test_an_unknown_topic_is_an_error(namesrv: str) -> None:
    with consumer(namesrv) as reader, pytest.raises(errors.TopicNotFound):
        reader.queues("fresh")


def test_undecodable_record_is_named(namesrv: str, broker: Broker) -> None:
    broker.log[0][3] = record(b"not zlib", offset=3, sys_flag=0x301)
    with consumer(namesrv) as reader:
        reader.assign([Q0])
        message = read(reader, 4)[3]
        with pytest.raises(errors.DecodeError, match=r"offset 3.*broker-a"):
            _ = message.body


async def test_async_consumer_reads_the_same(namesrv: str, broker: Broker) -> None:
    async with rmqpy.AsyncPullConsumer("g", namesrv, start_from="earliest") as reader:
        await reader.assign(await reader.queues("orders"))
        found: list[rmqpy.ReceivedMessage] = []
        async with asyncio.timeout(30):
            async for message in reader:
                found.append(message)
                if len(found) == 200:
                    break
        for queue in (Q0, Q1):
            assert [m.queue_offset for m in found if m.queue == queue] == list(range(100))
        assert await reader.offsets(Q0) == (0, 100)
        await reader.seek(Q0, 99)
        assert (await reader.poll(20))[0].queue_offset == 99
    assert broker.committed == {0: 100, 1: 100}


async def test_a_second_task_is_refused(namesrv: str) -> None:
    async with rmqpy.AsyncPullConsumer("g", namesrv, auto_commit=False) as reader:
        await reader.assign([Q0])
        polling = asyncio.ensure_future(reader.poll(0.2))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="one task"):
            await reader.poll(0)
        await polling


async def test_closing_ends_a_poll_of_another_task(namesrv: str, broker: Broker) -> None:
    reader = rmqpy.AsyncPullConsumer("g", namesrv, start_from="latest", auto_commit=False)
    await reader.assign([Q0])
    polling = asyncio.ensure_future(reader.poll(60))
    await until_async(lambda: broker.count(11))
    await reader.close()
    with pytest.raises(errors.ClosedError):
        async with asyncio.timeout(30):
            await polling


async def test_cancelling_a_poll_loses_no_message(namesrv: str, broker: Broker) -> None:
    async with rmqpy.AsyncPullConsumer("g", namesrv, start_from="latest", auto_commit=False) as reader:
        await reader.assign([Q0])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await reader.poll(10)
        await reader.seek(Q0, 0)
        assert (await reader.poll(20, max_messages=1))[0].queue_offset == 0
