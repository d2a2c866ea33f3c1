"""The text that Prometheus reads: families of samples, made for each request.

Owns the syntax and the limit on series. Pure; any thread.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
#: Series of one answer at most: a server with many topics and groups must not drown its Prometheus.
SERIES_MAX: Final = 50_000
#: Counts what was left out.
DROPPED: Final = "rmqpy_dropped_series"

Labels = Mapping[str, str]


Kind = Literal["counter", "gauge", "histogram"]


class Sample(NamedTuple):
    """One number. Those of a histogram stand under several names, each with an ending of its own."""

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
    """A family of one sample without labels of its own."""
    return Family(name, kind, text, (({}, value),))


def histogram(
    labels: Labels, bounds: Sequence[float], counts: Sequence[int], total: float
) -> Iterator[Sample]:
    """The samples of one histogram: `counts` has a number for each bound, and one more for what was larger.

    >>> [(sample.ending, sample.labels.get("le"), sample.value) for sample in histogram({}, [1, 5], [2, 1, 4], 60)]
    [('_bucket', '1', 2), ('_bucket', '5', 3), ('_bucket', '+Inf', 7), ('_sum', None, 60), ('_count', None, 7)]
    """
    passed = 0
    for bound, count in zip((*map(_number, bounds), "+Inf"), counts, strict=True):
        passed += count
        yield Sample({**labels, "le": bound}, passed, "_bucket")
    yield Sample(labels, total, "_sum")
    yield Sample(labels, passed, "_count")


def expose(families: Iterable[Family], common: Labels, *, series_max: int = SERIES_MAX) -> str:
    """The text of an answer. `common` labels stand at every sample.

    Whole samples beyond `series_max` are left out, last ones first, and counted.
    """
    shared = _pairs(common)
    lines: list[str] = []
    count, dropped = 0, 0
    for family in families:
        lines.append(f"# HELP {family.name} {family.text}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        for labels, value, ending in (Sample(*each) for each in family.samples):
            if count == series_max:
                dropped += 1
                continue
            count += 1
            lines.append(f"{family.name}{ending}{{{','.join(shared + _pairs(labels))}}} {_number(value)}")
    lines.append(f"# HELP {DROPPED} Samples left out of this answer: more than {series_max}.")
    lines.append(f"# TYPE {DROPPED} gauge")
    lines.append(f"{DROPPED}{{{','.join(shared)}}} {dropped}")
    return "\n".join(lines) + "\n"


def _pairs(labels: Labels) -> list[str]:
    return [f'{name}="{_escape(value)}"' for name, value in labels.items()]


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))
