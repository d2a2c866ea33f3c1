"""`rmqpy consume`: prints the messages of a topic, one a line."""

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
    from rmqpy.client.group.rebalance import Rebalance
    from rmqpy.client.pull.consumer import PullConsumer
    from rmqpy.client.simple.consumer import SimpleConsumer
    from rmqpy.message import Filter, MessageQueue

#: The default group of reads: every broker has it, and nothing is committed to it.
READER = "TOOLS_CONSUMER"
#: Messages fetched at a time: few, so that the committed position stays close to the printed one.
BURST = 32
#: Interval at which `--follow` checks for new queues.
NEW_QUEUES_S = 1.0
#: Time for which a pop waits for a message.
NEW_MESSAGE_S = 1.0
#: Time to wait for a topic that name servers do not know yet.
NEW_TOPIC_S = 1.0


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "-g",
    "--group",
    shell_complete=complete_groups,
    help="Continue where this group stopped, and commit printed messages.",
)
@click.option(
    "--from",
    "start",
    type=place,
    metavar="begin|end|OFFSET|TIME|AGE",
    help="Where to begin. Default: begin, or where the group stopped.",
)
@click.option(
    "--filter", "tags", default="*", help="Only messages with one of these tags: 'paid || refunded'."
)
@click.option(
    "--sql", "expression", help="Only messages whose properties match: \"price > 10 AND region = 'EU'\"."
)
@click.option(
    "--pop",
    "is_popped",
    is_flag=True,
    help="Receive message by message as a worker of --group, and acknowledge what was printed.",
)
@click.option("--count", type=click.IntRange(min=1), help="Stop after this many messages.")
@click.option("--follow", is_flag=True, help="Wait for new messages at the end of the topic.")
@queue_option
@messages_option
@cluster_options
def command(
    topic: str,
    group: str | None,
    start: Literal["begin", "end"] | int | datetime | None,
    tags: str,
    expression: str | None,
    is_popped: bool,
    count: int | None,
    follow: bool,
    queue: QueueName | None,
    output: Format,
    namesrv: str,
    timeout: float,
) -> None:
    """Print the messages of TOPIC up to its current end.

    \b
    rmqpy consume orders
    rmqpy consume orders --from 10m --follow -o jsonl
    rmqpy consume orders --queue broker-a:0 --from 0 -o json
    rmqpy consume orders --group audit --follow
    rmqpy consume orders --group workers --pop

    With --group and --follow it joins the group: members share the topic's queues. With --pop it shares messages
    instead, with any number of other workers.
    """
    from rmqpy.client.pull.consumer import PullConsumer
    from rmqpy.errors import RocketMQError
    from rmqpy.message import sql

    if expression is not None and tags != "*":
        raise click.UsageError("give --filter or --sql")
    wanted = tags if expression is None else sql(expression)
    config = client_config(namesrv, timeout)
    if is_popped:
        if group is None or queue is not None or start not in (None, "begin", "end"):
            raise click.UsageError("--pop needs --group, and takes neither --queue nor a position in --from")
        from rmqpy.client.simple.consumer import SimpleConsumer

        worker = SimpleConsumer(group, config, start_from="latest" if start == "end" else "earliest")
        _pop(worker, topic, wanted, count, output, follow=follow)
        return
    if group is not None and follow and queue is not None:
        raise click.UsageError("members of a group share its queues: leave --queue, --group or --follow out")
    if group is None and start is None:
        start = "begin"
    # Where the group stopped, or the beginning if it never committed.
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
                    # A new queue is read from its first message.
                    consumer.assign(dict.fromkeys([*queues, *consumer.queues(topic)]), wanted)
            burst = BURST if count is None else min(BURST, count - printed)
            shown: dict[MessageQueue, int] = {}
            try:
                try:
                    for message in consumer.poll(timeout=1.0, max_messages=burst):
                        if follow or message.queue_offset < ends[message.queue]:
                            print_message(message)
                            shown[message.queue] = message.queue_offset + 1
                            printed += 1
                finally:
                    if group is not None:
                        _commit(consumer, shown)
            except KeyboardInterrupt:
                # It may have come just before the commit, or into it. A second one ends the command.
                if group is not None:
                    _commit(consumer, shown)
                raise
            if printed == count:
                break


def _pop(
    consumer: "SimpleConsumer",
    topic: str,
    wanted: "Filter",
    count: int | None,
    output: Format,
    *,
    follow: bool,
) -> None:
    """Print messages of a group, and acknowledge each when it is printed."""
    printed = 0
    with consumer, message_printer(output) as print_message:
        consumer.subscribe(topic, wanted)
        while count is None or printed < count:
            messages = consumer.receive(1, wait=NEW_MESSAGE_S)
            for message in messages:
                print_message(message)
                consumer.ack(message)
                printed += 1
            if not messages and not follow:
                break


def _commit(consumer: "PullConsumer", shown: "Mapping[MessageQueue, int]") -> None:
    """Commit what was printed, however the command ended, but not what was only fetched."""
    from rmqpy.errors import QueueLost

    if shown:
        with suppress(QueueLost):
            consumer.commit(shown)


def _share(
    consumer: "PullConsumer",
    topic: str,
    wanted: "Filter",
    start: "Literal['begin', 'end'] | int | datetime | None",
) -> None:
    """Join the group and share the topic's queues. The first queues begin at `start`; later ones are new or came from
    another member, and begin where the group stands."""
    has_begun = False

    def begin(change: "Rebalance") -> None:
        nonlocal has_begun
        if start is not None and not has_begun:
            for queue in change.assigned:
                consumer.seek(queue, start)
        has_begun |= bool(change.assigned)

    consumer.subscribe(topic, wanted, on_rebalance=begin)


def _queues(consumer: "PullConsumer", topic: str) -> "list[MessageQueue]":
    """Return the topic's queues. Name servers learn of a new topic shortly after its first message is stored, so an
    unknown topic is retried before it counts as missing."""
    from rmqpy.errors import AuthError, TopicNotFound

    deadline = time.monotonic() + NEW_TOPIC_S
    while True:
        try:
            if queues := consumer.queues(topic):
                return queues
            raise AuthError(
                f"topic {topic!r} has no readable queue", hint=f"rmqpy topic alter {topic} --perm RW"
            )
        except TopicNotFound:
            if time.monotonic() >= deadline:
                raise
            time.sleep(NEW_TOPIC_S / 10)


def _is_behind(consumer: "PullConsumer", ends: dict["MessageQueue", int]) -> bool:
    return any(consumer.position(queue) < end for queue, end in ends.items())
