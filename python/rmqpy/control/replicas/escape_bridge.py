"""Escape bridge: sends messages that an acting slave may not store to another broker of the cluster.

Owns routes, cached for some seconds. Invariants: a message goes to a broker of its own cluster that accepts messages of
its topic; while the route is unchanged, all messages of one queue go to one queue. Nothing is given up: the caller
retries. Threads: the event loop's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from rmqpy._native import EscapedMessage
from rmqpy.control.identity import Identity
from rmqpy.errors import ConnectError, RequestTimeout, RocketMQError
from rmqpy.protocol import properties
from rmqpy.protocol.requests.messages import SendMessage
from rmqpy.protocol.requests.routes import MASTER_ID, GetRoute
from rmqpy.protocol.topics import Permission
from rmqpy.remoting.client import Peer

log = logging.getLogger(__name__)

#: How long a route or its absence is cached, and how long an unreachable broker is skipped.
ROUTE_SECONDS: Final = 5.0
#: The most cached routes.
ROUTES_MAX: Final = 4_096
#: The timeout of Apache's broker.
SEND_SECONDS: Final = 3.0
#: The flag bit of a message with an open transaction.
_PREPARED: Final = 0x4

_REAL_TOPIC: Final = "REAL_TOPIC"
_TIME: Final = "TIMER_DELIVER_MS"
#: The property of a half message; its committed message keeps it.
_HALF: Final = "TRAN_MSG"
#: Properties that would delay the message again or name its old place.
_LEFT_BEHIND: Final = frozenset(
    {
        *("DELAY", _REAL_TOPIC, "REAL_QID", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_OUT_MS"),
        *("TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES"),
        *("TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET", "CLUSTER", "WAIT"),
    }
)


class _Target(NamedTuple):
    """A broker that accepts messages of a topic."""

    name: str
    address: str
    queues: int


class EscapeBridge:
    """The sends to other brokers."""

    def __init__(
        self,
        identity: Identity,
        name_servers: Sequence[Peer],
        peer: Callable[[str], Peer],
        elapsed: Callable[[], float],
    ) -> None:
        """`elapsed` returns seconds of a monotonic clock."""
        self._identity = identity
        self._name_servers = name_servers
        self._peer = peer
        self._elapsed = elapsed
        self._routes: dict[str, tuple[float, Sequence[_Target]]] = {}
        #: Unreachable addresses, and the time of their next attempt.
        self._silent: dict[str, float] = {}
        #: Topics whose messages wait, so that each is logged once.
        self._waiting: set[str] = set()
        #: The number of messages that other brokers have stored.
        self.sent = 0

    async def send(self, message: EscapedMessage, *, is_half: bool = False) -> bool:
        """Send a message; return whether another broker stored it. `is_half`: its transaction is open there."""
        known = properties.decode(message.properties)
        topic = known.get(_REAL_TOPIC, message.topic)
        left = set(_LEFT_BEHIND)
        if not is_half:
            left.add(_HALF)
        if topic == message.topic:
            # Otherwise its time is beyond the longest single delay, and it waits further at the target.
            left.add(_TIME)
        kept = properties.encode({name: text for name, text in known.items() if name not in left})
        fault = f"no other broker of {self._identity.cluster} accepts its messages"
        for target in self._in_turn(await self._targets(topic), message.queue_id):
            ask = SendMessage(
                producer_group=f"InnerProducerGroup_{self._identity.broker}_{self._identity.broker_id}",
                topic=topic,
                queue_id=message.queue_id % target.queues,
                sys_flag=message.sys_flag | _PREPARED if is_half else message.sys_flag,
                born_timestamp=message.born_ms,
                flag=message.flag,
                properties=kept,
                reconsume_times=message.attempts,
                body=message.body,
            )
            try:
                await self._peer(target.address).call(ask, timeout=SEND_SECONDS)
            except (RocketMQError, OSError) as error:
                fault = f"{target.name} at {target.address}: {error}"
                if isinstance(error, ConnectError | RequestTimeout):
                    self._silent[target.address] = self._elapsed() + ROUTE_SECONDS
                continue
            self.sent += 1
            if topic in self._waiting:
                self._waiting.discard(topic)
                log.info("sending messages of %s to %s", topic, target.name)
            return True
        self._miss(topic, fault)
        return False

    def forget(self) -> None:
        """Drop the cached routes, because the next message may be far off."""
        self._routes.clear()
        self._silent.clear()
        self._waiting.clear()

    def _in_turn(self, targets: Sequence[_Target], queue_id: int) -> Iterator[_Target]:
        """Yield the broker for this queue, then the others, without recently unreachable ones."""
        now = self._elapsed()
        for number in range(len(targets)):
            target = targets[(queue_id + number) % len(targets)]
            if self._silent.get(target.address, now) <= now:
                yield target

    async def _targets(self, topic: str) -> Sequence[_Target]:
        now = self._elapsed()
        known = self._routes.get(topic)
        if known is not None and now < known[0]:
            return known[1]
        found: Sequence[_Target] = ()
        for server in self._name_servers:
            try:
                route = await server.call(GetRoute(topic=topic, accept_standard_json_only=True))
            except (RocketMQError, OSError):
                continue
            queues = {
                queue.broker_name: queue.write_queue_nums
                for queue in route.body.queue_datas
                if queue.perm & Permission.WRITE and queue.write_queue_nums > 0
            }
            found = sorted(
                _Target(group.broker_name, group.broker_addrs[MASTER_ID], queues[group.broker_name])
                for group in route.body.broker_datas
                if group.broker_name in queues
                and group.broker_name != self._identity.broker
                and group.cluster == self._identity.cluster
                and MASTER_ID in group.broker_addrs
            )
            break
        if len(self._routes) >= ROUTES_MAX:
            self._routes.clear()
        self._routes[topic] = (now + ROUTE_SECONDS, found)
        return found

    def _miss(self, topic: str, fault: str) -> None:
        if topic not in self._waiting and len(self._waiting) < ROUTES_MAX:
            self._waiting.add(topic)
            log.warning("due messages of %s are waiting: %s", topic, fault)
