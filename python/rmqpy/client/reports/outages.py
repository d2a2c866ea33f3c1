"""Outages in the log: an unreachable server is reported once a minute, however often a request is retried.

Owns the time of each server's last report. A consumer retries each queue every few seconds while its broker is
unreachable, and every attempt fails in the same way: the first failure is a warning, the others are counted and logged
at DEBUG. Any thread.
"""

from __future__ import annotations

import logging
from time import monotonic
from typing import Final

from rmqpy import errors

#: The minimum time between warnings about one server.
REPORT_S: Final = 60.0
#: The most servers that are remembered.
_SERVERS_MAX: Final = 1_024

#: The time of the last report by server, and the failures since.
_reported: dict[str, tuple[float, int]] = {}


def warn(log: logging.Logger, error: errors.RocketMQError, text: str, *facts: object) -> None:
    """Log a failure that is retried, with `error` after its text."""
    if isinstance(error, errors.NameServerUnreachable):
        warn_of(log, "name servers", f"{text}: %s", *facts, error)
    elif isinstance(error, errors.ConnectError | errors.RequestTimeout):
        warn_of(log, error.broker or str(error), f"{text}: %s", *facts, error)
    else:
        log.warning(f"{text}: %s", *facts, error)


def warn_of(log: logging.Logger, server: str, text: str, *facts: object) -> None:
    """Log a failure of this server that is retried."""
    now = monotonic()
    at, count = _reported.get(server, (-REPORT_S, 0))
    if now < at + REPORT_S:
        _reported[server] = at, count + 1
        log.debug(text, *facts)
        return
    if len(_reported) >= _SERVERS_MAX:
        _reported.clear()
    _reported[server] = now, 0
    left_out = f"; {count} failures of {server} since the last report" if count else ""
    log.warning(f"{text}%s", *facts, left_out)
