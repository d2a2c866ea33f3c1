"""Namespaces: two shops on one cluster use the same program and names, without seeing each other's messages.

    python examples/namespaces.py

Each shop gives its clients a namespace. Brokers know the topics of both by their full names.
"""

import threading

import rmqpy
from rmqpy import testing


def serve(shop: rmqpy.ClientConfig, orders: list[str]) -> list[str]:
    """Send orders and have them billed; return the billed ones."""
    billed: list[str] = []
    done = threading.Event()
    billing = rmqpy.PushConsumer("billing", shop, start_from="earliest", workers=1)

    @billing.on("orders")
    def bill(message: rmqpy.ReceivedMessage) -> None:
        print(f"{shop.namespace}: {message.text()} of {message.topic}")
        billed.append(message.text())
        if len(billed) == len(orders):
            done.set()

    with billing, rmqpy.Producer(shop) as producer:
        for order in orders:
            producer.send("orders", order)
        assert done.wait(60)
    return billed


def main() -> None:
    with testing.broker() as server:
        north = rmqpy.ClientConfig(namesrv=server.namesrv, namespace="north")
        south = rmqpy.ClientConfig(namesrv=server.namesrv, namespace="south")
        assert sorted(serve(north, ["N-1", "N-2", "N-3"])) == ["N-1", "N-2", "N-3"]
        assert sorted(serve(south, ["S-1", "S-2"])) == ["S-1", "S-2"]
        with rmqpy.Admin(north) as admin:
            print(f"the north sees {admin.topics()}")
        with rmqpy.Admin(server.namesrv) as admin:
            print(f"the operator sees {admin.topics()}")


if __name__ == "__main__":
    main()
