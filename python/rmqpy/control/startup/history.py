"""The history of a start: its samples, if it is on."""

from __future__ import annotations

from rmqpy.control.periodic import PeriodicTasks
from rmqpy.control.startup.local import LocalBroker
from rmqpy.control.startup.replicas import Replicas
from rmqpy.control.startup.service import ClientService
from rmqpy.control.statistics.history import SAMPLE_SECONDS
from rmqpy.control.statistics.history_samples import HistorySamples
from rmqpy.control.statistics.put_times import PutTimes


def sample_history(
    local: LocalBroker, service: ClientService, replicas: Replicas, periodic: PeriodicTasks
) -> None:
    """Take samples from now on."""
    config, history = local.config, local.history
    minutes = config.telemetry.history_minutes
    role = "slave" if local.is_slave else "master"
    history.begin(minutes, f"started as {role}", config.name)
    if minutes:
        samples = HistorySamples(
            history,
            service.statistics,
            service.totals,
            PutTimes(service.server),
            config.store.folders[0],
            replicas.status.now,
        )
        periodic.every(SAMPLE_SECONDS, samples.sample)
