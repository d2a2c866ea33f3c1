"""Metrics that are sent, not fetched: to the log, or by an exporter to a collector.

Owns the rounds of one exporter and the word about its failures: once, and when it works again. Figures are taken as a
scrape takes them. Threads: `run` on the event loop of the server, an exporter in a worker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Protocol

from rmqpy.monitor.exposition import Family, Labels, Sample

log = logging.getLogger(__name__)

#: Lines that one round writes to the log.
_LINES_MAX: Final = 1_000


class Exporter(Protocol):
    """Takes metrics somewhere."""

    def export(self, families: Iterable[Family], common: Labels) -> None:
        """Take these, each sample with the `common` labels. Raises what kept it from that."""


#: Families, and the labels that stand at every sample.
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
                log.warning("metrics are not taken, and will be tried again: %s", error)
            self._is_failing = True
        else:
            if self._is_failing:
                log.info("metrics are taken again")
            self._is_failing = False


class LogExporter:
    """Writes what is not zero to the log, a line for each; of histograms total and count."""

    def export(self, families: Iterable[Family], common: Labels) -> None:
        """Write, and say how many lines were left out."""
        lines = 0
        for family in families:
            for labels, value, ending in (Sample(*each) for each in family.samples):
                if value and ending != "_bucket":
                    lines += 1
                    if lines <= _LINES_MAX:
                        named = ",".join(f'{name}="{text}"' for name, text in {**common, **labels}.items())
                        log.info("%s%s{%s} %s", family.name, ending, named, value)
        if lines > _LINES_MAX:
            log.info("%d more metrics are not written: see /metrics", lines - _LINES_MAX)
