"""Descriptors of the process: a stopped broker leaves none open."""

from __future__ import annotations

import gc
import os
from collections import Counter
from pathlib import Path

from broker.conftest import made_broker


def open_files() -> Counter[str]:
    """The open descriptors of the process, by kind or path."""
    found: Counter[str] = Counter()
    for descriptor in os.scandir("/proc/self/fd"):
        try:
            found[os.readlink(descriptor.path).split(":[")[0]] += 1
        except FileNotFoundError:  # the descriptor of this listing itself
            continue
    return found


async def test_a_stopped_broker_leaves_no_descriptor_open(tmp_path: Path) -> None:
    async def start_and_stop(name: str) -> None:
        async with made_broker(tmp_path / name, "127.0.0.1:9", {}):
            pass

    # The first broker of a process opens descriptors that later ones share.
    await start_and_stop("first")
    gc.collect()
    before = open_files()
    for name in ("second", "third"):
        await start_and_stop(name)
    gc.collect()
    assert open_files() == before
