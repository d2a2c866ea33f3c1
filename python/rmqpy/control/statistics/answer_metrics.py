"""Metrics of replies: latency by request code and outcome. Any thread; reads the data plane."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from itertools import chain
from typing import Final

from rmqpy._native import LATENCY_BOUNDS_US, Server
from rmqpy.monitor.exposition import Family, histogram
from rmqpy.protocol.codes import RequestCode, ResponseCode

#: Apache's bounds, which start at one millisecond.
_LATENCY_BOUNDS_MS: Final = tuple(bound / 1_000 for bound in LATENCY_BOUNDS_US)


def families(server: Server) -> Iterator[Family]:
    """Return the current metrics."""
    yield Family(
        "rocketmq_rpc_latency",
        "histogram",
        "Time from a request to its reply, in ms.",
        chain.from_iterable(
            histogram(
                {
                    "protocol_type": "remoting",
                    "request_code": _name(RequestCode, kind.code),
                    "response_code": _name(ResponseCode, kind.answer),
                    "is_long_polling": "true" if kind.is_long_polling else "false",
                    "result": _result(kind.answer),
                },
                _LATENCY_BOUNDS_MS,
                kind.counts,
                kind.sum_us / 1_000,
            )
            for kind in server.latencies()
        ),
    )


def _result(answer: int) -> str:
    """Return the outcome of a request, in Apache's words."""
    return "process_request_failed" if answer == ResponseCode.SYSTEM_ERROR else "success"


def _name(codes: type[IntEnum], code: int) -> str:
    """Return the name of a code, or its number if it is unknown."""
    try:
        return codes(code).name
    except ValueError:
        return str(code)
