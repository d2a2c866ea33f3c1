"""Bodies of requests of the API: read within a bound of bytes, of time, and of what they make of memory.

A short one is read as it comes. A longer one, which a message may need, is read in a turn, so that peers that send
them together do not fill the memory together. Threads: that of HTTP alone.
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

#: Bytes of the body of a login, and of a change; of one with messages, which are 4 MiB at most, as JSON has them.
LOGIN_BYTES_MAX: Final = 16 << 10
SHORT_BYTES_MAX: Final = 64 << 10
LONG_BYTES_MAX: Final = 8 << 20
#: Bytes besides what stands between quotation marks: each may make an object of a hundred bytes.
FRAME_BYTES_MAX: Final = 64 << 10
#: Long bodies at once, and the seconds in which one must arrive.
LONG_MAX: Final = 4
LONG_S: Final = 20.0

_TEXT: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


@asynccontextmanager
async def read_body(
    request: Request, bytes_max: int, turns: Turns | None = None, owner: Hashable = None
) -> AsyncIterator[Any]:
    """The JSON of a request. What is longer than a short one has a turn of its owner as long as it is used. Raises
    `ConfigError` for a body that is not valid JSON, or is too long."""
    body = bytearray()
    async with AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(None) as timeout:
                unread = LONG_BYTES_MAX
                async for piece in request.stream():
                    if len(body) > bytes_max:
                        # Read and forgotten: a peer that is still sending would not see the answer.
                        unread -= len(piece)
                        if unread < 0:
                            break
                        continue
                    body += piece
                    if turns is not None and timeout.when() is None and len(body) > SHORT_BYTES_MAX:
                        await stack.enter_async_context(turns.turn(owner))
                        timeout.reschedule(asyncio.get_running_loop().time() + LONG_S)
        except ClientDisconnect:
            raise ConfigError("the body ends early") from None
        except TimeoutError:
            raise ConfigError(f"the body did not arrive within {LONG_S:g} s") from None
        if len(body) > bytes_max:
            raise ConfigError(f"the body has more than {bytes_max} bytes")
        value = _parsed(body)
        body.clear()
        yield value


def _parsed(body: bytearray) -> Any:
    if len(_TEXT.sub(b"", body)) > FRAME_BYTES_MAX:
        raise ConfigError(f"the body has more than {FRAME_BYTES_MAX} bytes besides texts")
    try:
        return json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise ConfigError("the body is not valid JSON") from None
