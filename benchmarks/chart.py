"""Chart: draws README's comparison, each cell's messages per second and processor time relative to Apache's."""

import math
from typing import Any

from benchmarks.cells import CELLS, Cell
from benchmarks.report import Whole, worse
from rmqpy.load.plot import drawing, label

WIDTH, ROW, TOP, LEFT, BAR_WIDTH = 860, 30, 64, 250, 250
_OURS, _BAR = "#1f6feb", "#24292f"
_TENFOLD_MAX = 2.0


def chart(whole: Whole) -> str:
    """An SVG file. Bars are logarithmic; the black mark is the bar a cell must reach."""
    results = worse(whole)
    cells = [
        cell
        for cell in CELLS
        if cell.kind in ("produce", "consume", "java-producer") and cell.name in results
    ]
    parts = [
        label(16, 26, "rmqpy and Apache RocketMQ 5.5.0 on the same machine", "start", 16),
        label(16, 50, "black mark: the bar to reach", "start", 12),
        label(LEFT, 50, "messages/s, times Apache's", "start", 12),
        label(LEFT + BAR_WIDTH + 50, 50, "broker CPU per message, Apache's divided by ours", "start", 12),
    ]
    for number, cell in enumerate(cells):
        y = TOP + number * ROW
        measured = results[cell.name]
        parts.append(label(LEFT - 10, y + 15, cell.title, "end", 12))
        parts += _bar(LEFT, y, measured["ratios"].get("throughput", 0), _goal(cell, "throughput"))
        cpu = measured["ratios"].get("cpu_us") or 0
        goal = _goal(cell, "cpu")
        parts += _bar(LEFT + BAR_WIDTH + 50, y, 1 / cpu if cpu else 0, 1 / goal if goal else None)
    return drawing(WIDTH, TOP + len(cells) * ROW + 12, parts)


def _goal(cell: Cell, metric: str) -> float | None:
    return next((bar.ratio for bar in cell.bars if bar.metric == metric), None)


def _bar(x: float, y: float, ratio: float, goal: float | None) -> list[str]:
    width = _width(ratio)
    parts: list[Any] = [f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="20" fill="{_OURS}"/>']
    if goal is not None:
        mark = x + _width(goal)
        parts.append(
            f'<line x1="{mark:.1f}" y1="{y - 2}" x2="{mark:.1f}" y2="{y + 22}" stroke="{_BAR}" stroke-width="2"/>'
        )
    parts.append(label(x + width + 6, y + 15, f"{ratio:.1f}×", "start", 12))
    return parts


def _width(ratio: float) -> float:
    """1 is empty, 100 the whole width."""
    return BAR_WIDTH * 0.85 * min(1.0, max(0.0, math.log10(max(ratio, 1.0))) / _TENFOLD_MAX)
