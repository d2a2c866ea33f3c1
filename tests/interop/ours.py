"""rmqpy's own client behind the verbs of `clients`."""

import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Literal, cast

import rmqpy

from .clients import Decision
from .messages import MessageSpec, Received, SendOutcome

Compression = Literal["zlib", "lz4", "zstd"]
STATES = {
    "commit": rmqpy.TransactionState.COMMIT,
    "rollback": rmqpy.TransactionState.ROLLBACK,
    "unknown": rmqpy.TransactionState.UNKNOWN,
}


class RmqpyClient:
    """Producers and pull consumers of this very process, one per call; of transactions, one per group."""

    name = "rmqpy"
    pulls = ("poll",)
    compressions = ("zlib", "lz4", "zstd")

    def __init__(self) -> None:
        self._transacting: dict[str, rmqpy.Producer] = {}
        self._asked: defaultdict[str, list[Received]] = defaultdict(list)

    def send(
        self,
        namesrv: str,
        topic: str,
        messages: Sequence[MessageSpec],
        *,
        mode: str = "sync",
        compression: str = "zlib",
    ) -> list[SendOutcome]:
        outgoing = [_outgoing(topic, message, is_keyed=mode == "keyed") for message in messages]
        chosen = cast(Compression, compression)
        with rmqpy.Producer(namesrv, compression=chosen, send_timeout=10.0) as producer:
            if mode in ("sync", "keyed"):
                return [_sent(producer.send(message)) for message in outgoing]
            if mode == "async":
                pending = [producer.submit(message) for message in outgoing]
                return [_sent(future.result(20.0)) for future in pending]
            if mode == "batch":
                return [_sent(result) for result in producer.send_batch(outgoing)]
            for message in outgoing:
                producer.send_oneway(message)
            return []

    def pull(
        self,
        namesrv: str,
        topic: str,
        group: str,
        *,
        api: str,
        count: int,
        tags: str = "*",
        seconds: float = 15.0,
    ) -> list[Received]:
        received: list[Received] = []
        deadline = time.monotonic() + seconds
        with rmqpy.PullConsumer(group, namesrv, start_from="earliest") as consumer:
            consumer.assign(consumer.queues(topic), tags)
            while len(received) < count and time.monotonic() < deadline:
                received += [_received(message) for message in consumer.poll(0.5)]
        return received

    def transact(
        self,
        namesrv: str,
        topic: str,
        group: str,
        messages: Sequence[MessageSpec],
        *,
        decision: Decision,
        answer: Decision = "unknown",
    ) -> list[SendOutcome]:
        if group not in self._transacting:

            def check(message: rmqpy.ReceivedMessage) -> rmqpy.TransactionState:
                self._asked[group].append(_received(message))
                return STATES[answer]

            self._transacting[group] = rmqpy.Producer(
                namesrv, group=group, transaction_checker=check, send_timeout=10.0
            )
        sent = []
        for message in messages:
            outgoing = _outgoing(topic, message, is_keyed=False)
            with self._transacting[group].transaction(outgoing) as transaction:
                if decision == "rollback":
                    transaction.rollback()
                elif decision == "unknown":
                    transaction.leave_unknown()
            sent.append(_sent(transaction.half))
        return sent

    def asked(self, group: str) -> list[Received]:
        return self._asked[group]

    def leave(self, group: str) -> None:
        self._transacting.pop(group).close()

    def close(self) -> None:
        for group in list(self._transacting):
            self.leave(group)


def _outgoing(topic: str, message: MessageSpec, *, is_keyed: bool) -> rmqpy.Message:
    return rmqpy.Message(
        topic,
        message.body,
        tag=message.tag,
        keys=message.keys,
        # Empty values are refused, as Java's putUserProperty refuses them.
        properties={name: value for name, value in message.properties.items() if value},
        sharding_key=message.keys[0] if is_keyed else None,
        flag=message.flag,
    )


def _sent(result: rmqpy.SendResult) -> SendOutcome:
    return SendOutcome(
        status=result.status.name,
        id=result.message_id,
        offset_id=result.offset_message_id,
        queue_id=result.queue.queue_id,
        queue_offset=result.queue_offset,
    )


def _received(message: rmqpy.ReceivedMessage) -> Received:
    return Received(
        topic=message.topic,
        body=message.body,
        tag=message.tag,
        keys=" ".join(message.keys),
        properties=message.properties,
        flag=message.flag,
        id=message.message_id,
        offset_id=message.offset_message_id,
        queue_id=message.queue.queue_id,
        queue_offset=message.queue_offset,
    )
