"""Metrics of all that a start has built."""

from __future__ import annotations

from rmqpy.control.startup.context import StartContext
from rmqpy.control.startup.recovery import Recovered
from rmqpy.control.startup.replicas import Replicas
from rmqpy.control.startup.services import Services
from rmqpy.control.statistics.metrics import Metrics


def make_metrics(
    context: StartContext, recovered: Recovered, services: Services, replicas: Replicas
) -> Metrics:
    """Build them."""
    return Metrics(
        lambda: context.settings.now,
        recovered.topics,
        recovered.groups,
        services.consumers,
        services.producers,
        services.statistics,
        recovered.store,
        recovered.offsets,
        services.server,
        services.due,
        services.transactions,
        services.replies.counts,
        replicas.status.now,
        context.clock,
    )
