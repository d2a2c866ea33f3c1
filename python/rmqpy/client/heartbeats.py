"""Heartbeats of producers: brokers list them, and know where to ask about what they sent.

Owns what one native client tells brokers about the producer groups that use it: one heartbeat for all of them. A
consumer has a native client of its own, for a broker takes a connection for one member, and its own heartbeat.

Invariant: a broker that a producer has a route to hears of its group at once, then every `HEARTBEAT_S`, and of its end.
Where one is asked about transactions, every broker does: what an earlier process of its group left may be anywhere. So
it is where one sends requests, whose replies may come from any.
A failure is told once and repeated in silence: sends go on without heartbeats. The thread `rmqpy-heartbeat` begins with
the first route and ends with the last producer. Any thread.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from rmqpy import errors
from rmqpy._native import Call, Client
from rmqpy.client.group.identity import client_id
from rmqpy.client.routes import Route
from rmqpy.config.client import ClientConfig
from rmqpy.protocol.requests.clients import HeartBeat, HeartbeatData, ProducerData, UnregisterClient
from rmqpy.protocol.requests.routes import MASTER_ID, GetClusterInfo
from rmqpy.remoting.backoff import FAILING
from rmqpy.remoting.client import BlockingCaller, check_transport, run
from rmqpy.remoting.nameservers import NameServers

if TYPE_CHECKING:
    from concurrent.futures import Future

log = logging.getLogger(__name__)

HEARTBEAT_S: Final = 30.0


class ProducerHeartbeats:
    """The producer groups of one native client."""

    def __init__(self, client: Client, config: ClientConfig, servers: NameServers) -> None:
        self._config = config
        self._servers = servers
        self._caller = BlockingCaller(client)
        #: Made before the first heartbeat.
        self._client_id = ""
        self._groups: Counter[str] = Counter()
        #: By topic: the newest route, whose masters are told.
        self._routes: dict[str, Route] = {}
        #: Producers that are asked about transactions, or get replies, and the brokers that may ask.
        self._asked = 0
        self._masters: frozenset[str] = frozenset()
        #: Looks in a row that did not find these, and rounds in a row with a broker that did not hear.
        self._misses = 0
        self._failed_rounds = 0
        #: Done at the end of the next whole round.
        self._awaited: list[Future[None]] = []
        self._told: set[str] = set()
        self._failing: set[str] = set()
        #: For all of it, and to wake the thread.
        self._changed = threading.Condition()
        self._is_due = False
        self._thread: threading.Thread | None = None

    def join(self, group: str, *, is_asked: bool = False) -> None:
        """One more producer of `group`. `is_asked`: about transactions, by any broker."""
        with self._changed:
            self._groups[group] += 1
            self._asked += is_asked
            self._wake()

    def leave(self, group: str, *, is_asked: bool = False) -> None:
        """One producer less; with its last one, brokers are told to forget the group. Does not wait."""
        with self._changed:
            self._groups[group] -= 1
            self._asked -= is_asked
            if self._groups[group] > 0:
                return
            del self._groups[group]
            for address in self._told:
                # What is closed with the connection is forgotten without it.
                with suppress(errors.RocketMQError):
                    ask = UnregisterClient(client_id=self._client_id, producer_group=group)
                    self._start(address, ask)
            self._wake()

    def reach(self) -> Future[None]:
        """One more producer that any broker may send a reply to; done when all have heard of it, or failed to. Until
        `forgo`."""
        from concurrent.futures import Future

        done: Future[None] = Future()
        with self._changed:
            self._asked += 1
            self._awaited.append(done)
            self._wake()
        return done

    def forgo(self) -> None:
        """One producer less that gets replies."""
        with self._changed:
            self._asked -= 1

    def lost(self, address: str) -> None:
        """A connection has ended, and its broker has forgotten the groups: tell it again where that is waited for."""
        with self._changed:
            # One that fails is tried again by itself.
            if self._asked and address in self._told and address not in self._failing:
                self._wake()

    @property
    def client_id(self) -> str:
        """The name brokers know these producers by; empty until a first heartbeat."""
        return self._client_id

    def learn(self, route: Route) -> None:
        """Tell the brokers of this route from now on. Cheap for a route that is known: called with every send whose
        queue was chosen."""
        if self._routes.get(route.topic) is route:
            return
        with self._changed:
            before = self._addresses()
            self._routes[route.topic] = route
            if not self._addresses() <= before:
                self._wake()

    def _wake(self) -> None:
        """Under the lock."""
        self._is_due = True
        if self._thread is None and self._groups and (self._routes or self._asked):
            self._thread = threading.Thread(target=self._beat_on, name="rmqpy-heartbeat", daemon=True)
            self._thread.start()
        self._changed.notify()

    def _beat_on(self) -> None:
        # Looks names up, which may take its time.
        self._client_id = self._client_id or client_id(self._config.namesrv, None, self._config.unit)
        while True:
            with self._changed:
                awaited, self._awaited = self._awaited, []
            try:
                is_over = self._round()
            except Exception:
                is_over = False
                with self._changed:
                    self._is_due = False
                log.exception("heartbeats of producers failed and are repeated")
            for done in awaited:
                done.set_result(None)
            if is_over:
                return
            with self._changed:
                failures = max(self._misses, self._failed_rounds) if self._asked else 0
                pause_s = FAILING.pause_s(failures) if failures else HEARTBEAT_S
                self._changed.wait_for(lambda: self._is_due or self._awaited, pause_s)

    def _round(self) -> bool:
        """Tell every broker; whether that was the last time."""
        if self._asked:
            self._find_masters()
        with self._changed:
            if not self._groups:
                self._thread = None
                return True
            self._is_due = False
            calls = self._beat()
        for ask, address, call in calls:
            try:
                run(self._caller.wait(call))
                check_transport(call, address)
                self._caller.read(ask, call, address)
            except errors.ClosedError:
                return True
            except errors.RocketMQError as error:
                self._note_failure(address, error)
            else:
                self._failing.discard(address)
        self._failed_rounds = self._failed_rounds + 1 if self._failing else 0
        return False

    def _find_masters(self) -> None:
        """Ask a name server for the brokers there are; those known so far stay when none answers."""
        try:
            told = run(self._servers.ask(self._caller, GetClusterInfo()))
        except errors.ClosedError:
            return
        except errors.RocketMQError as error:
            self._misses += 1
            if self._misses == 1:
                log.warning("the brokers that may ask producers are looked for again: %s", error)
            return
        self._misses = 0
        mapped = dict(self._config.address_map)
        found = (broker.broker_addrs.get(MASTER_ID) for broker in told.broker_addr_table.values())
        self._masters = frozenset(mapped.get(address, address) for address in found if address is not None)

    def _beat(self) -> list[tuple[HeartBeat, str, Call]]:
        """Send a heartbeat to each broker, at once. Under the lock, so that none overtakes a goodbye."""
        groups = [ProducerData(group_name=group) for group in sorted(self._groups)]
        ask = HeartBeat(body=HeartbeatData(client_id=self._client_id, producer_data_set=groups))
        calls = []
        self._told = self._addresses()
        self._failing &= self._told
        for address in sorted(self._told):
            with suppress(errors.ClosedError):
                calls.append((ask, address, self._start(address, ask)))
        return calls

    def _start(self, address: str, ask: HeartBeat | UnregisterClient) -> Call:
        return self._caller.begin(address, ask, timeout=self._config.request_timeout)

    def _note_failure(self, address: str, error: errors.RocketMQError) -> None:
        if address not in self._failing:
            self._failing.add(address)
            log.warning("a heartbeat of producers failed and is repeated: %s", error)

    def _addresses(self) -> set[str]:
        found = {
            replicas.get(MASTER_ID)
            for route in list(self._routes.values())
            for replicas in route.brokers.values()
        }
        masters = self._masters if self._asked else ()
        return {address for address in found if address is not None} | set(masters)
