"""Cut of the end of a log, between two starts of the broker. Blocks on the disk."""

from __future__ import annotations

from rmqpy._native import StoppedStore
from rmqpy.config.store import StoreConfig


def cut_log(config: StoreConfig, at: int) -> None:
    """Remove the log from `at` on; the next start cuts queues and index. Raises `StoreError`."""
    store = StoppedStore(config, exclusive=True)
    try:
        store.drain()
        store.cut(at)
    finally:
        store.release()
