"""Sequential writer: measures the disk with a program that only writes (`python -m benchmarks.sequential_writer FILE
SECONDS`).

It writes consecutive pieces of 1 MiB for some seconds, with `fdatasync` at the end, like `dd conv=fdatasync`: the
limit for any store on this file system. The file is removed. Prints one line of JSON.
"""

import json
import os
import sys
import time
from pathlib import Path

PIECE_BYTES = 1 << 20
#: Written repeatedly; incompressible.
_PIECE = os.urandom(PIECE_BYTES)


def write(file: Path, seconds: float) -> dict[str, float]:
    """Bytes written, seconds until the last `write` and until they are on the disk, processor time."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        began, cpu_began, written = time.monotonic(), time.process_time(), 0
        while (passed := time.monotonic() - began) < seconds:
            written += os.write(descriptor, _PIECE)
        os.fdatasync(descriptor)
        return {
            "bytes": written,
            "seconds": passed,
            "synced_seconds": time.monotonic() - began,
            "cpu_seconds": time.process_time() - cpu_began,
        }
    finally:
        os.close(descriptor)
        file.unlink()


if __name__ == "__main__":
    print(json.dumps(write(Path(sys.argv[1]), float(sys.argv[2]))))
