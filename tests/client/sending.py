"""One send by each kind of producer."""

import asyncio

import rmqpy

#: Much longer than the time in which a successor is found.
TIMEOUT_S = 30.0


def send(how: str, address: str) -> rmqpy.SendResult:
    """Send to `orders` with this timeout: `send`, `submit`, `async`, or `pinned` to a queue of broker-a."""
    if how == "async":

        async def run() -> rmqpy.SendResult:
            async with rmqpy.AsyncProducer(address, send_timeout=TIMEOUT_S) as producer:
                return await producer.send("orders", b"x")

        return asyncio.run(run())
    with rmqpy.Producer(address, send_timeout=TIMEOUT_S) as producer:
        if how == "submit":
            return producer.submit("orders", b"x").result()
        queue = rmqpy.MessageQueue("orders", "broker-a", 1) if how == "pinned" else None
        return producer.send("orders", b"x", queue=queue)
