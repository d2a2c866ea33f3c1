"""A user's program with fourteen mistakes, each marked. A checker must report these and nothing else."""

import asyncio
from datetime import timedelta

import rmqpy


def sending() -> None:
    with rmqpy.Producer("127.0.0.1:9876", send_timeout=timedelta(seconds=2)) as producer:
        producer.send("orders", b"x", tag="paid", keys=["A-1", "A-2"], deliver_after=5)
        producer.send("orders", b"x", tags="paid")  # wrong: no such keyword
        producer.submit("orders", b"x", keys=5)  # wrong: keys are text
        producer.send_oneway("orders", b"x", propertys={})  # wrong: no such keyword
        producer.send("orders", 5)  # wrong: no body
        future = producer.submit(rmqpy.Message("orders", "text", sharding_key="A"))
        print(future.queue_offset)  # wrong: the result has it
        print(future.result().queue_offset, future.as_future().done())
        message = rmqpy.Message("orders", b"x").replace(tag="new", delay_level=3)
        message.tag = "other"  # wrong: immutable
        message.replace(delay_level="3")  # wrong: a number


def deciding(message: rmqpy.ReceivedMessage) -> rmqpy.TransactionState | bool:
    return message.tag == "paid" or rmqpy.TransactionState.UNKNOWN


def transacting() -> None:
    producer = rmqpy.Producer(group="shop", transaction_checker=deciding)
    with producer, producer.transaction("orders", b"x", keys="A-1") as transaction:
        print(transaction.half.message_id)
        transaction.rollback()


def reading() -> None:
    with rmqpy.PullConsumer("billing", start_from="first") as consumer:  # wrong: earliest
        consumer.subscribe(["orders", "refunds"], "paid || open")
        for message in consumer.poll(timeout=5):
            print(message.body + "!")  # wrong: bytes
        consumer.commit(consumer.queues("orders"))  # wrong: a mapping to offsets


def handling() -> None:
    consumer = rmqpy.PushConsumer("billing", ordered=True)

    @consumer.on("orders", "paid")
    def good(message: rmqpy.ReceivedMessage) -> rmqpy.ConsumeResult | None:
        return rmqpy.ConsumeResult.RETRY if message.tag is None else None

    @consumer.on("batches")
    def batch(messages: list[rmqpy.ReceivedMessage]) -> rmqpy.BatchResult:
        return rmqpy.BatchResult(failed=messages[:1])

    @consumer.on("refunds")  # wrong: a handler gets messages
    def bad(message: bytes) -> None:
        print(message)

    consumer.run()


async def awaiting() -> None:
    async with rmqpy.AsyncProducer() as producer:
        result = await producer.send("orders", b"x", priority=1)
        print(result.ok)
        print(producer.send("orders", b"x").message_id)  # wrong: not awaited
        async with producer.transaction("orders", b"x") as transaction:
            await transaction.rollback()
    with rmqpy.Producer() as blocking:
        stored = await blocking.submit("orders", b"x")
        print(stored.message_id)
        blocking.submit("orders", b"x").add_done_callback(lambda future: print(future.topic))


def names() -> None:
    try:
        rmqpy.Producter()  # wrong: no such name
    except rmqpy.errors.SendEror:  # wrong: no such error
        asyncio.run(awaiting())
