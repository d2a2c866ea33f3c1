"""A program that fills a disk: `python eater.py FILE` keeps as many bytes free as its input says.

Each line of input is `LOW HIGH`: from then on FILE grows or shrinks every few milliseconds, so that the free space
stays between the two. The program ends with its input."""

import os
import random
import select
import sys
from contextlib import suppress
from pathlib import Path

PAUSE_SECONDS = 0.01


def main(file: Path) -> None:
    low, high = 0, 0
    with file.open("ab") as eaten:
        is_told = False
        while True:
            ready, _, _ = select.select([sys.stdin], [], [], PAUSE_SECONDS if is_told else None)
            if ready:
                line = sys.stdin.readline()
                if not line:
                    return
                low, high = map(int, line.split())
                is_told = True
            eat(eaten.fileno(), random.randint(low, high))


def eat(file: int, left_bytes: int) -> None:
    """Leave this number of bytes free, as far as the file can."""
    room = os.fstatvfs(file)
    free, size = room.f_bavail * room.f_frsize, os.fstat(file).st_size
    target = max(0, size + free - left_bytes)
    # Another program may have been faster, so less is available.
    with suppress(OSError):
        if target < size:
            os.ftruncate(file, target)
        elif target > size:
            os.posix_fallocate(file, size, target - size)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
