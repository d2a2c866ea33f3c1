"""Peak shaving: accepts a burst of orders immediately, and processes it at the pace of a slow database.

    python examples/peak_shaving.py

The shop confirms an order as soon as the broker has it. The database takes two orders at a time,
5 ms each, and never gets more: pending orders are in the topic, not in memory.
"""

import threading
import time

import rmqpy
from rmqpy import testing

ORDERS = 600


class Database:
    """Takes 5 ms for each order, and fails under more than two concurrently."""

    def __init__(self) -> None:
        self.stored: set[str] = set()
        self._slots = threading.BoundedSemaphore(2)

    def store(self, order: str) -> None:
        if not self._slots.acquire(blocking=False):
            raise RuntimeError("the database is overrun")
        try:
            time.sleep(0.005)
            self.stored.add(order)
        finally:
            self._slots.release()


def main() -> None:
    with testing.broker() as server:
        database = Database()
        began = time.perf_counter()
        with rmqpy.Producer(server.namesrv) as shop:
            accepted = [shop.submit("orders", f"order {number}") for number in range(ORDERS)]
            for each in accepted:
                each.result()
        print(f"accepted {ORDERS} orders in {time.perf_counter() - began:.2f} s")

        consumer = rmqpy.PushConsumer(
            "database", server.namesrv, start_from="earliest", workers=2, prefetch_messages=50
        )

        @consumer.on("orders")
        def store(message: rmqpy.ReceivedMessage) -> None:
            database.store(message.text())

        with consumer:
            while len(database.stored) < ORDERS:
                time.sleep(0.5)
                print(f"stored {len(database.stored)}, in memory {consumer.stats().waiting}")
        took, failed = time.perf_counter() - began, consumer.stats().failed
        print(f"stored all {len(database.stored)} in {took:.2f} s, {failed} failed")


if __name__ == "__main__":
    main()
