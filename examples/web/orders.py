"""A FastAPI application that sends orders to a topic, and bills them from it.

Needs `pip install rmqpy[pydantic] fastapi uvicorn` and a broker: `rmqpy standalone`. Run it, then order something:

    uvicorn orders:app
    curl -X POST localhost:8000/orders -H 'content-type: application/json' -d '{"id": "A-1", "total": 4.5}'
    curl localhost:8000/bills
"""

from typing import Annotated

from fastapi import Depends, FastAPI
from pydantic import BaseModel, PositiveFloat

import rmqpy
from rmqpy.contrib.pydantic import PydanticCodec
from rmqpy.contrib.starlette import RocketMQ


class Purchase(BaseModel):
    """An order, as a body of a request and of a message."""

    id: str
    total: PositiveFloat


# The address is that of NAMESRV_ADDR, or 127.0.0.1:9876.
rocketmq = RocketMQ(consumer={"start_from": "earliest"})
app = FastAPI(lifespan=rocketmq.lifespan)
bills: dict[str, float] = {}


@app.post("/orders", status_code=202)
async def create(
    order: Purchase, producer: Annotated[rmqpy.AsyncProducer, Depends(rocketmq.get_producer)]
) -> dict[str, str]:
    """Accept an order."""
    orders = producer.typed("web-orders", Purchase, codec=PydanticCodec())
    sent = await orders.send(order, keys=order.id)
    return {"message": sent.message_id}


@rocketmq.on("web-orders", group="web-billing", codec=PydanticCodec())
async def bill(order: Purchase, message: rmqpy.ReceivedMessage) -> None:
    """Bill an order. An order that does not validate is a dead letter: `rmqpy dlq show web-billing`."""
    bills[order.id] = order.total
    print(f"billed {order.id}: {order.total}, sent at {message.born_at}")


@app.get("/bills")
async def show() -> dict[str, float]:
    """Return the bills so far."""
    return bills


@app.get("/health")
async def health() -> dict[str, bool]:
    """Report whether the consumers run."""
    return {"consuming": rocketmq.is_consuming}
