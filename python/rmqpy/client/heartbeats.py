"""Heartbeats of producers: brokers list them, and learn where to send transaction checks and replies.

Owns what one native client reports about its producer groups, in one heartbeat for all of them. A consumer has its own
native client and heartbeat, because a broker counts each connection as one member.

Invariant: a broker on a producer's route learns of its group immediately, then every `HEARTBEAT_S`, and of its end.
All brokers do where a producer has a checker, because any broker may hold what an earlier process of the group left,
and where a producer sends requests, because any broker may deliver the replies. A failure is logged once: sends work
without heartbeats. The thread `rmqpy-heartbeat` starts with the first route and ends with the last producer. Any
thread.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from rmqpy import errors
from rmqpy._native import Call, Client
from rmqpy.client.identity import client_id
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
        #: Set before the first heartbeat.
        self._client_id = ""
        self._groups: Counter[str] = Counter()
        #: The newest route by topic; its masters receive heartbeats.
        self._routes: dict[str, Route] = {}
        #: Number of producers that any broker may contact, with transaction checks or replies.
        self._asked = 0
        self._masters: frozenset[str] = frozenset()
        #: Failed look-ups of the brokers in a row, and rounds in a row in which a broker did not answer.
        self._misses = 0
        self._failed_rounds = 0
        #: Futures to complete at the end of the next whole round.
        self._awaited: list[Future[None]] = []
        self._notified: set[str] = set()
        self._failing: set[str] = set()
        #: Guards all fields, and wakes the thread.
        self._changed = threading.Condition()
        self._is_due = False
        self._thread: threading.Thread | None = None

    def join(self, group: str, *, is_asked: bool = False) -> None:
        """Add a producer to `group`. `is_asked`: it answers transaction checks of any broker."""
        with self._changed:
            self._groups[group] += 1
            self._asked += is_asked
            self._wake()

    def leave(self, group: str, *, is_asked: bool = False) -> None:
        """Remove a producer; the last one unregisters the group. Does not wait."""
        with self._changed:
            self._groups[group] -= 1
            self._asked -= is_asked
            if self._groups[group] > 0:
                return
            del self._groups[group]
            for address in self._notified:
                # A broker forgets the group with the connection anyway.
                with suppress(errors.RocketMQError):
                    ask = UnregisterClient(client_id=self._client_id, producer_group=group)
                    self._start(address, ask)
            self._wake()

    def reach(self) -> Future[None]:
        """Add a producer that any broker may send replies to. Returns a future that is done when all brokers were
        notified or failed. Ends with `forgo`."""
        from concurrent.futures import Future

        done: Future[None] = Future()
        with self._changed:
            self._asked += 1
            self._awaited.append(done)
            self._wake()
        return done

    def forgo(self) -> None:
        """Remove a producer that receives replies."""
        with self._changed:
            self._asked -= 1

    def lost(self, address: str) -> None:
        """Note a lost connection, whose broker has forgotten the groups; send a heartbeat again if a producer needs
        it."""
        with self._changed:
            # A broker whose last heartbeat failed is retried anyway.
            if self._asked and address in self._notified and address not in self._failing:
                self._wake()

    @property
    def client_id(self) -> str:
        """The client id of these producers; empty before the first heartbeat."""
        return self._client_id

    def learn(self, route: Route) -> None:
        """Send heartbeats to the brokers of this route from now on. Cheap for a known route, because every send to a
        chosen queue calls it."""
        if self._routes.get(route.topic) is route:
            return
        with self._changed:
            before = self._addresses()
            self._routes[route.topic] = route
            if not self._addresses() <= before:
                self._wake()

    def _wake(self) -> None:
        """Wake the thread; the caller holds the lock."""
        self._is_due = True
        if self._thread is None and self._groups and (self._routes or self._asked):
            self._thread = threading.Thread(target=self._beat_on, name="rmqpy-heartbeat", daemon=True)
            self._thread.start()
        self._changed.notify()

    def _beat_on(self) -> None:
        # May be slow, because it resolves names.
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
                log.exception("producer heartbeats failed, retrying")
            for done in awaited:
                done.set_result(None)
            if is_over:
                return
            with self._changed:
                failures = max(self._misses, self._failed_rounds) if self._asked else 0
                pause_s = FAILING.pause_s(failures) if failures else HEARTBEAT_S
                self._changed.wait_for(lambda: self._is_due or self._awaited, pause_s)

    def _round(self) -> bool:
        """Send a heartbeat to every broker; return whether it was the last round."""
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
        """Query a name server for the brokers; keep the known ones if none answers."""
        try:
            reply = run(self._servers.ask(self._caller, GetClusterInfo()))
        except errors.ClosedError:
            return
        except errors.RocketMQError as error:
            self._misses += 1
            if self._misses == 1:
                log.warning("cannot look up brokers for producer heartbeats, retrying: %s", error)
            return
        self._misses = 0
        mapped = dict(self._config.address_map)
        found = (broker.broker_addrs.get(MASTER_ID) for broker in reply.broker_addr_table.values())
        self._masters = frozenset(mapped.get(address, address) for address in found if address is not None)

    def _beat(self) -> list[tuple[HeartBeat, str, Call]]:
        """Start a heartbeat to each broker. The caller holds the lock, so that no heartbeat overtakes an
        unregistration."""
        groups = [ProducerData(group_name=group) for group in sorted(self._groups)]
        ask = HeartBeat(body=HeartbeatData(client_id=self._client_id, producer_data_set=groups))
        calls = []
        self._notified = self._addresses()
        self._failing &= self._notified
        for address in sorted(self._notified):
            with suppress(errors.ClosedError):
                calls.append((ask, address, self._start(address, ask)))
        return calls

    def _start(self, address: str, ask: HeartBeat | UnregisterClient) -> Call:
        return self._caller.begin(address, ask, timeout=self._config.request_timeout)

    def _note_failure(self, address: str, error: errors.RocketMQError) -> None:
        if address not in self._failing:
            self._failing.add(address)
            log.warning("producer heartbeat failed, retrying: %s", error)

    def _addresses(self) -> set[str]:
        found = {
            replicas.get(MASTER_ID)
            for route in list(self._routes.values())
            for replicas in route.brokers.values()
        }
        masters = self._masters if self._asked else ()
        return {address for address in found if address is not None} | set(masters)
