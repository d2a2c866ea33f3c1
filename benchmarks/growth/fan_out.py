"""Fan-out client: groups that wait for each message of a queue (`python -m benchmarks.growth.fan_out BROKER GROUPS
RATE SECONDS PID`).

Each group has a connection with one pull, which the broker parks until there is a message. One more connection sends
at a steady rate. Prints deliveries per second, microseconds from send to arrival (99th percentile), and microseconds
of the broker's processor time per delivery.
"""

import asyncio
import struct
import sys
import time

from benchmarks import wire
from benchmarks.measure import TOPIC
from benchmarks.processes import cpu_seconds

_SEND, _PULL, _MAX_OFFSET = 310, 11, 30
_SUSPEND_MS = 15_000
#: Header bits of a pull: it may wait, and carries its subscription.
_SYS_FLAG = 2 | 4
_BODY_BYTES = 128
#: Offsets in a record with IPv4 hosts.
_BODY_AT = 88


class Caller:
    """One connection, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def to(cls, address: str) -> "Caller":
        """Open a connection."""
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def ask(self, code: int, fields: dict[str, str], body: bytes = b"") -> wire.Frame:
        """Send a request and return the answer."""
        self._writer.write(wire.request(code, fields, body))
        (size,) = struct.unpack(">I", await self._reader.readexactly(4))
        return wire.Frame.unpack(await self._reader.readexactly(size))


async def read(caller: Caller, group: str, offset: int, taken: list[float]) -> None:
    """Pull forever; record the latency of each message in microseconds."""
    fields = {
        "consumerGroup": group, "topic": TOPIC, "queueId": "0", "maxMsgNums": "32", "sysFlag": str(_SYS_FLAG),
        "commitOffset": "0", "suspendTimeoutMillis": str(_SUSPEND_MS), "subscription": "*", "subVersion": "0",
        "expressionType": "TAG",
    }  # fmt: skip
    while True:
        answer = await caller.ask(_PULL, fields | {"queueOffset": str(offset)})
        now, records = time.time(), answer.body
        at = 0
        while at < len(records):
            (sent,) = struct.unpack_from(">d", records, at + _BODY_AT)
            taken.append((now - sent) * 1e6)
            (size,) = struct.unpack_from(">i", records, at)
            at += size
        offset = int((answer.ext or {}).get("nextBeginOffset", offset))


async def send(caller: Caller, rate: float, until: float) -> None:
    """Send a message at each interval; its body begins with the time."""
    fields = {
        "a": "bench", "b": TOPIC, "c": "TBW102", "d": "1", "e": "0", "f": "0", "h": "0", "i": "", "j": "0",
        "k": "false", "m": "false",
    }  # fmt: skip
    due = time.time()
    while due < until:
        await asyncio.sleep(max(0.0, due - time.time()))
        now = time.time()
        body = struct.pack(">d", now) + bytes(_BODY_BYTES - 8)
        answer = await caller.ask(_SEND, fields | {"g": str(round(now * 1_000))}, body)
        if answer.code != 0:
            raise RuntimeError(f"a send was refused: {answer}")
        due += 1 / rate


async def main(address: str, groups: int, rate: float, seconds: float, pid: int) -> None:
    """Print the three metrics."""
    producer = await Caller.to(address)
    offsets = (await producer.ask(_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"})).ext or {}
    taken: list[float] = []
    readers = [
        asyncio.create_task(read(await Caller.to(address), f"group-{number}", int(offsets["offset"]), taken))
        for number in range(groups)
    ]
    # The first pull creates a group, and Java's compiler needs a warm-up.
    await send(producer, rate, time.time() + seconds / 2)
    taken.clear()
    began, before = time.monotonic(), cpu_seconds(pid)
    await send(producer, rate, time.time() + seconds)
    await asyncio.sleep(0.2)
    spent, lasted = cpu_seconds(pid) - before, time.monotonic() - began
    for reader in readers:
        if reader.done():
            reader.result()
        reader.cancel()
    taken.sort()
    print(len(taken) / lasted, taken[int(len(taken) * 0.99)], spent / len(taken) * 1e6)


if __name__ == "__main__":
    _, broker, count, per_second, duration, process = sys.argv
    asyncio.run(main(broker, int(count), float(per_second), float(duration), int(process)))
