"""Memory of an idle server: freed memory goes back to the system."""

import asyncio
import ctypes
from pathlib import Path

import pytest

from rmqpy import server
from waiting import until_async

MEGABYTE = 1 << 20


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="a C library without malloc_trim")
async def test_freed_memory_is_returned_when_the_process_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_IDLE_LOOK_S", 0.01)
    blocks = [bytes(1_000) for _ in range(100_000)]
    # One block in fifty stays, so the freed ones are holes.
    kept = blocks[::50]
    del blocks
    loaded = resident_bytes()
    returning = asyncio.create_task(server._return_memory())
    try:
        await until_async(lambda: resident_bytes() < loaded - 50 * MEGABYTE)
    finally:
        returning.cancel()
    assert len(kept) == 2_000
