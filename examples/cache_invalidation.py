"""Broadcast: every server of a web shop drops a price from its cache when it changes.

    python examples/cache_invalidation.py

Each broadcast consumer gets every message, and keeps its progress in a file of its instance.
"""

import tempfile
import threading

import rmqpy
from rmqpy import testing


class PriceCache:
    """The prices that one server has cached."""

    def __init__(self, name: str, namesrv: str, folder: str) -> None:
        self.name = name
        self.prices = {"chair": 40, "table": 90}
        self.forgot_chair = threading.Event()
        self.consumer = rmqpy.PushConsumer(
            "price-cache", namesrv, broadcast=True, instance=name, offset_folder=folder, start_from="earliest"
        )
        self.consumer.on("price-changes", handler=self._forget)

    def _forget(self, message: rmqpy.ReceivedMessage) -> None:
        self.prices.pop(message.text(), None)
        print(f"{self.name} forgets {message.text()}, keeps {self.prices}")
        if "chair" not in self.prices:
            self.forgot_chair.set()


def main() -> None:
    with testing.broker() as server, tempfile.TemporaryDirectory() as folder:
        caches = [PriceCache(f"web-{number}", server.namesrv, folder) for number in (1, 2, 3)]
        for cache in caches:
            cache.consumer.start()
        with rmqpy.Producer(server.namesrv) as office:
            office.send("price-changes", "chair")
        for cache in caches:
            assert cache.forgot_chair.wait(30)
            cache.consumer.close()
    print("every server has forgotten the old price")


if __name__ == "__main__":
    main()
