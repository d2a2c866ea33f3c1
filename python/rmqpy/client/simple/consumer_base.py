"""Base of both simple consumers, in threads and in event loops: settings, lifetime, and the work of each method."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

from rmqpy._native import ReceivedMessage
from rmqpy.client.cluster import ClusterConnection
from rmqpy.client.group.checks import check_group
from rmqpy.client.lifetime.client import Lifetime
from rmqpy.client.simple.receiver import Receiver
from rmqpy.config.arguments import check_types
from rmqpy.config.client import Address, ClientConfig
from rmqpy.config.ends import End
from rmqpy.message import Filter
from rmqpy.remoting.client import Caller

#: Default seconds for which a message is hidden, and for which `receive` waits for one.
INVISIBLE_S = 60.0
WAIT_S = 15.0


class Deliveries:
    """The work of a simple consumer's methods, shared by threads and event loops."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    async def receive(
        self, max_messages: int = 16, *, invisible: float = INVISIBLE_S, wait: float = WAIT_S
    ) -> list[ReceivedMessage]:
        """Return up to `max_messages` messages, hidden from the group's other consumers for `invisible` seconds; an
        empty list if none arrived within `wait` seconds."""
        check_types(
            max_messages=(max_messages, int), invisible=(invisible, float | int), wait=(wait, float | int)
        )
        return await self._receiver.receive(max_messages, invisible, wait)

    async def ack(self, *messages: ReceivedMessage) -> None:
        """Acknowledge messages, which ends their delivery. A message that has become visible again may still be
        delivered once more."""
        await self._receiver.ack(list(messages))

    async def extend(self, message: ReceivedMessage, seconds: float) -> None:
        """Hide a message for `seconds` from now on, for work that takes longer."""
        check_types(seconds=(seconds, float | int))
        await self._receiver.extend(message, seconds)

    async def nack(self, message: ReceivedMessage, *, after: float = 0.0) -> None:
        """Give a message back: it is delivered again after `after` seconds, to any consumer of the group."""
        check_types(after=(after, float | int))
        await self._receiver.give_back(message, after)

    async def dead_letter(self, message: ReceivedMessage) -> None:
        """Move a message to the group's dead-letter topic, which ends its delivery."""
        await self._receiver.bury(message)


class SimpleConsumerBase(Lifetime, ABC):
    """The settings and lifetime of both simple consumers."""

    _NOUN = "consumer"

    def __init__(
        self,
        group: str,
        namesrv: Address | ClientConfig | None = None,
        *,
        start_from: End = "latest",
        auto_extend: float = 0.0,
    ) -> None:
        """`start_from`: where a group without progress in a topic begins. `auto_extend`: keep received messages hidden
        for up to this many seconds, until they are acknowledged or given back, or the consumer is closed."""
        check_types(group=(group, str), start_from=(start_from, str), auto_extend=(auto_extend, float | int))
        check_group(group)
        if start_from not in ("latest", "end", "earliest", "begin"):
            raise ValueError(f"start_from must be earliest or latest, not {start_from!r}")
        super().__init__(namesrv)
        self.group = group
        self._from_first = start_from in ("earliest", "begin")
        self._auto_extend = auto_extend
        self._cluster = ClusterConnection.hold(self.config)
        self.is_closed = False
        self._begin()

    def subscribe(self, topic: str, tags: Filter = "*") -> None:
        """Receive messages of a topic, in addition to others. All consumers of a group must use the same tags."""
        check_types(topic=(topic, str), tags=(tags, Filter))
        self._now()
        self._receiver.subscribe(topic, tags)

    def unsubscribe(self, topic: str) -> None:
        """Stop receiving messages of a topic."""
        check_types(topic=(topic, str))
        self._now()
        self._receiver.unsubscribe(topic)

    @abstractmethod
    def _begin(self) -> None:
        """Create what only this kind of consumer needs."""

    @cached_property
    @abstractmethod
    def _caller(self) -> Caller:
        """The caller that waits for brokers."""

    @cached_property
    def _receiver(self) -> Receiver:
        receiver = Receiver(self._cluster, self._caller, self.group, from_first=self._from_first)
        if self._auto_extend:
            self._extend_messages(receiver)
        return receiver

    @abstractmethod
    def _extend_messages(self, receiver: Receiver) -> None:
        """Begin to extend held messages."""

    def _now(self) -> Deliveries:
        self._check_open()
        return Deliveries(self._receiver)

    def _release(self) -> None:
        receiver: Receiver | None = self.__dict__.get("_receiver")
        if receiver is not None:
            receiver.let_go()
        self._cluster.release()
