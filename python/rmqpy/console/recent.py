"""Recent results that several endpoints of one page need, such as the lags of all groups.

Kept with the lists of the console, for each visitor. Set for each request before it runs.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from rmqpy.admin.connection import MISSING, Missing

T = TypeVar("T")

Remember = Callable[[str, Callable[[], Awaitable[Any]]], Awaitable[tuple[Any, Sequence[Missing]]]]
#: Returns a recent result by its name, or makes it; with the brokers without data.
RECENT: Final[ContextVar[Remember]] = ContextVar("recent")


async def recent(make: Callable[[], Awaitable[T]], name: str) -> T:
    """Return the result of `make`, or in a request a recent one of this name. Notes the brokers without data."""
    if (remember := RECENT.get(None)) is None:
        return await make()
    found: T
    found, missing = await remember(name, make)
    if (noted := MISSING.get(None)) is not None:
        noted += missing
    return found
