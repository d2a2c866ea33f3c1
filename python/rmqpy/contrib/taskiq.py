"""Taskiq broker: tasks are messages of a topic, which all workers share; delayed ones wait at the broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import suppress
from functools import partial
from typing import Any, Final

from taskiq import AckableMessage, AsyncBroker, BrokerMessage

from rmqpy import errors
from rmqpy.admin.client import AsyncAdmin
from rmqpy.client.producer.producer_async import AsyncProducer
from rmqpy.client.simple.consumer_async import AsyncSimpleConsumer
from rmqpy.config.client import Address, ClientConfig
from rmqpy.contrib.work import EXTEND_S
from rmqpy.remoting.backoff import FAILING

log = logging.getLogger(__name__)

#: Seconds that a receive waits for a task.
WAIT_S: Final = 2.0


class RocketMQBroker(AsyncBroker):
    """Sends tasks, and receives them in workers.

    ::

        broker = RocketMQBroker("127.0.0.1:9876")

        @broker.task
        async def greet(name: str) -> None: ...

        await greet.kiq("Ada")
        await greet.kicker().with_labels(delay=10).kiq("Grace")

    The label `delay` is in seconds. A task of a dead worker runs elsewhere after `visibility_timeout` seconds, which
    does not limit tasks.
    """

    def __init__(
        self,
        namesrv: Address | ClientConfig | None = None,
        *,
        topic: str = "taskiq",
        group: str = "taskiq",
        visibility_timeout: float = 30.0,
        prefetch: int = 8,
        **options: Any,
    ) -> None:
        """`prefetch`: tasks per request. `options` are those of `AsyncBroker`."""
        super().__init__(**options)
        self._config = ClientConfig.of(namesrv)
        self._topic = topic
        self._group = group
        self._visibility_timeout = visibility_timeout
        self._prefetch = prefetch
        self._producer: AsyncProducer | None = None
        self._consumer: AsyncSimpleConsumer | None = None

    async def startup(self) -> None:
        """Create the topic unless it exists."""
        await super().startup()
        async with AsyncAdmin(self._config) as admin:
            # Users without the permission to create topics rely on existing ones.
            with suppress(errors.AuthError):
                await admin.create_topic(self._topic, exist_ok=True)
        if self._producer is None:
            self._producer = AsyncProducer(self._config)

    async def shutdown(self) -> None:
        """Close the clients. Tasks that were received and not begun run elsewhere."""
        await super().shutdown()
        for client in (self._consumer, self._producer):
            if client is not None:
                await client.close()
        self._consumer = self._producer = None

    async def kick(self, message: BrokerMessage) -> None:
        """Send a task."""
        if self._producer is None:
            self._producer = AsyncProducer(self._config)
        delay = message.labels.get("delay")
        fields: dict[str, Any] = {} if delay is None else {"deliver_after": float(delay)}
        await self._producer.send(self._topic, message.message, keys=message.task_id, **fields)

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Yield tasks as they arrive."""
        consumer = self._consumer = AsyncSimpleConsumer(
            self._group, self._config, start_from="earliest", auto_extend=EXTEND_S
        )
        consumer.subscribe(self._topic)
        failures = 0
        while True:
            try:
                messages = await consumer.receive(
                    self._prefetch, invisible=self._visibility_timeout, wait=WAIT_S
                )
                failures = 0
            except errors.ClosedError:
                return
            except errors.RocketMQError as error:
                failures += 1
                log.warning("cannot receive tasks: %s", error)
                await asyncio.sleep(FAILING.pause_s(failures))
                continue
            for message in messages:
                yield AckableMessage(data=message.body, ack=partial(consumer.ack, message))
