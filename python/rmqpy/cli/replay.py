"""`rmqpy replay`: stored messages of a topic, sent again at their pace or faster."""

import dataclasses
import heapq
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from rmqpy.cli import terminal
from rmqpy.cli.command import Rows, printed
from rmqpy.cli.options import client_config, cluster_options, complete_topics, connect
from rmqpy.cli.output import ms_text
from rmqpy.cli.values import moment
from rmqpy.errors import ConfigError, RocketMQError

if TYPE_CHECKING:
    from rmqpy._native import ReceivedMessage, SendFuture
    from rmqpy.admin.client import Admin
    from rmqpy.client.producer.producer import Producer
    from rmqpy.message import Message, MessageQueue

_BODY: Final = "body"
_KEYS: Final = "keys"
_MASK: Final = "***"


def _moment(context: click.Context, option: click.Parameter, given: str | None) -> datetime | None:
    return None if given is None else moment(given)


def _masks(context: click.Context, option: click.Parameter, given: Sequence[str]) -> frozenset[str]:
    from rmqpy.message import Message

    for name in given:
        if name not in (_BODY, _KEYS) and Message.is_reserved(name):
            raise click.BadParameter(f"{name} is RocketMQ's own: mask body, keys or a property of users")
    return frozenset(given)


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--from",
    "begin",
    required=True,
    metavar="TIME|AGE",
    callback=_moment,
    help="Messages stored from this time on.",
)
@click.option(
    "--until",
    "end",
    metavar="TIME|AGE",
    callback=_moment,
    help="Messages stored before this time. [default: now]",
)
@click.option("--into-topic", metavar="TOPIC", help="Send to this topic.")
@click.option("--into-namespace", metavar="NAME", help="Send to the topic of that name in this namespace.")
@click.option(
    "--into-source", is_flag=True, help="Send to TOPIC itself: its consumers get the messages a second time."
)
@click.option(
    "--speed",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    help="How many times as fast as the messages were stored; 0: as fast as possible.",
)
@click.option(
    "--mask",
    "masks",
    multiple=True,
    metavar="body|keys|PROPERTY",
    callback=_masks,
    help="Replace this in the messages: bodies by as many x; repeatable.",
)
@printed
@cluster_options
def command(
    topic: str,
    begin: datetime,
    end: datetime | None,
    into_topic: str | None,
    into_namespace: str | None,
    into_source: bool,
    speed: float,
    masks: frozenset[str],
    namesrv: str,
    timeout: float,
) -> Rows:
    """Send the messages of TOPIC that were stored in a time range again.

    \b
    rmqpy replay orders --from 1h --into-topic orders-test
    rmqpy replay orders --from 1h --into-topic orders-test --speed 0 --mask body

    Messages are read in the order of their store times, and keep their order within each queue: messages of a queue
    go to the queue of the same number, if the target has it. They keep tag, keys, properties and sharding key, and get
    new ids and times. Delayed messages are sent as they were delivered.
    """
    from rmqpy.client.producer.producer import Producer

    config = client_config(namesrv, timeout)
    target, is_same = into_topic or topic, into_namespace in (None, config.namespace)
    if is_same and into_topic is None and not into_source:
        raise click.UsageError(
            "name the target: --into-topic, --into-namespace, or --into-source for TOPIC itself"
        )
    if is_same and target == topic and not into_source:
        raise ConfigError(
            f"{target} is the topic that is read, and its consumers would get every message again",
            hint="name another one, or add --into-source",
        )
    into = config if into_namespace is None else dataclasses.replace(config, namespace=into_namespace)
    with connect(namesrv, timeout) as admin, Producer(into, send_timeout=timeout) as producer:
        replay = _Replay(producer, target, masks, speed)
        expected, messages = _stored(admin, topic, begin, end)
        with terminal.progress("replay") as show:
            try:
                for done, message in enumerate(messages):
                    replay.send(message)
                    show(done, expected, replay.figures)
                replay.finish()
            except BaseException:
                replay.abandon()
                click.echo(f"sent before the end: {replay.figures()}", err=True)
                raise
    return {"topic": topic, "into": target, "namespace": into.namespace or None, **replay.counts()}


