"""Requests and replies: a till asks for prices, one by one and many concurrently, and a price list replies.

    python examples/request_reply.py

The price list is an ordinary consumer: run it twice, and the copies share the requests. It looks some prices up
later, on a thread, and does not reply for unknown goods; the till's request then times out.
"""

import queue
import threading

import rmqpy
from rmqpy import errors, testing

PRICES = {"apples": 3, "pears": 4, "quinces": 9}
#: Goods that are looked up elsewhere.
RARE = {"medlars": 11}


class PriceList:
    """Answers requests of the topic `prices`."""

    def __init__(self, namesrv: str) -> None:
        self.consumer = rmqpy.PushConsumer("pricing", namesrv, start_from="earliest")
        self.consumer.on("prices", handler=self.price)
        self.later: queue.SimpleQueue[rmqpy.ReceivedMessage] = queue.SimpleQueue()
        threading.Thread(target=self.look_up, daemon=True).start()

    def price(self, message: rmqpy.ReceivedMessage) -> rmqpy.Reply | None:
        fruit = message.text()
        if fruit in PRICES:
            return rmqpy.Reply(str(PRICES[fruit]), properties={"currency": "EUR"})
        if fruit in RARE:
            self.later.put(message)
        return None

    def look_up(self) -> None:
        while True:
            message = self.later.get()
            self.consumer.reply(message, str(RARE[message.text()]), properties={"currency": "EUR"})


def main() -> None:
    with testing.broker() as server, rmqpy.Producer(server.namesrv) as till:
        prices = PriceList(server.namesrv)
        with prices.consumer:
            reply = till.request("prices", "apples", timeout=30)
            print(f"apples: {reply.text()} {reply.properties['currency']}")
            asked = {
                fruit: till.submit_request("prices", fruit, timeout=30) for fruit in ("pears", "medlars")
            }
            for fruit, future in asked.items():
                print(f"{fruit}: {future.result().text()}")
            try:
                till.request("prices", "durians", timeout=0.5)
            except errors.RequestTimeout as error:
                print(f"durians: {error}")


if __name__ == "__main__":
    main()
