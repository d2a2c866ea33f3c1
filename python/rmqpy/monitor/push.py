"""Pushed metrics: to the log, or by an exporter to a collector.

Owns the rounds of one exporter, and logs its failure once and its recovery. Values are taken as for a scrape.
Threads: `run` on the server's event loop, an exporter in a worker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Protocol

from rmqpy.monitor.exposition import Family, Labels, Sample

log = logging.getLogger(__name__)

#: The most lines that one round logs.
_LINES_MAX: Final = 1_000


class Exporter(Protocol):
    """Exports metrics."""

    def export(self, families: Iterable[Family], common: Labels) -> None:
        """Export these samples, each with the `common` labels. Raises if that fails."""


#: Families, and the common labels.
TakeFigures = Callable[[], Awaitable[tuple[Iterable[Family], Labels]]]


class MetricsPush:
    """Rounds of one exporter."""

    def __init__(self, take: TakeFigures, exporter: Exporter) -> None:
        self._take = take
        self._exporter = exporter
        self._is_failing = False

    async def run(self) -> None:
        """One round."""
        families, common = await self._take()
        try:
            await asyncio.to_thread(self._exporter.export, families, common)
        except Exception as error:
            if not self._is_failing:
                log.warning("cannot export metrics, retrying: %s", error)
            self._is_failing = True
        else:
            if self._is_failing:
                log.info("metrics are exported again")
            self._is_failing = False


class LogExporter:
    """Logs nonzero metrics, a line for each; sum and count of histograms."""

    def export(self, families: Iterable[Family], common: Labels) -> None:
        """Log, and report the number of omitted lines."""
        lines = 0
        for family in families:
            for labels, value, ending in (Sample(*each) for each in family.samples):
                if value and ending != "_bucket":
                    lines += 1
                    if lines <= _LINES_MAX:
                        named = ",".join(f'{name}="{text}"' for name, text in {**common, **labels}.items())
                        log.info("%s%s{%s} %s", family.name, ending, named, value)
        if lines > _LINES_MAX:
            log.info("%d more metrics omitted: see /metrics", lines - _LINES_MAX)
