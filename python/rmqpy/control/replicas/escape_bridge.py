"""Escape bridge: sends messages that an acting slave may not store to another broker of the cluster.

Owns what is known of the routes, for some seconds. Invariants: a message goes to a broker that takes messages of
its topic, and to one of its own cluster; of one queue all go to one queue, as long as the route is the same.
Nothing is given up: who asks comes again. Threads: the event loop's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from rmqpy.control.identity import Identity
from rmqpy.errors import ConnectError, RequestTimeout, RocketMQError
from rmqpy.protocol import properties
from rmqpy.protocol.requests.messages import SendMessage
from rmqpy.protocol.requests.routes import MASTER_ID, GetRoute
from rmqpy.protocol.topics import Permission
from rmqpy.remoting.client import Peer

log = logging.getLogger(__name__)

#: How long a route, and that there is none, is believed; and how long a broker that did not answer is left alone.
ROUTE_SECONDS: Final = 5.0
#: Topics whose routes are known.
ROUTES_MAX: Final = 4_096
#: As Apache's broker waits.
SEND_SECONDS: Final = 3.0
#: Bit of a message whose transaction is open.
_PREPARED: Final = 0x4

_REAL_TOPIC: Final = "REAL_TOPIC"
_TIME: Final = "TIMER_DELIVER_MS"
#: Of a half; its message has it still once it is committed.
_HALF: Final = "TRAN_MSG"
#: Properties that would have the message wait once more, or come back, and those of where it waited.
_LEFT_BEHIND: Final = frozenset(
    {
        *("DELAY", _REAL_TOPIC, "REAL_QID", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_OUT_MS"),
        *("TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES"),
        *("TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET", "CLUSTER", "WAIT"),
    }
)


class Escaped(NamedTuple):
    """A message as the data plane has it."""

    position: int
    topic: str
    queue_id: int
    flag: int
    sys_flag: int
    born_ms: int
    attempts: int
    properties: str
    body: bytes


class _Target(NamedTuple):
    """A broker that takes messages of a topic."""

    name: str
    address: str
    queues: int


class EscapeBridge:
    """The way to other brokers."""

    def __init__(
        self,
        identity: Identity,
        name_servers: Sequence[Peer],
        peer: Callable[[str], Peer],
        elapsed: Callable[[], float],
    ) -> None:
        """`elapsed`: seconds on a clock that nobody sets."""
        self._identity = identity
        self._name_servers = name_servers
        self._peer = peer
        self._elapsed = elapsed
        self._routes: dict[str, tuple[float, Sequence[_Target]]] = {}
        #: Address to when it is tried again.
        self._silent: dict[str, float] = {}
        #: Topics whose messages wait, so that each is told once.
        self._waiting: set[str] = set()
        #: Messages that another broker has.
        self.sent = 0

    async def send(self, message: Escaped, *, is_half: bool = False) -> bool:
        """Whether another broker has it now. `is_half`: its transaction is open there."""
        known = properties.decode(message.properties)
        topic = known.get(_REAL_TOPIC, message.topic)
        left = set(_LEFT_BEHIND)
        if not is_half:
            left.add(_HALF)
        if topic == message.topic:
            # Otherwise its time lies beyond what is waited for in one piece, and it waits on where it goes.
            left.add(_TIME)
        kept = properties.encode({name: text for name, text in known.items() if name not in left})
        fault = f"no other broker of {self._identity.cluster} takes messages of it"
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
                log.info("messages of %s go to %s now", topic, target.name)
            return True
        self._miss(topic, fault)
        return False

    def forget(self) -> None:
        """Forget what was known: it may be long until the next message."""
        self._routes.clear()
        self._silent.clear()
        self._waiting.clear()

    def _in_turn(self, targets: Sequence[_Target], queue_id: int) -> Iterator[_Target]:
        """The broker for this queue, and after it the others; none that did not answer a moment ago."""
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
            log.warning("messages of %s that are due wait: %s", topic, fault)
