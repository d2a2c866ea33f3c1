"""Replication status of this broker, for tools and metrics. Threads: the event loop's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rmqpy._native import Store
from rmqpy.clock import Clock
from rmqpy.config.broker import BrokerConfig
from rmqpy.control.replicas.known_master import KnownMaster
from rmqpy.control.replicas.lag import Lag
from rmqpy.control.replicas.leadership import Leadership
from rmqpy.control.replicas.log_stream import LogStream
from rmqpy.control.replicas.role import BrokerRole
from rmqpy.control.store.backups import KnownBackup
from rmqpy.findings import Trouble, replaced, without_role
from rmqpy.protocol.replica_findings import of_master, of_slave
from rmqpy.protocol.requests.replicas import (
    BackupReport,
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
        role_fault: Callable[[], str | None] = lambda: None,
        lease_left_ms: Callable[[], int | None] = lambda: None,
        backups: Callable[[], list[KnownBackup]] = list,
    ) -> None:
        """`role_fault` returns the reason why the controllers, if there are any, assign no role; `lease_left_ms` the
        rest of the lease, if they grant one; `backups` those that have run."""
        self._backups = backups
        self._role_fault = role_fault
        self._lease_left_ms = lease_left_ms
        self._is_elected = config.replication.is_controlled or None
        self._config = config
        self._stream = stream
        self._store = store
        self._lag = lag
        self._clock = clock
        self._role = role
        self._leadership = leadership
        self._known = known
        #: The time at which a slave lost its connection; `None` while connected.
        self._apart_since: float | None = clock.elapsed()
        self._began = clock.elapsed()

    def troubles(self) -> list[Trouble]:
        """Return the problems of the replicas that this broker can see."""
        name, status = self._config.name, self.now()
        if (epoch := self._leadership.ended_by) is not None:
            finding = replaced(name, self._leadership.successor, epoch)
            return [Trouble(f"master of {name}", "bad", finding, refuses=True)]
        found = (
            of_master(name, status)
            if status.master
            else of_slave(name, self._config.replication.broker_id, status)
        )
        if (fault := self._role_fault()) is not None:
            # A slave and its master report the same sentence; only a master whose lease has ended refuses messages.
            refuses = bool(status.master) and status.lease_left_millis == 0
            return [Trouble(f"role of {name}", "bad", without_role(name, fault), refuses), *found]
        return list(found)

    def now(self) -> HaStatus:
        """Return the current status."""
        end = self._store.statistics()["max_physical"]
        master = self._stream.master()
        if master is None:
            slaves = [
                SlaveConnection(
                    addr=slave.address,
                    slave_ack_offset=slave.end,
                    diff=max(0, end - slave.end),
                    in_sync=slave.is_in_sync,
                    transfer_from_where=slave.end,
                    silent_millis=slave.silent_ms,
                )
                for slave in self._stream.slaves()
            ]
            return HaStatus(
                master=True,
                is_elected=self._is_elected,
                epoch=self._stream.epoch() or None,
                lease_left_millis=self._lease_left_ms(),
                master_commit_log_max_offset=end,
                in_sync_slave_nums=sum(slave.in_sync for slave in slaves),
                slaves_expected=self._stream.slaves_expected,
                copies_wanted=self._stream.copies[0],
                copies_min=self._stream.copies[1],
                led_since=self._leadership.epoch,
                replaced=self._leadership.replaced,
                copies_before=self._leadership.copies_before(self._config.replication),
                started_millis=round((self._clock.elapsed() - self._began) * 1_000)
                if self._stream.waits_for_slaves
                else None,
                ha_connection_info=slaves,
                lost_slaves=[
                    SlaveConnection(
                        addr=slave.address,
                        slave_ack_offset=slave.end,
                        diff=max(0, end - slave.end),
                        transfer_from_where=slave.end,
                        silent_millis=silent_ms,
                    )
                    for slave, silent_ms in self._stream.lost_slaves()
                ]
                or None,
                backups=[self._backup(each, end) for each in self._backups()],
                refused_slaves=[
                    RefusedSlave(
                        addr=slave.address, reason=slave.reason, lacks_ticket=slave.lacks_ticket or None
                    )
                    for slave in self._stream.refused()
                ]
                or None,
            )
        fault = master.fault
        if master.address is None and fault is None:
            fault = "no name server has returned the address of its master"
        if master.is_connected:
            self._apart_since = None
        elif self._apart_since is None:
            self._apart_since = self._clock.elapsed()
        seconds = self._lag.seconds
        heard_ms = 0 if master.silent_ms is None else self._clock.wall_ms() - master.silent_ms
        return HaStatus(
            master=False,
            is_elected=self._is_elected,
            epoch=self._stream.epoch() or None,
            is_acting=self._role.is_acting,
            ha_client_runtime_info=MasterConnection(
                master_addr=master.address,
                max_offset=master.end,
                last_read_timestamp=heard_ms,
                # A slave acknowledges what it receives.
                last_write_timestamp=heard_ms,
                is_connected=master.is_connected,
                silent_millis=master.silent_ms,
                behind_bytes=self._lag.bytes,
                behind_millis=None if seconds is None else round(seconds * 1_000),
                fault=fault,
                is_diverged=master.is_diverged or None,
                broker_addr=self._known.address or self._leadership.master,
                answers=self._role.has_master,
                is_registered=self._known.is_registered,
                apart_millis=self._apart_ms(),
            ),
        )

    def _backup(self, known: KnownBackup, end: int) -> BackupReport:
        now_ms = self._clock.wall_ms()
        report = BackupReport(
            name=known.name, addr=known.addr, began_ago_millis=max(0, now_ms - known.began_millis)
        )
        if not known.ended_millis:
            return report
        return replace(
            report,
            ended_ago_millis=max(0, now_ms - known.ended_millis),
            log_end=known.log_end,
            diff=max(0, end - known.log_end),
        )

    def _apart_ms(self) -> int | None:
        since = self._apart_since
        return None if since is None else round((self._clock.elapsed() - since) * 1_000)
