"""A producer of another program, which writes arbitrary values into the fields of a send."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import rmqpy
from rmqpy.client.cluster import ClusterConnection
from rmqpy.protocol.properties import encode
from rmqpy.protocol.requests.messages import SendMessage
from rmqpy.remoting.client import BlockingCaller, run

#: Store a message: `store(body, properties, born_timestamp=…)`.
Store = Callable[..., None]


class Server(Protocol):
    """The target: addresses of a name server and of a broker."""

    @property
    def namesrv(self) -> str: ...
    @property
    def broker(self) -> str: ...


#: Times of birth that no date has, and some that one has.
BORN_MS = [round(time.time() * 1_000_000), (1 << 63) - 1, -(1 << 63), -1, 0]
#: The years they are shown as.
YEARS = [9999, 9999, 1, 1969, 1970]


@contextmanager
def producer(server: Server, topic: str) -> Iterator[Store]:
    """Stores in queue 0 of the topic, with any values."""
    cluster = ClusterConnection(rmqpy.ClientConfig(namesrv=server.namesrv))
    caller = BlockingCaller(cluster.client)

    def store(body: bytes, properties: dict[str, str] | None = None, **values: Any) -> None:
        ask = SendMessage(
            producer_group="foreign",
            topic=topic,
            queue_id=0,
            properties=encode({"TAGS": "t", **(properties or {})}),
            body=body,
            **{"born_timestamp": round(time.time() * 1000), **values},
        )
        run(caller.ask(server.broker, ask, timeout=5.0))

    yield store
    cluster.close()
