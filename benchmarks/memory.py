"""Memory: fills the machine's memory with file pages before a measurement.

On a server that has run for hours, nearly all memory holds file pages, and a process gets memory by evicting them. On
a virtual machine, unused memory must first be found by the host, which takes it back when it is free: that would be
measured instead of the broker.
"""

import time
from pathlib import Path
from typing import Literal

from rmqpy.load import machine

State = Literal["warm", "cold"]
_PIECE = bytearray(1 << 20)
#: Time a host may need to take back free memory.
_TAKEN_BACK_SECONDS = 10.0


def make(state: State, folder: Path) -> None:
    """Fill the memory as on a long-running server, or leave it as after a program that used it all has ended."""
    fill(folder)
    if state == "cold":
        _holes(folder).unlink()
        time.sleep(_TAKEN_BACK_SECONDS)


def fill(folder: Path) -> None:
    """Read a sparse file as large as the memory. It takes no disk space; its last content is kept."""
    file = _holes(folder)
    with file.open("ab") as holes:
        holes.truncate(machine.memory_bytes())
    with file.open("rb", buffering=0) as holes:
        while holes.readinto(_PIECE):
            pass


def _holes(folder: Path) -> Path:
    return folder / "holes"
