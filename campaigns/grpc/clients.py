"""A client of `campaigns.grpc.kills`: WORK ADDRESS TOPIC NAME, the official Python client of 5.x in its own process.

`produce` sends with a short pause, `consume` receives and acknowledges as a member of the group NAME. Each prints
a line `WORD TIME BODY` for what was answered: `sent`, `failed`, `got`. A client is never restarted: what it raises is
noted, and it goes on.
"""

import sys
import time
from typing import Any

import rocketmq

#: The shortest invisible time that servers take, in seconds.
HIDDEN_S = 10
BATCH = 32
#: Pause between sends, so that consumers can follow, and after a failure, as an application has it.
PACE_S, PAUSE_S = 0.005, 0.1


def note(word: str, text: object) -> None:
    print(word, f"{time.time():.3f}", text, flush=True)


def produce(configuration: Any, topic: str, name: str) -> None:
    """Send numbers for ever; one that failed is not sent again, because it may be stored."""
    producer = rocketmq.Producer(configuration, (topic,))
    producer.startup()
    note("ready", name)
    number = 0
    while True:
        message = rocketmq.Message()
        message.topic, message.body = topic, f"{name}-{number}".encode()
        number += 1
        try:
            producer.send(message)
        except Exception as error:
            note("failed", repr(error)[:200].replace("\n", " "))
            time.sleep(PAUSE_S)
        else:
            note("sent", message.body.decode())
            time.sleep(PACE_S)


def consume(configuration: Any, topic: str, name: str) -> None:
    """Receive and acknowledge for ever."""
    consumer = rocketmq.SimpleConsumer(
        configuration, name, {topic: rocketmq.FilterExpression()}, await_duration=5
    )
    consumer.startup()
    note("ready", name)
    while True:
        try:
            found = consumer.receive(BATCH, HIDDEN_S) or ()
        except Exception as error:
            note("failed", repr(error)[:200].replace("\n", " "))
            time.sleep(PAUSE_S)
            continue
        for one in found:
            note("got", one.body.decode())
            try:
                consumer.ack(one)
            except Exception as error:
                note("failed", repr(error)[:200].replace("\n", " "))


if __name__ == "__main__":
    work, address, *rest = sys.argv[1:]
    chosen = {"produce": produce, "consume": consume}[work]
    chosen(rocketmq.ClientConfiguration(address, rocketmq.Credentials()), *rest)
