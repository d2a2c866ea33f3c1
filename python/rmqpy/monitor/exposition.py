"""Prometheus text exposition: families of samples, made for each request.

Owns the limit on series; prometheus-client, imported on first use, writes the text. Pure; any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from prometheus_client import Metric

#: The most series of a response: many topics and groups must not overload Prometheus.
SERIES_MAX: Final = 50_000
#: Counts omitted samples.
DROPPED: Final = "rmqpy_dropped_series"
#: Clients that accept this type get OpenMetrics.
OPENMETRICS: Final = "application/openmetrics-text"

Labels = Mapping[str, str]


Kind = Literal["counter", "gauge", "histogram"]


class Sample(NamedTuple):
    """One number. Samples of a histogram have several names with different endings."""

    labels: Labels
    value: float
    ending: str = ""


class Family(NamedTuple):
    """All samples of one name."""

    name: str
    kind: Kind
    text: str
    samples: Iterable[Sample | tuple[Labels, float]]


def plain(name: str, kind: Kind, text: str, value: float) -> Family:
    """Return a family of one sample without extra labels."""
    return Family(name, kind, text, (({}, value),))


def histogram(
    labels: Labels, bounds: Sequence[float], counts: Sequence[int], total: float
) -> Iterator[Sample]:
    """The samples of one histogram: `counts` has a number for each bound, and one more for what was larger.

    >>> [(sample.ending, sample.labels.get("le"), sample.value) for sample in histogram({}, [1, 5], [2, 1, 4], 60)]
    [('_bucket', '1.0', 2), ('_bucket', '5.0', 3), ('_bucket', '+Inf', 7), ('_sum', None, 60), ('_count', None, 7)]
    """
    passed = 0
    for bound, count in zip((*(repr(float(each)) for each in bounds), "+Inf"), counts, strict=True):
        passed += count
        yield Sample({**labels, "le": bound}, passed, "_bucket")
    yield Sample(labels, total, "_sum")
    yield Sample(labels, passed, "_count")


class Exposition(NamedTuple):
    """The response to a scrape."""

    text: str
    content_type: str


def expose(
    families: Iterable[Family], common: Labels, accept: str = "", *, series_max: int = SERIES_MAX
) -> Exposition:
    """The response for a client that accepts these content types: OpenMetrics, or Prometheus' text.

    Every sample has the `common` labels. Whole samples beyond `series_max` are omitted, last ones first, and counted.
    For a worker: the first call imports the writer.
    """
    # Not at the top: a server without scrapes does without it.
    from prometheus_client import exposition
    from prometheus_client.openmetrics import exposition as openmetrics

    scrape = _Scrape(families, common, series_max)
    if OPENMETRICS in (each.partition(";")[0].strip().lower() for each in accept.split(",")):
        text: bytes = openmetrics.generate_latest(scrape)  # type: ignore[no-untyped-call]
        return Exposition(text.decode(), openmetrics.CONTENT_TYPE_LATEST)
    return Exposition(exposition.generate_latest(scrape).decode(), exposition.CONTENT_TYPE_PLAIN_0_0_4)


@dataclass(frozen=True, slots=True)
class _Scrape:
    """Families as prometheus-client reads them."""

    families: Iterable[Family]
    common: Labels
    series_max: int

    def collect(self) -> Iterator[Metric]:
        from prometheus_client import Metric

        room, dropped = self.series_max, 0
        for family in self.families:
            # It adds the ending of a counter again.
            metric = Metric(family.name.removesuffix("_total"), family.text, family.kind)
            for labels, value, ending in (Sample(*each) for each in family.samples):
                if room:
                    room -= 1
                    metric.add_sample(f"{family.name}{ending}", {**self.common, **labels}, value)
                else:
                    dropped += 1
            yield metric
        missed = Metric(DROPPED, f"Samples omitted from this response: more than {self.series_max}.", "gauge")
        missed.add_sample(DROPPED, dict(self.common), dropped)
        yield missed
