"""Growth command: measures curves of rmqpy and, as far as possible, of Apache's broker (`python -m benchmarks.growth
[CURVE…]`).

At each value each side has the machine to itself, with a new store. Each curve writes a table and a drawing next to
this file; `--quick` skips the larger values and writes to `target/benchmarks/`.
"""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from benchmarks import java, memory, report, revision
from benchmarks.growth import plot
from benchmarks.growth.curves import CURVES, MEMORY_METRIC, Curve
from benchmarks.interval import RunMetrics
from benchmarks.processes import exit_on_sigterm
from benchmarks.servers import ROOT, Apache, Rmqpy, Side
from rmqpy.load import machine

HERE: Final = Path(__file__).parent
OUT: Final = ROOT / "target" / "benchmarks" / "growth"
_QUICK_VALUES: Final = 2


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(CURVES)))
@click.option("--quick", is_flag=True, help="Only the two smallest values, as a smoke test.")
@click.option("--ours", is_flag=True, help="Without Apache's broker.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the stores, on a real disk; /tmp by default.",
)
def main(names: Sequence[str], quick: bool, ours: bool, folder: Path | None) -> None:
    """Measure these curves, or all of them."""
    lib = None if ours else java.jars("apache")
    exit_on_sigterm()
    out = OUT if quick else HERE
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rmqpy-growth-", dir=folder) as name:
        place = Path(name)
        if not quick:
            memory.fill(place)
        for key in names or CURVES:
            curve = CURVES[key]
            click.echo(curve.title)
            points = _measured(curve, place, lib, quick)
            commit = revision.revision()
            whole = {"revision": commit, "machine": machine.facts(), "points": points}
            (out / f"{key}.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
            drawing = plot.picture(curve.title, curve.axis, curve.metrics, points)
            (out / f"{key}.svg").write_text(drawing, encoding="utf-8")
            text = _document(key, curve, points, commit)
            (out / f"{key}.md").write_text(text, encoding="utf-8")
            click.echo(text)


def _measured(curve: Curve, place: Path, lib: Path | None, quick: bool) -> dict[str, dict[int, RunMetrics]]:
    """Side → value → its run."""
    points: dict[str, dict[int, RunMetrics]] = {}
    for value in curve.values[: _QUICK_VALUES if quick else None]:
        sides: list[Side] = [Rmqpy(place)]
        if lib is not None and (curve.apache_max is None or value <= curve.apache_max):
            sides.append(Apache(place, lib))
        for side in sides:
            side.more_settings = curve.settings
            run = curve.measure(side, value)
            points.setdefault(side.name, {})[value] = run
            shown = ", ".join(f"{name} {_number(run[key])}" for key, name in curve.metrics.items())
            click.echo(f"  {value:,} {curve.axis}, {side.name}: {shown}")
    return points


def _document(key: str, curve: Curve, points: plot.Points, commit: str) -> str:
    """Table and picture."""
    head = [curve.axis, "", *curve.metrics.values()]
    rows = []
    for value in curve.values:
        for side, name in plot.NAMES.items():
            run = points.get(side, {}).get(value)
            if run is not None:
                first = f"{value:,}" if side == "rmqpy" else ""
                rows.append([first, name, *(_number(run[metric]) for metric in curve.metrics)])
    parts = [
        f"# {curve.title}",
        f"`make bench-growth CURVES={key}`, revision {commit}. [How it is measured](../README.md#growth).",
        f"![{curve.title}]({key}.svg)",
        report.table(head, rows),
        curve.shape,
    ]
    if curve.apache_max is not None:
        parts.append(
            f"Apache's broker is measured up to {curve.apache_max:,} {curve.axis}: {curve.apache_why}."
        )
    if MEMORY_METRIC in curve.metrics:
        parts.append(f"Private memory of one more of the {curve.axis}: {_slopes(points)}.")
    return "\n\n".join(parts) + "\n"


def _slopes(points: plot.Points) -> str:
    """Memory growth per unit, from the smallest to the largest value."""
    parts = []
    for side, runs in points.items():
        low, high = min(runs), max(runs)
        if high > low:
            grown = (runs[high][MEMORY_METRIC] - runs[low][MEMORY_METRIC]) * (1 << 20)
            size = f"{grown / (high - low):,.0f} B" if grown > 0 else "too little to measure"
            parts.append(f"{plot.NAMES[side]} {size}")
    return ", ".join(parts)


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


if __name__ == "__main__":
    main()
