"""An observer: messages by topic and progress by group, sent to StatsD over UDP."""

import socket
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from rmqpy import ReceivedMessage
from rmqpy.plugins import Commit, Context, Observer


class Rates(Observer):
    """Options: `host` and `port` of StatsD, by default 127.0.0.1 and 8125."""

    api_version = 1

    def open(self, context: Context) -> None:
        host, port = context.options.get("host", "127.0.0.1"), int(context.options.get("port", 8125))
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.connect((host, port))

    def sent(self, messages: Sequence[ReceivedMessage]) -> None:
        for topic, count in Counter(message.topic for message in messages).items():
            self._send(f"messages.{topic}:{count}|c")

    def consumed(self, commits: Sequence[Commit]) -> None:
        for commit in commits:
            self._send(f"offset.{commit.group}.{commit.topic}.{commit.queue_id}:{commit.offset}|g")

    def close(self) -> None:
        self._socket.close()

    def _send(self, line: str) -> None:
        # StatsD may be restarting.
        with suppress(ConnectionRefusedError):
            self._socket.send(line.encode())
