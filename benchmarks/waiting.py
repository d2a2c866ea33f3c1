"""Waits of tests and benchmarks for conditions that must be polled: other processes, threads, periodic work."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

T = TypeVar("T")
Failing = type[Exception] | tuple[type[Exception], ...]

#: Far above any wait of a healthy run, also on a busy machine.
WAIT_S = 60.0


def anything(_: object) -> bool:
    """Accept any answer: the wait is for a call that does not fail."""
    return True


def until(
    ask: Callable[[], T],
    seconds: float = WAIT_S,
    *,
    wanted: Callable[[T], object] = bool,
    failing: Failing = (),
    pause: float = 0.01,
) -> T:
    """Ask until the answer is wanted, and return it. A call that raises one of `failing` is repeated."""
    deadline = time.monotonic() + seconds
    while True:
        found: T | Exception
        try:
            answer = found = ask()
            if wanted(answer):
                return answer
        except failing as error:
            found = error
        assert time.monotonic() < deadline, f"after {seconds:g} s the answer is {found!r}"
        # Between two questions: the caller knows of no event to wait for.
        time.sleep(pause)


def moment_after_now() -> int:
    """Return a millisecond after everything stored so far, and before everything stored from now on."""
    before = time.time_ns() // 1_000_000
    return until(lambda: time.time_ns() // 1_000_000, wanted=lambda now: now > before + 2, pause=0.001) - 1


async def until_async(
    ask: Callable[[], T | Awaitable[T]],
    wanted: Callable[[T], object] = bool,
    seconds: float = WAIT_S,
    *,
    failing: Failing = (),
    pause: float = 0.01,
) -> T:
    """Do as `until` does, while the event loop runs."""
    deadline = time.monotonic() + seconds
    while True:
        found: T | Exception
        try:
            asked = ask()
            answer = found = cast(T, await asked if inspect.isawaitable(asked) else asked)
            if wanted(answer):
                return answer
        except failing as error:
            found = error
        assert time.monotonic() < deadline, f"after {seconds:g} s the answer is {found!r}"
        # As above.
        await asyncio.sleep(pause)
