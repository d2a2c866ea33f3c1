"""`rmqpy produce`: sends messages from the command line, standard input or a file."""

import os
import stat
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import IO, TYPE_CHECKING, Any

import click

from rmqpy.cli.command import Rows, printed
from rmqpy.cli.options import POSITIVE, client_config, cluster_options, complete_topics, connect, flag
from rmqpy.cli.output import RECORD_KEYS
from rmqpy.cli.terminal import progress
from rmqpy.cli.values import QueueName, name_and_value, queue_name, span
from rmqpy.errors import RocketMQError

if TYPE_CHECKING:
    from rmqpy._native import SendFuture
    from rmqpy.client.interceptors import ProducerInterceptor
    from rmqpy.client.producer.producer import Producer
    from rmqpy.message import Message, MessageQueue, SendResult

#: Sends in flight: enough to keep the connection busy, few enough to stop soon after an error.
UNDER_WAY_MAX = 1024
#: Twice the size limit of brokers: JSON and base64 are longer than the message.
LINE_BYTES_MAX = 30 << 20
#: RocketMQ properties that options set.
_OPTIONS = {"KEYS": "--key", "TAGS": "--tag", "DELAY": "--delay-level", "__SHARDINGKEY": "--shard"}


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.argument("body", required=False)
@click.option("-f", "--file", type=click.File("rb"), help="Send each line of this file.")
@click.option("--whole", is_flag=True, help="Send the whole file or input as one message.")
@click.option("--from-jsonl", is_flag=True, help="Read JSON lines, as printed by `message export`.")
@click.option("-t", "--tag", help="Tag for filters of consumers.")
@click.option("-k", "--key", "keys", multiple=True, help="Key to find the message by; repeatable.")
@click.option(
    "--prop",
    "properties",
    type=name_and_value,
    metavar="NAME=VALUE",
    multiple=True,
    callback=lambda context, option, pairs: _properties(pairs),
    help="User property; repeatable.",
)
@click.option(
    "--shard", "sharding_key", metavar="KEY", help="Send messages with equal keys to one queue, in order."
)
@click.option(
    "--queue", type=queue_name, metavar="[BROKER:]N", help="Send to this queue instead of round-robin."
)
@click.option(
    "--delay",
    type=span,
    metavar="SPAN",
    help="Deliver later: 10s, 5m, 2h, if the brokers have this delay level.",
)
@click.option("--delay-level", type=click.IntRange(1), help="Deliver later: at the broker's Nth delay level.")
@click.option(
    "--deliver-after", type=span, metavar="SPAN", help="Deliver later, to the millisecond: 1500ms, 90s, 2d."
)
@click.option("--count", type=click.IntRange(min=1), default=1, help="Send BODY this many times.")
@click.option(
    "--rate",
    type=POSITIVE,
    metavar="N",
    help="Send at most N messages a second.",
)
@cluster_options
@printed
def command(
    topic: str,
    body: str | None,
    file: IO[bytes] | None,
    whole: bool,
    from_jsonl: bool,
    queue: QueueName | None,
    delay: timedelta | None,
    delay_level: int | None,
    deliver_after: timedelta | None,
    count: int,
    rate: float | None,
    namesrv: str,
    timeout: float,
    **fields: Any,
) -> Rows:
    """Send BODY to TOPIC. If BODY is -, or with --file, send each line that is not empty.

    \b
    rmqpy produce orders "first" --tag paid --key A-1
    rmqpy produce orders "later" --delay 10s
    rmqpy produce orders "tomorrow" --deliver-after 1d
    rmqpy produce lines --file access.log --rate 100
    rmqpy produce lines --file access.log --whole
    tail -f access.log | rmqpy produce lines -
    rmqpy message export orders | rmqpy produce copy - --from-jsonl

    With --from-jsonl, options fill in fields that a line lacks, and RocketMQ's own properties are set again. After
    sending many messages the command reports how many were stored, even if it is interrupted or fails.
    """
    if (body is None) == (file is None):
        raise click.UsageError("give BODY, or - to read lines, or --file")
    lines = file or (sys.stdin.buffer if body == "-" else None)
    if from_jsonl and lines is None:
        raise click.UsageError("--from-jsonl reads lines: give - or --file")
    if whole and (lines is None or from_jsonl):
        raise click.UsageError("--whole needs - or --file, and excludes --from-jsonl")
    if sum(given is not None for given in (delay, delay_level, deliver_after)) > 1:
        raise click.UsageError("give one of --delay, --delay-level and --deliver-after")
    is_later = any(given is not None for given in (delay, delay_level, deliver_after))
    if delay is not None:
        with connect(namesrv, timeout) as admin:
            delay_level = admin.delay_level(delay)
    from rmqpy.client.producer.producer import Producer
    from rmqpy.message import Message

    def message(body: str | bytes, **given: Any) -> Message:
        later: dict[str, Any] = {"delay_level": delay_level, "deliver_after": deliver_after}
        return Message(topic, body, **{**fields, **later, **given})

    def messages() -> Iterator[Message]:
        if lines is None:
            yield from (message(body or "") for _ in range(count))
            return
        for number, line in enumerate(_read_lines(lines), 1):
            # Empty lines are skipped: RocketMQ refuses messages without a body.
            if line := line.rstrip(b"\r\n"):
                try:
                    yield message(**_read(line)) if from_jsonl else message(line)
                except ValueError as error:
                    raise ValueError(f"line {number}: {error}; earlier lines were sent") from None

    shown = [_shown_sends()] if flag("verbose") else []
    with Producer(client_config(namesrv, timeout), send_timeout=timeout, interceptors=shown) as producer:
        to = None if queue is None else queue.find(producer.queues(topic))
        try:
            if whole and lines is not None:
                return _record(producer.send(message(_read_whole(lines)), queue=to), is_later)
            if lines is None and count == 1:
                return _record(producer.send(message(body or ""), queue=to), is_later)
            sending = _Sending(producer, to, rate)
            return {"topic": topic, **sending.send(messages(), lines, count)}
        except ValueError as error:
            raise click.UsageError(str(error)) from None


