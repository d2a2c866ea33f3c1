"""Puts the machine's memory to use before anything is measured.

On a server that has run for hours nearly all memory holds files that were read once, and a process that needs memory
gets it by dropping these. Unused memory is another matter on a virtual machine, whose host has to find it first, and
takes it back when it is free again: that would be measured instead of the broker.
"""

import time
from pathlib import Path
from typing import Literal

from rmqpy.load import machine

State = Literal["warm", "cold"]
_PIECE = bytearray(1 << 20)
#: So long a host may need until it has taken back what is free.
_TAKEN_BACK_SECONDS = 10.0


def make(state: State, folder: Path) -> None:
    """Memory as on a server that has run for hours, or as one finds it where a program that used it all is gone."""
    fill(folder)
    if state == "cold":
        _holes(folder).unlink()
        time.sleep(_TAKEN_BACK_SECONDS)


def fill(folder: Path) -> None:
    """Read a file of holes as large as the memory. It takes no room on the disk; what it held last time is kept."""
    file = _holes(folder)
    with file.open("ab") as holes:
        holes.truncate(machine.memory_bytes())
    with file.open("rb", buffering=0) as holes:
        while holes.readinto(_PIECE):
            pass


def _holes(folder: Path) -> Path:
    return folder / "holes"
