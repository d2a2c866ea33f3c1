"""Command of a Spark campaign: its options, a folder for it, and its report."""

import argparse
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

Campaign = Callable[[int, int, str], tuple[Mapping[str, int], bool]]
"""Takes the kills, the seed and a folder; returns what was counted, and whether the promises held."""


def run(description: str | None, campaign: Campaign) -> None:
    """Read the options, run the campaign, and print and save its report. Exits with 0 if it held."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 16))
    parser.add_argument("--report", type=Path, help="a file that gets the results as well")
    asked = parser.parse_args()
    # Like Ctrl-C: end all processes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began = time.monotonic()
    print(f"seed {asked.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="rmqpy-", ignore_cleanup_errors=True) as folder:
        facts, holds = campaign(asked.kills, asked.seed, folder)
    lines = [f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, seed {asked.seed}, {time.monotonic() - began:.0f} s"]
    lines += [f"{value:8}  {name}" for name, value in facts.items()]
    lines += ["held" if holds else "DID NOT HOLD"]
    print("\n".join(lines))
    if asked.report is not None:
        asked.report.parent.mkdir(parents=True, exist_ok=True)
        asked.report.write_text("\n".join(lines) + "\n", encoding="utf-8")
    sys.exit(0 if holds else 1)