def _shown_sends() -> "ProducerInterceptor":
    """Logs each send and its result, since sends bypass the log of other requests."""
    import logging

    from rmqpy.client.interceptors import ProducerInterceptor
    from rmqpy.message import SendResult

    log = logging.getLogger(__name__)

    class Shown(ProducerInterceptor):
        def after_send(self, message: "Message", outcome: SendResult | BaseException | None) -> None:
            if isinstance(outcome, SendResult):
                place = f"{outcome.queue} at {outcome.queue_offset}"
                log.debug("SEND_MESSAGE: %s, %s, %d bytes", outcome.status.name, place, len(message.body))
            else:
                log.debug("SEND_MESSAGE to %s: %s", message.topic, outcome)

    return Shown()


def _properties(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return user properties; RocketMQ's own have options, or cannot be set."""
    from rmqpy.message import Message

    properties = dict(pairs)
    for name in properties:
        if Message.is_reserved(name):
            option = _OPTIONS.get(name)
            raise click.UsageError(f"{name} is RocketMQ's own" + (f": give {option}" if option else ""))
    return properties


class _Sending:
    """Many messages, several in flight at a time, and the number that brokers have stored."""

    def __init__(self, producer: "Producer", queue: "MessageQueue | None", rate: float | None) -> None:
        self._producer = producer
        self._queue = queue
        self._rate = rate
        self._under_way: deque[tuple[SendFuture, int]] = deque()
        self._began = time.perf_counter()
        self._sent = self._bytes = self._failed = 0

    def send(self, messages: "Iterable[Message]", lines: IO[bytes] | None, count: int) -> dict[str, Any]:
        """Send all of them and stop at the first failure. Always awaits the sends in flight and reports what was
        stored."""
        total = count if lines is None else _size(lines)
        try:
            with progress("produce") as show_progress:
                for begun, message in enumerate(messages):
                    if self._rate is not None:
                        time.sleep(max(0.0, self._began + begun / self._rate - time.perf_counter()))
                    if len(self._under_way) == UNDER_WAY_MAX:
                        self._await_one()
                    future = self._producer.submit(message, queue=self._queue)
                    self._under_way.append((future, len(message.body)))
                    show_progress(begun if lines is None or not total else lines.tell(), total, self._figures)
                while self._under_way:
                    self._await_one()
        except BaseException:
            self._finish()
            failed = f", {self._failed:,} failed" if self._failed else ""
            click.echo(f"sent before the end: {self._figures()}{failed}", err=True)
            raise
        seconds = time.perf_counter() - self._began
        # The last message also waits its turn: three at 2 a second are sent within 1 s.
        turns = seconds if self._rate is None else max(seconds, self._sent / self._rate)
        return {
            "sent": self._sent,
            "bytes": self._bytes,
            "seconds": round(seconds, 3),
            "per_second": round(self._sent / turns, 1),
            "mb_per_second": round(self._bytes / turns / 1e6, 3),
        }

    def _await_one(self) -> None:
        """Await the oldest send, which stays in flight if the wait is interrupted."""
        future, size = self._under_way[0]
        try:
            future.result()
        except Exception:
            self._under_way.popleft()
            self._failed += 1
            raise
        self._under_way.popleft()
        self._sent += 1
        self._bytes += size

    def _finish(self) -> None:
        """Await the sends in flight; their first failure was already raised."""
        while self._under_way:
            with suppress(RocketMQError):
                self._await_one()

    def _figures(self) -> str:
        seconds = time.perf_counter() - self._began
        return (
            f"{self._sent:,} messages, {self._bytes / 1e6:,.1f} MB, {self._bytes / seconds / 1e6:,.1f} MB/s"
        )


def _size(lines: IO[bytes]) -> int:
    """The size of a file; 0 if it is not a file, for instance a pipe."""
    status = os.fstat(lines.fileno()) if _has_descriptor(lines) else None
    return status.st_size if status is not None and stat.S_ISREG(status.st_mode) else 0


def _has_descriptor(lines: IO[bytes]) -> bool:
    try:
        lines.fileno()
    except OSError:
        return False
    return True


def _read_lines(lines: IO[bytes]) -> Iterator[bytes]:
    """Read the lines of a file. Raises `ValueError` at a line too long for a message, without reading all of it."""
    number = 0
    while line := lines.readline(LINE_BYTES_MAX + 1):
        number += 1
        if len(line) > LINE_BYTES_MAX:
            raise ValueError(
                f"line {number} has more than {LINE_BYTES_MAX >> 20} MiB; earlier lines were sent"
            )
        yield line


def _read_whole(file: IO[bytes]) -> bytes:
    body = file.read(LINE_BYTES_MAX + 1)
    if len(body) > LINE_BYTES_MAX:
        raise ValueError(f"the file has more than {LINE_BYTES_MAX >> 20} MiB, too much for one message")
    return body


def _read(line: bytes) -> dict[str, Any]:
    """Return arguments of a message from a line of `message export` or `consume -o jsonl`, without absent fields.

    Raises `ValueError`. Ignores topic, place, ids and times, which belong to the original message.
    """
    import json

    from rmqpy.message import Message

    try:
        record = json.loads(line)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    for key in record:
        if key not in RECORD_KEYS:
            from rmqpy.config.keys import nearest

            close = nearest(key, RECORD_KEYS)
            raise ValueError(f"unknown key {key!r}" + (f"; did you mean {close!r}?" if close else ""))
    match record:
        case {"body": str(body)}:
            fields: dict[str, Any] = {"body": body}
        case {"body_base64": str(text)}:
            import base64

            fields = {"body": base64.b64decode(text, validate=True)}
        case _:
            raise ValueError("it needs body or body_base64 as a string")
    match record.get("tag"):
        case None:
            pass
        case str(tag):
            fields["tag"] = tag
        case _:
            raise ValueError("tag must be a string")
    if keys := record.get("keys"):
        if not (isinstance(keys, list) and all(isinstance(key, str) for key in keys)):
            raise ValueError("keys must be a list of strings")
        fields["keys"] = keys
    if properties := record.get("properties"):
        if not (isinstance(properties, dict) and all(isinstance(text, str) for text in properties.values())):
            raise ValueError("properties must be an object of strings")
        if shard := properties.get("__SHARDINGKEY"):
            fields["sharding_key"] = shard
        if own := {name: text for name, text in properties.items() if not Message.is_reserved(name)}:
            fields["properties"] = own
    return fields


def _record(result: "SendResult", is_later: bool) -> dict[str, object]:
    """The result of a send. A delayed message gets its queue offset only when it is due."""
    record: dict[str, object] = {
        "message_id": result.message_id,
        **({"recall_handle": result.recall_handle} if result.recall_handle else {}),
        "status": result.status.name,
        "topic": result.queue.topic,
        "broker": result.queue.broker,
        "queue": result.queue.queue_id,
        "offset": result.queue_offset,
    }
    return record | {"offset": None, "delayed": True} if is_later else record
