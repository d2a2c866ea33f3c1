"""The report for people: bars held and missed, the results behind them, and everything needed to repeat them."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.cells import CELLS, Bar, Cell, Metric
from benchmarks.client_load import WAITING
from benchmarks.interval import RunMetrics
from rmqpy.load.report import duration

#: Bar → the metric of a run it is about.
METRIC_OF_BAR: dict[Metric, str] = {
    "throughput": "throughput",
    "p50": "p50_us",
    "p99": "p99_us",
    "cpu": "cpu_us",
    "floor": "floor",
    "start": "start_ms",
    "memory": "memory_bytes",
}
LOAD_HEAD = (
    "cell", "", "messages/s", "MB/s", "p50", "p99", "p99.9", "broker CPU a message", "load", "other", "refused"
)  # fmt: skip
SIDES = ("rmqpy", "apache", "floor")
NOTES = Path(__file__).parent / "notes.md"

Whole = Mapping[str, Any]
"""The content of report.json."""


def judged(whole: Whole) -> list[tuple[Cell, Bar, float | None]]:
    """Every bar with the ratio measured, None where its cell has not run."""
    rows: list[tuple[Cell, Bar, float | None]] = []
    for cell in CELLS:
        measured = whole["cells"].get(cell.name)
        for bar in cell.bars:
            rows.append((cell, bar, measured["ratios"].get(METRIC_OF_BAR[bar.metric]) if measured else None))
    return rows


def summary(whole: Whole) -> str:
    """Summary: number of bars that hold, and those that do not."""
    rows = [(cell, bar, ratio) for cell, bar, ratio in judged(whole) if ratio is not None]
    missed = [(cell, bar, ratio) for cell, bar, ratio in rows if not bar.holds(ratio)]
    lines = [f"{len(rows) - len(missed)} of {len(rows)} bars hold"]
    lines += [
        f"missed: {cell.name}: {bar.text()}, measured {_ratio(bar, ratio)}" for cell, bar, ratio in missed
    ]
    return "\n".join(lines)


def document(whole: Whole) -> str:
    """The report as Markdown."""
    about = whole["about"]
    cells = whole["cells"]
    revisions = sorted({cell["revision"] for cell in cells.values()})
    times = sorted(cell["at"] for cell in cells.values())
    machine = about["machine"]
    parts = [
        "# rmqpy beside Apache RocketMQ 5.5.0",
        f"`{about['command']}`, {times[0]} to {times[-1]}, rmqpy {about['rmqpy']} at revision {', '.join(revisions)}. "
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_bytes'] / 2**30:.0f} GiB, "
        f"{machine['system']}, Python {machine['python']}, {about['java']}. "
        f"{about['pace']['pairs']} rounds of {about['pace']['seconds']:g} s a cell. [How it is measured](README.md).",
        "![Throughput and processor time, Apache's as 1](report.svg)",
        "## Bars",
        table(
            ["cell", "bar", "measured", ""],
            [
                [cell.title, bar.text(), "–" if ratio is None else _ratio(bar, ratio), _outcome(bar, ratio)]
                for cell, bar, ratio in judged(whole)
            ],
        ),
    ]
    if NOTES.exists():
        parts.append(NOTES.read_text(encoding="utf-8").strip())
    loads = [cell for cell in CELLS if cell.name in cells and cell.kind in ("produce", "consume", "latency")]
    parts += [
        "## Results",
        "Medians, in brackets the smallest and the largest run. *Ratio* is rmqpy's to Apache's, the median of the "
        "ratios of the rounds. *Floor* is a thread that appends to memory and answers, and does nothing else. *Load* "
        "and *other* are what the load generator and everything else took beside the broker, in cores.",
        table(LOAD_HEAD, [row for cell in loads for row in _compared(cell, cells[cell.name])]),
    ]
    if "start" in cells:
        parts.append(table(["start", "accepts after", "private memory at rest"], _start_rows(cells["start"])))
    if "java-producer" in cells:
        parts.append(
            table(
                ["Java's benchmark producer", "messages/s", "mean latency", "broker CPU a message"],
                [
                    [
                        side,
                        _span(_values(cells["java-producer"], side, "throughput"), _count),
                        _span(_values(cells["java-producer"], side, "mean_us"), duration),
                        _span(_values(cells["java-producer"], side, "cpu_us"), _microseconds),
                    ]
                    for side in ("rmqpy", "apache")
                ],
            )
        )
    if "python-client" in cells:
        parts.append(
            table(["client, one process", "messages/s", "client CPU a message"], _client_rows(cells))
        )
        if waiting := cells["python-client"].get(WAITING):
            size = _span([run["consumer_bytes"] for run in waiting], lambda size: f"{size / 1024:,.0f} KiB")
            parts.append(f"Private memory of one more push consumer that waits: {size}.")
    any_cell = next(iter(cells.values()))
    parts += [
        "## Settings",
        "Everything not named is each broker's default. `java " + " ".join(about["java_options"]) + "`",
    ]
    parts += [
        f"{side}, `broker.conf`:\n```\n{text.strip()}\n```" for side, text in any_cell["settings"].items()
    ]
    parts.append("In the cells of sync flush, `flushDiskType=SYNC_FLUSH` on both sides.")
    return "\n\n".join(parts) + "\n"


def _outcome(bar: Bar, ratio: float | None) -> str:
    if ratio is None:
        return "not measured"
    return "held" if bar.holds(ratio) else "**missed**"


def _ratio(bar: Bar, ratio: float) -> str:
    return f"{ratio:.2f}×" if ratio >= 0.95 else f"1/{1 / ratio:.1f}" if ratio > 0 else "0"


def load_rows(cell: Cell, runs: Mapping[str, Sequence[RunMetrics]]) -> list[list[str]]:
    """A row for each side: medians, in brackets the smallest and the largest run. Below `LOAD_HEAD`."""
    rows, title = [], cell.title
    for side, metrics in runs.items():
        rate, *others = (_span([run[name] for run in metrics], text) for name, text in _COLUMNS.items())
        rows.append(
            [
                title,
                side,
                rate,
                f"{statistics.median(run['throughput'] for run in metrics) * cell.body_bytes / 1e6:.3g}",
                *others,
                *(
                    f"{statistics.median(run[name] for run in metrics):.2f}"
                    for name in ("load_cores", "other_cores")
                ),
                f"{sum(run['refused'] for run in metrics):,.0f}",
            ]
        )
        title = ""
    return rows


def ratio_row(name: str, ratios: Mapping[str, float]) -> list[str]:
    """The row of ratios that goes with them."""
    rate, *others = (f"{ratios.get(column, 0):.3g}" for column in _COLUMNS)
    return ["", f"*{name}*", rate, "", *others, "", "", ""]


def _compared(cell: Cell, measured: Whole) -> list[list[str]]:
    rows = load_rows(cell, {side: measured[side] for side in SIDES if side in measured})
    return [*rows, ratio_row("ratio", measured["ratios"])]


def _start_rows(measured: Whole) -> list[list[str]]:
    return [
        [
            side,
            _span(_values(measured, side, "start_ms"), lambda ms: duration(ms * 1000)),
            _span(_values(measured, side, "memory_bytes"), lambda size: f"{size / 1e6:.0f} MB"),
        ]
        for side in ("rmqpy", "apache")
    ]


def _client_rows(cells: Whole) -> list[list[str]]:
    measured = cells["python-client"]
    rows = [
        [
            f"{client} `{verb.rpartition('-')[2]}`",
            _span([run["throughput"] for run in runs], _count),
            _span([run["client_cpu_us"] for run in runs], _microseconds),
        ]
        for client, verbs in ({"rmqpy": measured["verbs"]} | measured["peers"]).items()
        for verb, runs in verbs.items()
    ]
    rows.append(["Java's producer, `-w 1`", _span(_values(measured, "apache", "throughput"), _count), ""])
    return rows


def _values(measured: Whole, side: str, name: str) -> list[float]:
    return [run[name] for run in measured[side]]


def _span(values: Sequence[float], text: Callable[[float], str]) -> str:
    ordered = sorted(values)
    return f"{text(statistics.median(ordered))} ({text(ordered[0])} – {text(ordered[-1])})"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _microseconds(value: float) -> str:
    return f"{value:,.0f} µs" if value >= 100 else f"{value:.3g} µs"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


#: Metrics of a load's rows, and how each is written.
_COLUMNS: dict[str, Callable[[float], str]] = {
    "throughput": _count,
    "p50_us": duration,
    "p99_us": duration,
    "p999_us": duration,
    "cpu_us": _microseconds,
}
