"""Backups: the folders of `rmqpy backup` that brokers know, and how much of the log their last runs lack."""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from rmqpy.admin.connection import Part
from rmqpy.protocol.requests.replicas import BackupReport, GetBrokerHaStatus


class BackupState(NamedTuple):
    """One folder with backups of a broker."""

    broker: str
    #: Machine and path, as the run reported them.
    folder: str
    #: The address of the last run.
    address: str
    #: The begin of the last run, and the end of the last complete one.
    began_at: datetime
    ended_at: datetime | None
    #: The end of the log in the last complete one, and the bytes that the log has gained since.
    log_end: int | None
    behind_bytes: int | None

    @property
    def is_complete(self) -> bool:
        """Whether the last run is complete; otherwise it is in progress, or was interrupted."""
        return self.ended_at is not None and self.ended_at >= self.began_at


class Backups(Part):
    """The backups of one cluster."""

    async def known(self) -> list[BackupState]:
        """List the folders that masters know, by broker, the latest run first. Apache's brokers know none."""
        now = datetime.now(UTC)
        return [
            _state(broker, each, now)
            for broker, _, status in await self._cluster.ask_masters(GetBrokerHaStatus())
            for each in status.backups or ()
        ]


def _state(broker: str, report: BackupReport, now: datetime) -> BackupState:
    """Brokers report time spans, since clocks differ."""
    ended_ms = report.ended_ago_millis
    is_new = ended_ms is None
    return BackupState(
        broker,
        report.name,
        report.addr,
        now - timedelta(milliseconds=report.began_ago_millis),
        None if ended_ms is None else now - timedelta(milliseconds=ended_ms),
        None if is_new else report.log_end,
        None if is_new else report.diff,
    )
