"""A push consumer in a separate process, for the campaign: `python member.py NAMESRV GROUP TOPIC ordered|concurrent`.

Writes a line `broker queue first last` for each run of offsets, before its handler returns, and
`broker queue` for each queue it has lost, until SIGTERM.
"""

import logging
import sys
from collections.abc import Iterable

import rmqpy


def main(namesrv: str, group: str, topic: str, mode: str) -> None:
    consumer = rmqpy.PushConsumer(
        group,
        namesrv,
        ordered=mode == "ordered",
        start_from="earliest",
        workers=4,
        batch_size=64,
        on_rebalance=lambda change: _write(f"{queue.broker} {queue.queue_id}\n" for queue in change.lost),
    )

    @consumer.on(topic)
    def handle(messages: list[rmqpy.ReceivedMessage]) -> None:
        lines = []
        first = last = messages[0]
        for message in messages[1:]:
            if message.queue != last.queue or message.queue_offset != last.queue_offset + 1:
                lines.append(_line(first, last))
                first = message
            last = message
        lines.append(_line(first, last))
        _write(lines)

    consumer.run()


def _write(lines: Iterable[str]) -> None:
    # One write: several handlers share the pipe.
    sys.stdout.write("".join(lines))
    sys.stdout.flush()


def _line(first: rmqpy.ReceivedMessage, last: rmqpy.ReceivedMessage) -> str:
    return f"{first.queue.broker} {first.queue.queue_id} {first.queue_offset} {last.queue_offset}\n"


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    main(*sys.argv[1:])
