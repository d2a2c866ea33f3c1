"""Errors on the command line: one line of text, and an exit code that a script can branch on."""

from collections.abc import Mapping
from typing import Final

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


#: What errors call a setting of the client → the option of a command that sets it.
OPTION_OF: Final[Mapping[str, str]] = {
    "pass namesrv='host:9876' or set NAMESRV_ADDR": "give -n HOST:9876, or set NAMESRV_ADDR",
    "give it as rmqpy.sql(": "give it as --sql (",
    "TLS(ca=…)": "--tls-ca FILE",
    "(ca, tls.client.trustCertPath": "(--tls-ca, tls.client.trustCertPath",
    "(server_name)": "(--tls-server-name)",
    "give it one (cert and key)": "give it one (--tls-cert and --tls-key)",
    "give cert, too": "give --tls-cert, too",
    "give this client tls": "give --tls",
    "give the client an access key and its secret key": "give --access-key and --secret-key",
    "or with force": "or with --force",
}


def error_line(error: Exception) -> str:
    """The error in one line, with its hint, which names options where others would name a client's arguments."""
    text = " ".join(str(error).split())
    for argument, option in OPTION_OF.items():
        text = text.replace(argument, option)
    return printable_text(text) or type(error).__name__
