"""`rmqpy consume`: the messages of a topic, one line each."""

import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Literal

import click

from rmqpy.cli.options import client_config, cluster_options, complete_groups, complete_topics
from rmqpy.cli.output import Format, message_printer, messages_option
from rmqpy.cli.values import QueueName, place, queue_option

if TYPE_CHECKING:
    from rmqpy.client.consumer import PullConsumer
    from rmqpy.client.group.rebalance import Rebalance
    from rmqpy.message import Filter, MessageQueue

#: The group that reads are made under when none is named: every broker has it. Nothing is committed to it.
READER = "TOOLS_CONSUMER"
#: Messages taken at a time: few enough that a committed position follows the printed one closely.
BURST = 32
#: Interval at which `--follow` looks for queues that have appeared.
NEW_QUEUES_S = 1.0
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
@click.option(
    "--sql", "expression", help="Only messages whose properties match: \"price > 10 AND region = 'EU'\"."
)
@click.option("--count", type=click.IntRange(min=1), help="Stop after so many messages.")
@click.option("--follow", is_flag=True, help="Wait for more at the end of the topic.")
@queue_option
@messages_option
@cluster_options
def command(
    topic: str,
    group: str | None,
    start: Literal["begin", "end"] | int | datetime | None,
    tags: str,
    expression: str | None,
    count: int | None,
    follow: bool,
    queue: QueueName | None,
    output: Format,
    namesrv: str,
    timeout: float,
) -> None:
    """Print the messages of TOPIC, up to its present end.

    \b
    rmqpy consume orders
    rmqpy consume orders --from 10m --follow -o jsonl
    rmqpy consume orders --queue broker-a:0 --from 0 -o json
    rmqpy consume orders --group audit --follow

    With a group and --follow it is a member of the group: several share the topic's queues.
    """
    from rmqpy.client.consumer import PullConsumer
    from rmqpy.errors import RocketMQError
    from rmqpy.message import sql

    if expression is not None and tags != "*":
        raise click.UsageError("give --filter or --sql")
    wanted = tags if expression is None else sql(expression)
    config = client_config(namesrv, timeout)
    if group is not None and follow and queue is not None:
        raise click.UsageError("members of a group share its queues: leave --queue, --group or --follow out")
    if group is None and start is None:
        start = "begin"
    # Where the group stopped; for a group that never committed, the beginning.
    with (
        PullConsumer(group or READER, config, auto_commit=False, start_from="earliest") as consumer,
        message_printer(output) as print_message,
    ):
        queues = _queues(consumer, topic)
        if queue is not None:
            queues = [queue.find(queues)]
        ends = {each: consumer.offsets(each)[1] for each in queues}
        if isinstance(start, int) and start > (end := max(ends.values(), default=0)):
            raise click.UsageError(f"offset {start} is beyond every queue: the longest ends at {end}")
        if group is not None and follow:
            _share(consumer, topic, wanted, start)
        else:
            consumer.assign(queues, wanted)
            if start is not None:
                for each in queues:
                    consumer.seek(each, start)
        printed, look_at = 0, time.monotonic() + NEW_QUEUES_S
        while follow or _is_behind(consumer, ends):
            if follow and group is None and queue is None and time.monotonic() > look_at:
                look_at = time.monotonic() + NEW_QUEUES_S
                with suppress(RocketMQError):
                    # A queue that has appeared begins at its first message.
                    consumer.assign(dict.fromkeys([*queues, *consumer.queues(topic)]), wanted)
            burst = BURST if count is None else min(BURST, count - printed)
            shown: dict[MessageQueue, int] = {}
            try:
                for message in consumer.poll(timeout=1.0, max_messages=burst):
                    if follow or message.queue_offset < ends[message.queue]:
                        print_message(message)
                        shown[message.queue] = message.queue_offset + 1
                        printed += 1
            finally:
                if group is not None and shown:
                    _commit(consumer, shown)
            if printed == count:
                break


def _commit(consumer: "PullConsumer", shown: "Mapping[MessageQueue, int]") -> None:
    """Commit what was printed, however that ended, and not what was fetched behind the end."""
    from rmqpy.errors import QueueLost

    with suppress(QueueLost):
        try:
            consumer.commit(shown)
        except KeyboardInterrupt:
            # It may have come before the broker had the commit. A second one ends the command.
            consumer.commit(shown)
            raise


def _share(
    consumer: "PullConsumer",
    topic: str,
    wanted: "Filter",
    start: "Literal['begin', 'end'] | int | datetime | None",
) -> None:
    """Be a member of the group, which shares the queues of the topic. The first ones begin at `start`; what comes later
    is new, or was another member's, and begins as the group does."""
    has_begun = False

    def begin(change: "Rebalance") -> None:
        nonlocal has_begun
        if start is not None and not has_begun:
            for queue in change.assigned:
                consumer.seek(queue, start)
        has_begun |= bool(change.assigned)

    consumer.subscribe(topic, wanted, on_rebalance=begin)


def _queues(consumer: "PullConsumer", topic: str) -> "list[MessageQueue]":
    """The topic's queues. Name servers know a new topic a moment after its first message was stored, so that an
    unknown topic is asked for again before it counts as missing."""
    from rmqpy.errors import AuthError, TopicNotFound

    deadline = time.monotonic() + NEW_TOPIC_S
    while True:
        try:
            if queues := consumer.queues(topic):
                return queues
            raise AuthError(
                f"no queue of topic {topic!r} may be read", hint=f"rmqpy topic alter {topic} --perm RW"
            )
        except TopicNotFound:
            if time.monotonic() >= deadline:
                raise
            time.sleep(NEW_TOPIC_S / 10)


def _is_behind(consumer: "PullConsumer", ends: dict["MessageQueue", int]) -> bool:
    return any(consumer.position(queue) < end for queue, end in ends.items())
