"""Values as typed: places in a topic, times, time spans, queues, names with values.

Each parser raises `click.BadParameter`, which names the accepted forms.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import click

from rmqpy.config.ends import end_of
from rmqpy.config.spans import DIGITS_MAX, moment_of, span_of

if TYPE_CHECKING:
    from rmqpy.message import MessageQueue

#: The most characters of a wrong value that an error quotes.
_SHOWN_MAX: Final = 60
#: A hundred years: longer than any wait.
_SPAN_MAX: Final = timedelta(days=36_500)


def place(value: str) -> Literal["begin", "end"] | int | datetime:
    """Parse a place in a topic: `begin` or `earliest`, `end` or `latest`, an offset, a time, or an age like `10m`."""
    if (end := end_of(value)) is not None:
        return end
    if value.isascii() and value.isdigit():
        if len(value) > DIGITS_MAX:
            raise click.BadParameter(f"{_shown(value)} is larger than any offset")
        return int(value)
    try:
        return moment_of(value)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{_shown(value)} is neither begin, end, an offset, a time like 2026-01-31T12:00 nor an age like 10m"
        ) from None


def span(value: str) -> timedelta:
    """Parse a time span like `1500ms`, `10s`, `5m`, `2h` or `1d`."""
    try:
        found = span_of(value)
    except OverflowError:
        found = None
    if found is None or found > _SPAN_MAX:
        raise click.BadParameter(
            f"{_shown(value)} is not a time span like 10s, 5m, 2h or 1d, {_SPAN_MAX.days}d at most"
        )
    return found


def _shown(value: str) -> str:
    """The typed value, shortened."""
    return repr(value if len(value) <= _SHOWN_MAX else f"{value[:_SHOWN_MAX]}…")


class QueueName(NamedTuple):
    """A queue as typed: `broker-a:3`, or its number alone."""

    broker: str | None
    queue_id: int

    def find(self, queues: "Sequence[MessageQueue]") -> "MessageQueue":
        """Return the queue that is meant."""
        found = [
            queue
            for queue in queues
            if queue.queue_id == self.queue_id and self.broker in (None, queue.broker)
        ]
        if len(found) == 1:
            return found[0]
        names = ", ".join(f"{queue.broker}:{queue.queue_id}" for queue in found or queues)
        raise click.UsageError(
            f"queue {self.queue_id} is at several brokers: name one of {names}"
            if found
            else f"no such queue; known queues: {names}"
        )


def queue_name(value: str) -> QueueName:
    """Parse `BROKER:NUMBER`, or the number alone."""
    broker, _, number = value.rpartition(":")
    if not (number.isascii() and number.isdigit()):
        raise click.BadParameter(f"{value!r} is not a queue like broker-a:3 or 3")
    return QueueName(broker or None, int(number))


queue_option = click.option("--queue", type=queue_name, metavar="[BROKER:]N", help="Only this queue.")


def name_and_value(value: str) -> tuple[str, str]:
    """Parse `name=value`."""
    name, equals, text = value.partition("=")
    if not (name and equals):
        raise click.BadParameter(f"{value!r} is not name=value")
    return name, text


def moment(value: str) -> datetime:
    """Parse a time, or an age like `10m`."""
    found = place(value)
    if not isinstance(found, datetime):
        raise click.BadParameter(f"{value!r} is neither a time like 2026-01-31T12:00 nor an age like 10m")
    return found
