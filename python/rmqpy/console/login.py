"""Login and logout over HTTP: a session in a cookie, for a user of the cluster's access control.

The cookie is sent only to this console by its own pages, and scripts cannot read it. The audit log records each login,
failed ones too. Threads: only that of HTTP.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, Final

from starlette.requests import Request
from starlette.responses import Response

from rmqpy.console.answers import (
    ANSWER_S,
    address_of,
    audit,
    brief,
    cookie_of,
    failed,
    json_response,
    peer_of,
    refused,
    session_of,
)
from rmqpy.console.request_body import LOGIN_BYTES_MAX, read_body
from rmqpy.console.schema import Chars, record_arguments
from rmqpy.errors import ConfigError, RocketMQError
from rmqpy.monitor.application import extend_deadline

if TYPE_CHECKING:
    from rmqpy.console.site import Console

_FIELDS: Final[dict[str, Any]] = {"user": Annotated[str, Chars(255)], "secret": Annotated[str, Chars(1_000)]}

Answer = Callable[[Request], Awaitable[Response]]


def log_in(console: Console) -> Answer:
    """Start a session: {"user": …, "secret": …}."""

    async def answer(request: Request) -> Response:
        if (no := refused(request, console, is_login=True)) is not None:
            return no
        user: str | None = None
        outcome = "failed"
        try:
            async with read_body(request, LOGIN_BYTES_MAX) as body:
                if not isinstance(body, dict):
                    raise ConfigError("the body must be a JSON object")
                given = record_arguments(_FIELDS, {}, body)
            user = given["user"]
            # Before its body has arrived, a login uses little of the port's limits.
            extend_deadline(request, ANSWER_S)
            token, visitor = await console.sessions.log_in(
                given["user"], given["secret"], peer=address_of(request)
            )
            await console.sessions.log_out(session_of(request))
            outcome = "done"
        except RocketMQError as error:
            outcome = f"refused: {error}"
            return failed(error)
        finally:
            audit.info("log in by %s: %s", peer_of(request, user), brief(outcome))
        response = json_response({"user": visitor.user, "is_super": visitor.is_super})
        response.set_cookie(
            cookie_of(request),
            token,
            httponly=True,
            samesite="strict",
            secure=request.headers.get("origin", "").startswith("https://"),
        )
        return response

    return answer


def log_out(console: Console) -> Answer:
    """End the session of a request."""

    async def answer(request: Request) -> Response:
        if (no := refused(request, console, is_login=True)) is not None:
            return no
        visitor = await console.sessions.log_out(session_of(request))
        if visitor is not None:
            audit.info("log out by %s: done", peer_of(request, visitor.user))
        response = json_response({})
        response.delete_cookie(cookie_of(request), httponly=True, samesite="strict")
        return response

    return answer
