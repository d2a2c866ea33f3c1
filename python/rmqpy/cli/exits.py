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

#: The first match wins. Other expected errors are `FAILED`.
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
    """Return the exit code of an expected error; None for a defect, which deserves its traceback."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            cause = error.__cause__
            # The cause is more precise than "not sent": a send that reached no broker is a failure to connect.
            if code == FAILED and isinstance(cause, RocketMQError):
                return exit_code(cause)
            return code
    return None


#: The name of a client setting in errors → the option of a command that sets it.
OPTION_OF: Final[Mapping[str, str]] = {
    "pass namesrv='host:9876' or set NAMESRV_ADDR": "give -n HOST:9876, or set NAMESRV_ADDR",
    "give it as rmqpy.sql(": "give it as --sql (",
    "TLS(ca=…)": "--tls-ca FILE",
    "(ca, tls.client.trustCertPath": "(--tls-ca, tls.client.trustCertPath",
    "(server_name)": "(--tls-server-name)",
    "give it one (cert and key)": "give it one (--tls-cert and --tls-key)",
    "give cert, too": "give --tls-cert, too",
    "enable TLS in this client": "give --tls",
    "give the client an access key and its secret key": "give --access-key and --secret-key",
    "or with force": "or with --force",
}


def error_line(error: Exception) -> str:
    """Return the error and its hint in one line, with options instead of the client's arguments."""
    text = " ".join(str(error).split())
    for argument, option in OPTION_OF.items():
        text = text.replace(argument, option)
    return printable_text(text) or type(error).__name__
