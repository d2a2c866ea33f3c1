"""Replication as this broker sees it, for tools and metrics. Threads: the event loop's."""

from __future__ import annotations

from collections.abc import Callable

from rmqpy._native import Store
from rmqpy.clock import Clock
from rmqpy.control.replicas.lag import Lag
from rmqpy.control.replicas.log_stream import LogStream
from rmqpy.protocol.requests.replicas import (
    HaStatus,
    MasterConnection,
    RefusedSlave,
    SlaveConnection,
)


class ReplicaStatus:
    """The slaves of a master, or the master of a slave."""

    def __init__(
        self, stream: LogStream, store: Store, lag: Lag, clock: Clock, is_acting: Callable[[], bool]
    ) -> None:
        self._stream = stream
        self._store = store
        self._lag = lag
        self._clock = clock
        self._is_acting = is_acting

    def now(self) -> HaStatus:
        """As things are."""
        end = self._store.statistics()["max_physical"]
        master = self._stream.master()
        if master is None:
            slaves = [
                SlaveConnection(
                    addr=address,
                    slave_ack_offset=has or 0,
                    diff=max(0, end - (has or 0)),
                    in_sync=is_in_sync,
                    transfer_from_where=has or 0,
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
                ha_connection_info=slaves,
                refused_slaves=[
                    RefusedSlave(addr=address, reason=reason) for address, reason in self._stream.refused()
                ]
                or None,
            )
        address, is_connected, own_end, silent_ms, fault, is_diverged = master
        if address is None and fault is None:
            fault = "no name server has said where its master is"
        seconds = self._lag.seconds
        heard_ms = 0 if silent_ms is None else self._clock.wall_ms() - silent_ms
        return HaStatus(
            master=False,
            is_acting=self._is_acting(),
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
            ),
        )
