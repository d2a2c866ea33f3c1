"""Metrics of replication: the slaves of a master, or the lag of a slave. Pure; any thread."""

from __future__ import annotations

from collections.abc import Iterator

from rmqpy.monitor.exposition import Family, plain
from rmqpy.protocol.requests.replicas import HaStatus


def families(status: HaStatus) -> Iterator[Family]:
    """Return the metrics of a master or of a slave. Unknown values of a slave are omitted."""
    if status.master:
        slaves = status.ha_connection_info
        yield plain("rmqpy_slaves", "gauge", "Connected slaves.", len(slaves))
        yield plain(
            "rmqpy_slaves_expected",
            "gauge",
            "Expected slaves: totalReplicas, or the most since the start.",
            status.slaves_expected or 0,
        )
        yield plain("rmqpy_slaves_in_sync", "gauge", "Slaves in sync.", status.in_sync_slave_nums)
        yield plain(
            "rmqpy_slaves_refused",
            "gauge",
            "Slaves whose logs do not fit this one.",
            len(status.refused_slaves or ()),
        )
        behind = max((slave.diff for slave in slaves), default=0)
        yield plain("rmqpy_slave_behind_bytes_max", "gauge", "Bytes of the log that a slave lacks.", behind)
        return
    own = status.ha_client_runtime_info
    yield plain(
        "rmqpy_replica_connected", "gauge", "1 while the log follows the master.", bool(own.is_connected)
    )
    yield plain(
        "rmqpy_replica_acting", "gauge", "1 while this slave acts for its master.", bool(status.is_acting)
    )
    yield plain(
        "rmqpy_replica_diverged", "gauge", "1 while the log does not fit the master's.", bool(own.is_diverged)
    )
    for name, text, value in (
        ("rmqpy_replica_behind_bytes", "Bytes of the master's log that this slave lacks.", own.behind_bytes),
        (
            "rmqpy_replica_behind_seconds",
            "Seconds since this slave had all of the master's log.",
            None if own.behind_millis is None else own.behind_millis / 1_000,
        ),
    ):
        if value is not None:
            yield plain(name, "gauge", text, value)
