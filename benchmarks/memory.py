"""Puts the machine's memory to use before anything is measured.

On a server that has run for hours nearly all memory holds files that were read once, and a process that needs memory
gets it by dropping these. Unused memory is another matter on a virtual machine, whose host has to find it first, and
takes it back when it is free again: that would be measured instead of the broker.
"""

from pathlib import Path

from rmqpy.load import machine

_PIECE = bytearray(1 << 20)


def fill(folder: Path) -> None:
    """Read a file of holes as large as the memory. It takes no room on the disk; what it held last time is kept."""
    file = folder / "holes"
    with file.open("ab") as holes:
        holes.truncate(machine.memory_bytes())
    with file.open("rb", buffering=0) as holes:
        while holes.readinto(_PIECE):
            pass
