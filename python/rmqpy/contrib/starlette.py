"""`RocketMQ`: a producer and consumers that start and stop with a Starlette or FastAPI application.

Clients are created in the serving process and its event loop, so that servers with several workers can fork or spawn
them. Nothing of Starlette is imported: any ASGI framework with a lifespan works.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple, TypeVar

from rmqpy.client.codecs.codec import Codec
from rmqpy.client.producer.producer_async import AsyncProducer
from rmqpy.client.push.consumer_async import AsyncPushConsumer
from rmqpy.config.client import Address, ClientConfig
from rmqpy.errors import ClosedError
from rmqpy.message import Filter

log = logging.getLogger(__name__)

HandlerT = TypeVar("HandlerT", bound=Callable[..., Any])


class _Handler(NamedTuple):
    topic: str
    tags: Filter
    function: Callable[..., Any]
    codec: Codec | None


class RocketMQ:
    """Connects an application with a cluster.

    ::

        rocketmq = RocketMQ("127.0.0.1:9876")
        app = FastAPI(lifespan=rocketmq.lifespan)

        @rocketmq.on("orders", group="billing", codec=PydanticCodec())
        async def bill(order: Order) -> None: ...

        @app.post("/orders")
        async def create(order: Order) -> None:
            await rocketmq.producer.send("orders", order.model_dump_json())
    """

    def __init__(
        self,
        namesrv: Address | ClientConfig | None = None,
        *,
        producer: Mapping[str, Any] | None = None,
        consumer: Mapping[str, Any] | None = None,
    ) -> None:
        """`producer` and `consumer` are options of `AsyncProducer` and of each `AsyncPushConsumer`."""
        self._config = ClientConfig.of(namesrv)
        self._producer_options = dict(producer or {})
        self._consumer_options = dict(consumer or {})
        self._handlers: dict[str, list[_Handler]] = {}
        self._producer: AsyncProducer | None = None
        self._consumers: list[AsyncPushConsumer] = []

    def on(
        self, topic: str, tags: Filter = "*", *, group: str, codec: Codec | None = None
    ) -> Callable[[HandlerT], HandlerT]:
        """Call the decorated function for messages of a topic, as `AsyncPushConsumer.on`, in this consumer group."""

        def put(function: HandlerT) -> HandlerT:
            if self._consumers:
                raise RuntimeError("the application has started: add handlers before")
            self._handlers.setdefault(group, []).append(_Handler(topic, tags, function, codec))
            return function

        return put

    @property
    def producer(self) -> AsyncProducer:
        """The producer. Raises `ClosedError` while the application does not run."""
        if self._producer is None:
            raise ClosedError(
                "the application has not started", hint="create it with lifespan=rocketmq.lifespan"
            )
        return self._producer

    async def get_producer(self) -> AsyncProducer:
        """Return the producer, as a dependency: `Annotated[AsyncProducer, Depends(rocketmq.get_producer)]`."""
        return self.producer

    @property
    def is_consuming(self) -> bool:
        """Whether all consumers run, for a health check. False after a permanent failure, which was logged."""
        return all(not each.has_failed for each in self._consumers)

    @asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncIterator[dict[str, Any]]:
        """Start the clients with the application, and close them with it: handlers finish first, then sends.

        The yielded state has this object under `rocketmq`, for `request.state.rocketmq`. A lifespan of your own uses it
        as `async with rocketmq.lifespan(app) as state: yield {**state, ...}`.
        """
        async with AsyncExitStack() as running:
            self._producer = await running.enter_async_context(
                AsyncProducer(self._config, **self._producer_options)
            )
            running.callback(self._forget)
            for group, handlers in self._handlers.items():
                consumer = AsyncPushConsumer(group, self._config, **self._consumer_options)
                for each in handlers:
                    if each.codec is None:
                        consumer.on(each.topic, each.tags)(each.function)
                    else:
                        consumer.on(each.topic, each.tags, codec=each.codec)(each.function)
                self._consumers.append(await running.enter_async_context(consumer))
            yield {"rocketmq": self}

    def _forget(self) -> None:
        self._producer = None
        self._consumers.clear()
