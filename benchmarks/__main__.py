"""Comparison command: runs the comparison cell by cell and writes the report (`python -m benchmarks`).

The report file is the state: each cell is saved when it ends. After an interruption continue with --resume; --cells
replaces single cells.
"""

import json
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from benchmarks import java, memory, report
from benchmarks.cells import CELLS, Cell, named
from benchmarks.chart import chart
from benchmarks.clients import run_clients
from benchmarks.measure import FULL, QUICK, Pace, run_cell
from benchmarks.processes import exit_on_sigterm
from benchmarks.revision import revision
from benchmarks.servers import Apache, Rmqpy
from rmqpy import __version__
from rmqpy.load import machine

HERE = Path(__file__).parent


@click.command()
@click.option(
    "--quick",
    is_flag=True,
    help="Two short pairs of each cell into target/benchmarks/, as a smoke test.",
)
@click.option("--cells", default="", metavar="NAME,…", help="Only these.")
@click.option("--resume", is_flag=True, help="Run only the cells missing in the report.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the stores; /tmp by default.",
)
@click.option("--list", "is_list", is_flag=True, help="Name the cells and their bars.")
def main(quick: bool, cells: str, resume: bool, folder: Path | None, is_list: bool) -> None:
    """Compare rmqpy with Apache RocketMQ: the same load, A B A B, in one run."""
    try:
        chosen = named(cells)
    except KeyError as error:
        raise click.BadParameter(
            f"no cell {error}; choose from {', '.join(cell.name for cell in CELLS)}"
        ) from None
    if is_list:
        for cell in chosen:
            click.echo(f"{cell.name:16} {cell.title:38} {'; '.join(bar.text() for bar in cell.bars)}")
        return
    lib = java.jars("apache")
    exit_on_sigterm()
    pace = QUICK if quick else FULL
    out = HERE.parent / "target" / "benchmarks" if quick else HERE
    out.mkdir(parents=True, exist_ok=True)
    state = out / "report.json"
    whole: dict[str, Any] = json.loads(state.read_text()) if state.exists() else {"cells": {}}
    if resume:
        chosen = tuple(cell for cell in chosen if cell.name not in whole["cells"])
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rmqpy-bench-", dir=folder) as place:
        for number, cell in enumerate(chosen, 1):
            click.echo(
                f"[{number}/{len(chosen)}] {cell.name}: {cell.title}  ({time.monotonic() - began:.0f} s)"
            )
            memory.fill(Path(place))
            whole["cells"][cell.name] = _measure(cell, Path(place), lib, pace)
            if cell.kind == "produce":
                click.echo(f"  {cell.name} on cold memory")
                memory.make("cold", Path(place))
                whole.setdefault("cold", {})[cell.name] = _measure(cell, Path(place), lib, pace)
            whole["about"] = _about(quick)
            _write(state, json.dumps(whole, indent=1, ensure_ascii=False) + "\n")
    _write(out / "report.md", report.document(whole))
    _write(out / "report.svg", chart(whole))
    click.echo(f"{time.monotonic() - began:.0f} s; see {out / 'report.md'}")
    click.echo(report.summary(whole))


def _measure(cell: Cell, place: Path, lib: Path, pace: Pace) -> dict[str, Any]:
    sides = Rmqpy(place), Apache(place, lib)
    # Replace the path of the stores, which is meaningless to readers.
    settings = {
        side.name: side.settings(cell.is_sync_flush).replace(str(side.folder.parent), "FOLDER")
        for side in sides
    }
    run = run_clients if cell.kind == "client" else run_cell
    return run(cell, sides, pace, click.echo) | {"at": _now(), "revision": revision(), "settings": settings}


def _about(quick: bool) -> dict[str, Any]:
    pace = QUICK if quick else FULL
    return {
        "machine": machine.facts(),
        "java": java.version(),
        "java_options": list(java.BROKER_OPTIONS),
        "rmqpy": __version__,
        "command": "make bench-compare" + (" BENCH=quick" if quick else ""),
        "pace": vars(pace),
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _write(file: Path, text: str) -> None:
    part = file.with_suffix(file.suffix + ".part")
    part.write_text(text, encoding="utf-8")
    part.replace(file)


if __name__ == "__main__":
    sys.exit(main())
