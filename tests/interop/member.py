"""A push consumer in a process of its own, for the campaign: `python member.py NAMESRV GROUP TOPIC ordered|concurrent`.

Writes a line `queue first last` for each run of offsets, before its handler returns, until SIGTERM.
"""

import sys

import rmqpy


def main(namesrv: str, group: str, topic: str, mode: str) -> None:
    consumer = rmqpy.PushConsumer(
        group, namesrv, ordered=mode == "ordered", start_from="earliest", workers=4, batch_size=64
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
        # One write: several handlers share the pipe.
        sys.stdout.write("".join(lines))
        sys.stdout.flush()

    consumer.run()


def _line(first: rmqpy.ReceivedMessage, last: rmqpy.ReceivedMessage) -> str:
    return f"{first.queue.queue_id} {first.queue_offset} {last.queue_offset}\n"


if __name__ == "__main__":
    main(*sys.argv[1:])
