"""Metrics of replication: the slaves of a master, or how far a slave is behind. Pure; any thread."""

from __future__ import annotations

from collections.abc import Iterator

from rmqpy.monitor.exposition import Family, plain
from rmqpy.protocol.requests.replicas import HaStatus


def families(status: HaStatus) -> Iterator[Family]:
    """What a master says, or a slave. What a slave does not know yet is left out."""
    if status.master:
        slaves = status.ha_connection_info
        yield plain("rmqpy_slaves", "gauge", "Slaves that are connected.", len(slaves))
        yield plain(
            "rmqpy_slaves_expected",
            "gauge",
            "Slaves that there should be: as totalReplicas says, or as many as there were since the start.",
            status.slaves_expected or 0,
        )
        yield plain("rmqpy_slaves_in_sync", "gauge", "Those in sync.", status.in_sync_slave_nums)
        yield plain(
            "rmqpy_slaves_refused",
            "gauge",
            "Slaves whose logs do not fit this one.",
            len(status.refused_slaves or ()),
        )
        behind = max((slave.diff for slave in slaves), default=0)
        yield plain(
            "rmqpy_slave_behind_bytes_max", "gauge", "Bytes of the log that one of them lacks.", behind
        )
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
        ("rmqpy_replica_behind_bytes", "Bytes of the master's log that are not here.", own.behind_bytes),
        (
            "rmqpy_replica_behind_seconds",
            "How long the master has had more than this slave.",
            None if own.behind_millis is None else own.behind_millis / 1_000,
        ),
    ):
        if value is not None:
            yield plain(name, "gauge", text, value)
