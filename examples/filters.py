"""Filters by properties: a consumer selects messages in SQL92, and the broker sends only these.

    python examples/filters.py

A property is text; the other operand decides how it is parsed: `price > 10` as an integer, `price > 10.0`
as a decimal number. Apache's brokers serve such filters with `enablePropertyFilter=true`, and so does `rmqpy broker`.
"""

import threading

import rmqpy
from rmqpy import testing

DEAR_IN_EUROPE = rmqpy.sql("price >= 100 AND region IN ('DE', 'FR') AND coupon IS NULL")


def main() -> None:
    seen: list[str] = []
    is_complete = threading.Event()
    with testing.broker() as server, rmqpy.Producer(server.namesrv) as shop:
        consumer = rmqpy.PushConsumer("couriers", server.namesrv, start_from="earliest")

        @consumer.on("goods", DEAR_IN_EUROPE)
        def insure(message: rmqpy.ReceivedMessage) -> None:
            print(f"insured: {message.text()}, {message.properties['price']} EUR")
            seen.append(message.text())
            if len(seen) == 2:
                is_complete.set()

        with consumer:
            shop.send("goods", "socks", properties={"price": "9", "region": "DE"})
            shop.send("goods", "watch", properties={"price": "250", "region": "DE"})
            shop.send("goods", "phone", properties={"price": "600", "region": "US"})
            shop.send("goods", "voucher", properties={"price": "100", "region": "FR", "coupon": "X1"})
            shop.send("goods", "camera", properties={"price": "400", "region": "FR"})
            assert is_complete.wait(60)
    assert sorted(seen) == ["camera", "watch"]
    # An expression can be tried without a broker.
    assert DEAR_IN_EUROPE.matches({"price": "100", "region": "DE"})


if __name__ == "__main__":
    main()
