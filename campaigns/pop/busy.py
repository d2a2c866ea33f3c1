"""Workers that share one queue and work on each message for a while: `make campaign NAME=pop-busy`.

Each of 16 workers is an `AsyncSimpleConsumer` that receives one message, works for 100 ms and acknowledges it. All are
busy where their rate is almost 160 messages/s: a consumer of the queue alone would reach 10.
"""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

import rmqpy
from campaigns.pop.loads import GROUP, TOPIC, produce, start
from rmqpy.load import machine

WORKERS = 16
WORK_S = 0.1
RATE_MIN = 155.0


class Work:
    """Numbers of finished messages."""

    def __init__(self) -> None:
        self.finished: list[float] = []
        self.ids: set[str] = set()

    async def work(self, namesrv: str, until: float) -> None:
        async with rmqpy.AsyncSimpleConsumer(GROUP, namesrv, start_from="earliest") as consumer:
            consumer.subscribe(TOPIC)
            while time.monotonic() < until:
                for message in await consumer.receive(1, wait=1):
                    # The work.
                    await asyncio.sleep(WORK_S)
                    await consumer.ack(message)
                    self.finished.append(time.monotonic())
                    self.ids.add(message.message_id)


async def measure(namesrv: str, seconds: float) -> Work:
    work = Work()
    until = time.monotonic() + seconds
    await asyncio.gather(*(work.work(namesrv, until) for _ in range(WORKERS)))
    return work


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rmqpy-pop-") as folder:
        broker = start(Path(folder))
        try:
            produce(broker, round(asked.seconds * WORKERS / WORK_S), queues=1)
            work = asyncio.run(measure(broker.namesrv, asked.seconds))
            used = machine.processor_seconds(broker.process.pid) or 0.0
        finally:
            broker.kill()
    # Between the first second, in which consumers connect, and the last one, in which they end.
    first, last = work.finished[0] + 1, work.finished[-1] - 1
    counted = sum(first <= at < last for at in work.finished)
    rate = counted / (last - first)
    print(
        f"{WORKERS} workers on one queue, {WORK_S * 1_000:.0f} ms a message: {rate:.1f} messages/s of "
        f"{WORKERS / WORK_S:.0f}; {len(work.finished):,} finished, {len(work.finished) - len(work.ids)} twice; the "
        f"broker took {used:.1f} s of CPU"
    )
    assert len(work.ids) == len(work.finished)
    assert rate >= RATE_MIN


if __name__ == "__main__":
    main()
