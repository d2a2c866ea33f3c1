"""A group member in a separate process, which a test can pause.

`python member.py pull|push|ordered NAMESRV GROUP TOPIC` prints `had QUEUE OFFSET` for each message, and
`changed TAKEN GIVEN` for each change of its queues, until SIGTERM. A pulling member stops on
SIGUSR1 when no commit is in flight, and one is due.
"""

import os
import signal
import sys
import threading
import time

import rmqpy
from rmqpy.client.push import engine

_WRITING = threading.Lock()


def tell(line: str) -> None:
    with _WRITING:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def had(message: rmqpy.ReceivedMessage) -> None:
    tell(f"had {message.queue.queue_id} {message.queue_offset}")


def changed(change: rmqpy.Rebalance) -> None:
    tell(f"changed {len(change.assigned)} {len(change.revoked | change.lost)}")


def poll(namesrv: str, group: str, topic: str) -> None:
    has_ended, is_to_stop = threading.Event(), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: has_ended.set())
    signal.signal(signal.SIGUSR1, lambda *_: is_to_stop.set())
    # Each poll commits what the one before returned.
    with rmqpy.PullConsumer(group, namesrv, start_from="earliest", auto_commit=0.001) as consumer:
        consumer.subscribe(topic, on_rebalance=changed)
        while not has_ended.is_set():
            messages = consumer.poll(0.02, max_messages=1)
            for message in messages:
                had(message)
            if messages and is_to_stop.is_set():
                is_to_stop.clear()
                consumer.commit()
                while not (messages := consumer.poll(0.02, max_messages=1)):
                    pass
                had(messages[0])
                os.kill(os.getpid(), signal.SIGSTOP)


def push(namesrv: str, group: str, topic: str, *, ordered: bool) -> None:
    consumer = rmqpy.PushConsumer(
        group,
        namesrv,
        start_from="earliest",
        ordered=ordered,
        workers=1,
        prefetch_messages=64,
        on_rebalance=changed,
    )

    @consumer.on(topic)
    def handle(message: rmqpy.ReceivedMessage) -> None:
        had(message)
        # Slow handlers have messages left when the process is stopped.
        time.sleep(0.002)

    consumer.run()


if __name__ == "__main__":
    mode, *where = sys.argv[1:]
    engine.COMMIT_S = 1.5  # type: ignore[misc]
    if mode == "pull":
        poll(*where)
    else:
        push(*where, ordered=mode == "ordered")
