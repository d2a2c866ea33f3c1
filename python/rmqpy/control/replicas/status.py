"""Replication as this broker sees it, for tools and metrics. Threads: the event loop's."""

from __future__ import annotations

from rmqpy._native import Store
from rmqpy.clock import Clock
from rmqpy.config.broker import BrokerConfig
from rmqpy.control.replicas.known_master import KnownMaster
from rmqpy.control.replicas.lag import Lag
from rmqpy.control.replicas.leadership import Leadership
from rmqpy.control.replicas.log_stream import LogStream
from rmqpy.control.replicas.role import BrokerRole
from rmqpy.findings import Trouble, replaced
from rmqpy.protocol.replica_findings import of_master, of_slave
from rmqpy.protocol.requests.replicas import (
    HaStatus,
    MasterConnection,
    RefusedSlave,
    SlaveConnection,
)


class ReplicaStatus:
    """The slaves of a master, or the master of a slave."""

    def __init__(
        self,
        config: BrokerConfig,
        stream: LogStream,
        store: Store,
        lag: Lag,
        clock: Clock,
        role: BrokerRole,
        leadership: Leadership,
        known: KnownMaster,
    ) -> None:
        self._config = config
        self._stream = stream
        self._store = store
        self._lag = lag
        self._clock = clock
        self._role = role
        self._leadership = leadership
        self._known = known
        #: Since when a slave has had no connection; None while it has one.
        self._apart_since: float | None = clock.elapsed()

    def troubles(self) -> list[Trouble]:
        """What is wrong with the replicas, as far as this broker can see."""
        name, told = self._config.name, self.now()
        if (epoch := self._leadership.ended_by) is not None:
            finding = replaced(name, self._leadership.successor, epoch)
            return [Trouble(f"master of {name}", "bad", finding, refuses=True)]
        if told.master:
            return list(of_master(name, told))
        return list(of_slave(name, self._config.replication.broker_id, told))

    def now(self) -> HaStatus:
        """As things are."""
        end = self._store.statistics()["max_physical"]
        master = self._stream.master()
        if master is None:
            slaves = [
                SlaveConnection(
                    addr=address,
                    slave_ack_offset=has,
                    diff=max(0, end - has),
                    in_sync=is_in_sync,
                    transfer_from_where=has,
                    silent_millis=silent_ms,
                )
                for address, _, has, _, is_in_sync, silent_ms in self._stream.slaves()
            ]
            return HaStatus(
                master=True,
                master_commit_log_max_offset=end,
                in_sync_slave_nums=sum(slave.in_sync for slave in slaves),
                slaves_expected=self._stream.slaves_expected,
                copies_wanted=self._stream.copies[0],
                copies_min=self._stream.copies[1],
                led_since=self._leadership.epoch,
                replaced=self._leadership.replaced,
                copies_before=self._leadership.copies_before(self._config.replication),
                ha_connection_info=slaves,
                refused_slaves=[
                    RefusedSlave(addr=address, reason=reason, lacks_ticket=lacks_ticket or None)
                    for address, reason, lacks_ticket in self._stream.refused()
                ]
                or None,
            )
        address, is_connected, own_end, silent_ms, fault, is_diverged = master
        if address is None and fault is None:
            fault = "no name server has said where its master is"
        if is_connected:
            self._apart_since = None
        elif self._apart_since is None:
            self._apart_since = self._clock.elapsed()
        seconds = self._lag.seconds
        heard_ms = 0 if silent_ms is None else self._clock.wall_ms() - silent_ms
        return HaStatus(
            master=False,
            is_acting=self._role.is_acting,
            ha_client_runtime_info=MasterConnection(
                master_addr=address,
                max_offset=own_end,
                last_read_timestamp=heard_ms,
                # A slave answers what it hears.
                last_write_timestamp=heard_ms,
                is_connected=is_connected,
                silent_millis=silent_ms,
                behind_bytes=self._lag.bytes,
                behind_millis=None if seconds is None else round(seconds * 1_000),
                fault=fault,
                is_diverged=is_diverged or None,
                broker_addr=self._known.address or self._leadership.master,
                answers=self._role.has_master,
                is_registered=self._known.is_registered,
                apart_millis=self._apart_ms(),
            ),
        )

    def _apart_ms(self) -> int | None:
        since = self._apart_since
        return None if since is None else round((self._clock.elapsed() - since) * 1_000)
