"""A broker whose clock a test moves, in a process that the test can kill.

`python -m crash.clocked_broker FOLDER WALL_MS` prints the address of the name server. Each number on standard input
advances the clock by as many seconds, and its time is printed when all that became due is delivered.
"""

import sys
from pathlib import Path

from rmqpy.server import Standalone
from rmqpy.testing import SMALL, HandClock


def main(folder: str, wall_ms: str) -> None:
    clock = HandClock(int(wall_ms))
    with Standalone(
        Path(folder),
        namesrv_port=0,
        broker_port=0,
        clock=clock,
        **{**SMALL, "fileReservedTime": 1_000_000, "maxIndexNum": 2_000_000, "maxHashSlotNum": 500_000},
    ) as server:
        print(server.namesrv, flush=True)
        for line in sys.stdin:
            clock.advance(float(line))
            print(clock.wall_ms(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
