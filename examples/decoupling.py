"""Decoupling: billing may be down while shipping continues, and catches up later.

    python examples/decoupling.py

Each service is a separate group and gets every order; within a group, an order goes to one member. Shipping
wants paid orders only, and the broker filters them by tag.
"""

import threading

import rmqpy
from rmqpy import testing

ORDERS = [("A-1", "paid"), ("A-2", "open"), ("A-3", "paid"), ("A-4", "open"), ("A-5", "paid")]


def service(group: str, namesrv: str, tags: str, expected: int) -> tuple[rmqpy.PushConsumer, threading.Event]:
    """Return a service that prints each order, and an event that is set after the expected number."""
    done = threading.Event()
    lock = threading.Lock()
    handled: list[str] = []
    consumer = rmqpy.PushConsumer(group, namesrv, start_from="earliest")

    @consumer.on("orders", tags)
    def handle(message: rmqpy.ReceivedMessage) -> None:
        with lock:
            handled.append(message.text())
            print(f"{group}: {message.text()} ({message.tag})")
            if len(handled) == expected:
                done.set()

    return consumer, done


def main() -> None:
    with testing.broker() as server:
        shipping, shipped = service("shipping", server.namesrv, "paid", 3)
        with shipping, rmqpy.Producer(server.namesrv) as shop:
            for order, state in ORDERS:
                shop.send("orders", order, tag=state, keys=order)
            assert shipped.wait(30)
        print("shipping has done its work; billing comes up only now")
        billing, billed = service("billing", server.namesrv, "*", len(ORDERS))
        with billing:
            assert billed.wait(30)
        print("billing has seen every order")


if __name__ == "__main__":
    main()
