"""Transport and channels: kombu's interface over the clients of a link.

A queue is a topic, and all workers are one consumer group, so that messages are handed to one worker each, and hidden
until it acknowledges them. Temporary queues (those of remote control, events and replies) have no topic: their
exchange has one, which each of them reads from its declaration on. Bindings of other queues are known to the process
that declares them, as they are in Celery's. Scheduled tasks wait at the broker. A channel is for one thread, but any
thread may acknowledge.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kombu.transport import virtual

from rmqpy import errors
from rmqpy._native import __version__
from rmqpy.config.client import ClientConfig
from rmqpy.contrib.kombu import payloads, revocation
from rmqpy.contrib.kombu.link import Delivery, Link
from rmqpy.contrib.kombu.settings import Options, client_config
from rmqpy.contrib.kombu.sources import Broadcast, Positions, Room, WorkQueue, ends
from rmqpy.contrib.work import GET_S

#: Positions of the default exchange's topic when temporary queues were declared, by cluster and queue.
_DECLARED: Final[dict[tuple[ClientConfig, str], Positions]] = {}
DECLARED_MAX: Final = 1_000


class QoS(virtual.QoS):
    """The unacknowledged messages of a channel."""

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge a message. Any thread."""
        self.channel.settle(delivery_tag, "ack")
        super().ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Give a message back, or make it a dead letter. Any thread."""
        self.channel.settle(delivery_tag, "requeue" if requeue else "reject")
        self._quick_ack(delivery_tag)


class Channel(virtual.Channel):
    """Queues, exchanges, and consumers of a connection."""

    QoS = QoS
    supports_fanout = True

    def __init__(self, connection: Any, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self.link: Link = connection.link
        self._room = Room()
        #: Unsettled deliveries by their tags.
        self._held: dict[str, Delivery] = {}
        self._takers: dict[str, Callable[[dict[str, Any]], Any]] = {}
        self._without_ack: set[str] = set()
        self._temporary: set[str] = set()
        self._work: dict[str, WorkQueue] = {}
        self._broadcasts: dict[str, list[Broadcast]] = {}

    # ---- queues ----

    def queue_declare(self, queue: str | None = None, passive: bool = False, **kwargs: Any) -> Any:
        """Declare a queue, or count its messages if `passive`. Exclusive queues, and those that are deleted
        automatically, are temporary."""
        if queue and (kwargs.get("exclusive") or kwargs.get("auto_delete")):
            self._temporary.add(queue)
            self._note_ends(queue)
        declared = super().queue_declare(queue=queue, passive=passive, **kwargs)
        return declared if passive else declared._replace(message_count=0)

    def queue_delete(self, queue: str, *args: Any, **kwargs: Any) -> None:
        """Forget a temporary queue, or empty another one, whose topic remains."""
        if queue in self._temporary:
            for source in self._broadcasts.pop(queue, ()):
                self.link.close_source(source)
            self._temporary.discard(queue)
            for exchange in self.state.exchanges.values():
                exchange["table"][:] = [row for row in exchange["table"] if row[2] != queue]
            self.state.queue_bindings_delete(queue)
        else:
            super().queue_delete(queue, *args, **kwargs)

    def _note_ends(self, queue: str) -> None:
        """Remember where the replies to a queue begin: another connection may declare it than consumes it."""
        key = (self.link.config, queue)
        if key not in _DECLARED:
            topic = payloads.topic_of_exchange("")
            self.link.create_topic(topic, 1)
            _DECLARED[key] = self.link.call(ends(self.link, topic))
            while len(_DECLARED) > DECLARED_MAX:
                _DECLARED.pop(next(iter(_DECLARED)), None)

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str | None, queue: str) -> None:
        kind = self.typeof(exchange)
        if kind.type == "fanout":
            self._temporary.add(queue)
            self._listen(queue, exchange, None, lambda _: True)
        elif queue in self._temporary and pattern:
            self._listen(queue, exchange, None, lambda key: bool(kind._match(pattern, key)))
        elif queue in self._temporary:
            self._listen(queue, exchange, routing_key, lambda key: key == routing_key)

    def _listen(self, queue: str, exchange: str, key: str | None, accepts: Callable[[str], bool]) -> None:
        topic = payloads.topic_of_exchange(exchange)
        self.link.create_topic(topic, 1)
        tag = None if key is None else payloads.tag_of(key)
        source = Broadcast(self.link, queue, topic, tag=tag, accepts=accepts)
        self.link.call(source.open(None if exchange else _DECLARED.get((self.link.config, queue))))
        self.link.open(source)
        self._broadcasts.setdefault(queue, []).append(source)

    def _has_queue(self, queue: str, **_: Any) -> bool:
        return queue in self._temporary or self.link.has_topic(payloads.topic_of_queue(queue))

    def _size(self, queue: str) -> int:
        topic = payloads.topic_of_queue(queue)
        if queue in self._temporary or not self.link.has_topic(topic):
            return 0
        return self.link.backlog(topic)

    def _purge(self, queue: str) -> int:
        if queue in self._temporary:
            return 0
        return self.link.purge(payloads.topic_of_queue(queue))

    # ---- sending ----

    def encode_body(self, body: Any, encoding: str | None = None) -> tuple[Any, str | None]:
        """Keep text readable; encode bytes."""
        return (body, None) if isinstance(body, str) else super().encode_body(body, encoding)

    def basic_publish(self, message: dict[str, Any], exchange: str, routing_key: str, **_: Any) -> None:
        """Send a message to the queues that are bound here, or else to the temporary ones, wherever they are."""
        self._inplace_augment_message(message, exchange, routing_key)
        key = routing_key or ""
        if self.typeof(exchange).type == "fanout":
            revocation.recall_tasks(self.link, exchange, message)
            queues: set[str] = set()
        elif exchange:
            queues = self._bound(exchange, key) - self._temporary
        else:
            queues = {key} if key not in self._temporary and self._has_queue(key) else set()
        for queue in queues:
            self._put(queue, message)
        if not queues:
            topic = payloads.topic_of_exchange(exchange)
            self.link.create_topic(topic, 1)
            self.link.send(payloads.encode(message, topic, tag=payloads.tag_of(key) if key else None))

    def _bound(self, exchange: str, routing_key: str) -> set[str]:
        """The queues that this process has bound."""
        if exchange not in self.state.exchanges:
            return set()
        found = self.typeof(exchange).lookup(self.get_table(exchange), exchange, routing_key, None)
        return {queue for queue in found if queue}

    def _put(self, queue: str, message: dict[str, Any], **_: Any) -> None:
        topic = payloads.topic_of_queue(queue)
        self.link.create_topic(topic, self.link.options.topic_queues)
        self.link.send(payloads.encode(message, topic))

    def _new_queue(self, queue: str, **_: Any) -> None:
        if queue not in self._temporary:
            self.link.create_topic(payloads.topic_of_queue(queue), self.link.options.topic_queues)

    # ---- receiving ----

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False) -> None:
        """Limit the unacknowledged messages of this channel; 0 means no limit."""
        super().basic_qos(prefetch_size, prefetch_count, apply_global)
        self._room.limit(prefetch_count)

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Callable[[Any], Any], consumer_tag: str, **kwargs: Any
    ) -> None:
        """Consume a queue; `callback` takes its messages in the thread that drains the connection."""
        super().basic_consume(queue, no_ack, callback, consumer_tag, **kwargs)
        self._takers[queue] = self.connection._callbacks[queue]
        if no_ack:
            self._without_ack.add(queue)
        else:
            self._without_ack.discard(queue)
        if queue in self._temporary:
            if queue not in self._broadcasts:
                # Not bound, so that it is reached by its name alone.
                self._listen(queue, "", queue, lambda key: key == queue)
            for source in self._broadcasts[queue]:
                self.link.call(source.start(self._take))
        elif queue not in self._work:
            self._work[queue] = self._open(queue)
            self.link.call(self._work[queue].start())

    def basic_cancel(self, consumer_tag: str) -> None:
        """Stop consuming; messages received may still be settled."""
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue is not None and queue not in self._active_queues:
            self._takers.pop(queue, None)
            if (work := self._work.pop(queue, None)) is not None:
                work.stop()

    def basic_get(self, queue: str, no_ack: bool = False, **_: Any) -> Any:
        """Return a message of a queue, or None."""
        if queue in self._temporary:
            return None
        work = self._open(queue)
        found = self.link.call(work.get(GET_S))
        if found is None:
            return None
        payload, message = found
        delivery = Delivery(self._take, queue, payload, message, work)
        received = self.Message(self._tagged(delivery), channel=self)
        self._room.take()
        if no_ack:
            self.settle(received.delivery_tag, "ack")
        else:
            self.qos.append(received, received.delivery_tag)
        return received

    def settle(self, delivery_tag: str, outcome: str) -> None:
        """End a delivery: `ack`, `requeue` or `reject`. Any thread; no-op if it has ended."""
        delivery = self._held.pop(delivery_tag, None)
        if delivery is not None and not self.link.is_forked:
            if isinstance(delivery.source, WorkQueue):
                self._room.give()
            delivery.source.settle(delivery.message, outcome)

    def close(self) -> None:
        """Stop consuming, and give back unacknowledged messages."""
        if not self.closed and not self.link.is_forked:
            for consumer in list(self._consumers):
                self.basic_cancel(consumer)
            for queue in list(self._broadcasts):
                self.queue_delete(queue)
        super().close()

    def _open(self, queue: str) -> WorkQueue:
        topic = payloads.topic_of_queue(queue)
        self.link.create_topic(topic, self.link.options.topic_queues)
        work = WorkQueue(self.link, queue, topic, self._room, self._take)
        self.link.open(work)
        return work

    def _tagged(self, delivery: Delivery) -> dict[str, Any]:
        tag = self._next_delivery_tag()
        delivery.payload["properties"]["delivery_tag"] = tag
        self._held[tag] = delivery
        return delivery.payload

    def _take(self, delivery: Delivery) -> None:
        payload = self._tagged(delivery)
        tag = payload["properties"]["delivery_tag"]
        taker = self._takers.get(delivery.queue)
        if taker is None or self.closed:
            self.settle(tag, "requeue")
            return
        if delivery.queue in self._without_ack:
            self.settle(tag, "ack")
        taker(payload)

    def _restore(self, message: Any) -> None:
        self.settle(message.delivery_tag, "requeue")


class Transport(virtual.Transport):
    """Connections to a cluster."""

    Channel = Channel

    driver_type = "rocketmq"
    driver_name = "rmqpy"
    default_port = 9876
    #: What kombu and Celery retry. A send is retried by the producer first.
    connection_errors = (
        *virtual.Transport.connection_errors,
        *(errors.ConnectError, errors.RequestTimeout, errors.RouteError, errors.ClosedError),
        *(errors.FlowControl, errors.SendError),
    )
    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset({"direct", "topic", "fanout"}), heartbeats=False
    )

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        self._hub: Any = None
        self._open_link()

    def driver_version(self) -> str:
        """Return the version of rmqpy."""
        return __version__

    def establish_connection(self) -> Any:
        """Find a name server that answers."""
        if self.link.is_closed:
            self._open_link()
        self.link.check()
        return super().establish_connection()

    def close_connection(self, connection: Any) -> None:
        """Give back unacknowledged messages, and close all clients."""
        self.unregister_from_event_loop(connection, self._hub)
        super().close_connection(connection)
        self.link.close()

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Hand over a message. Raises `TimeoutError` if none arrives within `timeout` seconds."""
        delivery = self.link.next(timeout)
        if delivery is None:
            raise TimeoutError
        delivery.take(delivery)

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Hand over messages from kombu's event loop."""
        self._hub = loop
        loop.add_reader(self.link.fileno(), self._on_readable)

    def unregister_from_event_loop(self, connection: Any, loop: Any) -> None:
        """Let kombu's event loop forget the connection."""
        if loop is not None and not self.link.is_closed:
            loop.remove(self.link.fileno())

    def _on_readable(self) -> None:
        self.link.clear()
        while self.link.ready:
            delivery = self.link.ready.popleft()
            delivery.take(delivery)

    def _open_link(self) -> None:
        self.link = Link(client_config(self.client), Options.of(self.client.transport_options))

    def _collect(self, connection: Any) -> None:
        """Forget the connection in a child process, without a word to its parent's broker."""
        self.channels.clear()
        self._avail_channels.clear()
