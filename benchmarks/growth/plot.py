"""Curve drawing: a panel per metric with logarithmic axes and a line per broker."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from benchmarks.interval import RunMetrics
from rmqpy.load.plot import drawing, label

PANELS_MAX: Final = 4
_WIDTH, _HEIGHT, _GAP = 330, 250, 70
_LEFT, _TOP, _BOTTOM = 80, 64, 50
COLOURS: Final = {"rmqpy": "#1f6feb", "apache": "#bc4c00"}
NAMES: Final = {"rmqpy": "rmqpy", "apache": "Apache RocketMQ 5.5.0"}

Points = Mapping[str, Mapping[int, RunMetrics]]
"""Side → value → its run."""


def picture(title: str, axis: str, metrics: Mapping[str, str], points: Points) -> str:
    """An SVG file."""
    shown = list(metrics.items())[:PANELS_MAX]
    parts = [label(16, 24, title, "start", 16)]
    for number, (side, colour) in enumerate(COLOURS.items()):
        if side in points:
            parts.append(f'<rect x="{16 + 80 * number}" y="34" width="12" height="12" fill="{colour}"/>')
            parts.append(label(34 + 80 * number, 45, NAMES[side], "start", 12))
    for number, (metric, name) in enumerate(shown):
        left = _LEFT + number * (_WIDTH + _GAP)
        lines = {
            side: [(value, run[metric]) for value, run in sorted(runs.items()) if run.get(metric, 0) > 0]
            for side, runs in points.items()
        }
        parts += _panel(left, name, axis, lines)
    return drawing(_LEFT + len(shown) * (_WIDTH + _GAP), _TOP + _HEIGHT + _BOTTOM, parts)


def _panel(
    left: float, name: str, axis: str, lines: Mapping[str, Sequence[tuple[float, float]]]
) -> list[str]:
    """One metric. Values that were not measured are left out."""
    points = [point for line in lines.values() for point in line]
    if not points:
        return []
    low_x, high_x = _decades([x for x, _ in points])
    low_y, high_y = _decades([y for _, y in points])
    bottom = _TOP + 20 + _HEIGHT - 40

    def place(x: float, y: float) -> tuple[float, float]:
        right = (math.log10(x) - low_x) / (high_x - low_x) * _WIDTH
        up = (math.log10(y) - low_y) / (high_y - low_y) * (_HEIGHT - 40)
        return left + right, bottom - up

    parts = [label(left, _TOP + 8, name, "start", 12)]
    for power in range(low_x, high_x + 1):
        x, y = place(10**power, 10**low_y)
        parts += [_rule(x, bottom, x, _TOP + 20), label(x, y + 16, _short(10**power), "middle", 11)]
    for power in range(low_y, high_y + 1):
        x, y = place(10**low_x, 10**power)
        parts += [_rule(x, y, x + _WIDTH, y), label(x - 6, y + 4, _short(10.0**power), "end", 11)]
    parts.append(label(left + _WIDTH / 2, bottom + 34, axis, "middle", 12))
    for side, line in lines.items():
        colour = COLOURS[side]
        places = [place(*point) for point in line]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
    return parts


def _decades(values: Sequence[float]) -> tuple[int, int]:
    low = math.floor(math.log10(min(values)))
    return low, max(low + 1, math.ceil(math.log10(max(values))))


def _short(value: float) -> str:
    """Format 1000 as 1k."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#d0d7de"/>'
