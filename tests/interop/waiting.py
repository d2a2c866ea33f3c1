"""The wait of the interop tests: for what is only seen by asking again, at servers and clients of other processes."""

import time
from collections.abc import Callable


def until(is_so: Callable[[], object], seconds: float, *, pause: float = 0.05) -> None:
    """Ask until it is so."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"it did not come true in {seconds:g} s"
        time.sleep(pause)
