"""Many workers that wait for messages: `make campaign NAME=pop-parked`.

Each worker is a connection with one parked pop. Messages are sent one by one, and each contains the time when it was
sent: measured are the memory of the broker, and the time until a worker has the message. The worker acknowledges it and
parks again.
"""

import argparse
import asyncio
import struct
import tempfile
import time
from pathlib import Path

from broker.records import records
from campaigns.pop.loads import GROUP, TOPIC, Batch, percentile, pop_header, private_mib, start
from crash.killable import Broker
from crash.traffic import send_header
from rmqpy.protocol.codes import RequestCode
from waiting import until_async
from wire import Peer

QUEUES = 8
SENT_PER_SECOND = 100
#: Below the 30 s after which a call of the campaign gives up.
WAIT_MS = 25_000
CONNECTING_MAX = 100


class Workers:
    """Connections that are parked, and the ms from a send to its receipt."""

    def __init__(self) -> None:
        self.late_ms: list[float] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._peers: list[Peer] = []

    async def connect(self, address: str, count: int) -> None:
        room = asyncio.Semaphore(CONNECTING_MAX)

        async def one() -> None:
            async with room:
                peer = await Peer.connect(address)
                # A silent connection is closed.
                await peer.call(RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"})
                self._peers.append(peer)

        await asyncio.gather(*(one() for _ in range(count)))

    def park(self) -> None:
        self._tasks = [asyncio.create_task(self._work(peer)) for peer in self._peers]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for peer in self._peers:
            peer.writer.close()

    async def _work(self, peer: Peer) -> None:
        while True:
            header = pop_header(1, invisible_s=60, wait_ms=WAIT_MS)
            answer = await peer.call(RequestCode.POP_MESSAGE, header)
            if answer.code != 0:
                assert answer.code == 210, answer
                continue
            received = time.monotonic()
            (record,) = records(answer.body)
            (sent,) = struct.unpack_from(">d", record.body)
            self.late_ms.append((received - sent) * 1_000)
            body = Batch.of(answer.ext or {}).acknowledgement()
            assert (await peer.call(RequestCode.BATCH_ACK_MESSAGE, {}, body)).code == 0


async def parked(broker: Broker) -> int:
    fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1"}
    async with await Peer.connect(broker.address) as peer:
        answer = await peer.call(RequestCode.POLLING_INFO, fields)
    assert answer.code == 0, answer
    return int((answer.ext or {})["pollingNum"])


async def send(address: str, count: int) -> None:
    """Messages one by one, at a constant rate."""
    async with await Peer.connect(address) as peer:
        for number in range(count):
            next_at = time.monotonic() + 1 / SENT_PER_SECOND
            body = struct.pack(">d", time.monotonic()) + bytes(120)
            assert (await peer.call(310, send_header(TOPIC, number % QUEUES, QUEUES), body)).code == 0
            # The rate of the load.
            await asyncio.sleep(max(0.0, next_at - time.monotonic()))


async def measure(broker: Broker, count: int, messages: int) -> None:
    fields = {
        "topic": TOPIC,
        "defaultTopic": "TBW102",
        "readQueueNums": str(QUEUES),
        "writeQueueNums": str(QUEUES),
    }
    fields |= {"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    async with await Peer.connect(broker.address) as peer:
        assert (await peer.call(17, fields)).code == 0
    before = private_mib(broker)
    workers = Workers()
    await workers.connect(broker.address, count)
    connected = private_mib(broker)
    workers.park()
    await until_async(lambda: parked(broker), lambda found: found >= count, pause=0.5)
    memory = private_mib(broker)
    await send(broker.address, messages)
    await until_async(lambda: len(workers.late_ms), lambda found: found >= messages)
    await workers.close()
    late = workers.late_ms
    print(
        f"{count:,} parked workers, each a connection: private memory {memory:.0f} MiB, {connected:.0f} with "
        f"connections alone, {before:.0f} before; {len(late):,} messages at {SENT_PER_SECOND} a second, from send to "
        f"receipt p50 {percentile(late, 50):.2f} ms, p99 {percentile(late, 99):.2f} ms, at most {max(late):.1f} ms"
    )
    assert len(late) == messages, "each is received once"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=10_000)
    parser.add_argument("--messages", type=int, default=5_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rmqpy-pop-") as folder:
        for count in (1, asked.workers):
            bounds = (f"popPollingSize={max(1024, 2 * count)}", f"maxConnections={count + 100}")
            broker = start(Path(folder) / str(count), *bounds)
            try:
                asyncio.run(measure(broker, count, asked.messages))
            finally:
                broker.kill()


if __name__ == "__main__":
    main()
