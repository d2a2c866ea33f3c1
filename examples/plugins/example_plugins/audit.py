"""A follower: an audit trail of all messages, one JSON line each, without their bodies.

Each line is written exactly once, although the broker may pass a message twice: the last line says how far it came.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from rmqpy import ReceivedMessage
from rmqpy.plugins import Context, LogFollower


class Audit(LogFollower):
    """Appends to `audit.jsonl` in the folder of the plug-in, or in the folder that the option `folder` names."""

    api_version = 1

    def open(self, context: Context) -> None:
        path = Path(context.options.get("folder", context.folder)) / "audit.jsonl"
        self._file = path.open("a+b")
        self._kept = self._cut()
        context.log.info("audit trail in %s", path)

    def keep(self, messages: Sequence[ReceivedMessage]) -> None:
        new = [message for message in messages if message.commit_log_offset > self._kept]
        if not new:
            return
        end = self._file.seek(0, os.SEEK_END)
        try:
            self._file.write(b"".join(map(_line, new)))
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError:
            # A full disk: without the torn line, the broker can pass the batch again.
            self._file.truncate(end)
            raise
        self._kept = new[-1].commit_log_offset

    def close(self) -> None:
        self._file.close()

    def _cut(self) -> int:
        """Remove a line that a kill has torn; return the position of the last one, or -1."""
        self._file.seek(0)
        end, last = 0, b""
        for line in self._file:
            if not line.endswith(b"\n"):
                break
            end, last = end + len(line), line
        self._file.truncate(end)
        return int(json.loads(last)["position"]) if last else -1


def _line(message: ReceivedMessage) -> bytes:
    line = {
        "position": message.commit_log_offset,
        "stored": message.stored_at.isoformat(),
        "from": message.born_host,
        "topic": message.topic,
        "queue": message.queue.queue_id,
        "offset": message.queue_offset,
        "id": message.message_id,
        "keys": message.keys,
    }
    return json.dumps(line).encode() + b"\n"
