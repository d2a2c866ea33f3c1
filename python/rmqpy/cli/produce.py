"""`rmqpy produce`: messages from the command line, standard input or a file."""

import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import IO, TYPE_CHECKING, Any

import click

from rmqpy.cli.command import Rows, printed
from rmqpy.cli.options import (
    POSITIVE,
    client_config,
    cluster_options,
    complete_topics,
    connect,
    name_and_value,
    span,
)

if TYPE_CHECKING:
    from rmqpy.client.producer import Producer
    from rmqpy.message import Message, SendResult

#: Sends awaited late: enough to keep the connection busy, few enough that an error stops the command soon.
UNDER_WAY_MAX = 1024


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.argument("body", required=False)
@click.option("-f", "--file", type=click.File("rb"), help="Send each line of this file.")
@click.option("--from-jsonl", is_flag=True, help="Lines are JSON, as `message export` prints it.")
@click.option("-t", "--tag", help="Tag that consumers can filter by.")
@click.option("-k", "--key", "keys", multiple=True, help="Key to find the message by; repeatable.")
@click.option(
    "--prop",
    "properties",
    type=name_and_value,
    metavar="NAME=VALUE",
    multiple=True,
    callback=lambda context, option, pairs: dict(pairs),
    help="User property; repeatable.",
)
@click.option(
    "--shard", "sharding_key", metavar="KEY", help="Messages with equal keys go to one queue, in order."
)
@click.option(
    "--delay", type=span, metavar="SPAN", help="Deliver later: 10s, 5m, 2h, if the brokers have that delay."
)
@click.option("--delay-level", type=click.IntRange(1), help="Deliver later: after the broker's Nth delay.")
@click.option("--count", type=click.IntRange(min=1), default=1, help="Send BODY so many times.")
@click.option(
    "--rate",
    type=POSITIVE,
    metavar="N",
    help="Send at most N messages a second of many.",
)
@cluster_options
@printed
def command(
    topic: str,
    body: str | None,
    file: IO[bytes] | None,
    from_jsonl: bool,
    delay: timedelta | None,
    delay_level: int | None,
    count: int,
    rate: float | None,
    namesrv: str,
    timeout: float,
    **fields: Any,
) -> Rows:
    """Send BODY to TOPIC. With - for BODY, or --file, every line that is not empty becomes a message.

    \b
    rmqpy produce orders "first" --tag paid --key A-1
    rmqpy produce orders "later" --delay 10s
    rmqpy produce lines --file access.log --rate 100
    tail -f access.log | rmqpy produce lines -
    rmqpy message export orders | rmqpy produce copy - --from-jsonl

    With --from-jsonl the options are for what a line leaves out; RocketMQ's own properties are set anew.
    """
    if (body is None) == (file is None):
        raise click.UsageError("give BODY, or - to read lines, or --file")
    lines = file or (sys.stdin.buffer if body == "-" else None)
    if from_jsonl and lines is None:
        raise click.UsageError("--from-jsonl reads lines: give - or --file")
    if delay is not None:
        if delay_level is not None:
            raise click.UsageError("give --delay or --delay-level")
        with connect(namesrv, timeout) as admin:
            delay_level = admin.delay_level(delay)
    from rmqpy.client.producer import Producer
    from rmqpy.message import Message

    def message(body: str | bytes, **given: Any) -> Message:
        return Message(topic, body, delay_level=delay_level, **{**fields, **given})

    def messages() -> Iterator[Message]:
        if lines is None:
            yield from (message(body or "") for _ in range(count))
            return
        for number, line in enumerate(lines, 1):
            # Empty ones are skipped: RocketMQ takes no message without a body.
            if line := line.rstrip(b"\r\n"):
                try:
                    yield message(**_read(line)) if from_jsonl else message(line)
                except ValueError as error:
                    raise ValueError(f"line {number}: {error}; those before it were sent") from None

    with Producer(client_config(namesrv, timeout), send_timeout=timeout) as producer:
        try:
            if lines is None and count == 1:
                return _record(producer.send(message(body or "")))
            return {"topic": topic, **_send(producer, messages(), rate)}
        except ValueError as error:
            raise click.UsageError(str(error)) from None


def _send(producer: "Producer", messages: "Iterable[Message]", rate: float | None) -> dict[str, Any]:
    """Send all of them, many under way at a time. What was begun is awaited, whatever ends the messages."""
    began = time.perf_counter()
    under_way: deque[Any] = deque()
    sent = 0
    try:
        for message in messages:
            if rate is not None:
                time.sleep(max(0.0, began + sent / rate - time.perf_counter()))
            if len(under_way) == UNDER_WAY_MAX:
                under_way.popleft().result()
            under_way.append(producer.submit(message))
            sent += 1
    finally:
        while under_way:
            under_way.popleft().result()
    return {"sent": sent, "seconds": round(time.perf_counter() - began, 3)}


def _read(line: bytes) -> dict[str, Any]:
    """A line of `message export` or `consume -o jsonl` as arguments of a message; absent fields are left out.

    Raises `ValueError`. Its topic, place, ids and times are those of the message it was printed from.
    """
    import json

    from rmqpy.message import Message

    try:
        record = json.loads(line)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise ValueError("no JSON object")
    match record:
        case {"body": str(body)}:
            fields: dict[str, Any] = {"body": body}
        case {"body_base64": str(text)}:
            import base64

            fields = {"body": base64.b64decode(text, validate=True)}
        case _:
            raise ValueError("it needs a body, or a body_base64, which are text")
    match record.get("tag"):
        case None:
            pass
        case str(tag):
            fields["tag"] = tag
        case _:
            raise ValueError("tag must be text")
    if keys := record.get("keys"):
        if not (isinstance(keys, list) and all(isinstance(key, str) for key in keys)):
            raise ValueError("keys must be a list of texts")
        fields["keys"] = keys
    if properties := record.get("properties"):
        if not (isinstance(properties, dict) and all(isinstance(text, str) for text in properties.values())):
            raise ValueError("properties must be an object of texts")
        if shard := properties.get("__SHARDINGKEY"):
            fields["sharding_key"] = shard
        if own := {name: text for name, text in properties.items() if not Message.is_reserved(name)}:
            fields["properties"] = own
    return fields


def _record(result: "SendResult") -> dict[str, object]:
    return {
        "message_id": result.message_id,
        "status": result.status.name,
        "topic": result.queue.topic,
        "broker": result.queue.broker,
        "queue": result.queue.queue_id,
        "offset": result.queue_offset,
    }
