"""Progress of timed messages on disk, `config/timercheck`, as masters and slaves exchange it.

The native module owns a master's file; this code handles its first numbers, and the copy of a slave. Blocks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rmqpy.config import files
from rmqpy.errors import StoreError
from rmqpy.protocol.codes import ResponseCode

#: Seven numbers of eight bytes. The rest of the file concerns the broker's own timer log.
PROGRESS_BYTES: Final = 56
_FILE_BYTES: Final = 4096
#: The end of the timer log. A slave has none, because the log is rebuilt from the queue.
_LOG_END: Final = slice(8, 16)


def read_progress(path: Path) -> bytes:
    """Return the progress; zeros if nothing was delivered yet. Raises `StoreError`."""
    try:
        with path.open("rb") as file:
            return file.read(PROGRESS_BYTES).ljust(PROGRESS_BYTES, b"\0")
    except FileNotFoundError:
        return bytes(PROGRESS_BYTES)
    except OSError as error:
        raise _fault(path, error) from error


def delivered_ms(progress: bytes) -> int:
    """Return the time up to which everything was delivered."""
    return int.from_bytes(progress[:8], "big", signed=True)


def write_progress(path: Path, progress: bytes) -> None:
    """Write the file of a broker that starts to deliver from there, unless it already has this progress. Raises
    `StoreError`."""
    numbers = bytearray(progress[:PROGRESS_BYTES].ljust(PROGRESS_BYTES, b"\0"))
    numbers[_LOG_END] = bytes(8)
    if numbers == read_progress(path):
        return
    try:
        files.save_bytes(path, bytes(numbers).ljust(_FILE_BYTES, b"\0"))
    except OSError as error:
        raise _fault(path, error) from error


def _fault(path: Path, error: OSError) -> StoreError:
    return StoreError(f"{path}: {error}", code=ResponseCode.SYSTEM_ERROR, path=str(path))
