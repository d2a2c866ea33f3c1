"""`rmqpy produce`: messages from the command line, standard input or a file."""

import sys
import time
from collections import deque
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

import click

from rmqpy.cli.options import client_config, cluster_options, complete_topics, name_and_value
from rmqpy.cli.output import Format, output_option, show

if TYPE_CHECKING:
    from rmqpy.message import SendResult

#: Sends awaited late: enough to keep the connection busy, few enough that an error stops the command soon.
UNDER_WAY_MAX = 1024


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.argument("body", required=False)
@click.option("-f", "--file", type=click.File("rb"), help="Send each line of this file.")
@click.option("-t", "--tag", help="Tag that consumers can filter by.")
@click.option("-k", "--key", "keys", multiple=True, help="Key to find the message by; repeatable.")
@click.option(
    "--prop",
    "properties",
    type=name_and_value,
    metavar="NAME=VALUE",
    multiple=True,
    help="User property; repeatable.",
)
@click.option("--shard", metavar="KEY", help="Messages with equal keys go to one queue, in order.")
@click.option("--delay-level", type=click.IntRange(1), help="Deliver later: after the broker's Nth delay.")
@click.option("--count", type=click.IntRange(min=1), default=1, help="Send BODY so many times.")
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="Send at most N messages a second of many.",
)
@cluster_options
@output_option
def command(
    topic: str,
    body: str | None,
    file: IO[bytes] | None,
    tag: str | None,
    keys: tuple[str, ...],
    properties: tuple[tuple[str, str], ...],
    shard: str | None,
    delay_level: int | None,
    count: int,
    rate: float | None,
    namesrv: str,
    timeout: float,
    output: Format,
) -> None:
    """Send BODY to TOPIC. With - for BODY, or --file, every line that is not empty becomes a message.

    \b
    rmqpy produce orders "first" --tag paid --key A-1
    rmqpy produce lines --file access.log --rate 100
    tail -f access.log | rmqpy produce lines -
    """
    if (body is None) == (file is None):
        raise click.UsageError("give BODY, or - to read lines, or --file")
    from rmqpy.client.producer import Producer
    from rmqpy.message import Message

    def made(body: str | bytes) -> Message:
        try:
            return Message(
                topic,
                body,
                tag=tag,
                keys=keys,
                properties=dict(properties),
                sharding_key=shard,
                delay_level=delay_level,
            )
        except ValueError as error:
            raise click.UsageError(str(error)) from None

    with Producer(client_config(namesrv, timeout), send_timeout=timeout) as producer:
        if body is not None and body != "-" and count == 1:
            show(_record(producer.send(made(body))), output)
            return
        bodies = _lines(file or sys.stdin.buffer) if file or body == "-" else iter([body or ""] * count)
        began = time.perf_counter()
        under_way: deque[Any] = deque()
        sent = 0
        for each in bodies:
            if rate is not None:
                time.sleep(max(0.0, began + sent / rate - time.perf_counter()))
            if len(under_way) == UNDER_WAY_MAX:
                under_way.popleft().result()
            under_way.append(producer.submit(made(each)))
            sent += 1
        for future in under_way:
            future.result()
    show({"topic": topic, "sent": sent, "seconds": round(time.perf_counter() - began, 3)}, output)


def _lines(source: IO[bytes]) -> Iterator[bytes]:
    """Lines without their end. Empty ones are skipped: RocketMQ takes no message without a body."""
    for line in source:
        if line := line.rstrip(b"\r\n"):
            yield line


def _record(result: "SendResult") -> dict[str, object]:
    return {
        "message_id": result.message_id,
        "status": result.status.name,
        "topic": result.queue.topic,
        "broker": result.queue.broker,
        "queue": result.queue.queue_id,
        "offset": result.queue_offset,
    }
