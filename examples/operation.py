"""Operation: creates a topic, finds a message, resends a dead letter, resets a group, and checks the cluster.

    python examples/operation.py

`Admin` has the operations of `rmqpy topic`, `message`, `dlq`, `group` and `cluster`, for programs that manage their
topics; `AsyncAdmin` is the same for event loops.
"""

import threading
import time

import rmqpy
from rmqpy import testing

ORDERS = [f"order {number}" for number in range(5)]


def main() -> None:
    with testing.broker() as server, rmqpy.Admin(server.namesrv) as admin:
        made = admin.create_topic("orders", read_queues=2, write_queues=2)
        print(f"orders was made on {', '.join(made)}: {admin.topic_types()}")
        with rmqpy.Producer(server.namesrv) as shop:
            for number, order in enumerate(ORDERS):
                shop.send("orders", order, keys=f"A-{number}")
        bill(server.namesrv, ORDERS, unreadable="order 3")

        (order,) = admin.messages_by_key("orders", "A-3")
        print(f"A-3 is {order.text()!r} in {order.queue}")
        while not (given_up := [each for each in admin.dead_letters() if each.messages]):
            time.sleep(0.1)
        print(f"given up: {given_up[0].messages} of {given_up[0].group}")
        for queue, message in admin.dlq("billing"):
            print(f"sent again: {message.text()}")
            admin.resend("billing", queue, message)
        bill(server.namesrv, ["order 3"])

        moves = admin.reset_offsets("billing", "orders", "begin")
        print(
            f"{sum(row.lag for row in admin.progress('billing', 'orders'))} wait again in {len(moves)} queues"
        )
        bill(server.namesrv, ORDERS)

        for result in admin.health(disk_free_min=0):
            print(f"{result.check}: {result.level}, {result.found}")
            assert result.level != "bad", result
        admin.delete_topic("orders")
        assert "orders" not in admin.topics()


def bill(namesrv: str, orders: list[str], unreadable: str = "") -> None:
    """Bill until each of these orders was tried. An unreadable one fails, and becomes a dead letter immediately."""
    tried: set[str] = set()
    all_tried = threading.Event()
    consumer = rmqpy.PushConsumer("billing", namesrv, max_attempts=1, start_from="earliest")

    @consumer.on("orders")
    def send_bill(message: rmqpy.ReceivedMessage) -> rmqpy.Retry | None:
        tried.add(message.text())
        if tried >= set(orders):
            all_tried.set()
        return rmqpy.Retry(after=1) if message.text() == unreadable else None

    with consumer:
        assert all_tried.wait(60)


if __name__ == "__main__":
    main()
