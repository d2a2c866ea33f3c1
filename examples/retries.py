"""Retries and dead letters: failed messages are redelivered, and those that never succeed are kept for inspection.

    python examples/retries.py

Here a handler asks for one second between attempts, and for three attempts; by default the broker waits 10 s,
30 s, 1 min and so on, for 16 retries. Dead letters are in an ordinary topic.
"""

import threading

import rmqpy
from rmqpy import testing


def main() -> None:
    paid = threading.Event()
    lock = threading.Lock()
    with testing.broker() as server:
        consumer = rmqpy.PushConsumer("payments", server.namesrv, max_attempts=3, start_from="earliest")

        @consumer.on("invoices")
        def pay(message: rmqpy.ReceivedMessage) -> rmqpy.Retry | None:
            with lock:
                print(f"attempt {message.delivery_attempt} at {message.text()}")
            if message.tag == "unreadable" or message.delivery_attempt == 1:
                return rmqpy.Retry(after=1)
            paid.set()
            return None

        with consumer, rmqpy.Producer(server.namesrv) as office:
            office.send("invoices", "invoice 1", tag="good")
            office.send("invoices", "invoice 2", tag="unreadable")
            assert paid.wait(60)
            print(f"dead letter: {dead_letter(server.namesrv)}")


def dead_letter(namesrv: str) -> str:
    """Return the first message that was given up."""
    with rmqpy.PullConsumer("undertaker", namesrv, start_from="earliest") as undertaker:
        undertaker.subscribe("%DLQ%payments")
        while True:
            for message in undertaker.poll(timeout=5):
                return message.text()


if __name__ == "__main__":
    main()
