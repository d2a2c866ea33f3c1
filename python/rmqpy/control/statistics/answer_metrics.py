"""Metrics of answers: how long requests took, by code and outcome. Any thread; it asks the data plane."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from itertools import chain
from typing import Final

from rmqpy._native import LATENCY_BOUNDS_US, Server
from rmqpy.monitor.exposition import Family, histogram
from rmqpy.protocol.codes import RequestCode, ResponseCode

#: As the original measures; below a millisecond it has no buckets.
_LATENCY_BOUNDS_MS: Final = tuple(bound / 1_000 for bound in LATENCY_BOUNDS_US)


def families(server: Server) -> Iterator[Family]:
    """As they are."""
    yield Family(
        "rocketmq_rpc_latency",
        "histogram",
        "How long requests took to be answered, in ms.",
        chain.from_iterable(
            histogram(
                {
                    "protocol_type": "remoting",
                    "request_code": _name(RequestCode, code),
                    "response_code": _name(ResponseCode, answer),
                    "is_long_polling": "true" if is_long_polling else "false",
                    "result": _result(answer),
                },
                _LATENCY_BOUNDS_MS,
                counts,
                sum_us / 1_000,
            )
            for code, answer, is_long_polling, counts, sum_us, _ in server.latencies()
        ),
    )


def _result(answer: int) -> str:
    """What became of a request, in the original's words."""
    return "process_request_failed" if answer == ResponseCode.SYSTEM_ERROR else "success"


def _name(codes: type[IntEnum], code: int) -> str:
    """The name of a code; the number of one that a peer has made up."""
    try:
        return codes(code).name
    except ValueError:
        return str(code)
