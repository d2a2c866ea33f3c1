"""Latency by percentile, as an SVG drawing.

The x axis shows percentiles by the rarity of higher latencies, the y axis latency, both logarithmic: the tail is as
visible as the middle.
"""

import math

from rmqpy.load.report import Result, described, duration

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 76, 20, 48, 44
_NINES = ("0", "90%", "99%", "99.9%", "99.99%", "99.999%", "99.9999%")


def percentiles(result: Result) -> str:
    """The drawing. `result` is what `rmqpy bench -o json` prints."""
    points = [(_rarity(quantile), max(value, 0.1)) for quantile, value in result["spectrum"] if quantile < 1]
    across = max(1, math.ceil(max((x for x, _ in points), default=1)))
    low = math.floor(math.log10(min((y for _, y in points), default=1)))
    high = max(low + 1, math.ceil(math.log10(max((y for _, y in points), default=10))))

    def place(x: float, y: float) -> tuple[float, float]:
        right = LEFT + x / across * (WIDTH - LEFT - RIGHT)
        up = (math.log10(y) - low) / (high - low) * (HEIGHT - TOP - BOTTOM)
        return right, HEIGHT - BOTTOM - up

    parts = [
        label(LEFT, 20, f"{result['command']['work']}: {described(result['command'])}", "start", 14),
        label(LEFT, 38, f"{result['messages_per_s']:,.0f} msg/s; latency by percentile", "start", 12),
    ]
    for nines in range(across + 1):
        x, y = place(nines, 10**low)
        parts.append(_line(x, TOP, x, y))
        parts.append(label(x, HEIGHT - BOTTOM + 18, _NINES[min(nines, len(_NINES) - 1)], "middle", 12))
    for power in range(low, high + 1):
        x, y = place(0, 10**power)
        parts.append(_line(x, y, WIDTH - RIGHT, y))
        parts.append(label(LEFT - 8, y + 4, duration(10**power), "end", 12))
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in points))
    parts.append(f'<polyline points="{path}" fill="none" stroke="#1f6feb" stroke-width="2"/>')
    return drawing(WIDTH, HEIGHT, parts)


def drawing(width: int, height: int, parts: list[str]) -> str:
    """An SVG file of `parts` on white."""
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="sans-serif">\n<rect width="100%" height="100%" fill="#fff"/>\n'
        f"{body}\n</svg>\n"
    )


def _rarity(quantile: float) -> float:
    """0 for all, 1 for a tenth above, 2 for a hundredth."""
    return -math.log10(1 - quantile)


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#d0d7de"/>'


def label(x: float, y: float, text: str, anchor: str, size: int) -> str:
    """A piece of text at a place; `anchor` is start, middle or end."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="#24292f">{escaped}</text>'
