"""Errors on the command line: one line of text, and an exit code that a script can branch on."""

from rmqpy.cli.escapes import printable_text
from rmqpy.errors import (
    AuthError,
    ConfigError,
    ConnectError,
    GroupNotFound,
    MessageNotFound,
    NameServerUnreachable,
    RequestTimeout,
    RocketMQError,
    TopicNotFound,
)

FAILED, USAGE, UNREACHABLE, NOT_FOUND, DENIED = 1, 2, 3, 4, 5

#: First match wins. Whatever is not listed and is an error on purpose is `FAILED`.
_CODES: tuple[tuple[type[Exception], int], ...] = (
    (ConfigError, USAGE),
    (NameServerUnreachable, UNREACHABLE),
    (ConnectError, UNREACHABLE),
    (RequestTimeout, UNREACHABLE),
    (TopicNotFound, NOT_FOUND),
    (GroupNotFound, NOT_FOUND),
    (MessageNotFound, NOT_FOUND),
    (AuthError, DENIED),
    (RocketMQError, FAILED),
    (OSError, FAILED),
)


def exit_code(error: Exception) -> int | None:
    """The exit code of an expected error; None for a fault of our own, which deserves its traceback."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            cause = error.__cause__
            # The cause is more precise than "not sent": a send that met no broker at all is a failure to connect.
            if code == FAILED and isinstance(cause, RocketMQError):
                return exit_code(cause)
            return code
    return None


def error_line(error: Exception) -> str:
    """The error in one line, with its hint."""
    return printable_text(" ".join(str(error).split())) or type(error).__name__
