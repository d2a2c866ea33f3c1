"""Reading of API request bodies, bounded in bytes, time and memory of the parsed value.

A short body is read immediately. Longer ones, with messages, are read one after the other, so that concurrent
requests do not exhaust memory. Threads: only that of HTTP.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Hashable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request

from rmqpy.console.turns import Turns
from rmqpy.errors import ConfigError

#: The most bytes of a login, of a change, and of a change with messages, which have at most 4 MiB, as JSON.
LOGIN_BYTES_MAX: Final = 16 << 10
SHORT_BYTES_MAX: Final = 64 << 10
LONG_BYTES_MAX: Final = 8 << 20
#: The most bytes outside quotation marks: each may create an object of a hundred bytes.
FRAME_BYTES_MAX: Final = 64 << 10
#: Concurrent long bodies, and seconds in which one must arrive.
LONG_MAX: Final = 4
LONG_S: Final = 20.0

_TEXT: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


@asynccontextmanager
async def read_body(
    request: Request, bytes_max: int, turns: Turns | None = None, owner: Hashable = None
) -> AsyncIterator[Any]:
    """Parse the JSON of a request. A long body holds its owner's turn while it is used. Raises `ConfigError` for a
    body that is too long or not valid JSON."""
    body = bytearray()
    async with AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(None) as timeout:
                unread = LONG_BYTES_MAX
                async for piece in request.stream():
                    if len(body) > bytes_max:
                        # Read and dropped: a client that is still sending would not see the response.
                        unread -= len(piece)
                        if unread < 0:
                            break
                        continue
                    body += piece
                    if turns is not None and timeout.when() is None and len(body) > SHORT_BYTES_MAX:
                        await stack.enter_async_context(turns.turn(owner))
                        timeout.reschedule(asyncio.get_running_loop().time() + LONG_S)
        except ClientDisconnect:
            raise ConfigError("the body is incomplete") from None
        except TimeoutError:
            raise ConfigError(f"the body did not arrive within {LONG_S:g} s") from None
        if len(body) > bytes_max:
            raise ConfigError(f"the body has more than {bytes_max} bytes")
        value = _parsed(body)
        body.clear()
        yield value


def _parsed(body: bytearray) -> Any:
    if len(_TEXT.sub(b"", body)) > FRAME_BYTES_MAX:
        raise ConfigError(f"the body has more than {FRAME_BYTES_MAX} bytes outside strings")
    try:
        return json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise ConfigError("the body is not valid JSON") from None
