"""Lagging readers: groups that stay a number of messages, over all queues, behind the end of a topic
(`python -m benchmarks.lagging_readers ADDRESS TOPIC GROUPS MESSAGES SECONDS`).

One thread and connection for each group; bodies are counted, not parsed. Prints what all have read.
"""

import itertools
import json
import socket
import struct
import sys
import threading
import time
from dataclasses import dataclass, field

from benchmarks import wire

_PULL = 11
_FOUND, _NOTHING_NEW = 0, 19
_MESSAGES_MAX = 32
_PAUSE_SECONDS = 0.002


@dataclass
class Read:
    """What a group has read."""

    messages: int = 0
    bytes: int = 0
    failures: list[str] = field(default_factory=list)


def main(address: str, topic: str, groups: str, messages: str, seconds: str) -> None:
    """Read in all groups, and print the totals."""
    until = time.monotonic() + float(seconds)
    reads = [Read() for _ in range(int(groups))]
    threads = [
        threading.Thread(target=_read, args=(address, topic, f"group-{number}", int(messages), until, read))
        for number, read in enumerate(reads)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures := [failure for read in reads for failure in read.failures]:
        sys.exit(failures[0])
    result = {"messages": sum(read.messages for read in reads), "bytes": sum(read.bytes for read in reads)}
    print(json.dumps(result | {"seconds": float(seconds)}))


def _read(address: str, topic: str, group: str, messages: int, until: float, read: Read) -> None:
    ends = list(itertools.takewhile(bool, (wire.max_offset(address, topic, at) for at in itertools.count())))
    if not ends:
        read.failures.append(f"{topic} has no messages")
        return
    lag = messages // len(ends)
    nexts = [max(0, end - lag) for end in ends]
    with wire.connected(address) as connection:
        connection.settimeout(30)
        while time.monotonic() < until:
            is_idle = True
            for queue_id, offset in enumerate(nexts):
                if offset + lag > ends[queue_id]:
                    ends[queue_id] = wire.max_offset(address, topic, queue_id)
                    continue
                answer, size = _pull(connection, topic, group, queue_id, offset)
                if answer.code not in (_FOUND, _NOTHING_NEW):
                    read.failures.append(f"{group}, queue {queue_id}: {answer.code} {answer.remark}")
                    return
                fields = answer.ext or {}
                nexts[queue_id], ends[queue_id] = int(fields["nextBeginOffset"]), int(fields["maxOffset"])
                read.messages += nexts[queue_id] - offset
                read.bytes += size
                is_idle = False
            if is_idle:
                time.sleep(_PAUSE_SECONDS)


def _pull(
    connection: socket.socket, topic: str, group: str, queue_id: int, offset: int
) -> tuple[wire.Frame, int]:
    """Pull once; return the answer, and the bytes of its messages."""
    fields = {
        "consumerGroup": group, "topic": topic, "queueId": str(queue_id), "queueOffset": str(offset),
        "maxMsgNums": str(_MESSAGES_MAX), "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
        "subscription": "*", "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip
    connection.sendall(wire.request(_PULL, fields))
    (size,) = struct.unpack(">I", wire.read(connection, 4))
    answer = wire.Frame.unpack(wire.read(connection, size))
    return answer, len(answer.body)


if __name__ == "__main__":
    main(*sys.argv[1:])
