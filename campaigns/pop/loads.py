"""Brokers, messages and pops of the POP campaigns.

A broker runs in a separate process with files of the default order of size. Pops and acknowledgements are frames, so
that the client of the campaign costs little.
"""

import base64
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from crash.killable import Broker
from rmqpy.load.machine import private_bytes
from rmqpy.protocol.codes import RequestCode
from wire import Peer

TOPIC, GROUP = "jobs", "workers"
BROKER_NAME = "broker-a"
MESSAGES_MAX = 32
#: Files of a broker in production, but for the log, which need not be preallocated by the gigabyte.
FILES = ("mappedFileSizeCommitLog=268435456", "mappedFileSizeConsumeQueue=6000000", "maxIndexNum=5000000")


def start(folder: Path, *settings: str) -> Broker:
    """A broker on this folder, serving."""
    return Broker.start(folder, *FILES, f"brokerName={BROKER_NAME}", *settings)


def private_mib(broker: Broker) -> float:
    """Memory of the broker that it shares with no file."""
    return (private_bytes(broker.process.pid) or 0) / 2**20


def produce(broker: Broker, count: int, *, queues: int, body_bytes: int = 128) -> None:
    """Send this number of messages in batches."""
    options = ["-c", "4", "-w", "8", "--batch", "32", "--queues", str(queues), "-s", str(body_bytes)]
    options += ["--count", str(count), "-d", "600", "--warm-up", "0", "-n", broker.namesrv]
    command = [sys.executable, "-m", "rmqpy", "bench", "produce", TOPIC, *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def pop_header(count: int, *, invisible_s: float, wait_ms: int = 0) -> dict[str, str]:
    """A POP_MESSAGE for messages of any queue."""
    return {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1", "maxMsgNums": str(count),
        "invisibleTime": str(round(invisible_s * 1_000)), "pollTime": str(wait_ms),
        "bornTime": str(time.time_ns() // 1_000_000), "initMode": "0", "expType": "TAG", "exp": "*", "order": "false",
    }  # fmt: skip


class Batch(NamedTuple):
    """The messages of one answer, as its header names them."""

    popped_ms: str
    invisible_ms: str
    revive_queue: str
    starts: str
    offsets: str

    @classmethod
    def of(cls, ext: Mapping[str, str]) -> "Batch":
        names = ("popTime", "invisibleTime", "reviveQid", "startOffsetInfo", "msgOffsetInfo")
        return cls(*(ext[name] for name in names))

    def count(self) -> int:
        return sum(part.count(",") + 1 for part in self.offsets.split(";"))

    def acknowledgement(self) -> bytes:
        """The body of a BATCH_ACK_MESSAGE for all of them."""
        starts = {}
        for part in self.starts.split(";"):
            mark, queue, start = part.split(" ")
            starts[mark, queue] = int(start)
        entries = []
        for part in self.offsets.split(";"):
            mark, queue, listed = part.split(" ")
            start = starts[mark, queue]
            bits = sum(1 << (int(offset) - start) for offset in listed.split(","))
            packed = base64.b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode()
            entries.append(
                {"c": GROUP, "t": TOPIC, "r": mark, "so": start, "q": int(queue), "rq": int(self.revive_queue),
                 "pt": int(self.popped_ms), "it": int(self.invisible_ms), "b": packed}
            )  # fmt: skip
        return json.dumps({"brokerName": BROKER_NAME, "acks": entries}).encode()


async def pop_batch(peer: Peer, *, invisible_s: float, wait_ms: int = 0) -> Batch | None:
    """Up to 32 messages; `None` where there is none."""
    header = pop_header(MESSAGES_MAX, invisible_s=invisible_s, wait_ms=wait_ms)
    answer = await peer.call(RequestCode.POP_MESSAGE, header)
    return Batch.of(answer.ext or {}) if answer.code == 0 else None


def percentile(values: list[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
