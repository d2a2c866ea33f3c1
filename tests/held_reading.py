"""A held thread for large bodies: other requests must be answered meanwhile."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rmqpy.remoting import large_bodies
from wire import TIMEOUT_S


@contextmanager
def reading_held() -> Iterator[None]:
    """Large bodies that servers of this process get are read behind this block."""
    gate = threading.Event()
    large_bodies._thread().submit(gate.wait, TIMEOUT_S)
    try:
        yield
    finally:
        gate.set()
