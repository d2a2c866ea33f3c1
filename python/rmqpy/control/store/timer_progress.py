"""Progress of timed messages on disk, `config/timercheck`, as master and slave tell each other.

The native half owns the file of a master; this is about its first numbers, and about the copy that a slave has. Blocks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rmqpy.config import files
from rmqpy.errors import StoreError
from rmqpy.protocol.codes import ResponseCode

#: Seven numbers of eight bytes; what follows in the file is about the timer log of its broker.
PROGRESS_BYTES: Final = 56
_FILE_BYTES: Final = 4096
#: The end of the timer log, which no slave has: it is made anew from the queue.
_LOG_END: Final = slice(8, 16)


def read_progress(path: Path) -> bytes:
    """The numbers; zeros where nothing was delivered yet. Raises `StoreError`."""
    try:
        with path.open("rb") as file:
            return file.read(PROGRESS_BYTES).ljust(PROGRESS_BYTES, b"\0")
    except FileNotFoundError:
        return bytes(PROGRESS_BYTES)
    except OSError as error:
        raise _fault(path, error) from error


def delivered_ms(progress: bytes) -> int:
    """The time by which everything was delivered."""
    return int.from_bytes(progress[:8], "big", signed=True)


def write_progress(path: Path, progress: bytes) -> None:
    """Write the file of a broker that begins to deliver from there; nothing where it says so already. Raises
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
