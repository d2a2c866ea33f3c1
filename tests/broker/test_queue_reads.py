"""Queue files that cannot be opened temporarily: readers get an error, keep their position, and lose nothing."""

import asyncio
import resource
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest

import rmqpy
from broker.talk import pull, send
from crash.killable import Broker
from rmqpy.protocol.requests.messages import QueryConsumeQueue
from rmqpy.protocol.requests.offsets import GetEarliestMsgStoreTime, SearchOffsetByTimestamp
from rmqpy.protocol.requests.topics import UpdateAndCreateTopic
from waiting import until_async
from wire import TIMEOUT_S, Peer, Refusal

SYSTEM_ERROR = 1
#: More than a broker keeps files open.
QUEUES = 300
LAST = QUEUES - 1
#: In the last queue, whose file is closed first, and in each of the others.
MESSAGES, FEW = 200, 5
TOPIC = UpdateAndCreateTopic(topic="orders", read_queue_nums=QUEUES, write_queue_nums=QUEUES)


@asynccontextmanager
async def restarted(folder: Path) -> AsyncIterator[Broker]:
    """A broker whose last queue has its entries in a file that is not open."""
    broker = Broker.start(folder)
    try:
        async with await Peer.connect(broker.address) as peer:
            await peer.ask(TOPIC)
            for queue_id in range(QUEUES):
                for number in range(MESSAGES if queue_id == LAST else FEW):
                    assert (await send(peer, "orders", str(number).encode(), e=str(queue_id))).code == 0
        broker.stop()
        broker = Broker.start(folder)
        # Maintenance looks into every queue once, the last one first.
        await until_async(lambda: queue_file(folder, 0) in open_files(broker))
        assert queue_file(folder, LAST) not in open_files(broker)
        yield broker
    finally:
        broker.stop()


def open_files(broker: Broker) -> set[Path]:
    found = set()
    for entry in Path(f"/proc/{broker.process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.add(entry.readlink())
    return found


def queue_file(folder: Path, queue_id: int) -> Path:
    return folder / f"store/consumequeue/orders/{queue_id}/00000000000000000000"


@contextmanager
def unreadable(folder: Path) -> Iterator[None]:
    """Put a directory in place of the queue's file: it exists, but cannot be opened."""
    file, aside = queue_file(folder, LAST), folder / "aside"
    file.rename(aside)
    file.mkdir()
    try:
        yield
    finally:
        file.rmdir()
        aside.rename(file)


async def test_request_for_an_unopenable_queue_file_is_refused_without_effect(
    tmp_path: Path,
) -> None:
    async with restarted(tmp_path) as broker, await Peer.connect(broker.address) as peer:
        search = SearchOffsetByTimestamp(topic="orders", queue_id=LAST, timestamp=1_700_000_000_000)
        asks = [
            search,
            GetEarliestMsgStoreTime(topic="orders", queue_id=LAST),
            QueryConsumeQueue(topic="orders", queue_id=LAST, index=0, count=10),
        ]
        with unreadable(tmp_path):
            answer = await pull(peer, "billing", "orders", queueId=str(LAST))
            assert (answer.code, answer.ext) == (SYSTEM_ERROR, None)
            assert str(queue_file(tmp_path, LAST)) in (answer.remark or "")
            for ask in asks:
                with pytest.raises(Refusal) as refused:
                    await peer.ask(ask)
                assert refused.value.code == SYSTEM_ERROR, ask
        answer = await pull(peer, "billing", "orders", queueId=str(LAST))
        assert (answer.code, (answer.ext or {})["nextBeginOffset"]) == (0, "32")
        assert (await peer.ask(search)).offset == 0


async def test_a_consumer_and_a_range_read_lose_nothing_while_a_queue_file_cannot_be_opened(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with restarted(tmp_path) as broker:
        queue = rmqpy.MessageQueue("orders", "broker-a", LAST)

        async def consume() -> list[bytes]:
            found: list[bytes] = []
            async with rmqpy.AsyncPullConsumer("billing", broker.namesrv, start_from="earliest") as reader:
                await reader.assign([queue])
                while len(found) < MESSAGES:
                    found += [message.body for message in await reader.poll(0.2)]
            return found

        def read() -> int:
            names = ["queueOffset"]
            batches = rmqpy.read_range(queue, 0, MESSAGES, broker.namesrv, columns=names, retries=1_000)
            return sum(batch.num_rows for batch in batches)

        with unreadable(tmp_path):
            consumer, rows = asyncio.create_task(consume()), asyncio.create_task(asyncio.to_thread(read))
            # Each was delivered at least once.
            await until_async(lambda: sum("retrying" in text for text in caplog.messages) >= 6)
        async with asyncio.timeout(3 * TIMEOUT_S):
            assert await consumer == [str(number).encode() for number in range(MESSAGES)]
            assert await rows == MESSAGES


async def test_a_broker_without_a_free_descriptor_serves_every_queue_it_holds(tmp_path: Path) -> None:
    sent = LAST * FEW + MESSAGES

    def consume(broker: Broker) -> int:
        found = 0
        with rmqpy.PullConsumer("billing", broker.namesrv, start_from="earliest") as reader:
            queues = reader.queues("orders")
            assert sum(reader.offsets(queue)[1] for queue in queues) == sent
            reader.assign(queues)
            with no_free_descriptor(broker):
                deadline = time.monotonic() + TIMEOUT_S
                while found < sent and time.monotonic() < deadline:
                    found += len(reader.poll(0.5))
        return found

    async with restarted(tmp_path) as broker:
        assert await asyncio.to_thread(consume, broker) == sent


@contextmanager
def no_free_descriptor(broker: Broker) -> Iterator[None]:
    pid = broker.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    # The lowest that is free.
    used = {int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir()}
    free = min(set(range(len(used) + 1)) - used)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
