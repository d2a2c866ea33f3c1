"""Bodies of messages as a visitor may see them: whole, their form alone, or not at all.

Super users see all; what others see is set where the console is started. Set for each request before it is worked on;
`api/message_rows`, the one place where bodies are made into something that is shown, asks. Pure but for that.
"""

import json
from contextvars import ContextVar
from enum import StrEnum
from typing import Any, Final

from rmqpy.errors import AuthError


class BodyView(StrEnum):
    """How much of a body is shown."""

    SHOWN = "shown"
    #: Its form: how long it is, where it has letters and digits, the names in JSON.
    MASKED = "masked"
    HIDDEN = "hidden"


#: Of the request that is worked on.
BODIES: Final[ContextVar[BodyView]] = ContextVar("bodies", default=BodyView.SHOWN)


def masked(text: str) -> str:
    """The form of a text: letters are x, digits 0; names in JSON stay.

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
    """Raise `AuthError` unless bodies are shown: `what` would tell what they hold."""
    if BODIES.get() is not BodyView.SHOWN:
        raise AuthError(f"{what} is for those who may see bodies", hint="log in as a super user")


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
