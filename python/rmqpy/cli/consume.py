"""`rmqpy consume`: the messages of a topic, one line each."""

import time
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Literal

import click

from rmqpy.cli.options import client_config, cluster_options, complete_groups, complete_topics, place
from rmqpy.cli.output import Format, message_text, messages_option

if TYPE_CHECKING:
    from rmqpy.client.consumer import PullConsumer
    from rmqpy.client.group.rebalance import Rebalance
    from rmqpy.message import MessageQueue

#: The group that reads are made under when none is named: every broker has it. Nothing is committed to it.
READER = "TOOLS_CONSUMER"
#: Messages taken at a time: few enough that a committed position follows the printed one closely.
BURST = 32
#: Time to wait for a topic that no name server knows yet.
NEW_TOPIC_S = 1.0


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "-g",
    "--group",
    shell_complete=complete_groups,
    help="Go on where this group stopped, and commit what was printed.",
)
@click.option(
    "--from",
    "start",
    type=place,
    metavar="begin|end|OFFSET|TIME|AGE",
    help="Where to begin; default: begin, or where the group stopped.",
)
@click.option(
    "--filter", "tags", default="*", help="Only messages with one of these tags: 'paid || refunded'."
)
@click.option("--count", type=click.IntRange(min=1), help="Stop after so many messages.")
@click.option("--follow", is_flag=True, help="Wait for more at the end of the topic.")
@messages_option
@cluster_options
def command(
    topic: str,
    group: str | None,
    start: Literal["begin", "end"] | int | datetime | None,
    tags: str,
    count: int | None,
    follow: bool,
    output: Format,
    namesrv: str,
    timeout: float,
) -> None:
    """Print the messages of TOPIC, up to its present end.

    \b
    rmqpy consume orders
    rmqpy consume orders --from 10m --follow -o jsonl
    rmqpy consume orders --group audit --follow

    With a group and --follow it is a member of the group: several share the topic's queues.
    """
    from rmqpy.client.consumer import PullConsumer
    from rmqpy.errors import QueueLost

    config = client_config(namesrv, timeout)
    if group is None and start is None:
        start = "begin"
    # Where the group stopped; for a group that never committed, the beginning.
    with PullConsumer(group or READER, config, auto_commit=False, start_from="earliest") as consumer:
        queues = _queues(consumer, topic)
        ends = {queue: consumer.offsets(queue)[1] for queue in queues}
        if group is not None and follow:
            _share(consumer, topic, tags, start)
        else:
            consumer.assign(queues, tags)
            if start is not None:
                for queue in queues:
                    consumer.seek(queue, start)
        printed = 0
        while follow or _is_behind(consumer, ends):
            wanted = BURST if count is None else min(BURST, count - printed)
            shown: dict[MessageQueue, int] = {}
            for message in consumer.poll(timeout=1.0, max_messages=wanted):
                if follow or message.queue_offset < ends[message.queue]:
                    click.echo(message_text(message, output))
                    shown[message.queue] = message.queue_offset + 1
                    printed += 1
            if group is not None and shown:
                # What was printed, and not what was fetched behind the end: that is for the next run.
                with suppress(QueueLost):
                    consumer.commit(shown)
            if printed == count:
                break


def _share(
    consumer: "PullConsumer", topic: str, tags: str, start: "Literal['begin', 'end'] | int | datetime | None"
) -> None:
    """Be a member of the group, which shares the queues of the topic; each begins at `start` the first time."""
    begun: set[MessageQueue] = set()

    def begin(change: "Rebalance") -> None:
        for queue in change.assigned - begun:
            if start is not None:
                consumer.seek(queue, start)
            begun.add(queue)

    consumer.subscribe(topic, tags, on_rebalance=begin)


def _queues(consumer: "PullConsumer", topic: str) -> "list[MessageQueue]":
    """The topic's queues. Name servers know a new topic a moment after its first message was stored, so that an
    unknown topic is asked for again before it counts as missing."""
    from rmqpy.errors import TopicNotFound

    deadline = time.monotonic() + NEW_TOPIC_S
    while True:
        try:
            return consumer.queues(topic)
        except TopicNotFound:
            if time.monotonic() >= deadline:
                raise
            time.sleep(NEW_TOPIC_S / 10)


def _is_behind(consumer: "PullConsumer", ends: dict["MessageQueue", int]) -> bool:
    return any(consumer.position(queue) < end for queue, end in ends.items())
