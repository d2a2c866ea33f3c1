"""Findings about a server as a whole: closed by an operator, gone, or unable to listen."""

import errno
import os
from datetime import UTC, datetime

from rmqpy.findings.finding import Finding


def not_writable(name: str, permission: int) -> Finding:
    """A broker that an operator closed for messages, or for consumers.

    >>> print(not_writable("broker-a", 4))
    it refuses sends: brokerPermission=4; if this is not intended: rmqpy config set broker-a brokerPermission=6
    """
    verbs = [verb for bit, verb in ((2, "sends"), (4, "reads")) if not permission & bit]
    return Finding(
        f"it refuses {' and '.join(verbs)}: brokerPermission={permission}",
        f"if this is not intended: rmqpy config set {name} brokerPermission=6",
    )


def gone(address: str, since: datetime, *, is_stopped: bool) -> Finding:
    """A broker that left the name servers and did not come back.

    >>> print(gone("10.0.0.7:10911", datetime(2026, 1, 31, 12, 3, tzinfo=UTC), is_stopped=False).found)
    gone since 2026-01-31 12:03 UTC, last at 10.0.0.7:10911
    """
    verb = "stopped at" if is_stopped else "gone since"
    return Finding(
        f"{verb} {since.astimezone(UTC):%Y-%m-%d %H:%M} UTC, last at {address}",
        "start it; if it was removed permanently, name servers forget it after a day, or with their restart",
    )


def cannot_listen(key: str, port: int, address: str, number: int | None, text: str = "") -> Finding:
    """A server that cannot listen where a setting says, with the reason of an `errno` or another error's text.

    >>> print(cannot_listen("httpPort", 8082, "127.0.0.1:8082", errno.EADDRINUSE))
    httpPort=8082: cannot listen on 127.0.0.1:8082: it is in use; choose another port, or find its user: ss -ltnp \
'sport = :8082'
    """
    bound = address.rpartition(":")[2]
    reason, advice = {
        errno.EADDRINUSE: (
            "it is in use",
            f"choose another port, or find its user: ss -ltnp 'sport = :{bound}'",
        ),
        errno.EACCES: ("this user may not use that port", "choose a port above 1023"),
        errno.EADDRNOTAVAIL: ("this machine has no such address", "correct bindAddress"),
    }.get(number or 0, (text or os.strerror(number or 0), f"correct {key} or bindAddress"))
    return Finding(f"{key}={port}: cannot listen on {address}: {reason}", advice)
