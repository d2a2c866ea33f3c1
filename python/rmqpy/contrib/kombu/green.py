"""gevent: calls that wait in native code run in its thread pool, so that other greenlets continue.

Without gevent, or when it has not replaced threads, a call runs in the caller's thread.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def new_lock() -> Any:
    """Return a lock between threads of the operating system; those of gevent fail where a thread has no greenlets."""
    monkey = sys.modules.get("gevent.monkey")
    allocate: Callable[[], Any] = (
        threading.Lock if monkey is None else monkey.get_original("_thread", "allocate_lock")
    )
    return allocate()


def pool() -> Any:
    """Return the thread pool of gevent's hub if this thread must not block, otherwise None."""
    monkey = sys.modules.get("gevent.monkey")
    if monkey is None or not monkey.is_module_patched("threading"):
        return None
    hub = sys.modules["gevent"].get_hub()
    return hub.threadpool if hub.main_hub else None


def blocking(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function that does the same, and blocks no other greenlet."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        threads = pool()
        if threads is None:
            return function(*args, **kwargs)
        result: R = threads.apply(partial(function, *args, **kwargs))
        return result

    return call


def start_thread(work: Callable[[], object], name: str) -> Callable[[], None]:
    """Run `work` in a thread of the operating system; return the function that waits for its end."""
    monkey = sys.modules.get("gevent.monkey")
    if monkey is None or not monkey.is_module_patched("threading"):
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        return thread.join
    has_ended = False

    def run() -> None:
        nonlocal has_ended
        try:
            work()
        finally:
            has_ended = True

    def join() -> None:
        while not has_ended:
            time.sleep(0.005)

    monkey.get_original("_thread", "start_new_thread")(run, ())
    return join
