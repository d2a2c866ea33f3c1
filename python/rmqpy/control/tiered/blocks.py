"""Blocks of objects that were read, in bounded memory; the block after a read one is fetched early.

Readers of one block wait for one fetch. Calls block and raise `ObjectError`; any thread.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from rmqpy.control.tiered.objects import ObjectError, Objects

BLOCK_BYTES: Final = 2 << 20
#: Threads that fetch blocks, and so the most fetches at a time.
FETCHES: Final = 4
#: The most seconds that a reader waits for one block.
WAIT_SECONDS: Final = 20.0
#: Blocks are kept for this long after the last read.
KEPT_SECONDS: Final = 60.0

_Key = tuple[str, int]


class Blocks:
    """The cached blocks of one storage."""

    def __init__(self, objects: Objects, bytes_max: int) -> None:
        self._objects = objects
        self._blocks_max = max(4, bytes_max // BLOCK_BYTES)
        self._lock = threading.Lock()
        self._blocks: OrderedDict[_Key, Future[bytes]] = OrderedDict()
        self._threads = ThreadPoolExecutor(FETCHES, thread_name_prefix="tiered-read")
        self._read_at = 0.0
        self.hits = 0
        self.misses = 0

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def read(self, name: str, begin: int, end: int, *, size: int) -> bytes:
        """Return a part of an object of this size. Raises `ObjectError` if the object is shorter."""
        parts = []
        for number in range(begin // BLOCK_BYTES, (end - 1) // BLOCK_BYTES + 1):
            block = self._block(name, number, size)
            first = number * BLOCK_BYTES
            parts.append(block[max(0, begin - first) : end - first])
        found = parts[0] if len(parts) == 1 else b"".join(parts)
        if len(found) != end - begin:
            raise ObjectError(f"{self._objects.place}/{name} is shorter than {end} bytes")
        return found

    def cool_down(self) -> None:
        """Free the memory if nothing was read for a while."""
        with self._lock:
            if self._blocks and time.monotonic() - self._read_at >= KEPT_SECONDS:
                self._blocks.clear()

    def forget(self, name: str) -> None:
        """Drop the blocks of an object."""
        with self._lock:
            for key in [key for key in self._blocks if key[0] == name]:
                del self._blocks[key]

    def _block(self, name: str, number: int, size: int) -> bytes:
        wanted = self._fetched(name, number, size)
        if (number + 1) * BLOCK_BYTES < size:
            self._fetched(name, number + 1, size, is_early=True)
        try:
            return wanted.result(WAIT_SECONDS)
        except TimeoutError:
            raise ObjectError(
                f"{self._objects.place}/{name} was not read within {WAIT_SECONDS:.0f} s"
            ) from None

    def _fetched(self, name: str, number: int, size: int, *, is_early: bool = False) -> Future[bytes]:
        key = (name, number)
        with self._lock:
            self._read_at = time.monotonic()
            known = self._blocks.get(key)
            # A failure is not kept.
            if known is not None and not (known.done() and known.exception() is not None):
                self._blocks.move_to_end(key)
                self.hits += not is_early
                return known
            self.misses += not is_early
            end = min(size, (number + 1) * BLOCK_BYTES)
            fetched = self._threads.submit(self._objects.get_range, name, number * BLOCK_BYTES, end)
            self._blocks[key] = fetched
            while len(self._blocks) > self._blocks_max:
                self._blocks.popitem(last=False)
            return fetched
