"""Visibility of message bodies: whole, masked or hidden.

Super users see all; an option of the console sets what others see. Set for each request before it runs; only
`api/message_rows`, which prepares bodies for display, reads it. Otherwise pure.
"""

import json
from contextvars import ContextVar
from enum import StrEnum
from typing import Any, Final

from rmqpy.errors import AuthError


class BodyView(StrEnum):
    """How a body is shown."""

    SHOWN = "shown"
    #: Its length, the positions of letters and digits, and names in JSON.
    MASKED = "masked"
    HIDDEN = "hidden"


#: For the current request.
BODIES: Final[ContextVar[BodyView]] = ContextVar("bodies", default=BodyView.SHOWN)


def masked(text: str) -> str:
    """Mask a text: letters become x, digits 0; names in JSON stay.

    >>> masked("Order 66, paid")
    'xxxxx 00, xxxx'
    >>> masked('{"card": "4711-x", "sum": 12.5, "open": true}')
    '{"card": "0000-x", "sum": 0, "open": null}'
    """
    if text.lstrip()[:1] in ("{", "["):
        try:
            return json.dumps(_masked_json(json.loads(text)), ensure_ascii=False)
        except (ValueError, RecursionError):
            pass
    return _masked_text(text)


def require_bodies(what: str) -> None:
    """Raise `AuthError` unless bodies are shown: `what` would reveal their contents."""
    if BODIES.get() is not BodyView.SHOWN:
        raise AuthError(f"{what} needs the right to see bodies", hint="log in as a super user")


def _masked_json(value: Any) -> Any:
    match value:
        case dict():
            return {name: _masked_json(each) for name, each in value.items()}
        case list():
            return [_masked_json(each) for each in value]
        case str():
            return _masked_text(value)
        case bool() | None:
            return None
    return 0


def _masked_text(text: str) -> str:
    return "".join("0" if each.isdigit() else "x" if each.isalpha() else each for each in text)
