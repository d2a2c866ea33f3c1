"""Many messages in flight: `make campaign NAME=pop-in-flight`.

All messages are popped in batches of 32, and none is acknowledged: the memory of the broker is measured. Then it is
killed, and the start on its files is timed until it answers a pop. In the end all messages are acknowledged by their
handles, and none may come again after its time.
"""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

from campaigns.pop.loads import Batch, pop_batch, private_mib, produce, start
from crash.killable import Broker
from rmqpy.protocol.codes import RequestCode
from wire import Peer

QUEUES = 8
CONNECTIONS = 16
#: Goal for the private memory that messages in flight cost.
MEMORY_MIB_MAX = 150.0


async def pop_all(address: str, count: int, invisible_s: float) -> list[Batch]:
    popped: list[Batch] = []

    async def some() -> None:
        async with await Peer.connect(address) as peer:
            while (batch := await pop_batch(peer, invisible_s=invisible_s)) is not None:
                popped.append(batch)

    await asyncio.gather(*(some() for _ in range(CONNECTIONS)))
    assert sum(batch.count() for batch in popped) == count
    return popped


async def acknowledge(address: str, batches: list[Batch]) -> float:
    """Acknowledge all; the seconds it took, without the time to build the requests."""
    bodies = [batch.acknowledgement() for batch in batches]
    began = time.monotonic()

    async def some() -> None:
        async with await Peer.connect(address) as peer:
            while bodies:
                answer = await peer.call(RequestCode.BATCH_ACK_MESSAGE, {}, bodies.pop())
                assert answer.code == 0, answer

    await asyncio.gather(*(some() for _ in range(CONNECTIONS)))
    return time.monotonic() - began


async def nothing_comes_again(broker: Broker, until: float) -> float:
    """Wait until all messages were due; the highest private memory meanwhile."""
    highest = 0.0
    async with await Peer.connect(broker.address) as peer:
        while time.time() < until:
            assert await pop_batch(peer, invisible_s=600, wait_ms=1_000) is None, "all are acknowledged"
            highest = max(highest, private_mib(broker))
    return highest


def run(folder: Path, count: int, invisible_s: float) -> None:
    broker = start(folder)
    try:
        produce(broker, count, queues=QUEUES)
        before = private_mib(broker)
        began = time.monotonic()
        batches = asyncio.run(pop_all(broker.address, count, invisible_s))
        seconds = time.monotonic() - began
        due = time.time() + invisible_s
        memory = private_mib(broker)
        print(
            f"{count:,} in flight in {len(batches):,} batches, popped in {seconds:.1f} s: private memory "
            f"{memory:.0f} MiB, {before:.0f} before",
            flush=True,
        )
        broker.kill()
        began = time.monotonic()
        broker = start(folder)
        serving = time.monotonic() - began
        assert asyncio.run(first_pop(broker)) is None, "all are in flight"
        answered = time.monotonic() - began
        after = private_mib(broker)
        print(
            f"start after the kill: {serving:.2f} s until it serves, {answered:.2f} s until a pop is answered, "
            f"private memory {after:.0f} MiB",
            flush=True,
        )
        seconds = asyncio.run(acknowledge(broker.address, batches))
        acknowledged = private_mib(broker)
        print(
            f"acknowledged in batches in {seconds:.1f} s: {len(batches) / seconds:,.0f} requests/s, "
            f"{count / seconds:,.0f} messages/s; private memory {acknowledged:.0f} MiB",
            flush=True,
        )
        assert time.time() < due - invisible_s / 10, "the invisible time is too short for this machine"
        highest = asyncio.run(nothing_comes_again(broker, due + 15))
        print(f"all were due, 0 came again; private memory {highest:.0f} MiB at most meanwhile")
        assert memory - before < MEMORY_MIB_MAX
    finally:
        broker.kill()


async def first_pop(broker: Broker) -> Batch | None:
    async with await Peer.connect(broker.address) as peer:
        return await pop_batch(peer, invisible_s=60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--invisible", type=float, default=240.0, metavar="SECONDS")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rmqpy-pop-") as folder:
        run(Path(folder), asked.messages, asked.invisible)


if __name__ == "__main__":
    main()
