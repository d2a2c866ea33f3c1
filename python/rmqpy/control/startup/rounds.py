"""Rounds: what a broker does again and again in either role. A master's own are in `duties`."""

from __future__ import annotations

from typing import Final

from rmqpy.control.access.audit import AUDIT_SECONDS
from rmqpy.control.access.plain_files import WATCH_SECONDS
from rmqpy.control.clients.expiry import drop_silent
from rmqpy.control.clients.filter_file import FILTERS_SECONDS
from rmqpy.control.clients.replies import UNDELIVERED_SECONDS
from rmqpy.control.groups.steps_back import STEPS_BACK_SECONDS, log_steps_back
from rmqpy.control.periodic import PeriodicTasks
from rmqpy.control.startup.context import StartContext
from rmqpy.control.startup.recovery import Recovered
from rmqpy.control.startup.services import Services
from rmqpy.control.statistics.rates import SAMPLE_SECONDS
from rmqpy.control.store.events import EVENTS_SECONDS, log_events
from rmqpy.control.store.retention import RETENTION_SECONDS, retain
from rmqpy.remoting.admission import REFUSALS_SECONDS
from rmqpy.remoting.certificates import WATCH_SECONDS as CERTIFICATES_SECONDS

SCAN_SECONDS: Final = 10.0


def repeat(context: StartContext, recovered: Recovered, services: Services, periodic: PeriodicTasks) -> None:
    """Begin all of it."""
    _save(context, recovered, services, periodic)
    _expire(context, services, periodic)
    _watch(context, recovered, services, periodic)


def _save(context: StartContext, recovered: Recovered, services: Services, periodic: PeriodicTasks) -> None:
    seconds = context.config.offsets_interval_ms / 1_000
    periodic.every(seconds, recovered.offset_file.save)
    periodic.every(seconds, services.timer_counts.save)
    periodic.every(seconds, services.transaction_counts.save)
    periodic.every(FILTERS_SECONDS, lambda: recovered.filter_file.save(services.consumers.groups))


def _expire(context: StartContext, services: Services, periodic: PeriodicTasks) -> None:
    clients = (services.consumers, services.producers, services.server)
    periodic.every(SCAN_SECONDS, lambda: drop_silent(*clients, context.config.client_expiry_ms))
    periodic.every(SCAN_SECONDS, services.locks.expire)


def _watch(context: StartContext, recovered: Recovered, services: Services, periodic: PeriodicTasks) -> None:
    """Take samples, write down what happened in the native half, look whether files have changed."""
    store, settings, access = recovered.store, context.settings, recovered.access
    periodic.every(SAMPLE_SECONDS, services.runtime.sample)
    periodic.every(SAMPLE_SECONDS, services.statistics.sample)
    periodic.every(EVENTS_SECONDS, lambda: log_events(store))
    periodic.every(STEPS_BACK_SECONDS, lambda: log_steps_back(recovered.offsets))
    periodic.every(CERTIFICATES_SECONDS, context.certificates.watch)
    periodic.every(REFUSALS_SECONDS, services.refusals.log)
    periodic.every(UNDELIVERED_SECONDS, services.replies.log)
    periodic.every(AUDIT_SECONDS, access.log_refusals)
    if access.plain is not None:
        periodic.every(WATCH_SECONDS, access.plain.watch)
    periodic.every(RETENTION_SECONDS, lambda: retain(store, settings.now.store, context.clock))
