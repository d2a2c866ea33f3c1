"""Client queries: a request goes out on a client's connection, and its reply returns as an event.

Owns the pending queries. Invariant: each ends once, with the reply, the end of the connection, or its timeout.
Threads: the event loop's.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, TypeVar

from rmqpy._native import Server
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.declare import Request, decode_reply, encode
from rmqpy.remoting.large_bodies import is_large, read_aside
from rmqpy.remoting.server import ClientAnswered, ConnectionClosed, Refused, handles

R = TypeVar("R")

log = logging.getLogger(__name__)

#: Time for a client's reply, as at Apache's broker.
ANSWER_SECONDS: Final = 10.0


class Relay:
    """The queries in flight."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._waiting: dict[tuple[int, int], asyncio.Future[ClientAnswered]] = {}

    async def ask(self, connection: int, ask: Request[R], *, seconds: float = ANSWER_SECONDS) -> R:
        """Return the reply of the client on this connection.

        Raises `Refused` with the client's code, with CONSUME_MSG_TIMEOUT without a reply in time, and with
        SYSTEM_ERROR if the client is disconnected or too many queries are in flight.
        """
        sent = encode(ask)
        token = self._server.ask(connection, ask.code, sent.ext or {}, sent.body)
        if token is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                "cannot query the client: it is disconnected, or too many queries are pending",
            )
        key = (connection, token)
        self._waiting[key] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(seconds):
                answer = await self._waiting[key]
        except TimeoutError:
            remark = f"the client did not answer within {seconds:g} s"
            raise Refused(ResponseCode.CONSUME_MSG_TIMEOUT, remark) from None
        finally:
            del self._waiting[key]
            self._server.forget_answer(connection, token)
        if answer.code != ResponseCode.SUCCESS:
            log.warning("client refused %s: %s", ask.code.name, answer.remark)
            raise Refused(_code(answer.code), answer.remark)
        if is_large(answer.body):
            return await read_aside(decode_reply, type(ask), answer.ext, answer.body)
        return decode_reply(type(ask), answer.ext, answer.body)

    @handles(ClientAnswered)
    def answered(self, event: ClientAnswered) -> None:
        waiting = self._waiting.get((event.connection, event.token))
        if waiting is not None and not waiting.done():
            waiting.set_result(event)

    @handles(ConnectionClosed)
    def closed(self, event: ConnectionClosed) -> None:
        """End the queries of a closed connection."""
        for (connection, _), waiting in self._waiting.items():
            if connection == event.connection and not waiting.done():
                waiting.set_exception(
                    Refused(ResponseCode.SYSTEM_ERROR, "the client disconnected before it answered")
                )


def _code(code: int) -> ResponseCode:
    try:
        return ResponseCode(code)
    except ValueError:
        return ResponseCode.SYSTEM_ERROR