def _stored(
    admin: "Admin", topic: str, begin: datetime, end: datetime | None
) -> "tuple[int, Iterator[ReceivedMessage]]":
    """Return the messages by store time, at most one reply of each queue in memory, and the most that there can be."""
    states = admin.topic(topic)
    queues: Iterable[Iterator[ReceivedMessage]] = [
        admin.messages_of_queue(topic, state, begin, end) for state in states
    ]
    most = sum(state.end - state.begin for state in states)
    return most, heapq.merge(*queues, key=lambda message: message.stored_at_ms)


class _Replay:
    """The sends of one replay. One message of each queue is in flight, so that retries keep the order."""

    def __init__(self, producer: "Producer", topic: str, masks: frozenset[str], speed: float) -> None:
        self._producer = producer
        self._topic = topic
        self._masks = masks
        self._speed = speed
        self._queues = producer.queues(topic)
        self._in_flight: dict[MessageQueue, tuple[SendFuture, int]] = {}
        self._began = time.monotonic()
        self._first_ms: int | None = None
        self._last_ms = 0
        self._sent = self._bytes = 0

    def send(self, message: "ReceivedMessage") -> None:
        """Send a message when it is due. Raises the failure of an earlier message of its queue."""
        if self._first_ms is None:
            self._first_ms, self._began = message.stored_at_ms, time.monotonic()
        self._last_ms = message.stored_at_ms
        if self._speed:
            due_s = (message.stored_at_ms - self._first_ms) / 1_000 / self._speed
            time.sleep(max(0.0, self._began + due_s - time.monotonic()))
        queue, copy = self._target(message.queue), self._copy(message)
        self._await(queue)
        self._in_flight[queue] = self._producer.submit(copy, queue=queue), len(copy.body)

    def finish(self) -> None:
        """Wait for the messages in flight. Raises their first failure."""
        for queue in list(self._in_flight):
            self._await(queue)

    def abandon(self) -> None:
        """Wait for the messages in flight, and count those that are stored."""
        for queue in list(self._in_flight):
            try:
                self._await(queue)
            except RocketMQError:
                continue

    def figures(self) -> str:
        """Return what was sent, as text."""
        return f"{self._sent:,} messages, {self._bytes / 1e6:,.1f} MB"

    def counts(self) -> dict[str, Any]:
        """Return what was sent, for programs."""
        seconds = time.monotonic() - self._began
        return {
            "sent": self._sent,
            "bytes": self._bytes,
            "first_stored": ms_text(self._first_ms),
            "last_stored": ms_text(self._last_ms),
            "seconds": round(seconds, 3),
            "per_second": round(self._sent / seconds, 1) if seconds else 0.0,
        }

    def _await(self, queue: "MessageQueue") -> None:
        if (pending := self._in_flight.pop(queue, None)) is not None:
            future, size = pending
            future.result()
            self._sent += 1
            self._bytes += size

    def _target(self, source: "MessageQueue") -> "MessageQueue":
        """The queue of the same number, on the same broker if it has it; another one if no broker does."""
        same = [queue for queue in self._queues if queue.queue_id == source.queue_id]
        here = [queue for queue in same if queue.broker == source.broker]
        return (here or same or [self._queues[source.queue_id % len(self._queues)]])[0]

    def _copy(self, message: "ReceivedMessage") -> "Message":
        from rmqpy.message import Message

        body = message.body
        properties = {
            name: _MASK if name in self._masks else value
            for name, value in message.properties.items()
            if not Message.is_reserved(name)
        }
        return Message(
            self._topic,
            b"x" * len(body) if _BODY in self._masks else body,
            tag=message.tag,
            keys=None if _KEYS in self._masks else message.keys or None,
            properties=properties or None,
            sharding_key=message.sharding_key,
            flag=message.flag,
        )
