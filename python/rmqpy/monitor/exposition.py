"""The text that Prometheus reads: families of samples, made when somebody asks.

Owns the syntax and the limit on series. Pure; any thread.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Literal, NamedTuple

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
#: Series of one answer at most: a server with many topics and groups must not drown its Prometheus.
SERIES_MAX: Final = 50_000
#: Counts what was left out.
DROPPED: Final = "rmqpy_dropped_series"

Labels = Mapping[str, str]


class Family(NamedTuple):
    """All samples of one name."""

    name: str
    kind: Literal["counter", "gauge"]
    text: str
    samples: Iterable[tuple[Labels, float]]


def plain(name: str, kind: Literal["counter", "gauge"], text: str, value: float) -> Family:
    """A family of one sample without labels of its own."""
    return Family(name, kind, text, (({}, value),))


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
        for labels, value in family.samples:
            if count == series_max:
                dropped += 1
                continue
            count += 1
            lines.append(f"{family.name}{{{','.join(shared + _pairs(labels))}}} {_number(value)}")
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
