"""Report: formats results and missed bars as Markdown, with everything needed to repeat the run."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.cells import CELLS, Bar, Cell, Metric
from benchmarks.client_load import WAITING
from benchmarks.interval import RunMetrics
from rmqpy.load.report import duration

#: The metric of a run that each bar is about.
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
    "cell", "", "messages/s", "MB/s", "p50", "p99", "p99.9", "broker CPU per message", "load", "other", "refused"
)  # fmt: skip
SIDES = ("rmqpy", "apache", "floor")
NOTES = Path(__file__).parent / "notes.md"

Whole = Mapping[str, Any]
"""The content of report.json."""


def worse(whole: Whole) -> dict[str, Any]:
    """Each cell as it was measured on warm or on cold memory, whichever has the lower ratio of messages per second."""
    cold = whole.get("cold", {})

    def ratio(measured: Whole) -> float:
        return float(measured["ratios"].get("throughput", 0))

    return {name: min(warm, cold.get(name, warm), key=ratio) for name, warm in whole["cells"].items()}


def judged(whole: Whole) -> list[tuple[Cell, Bar, float | None]]:
    """Every bar with its measured ratio, None if its cell has not run."""
    rows: list[tuple[Cell, Bar, float | None]] = []
    cells = worse(whole)
    for cell in CELLS:
        measured = cells.get(cell.name)
        for bar in cell.bars:
            rows.append((cell, bar, measured["ratios"].get(METRIC_OF_BAR[bar.metric]) if measured else None))
    return rows


def summary(whole: Whole) -> str:
    """Summarize: the number of bars that hold, and those that do not."""
    rows = [(cell, bar, ratio) for cell, bar, ratio in judged(whole) if ratio is not None]
    missed = [(cell, bar, ratio) for cell, bar, ratio in rows if not bar.holds(ratio)]
    lines = [f"{len(rows) - len(missed)} of {len(rows)} bars hold"]
    lines += [
        f"missed: {cell.name}: {bar.text()}, measured {_ratio(bar, ratio)}" for cell, bar, ratio in missed
    ]
    return "\n".join(lines)


def document(whole: Whole) -> str:
    """Format the report as Markdown."""
    about = whole["about"]
    cells = whole["cells"]
    revisions = sorted({cell["revision"] for cell in cells.values()})
    times = sorted(cell["at"] for cell in cells.values())
    machine = about["machine"]
    parts = [
        "# rmqpy and Apache RocketMQ 5.5.0",
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
        "ratios of the rounds. *Floor* is a thread that only appends to memory and responds. *Load* and *other* are "
        "the cores used by the load generator and by all other processes.",
        table(LOAD_HEAD, [row for cell in loads for row in _compared(cell, cells[cell.name])]),
    ]
    if cold := whole.get("cold"):
        parts += [
            "## Cold memory",
            "The cells of sends again, after another program has used all memory and ended, so that a virtual "
            "machine's host has to find each page. Picture and bars have the worse of both.",
            table(
                LOAD_HEAD,
                [row for cell in loads if cell.name in cold for row in _compared(cell, cold[cell.name])],
            ),
        ]
    if "start" in cells:
        parts.append(table(["start", "accepts after", "private memory at rest"], _start_rows(cells["start"])))
    if "java-producer" in cells:
        parts.append(
            table(
                ["Java's benchmark producer", "messages/s", "mean latency", "broker CPU per message"],
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
            table(["client, one process", "messages/s", "client CPU per message"], _client_rows(cells))
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
    """A row for each side, below `LOAD_HEAD`: medians, with the smallest and largest run in brackets.

    A metric is left out if a run lacks it.
    """
    rows, title = [], cell.title
    for side, metrics in runs.items():
        rate, *others = (
            _span([run[name] for run in metrics], text) if all(name in run for run in metrics) else "–"
            for name, text in _COLUMNS.items()
        )
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
    """The row of ratios."""
    rate, *others = (f"{ratios[column]:.3g}" if column in ratios else "–" for column in _COLUMNS)
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


#: Metrics of a load's rows, and their formats.
_COLUMNS: dict[str, Callable[[float], str]] = {
    "throughput": _count,
    "p50_us": duration,
    "p99_us": duration,
    "p999_us": duration,
    "cpu_us": _microseconds,
}
