"""Requests that this broker knows and does not serve, each with the reason its sender is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rmqpy.protocol.codes import RequestCode

_REASONS: Final[Mapping[str, frozenset[int]]] = {
    "transactions, recall, request and reply are not served yet": frozenset(
        {37, 39, 323, 324, 325, 326, 370}
    ),
    "POP consumption is not served yet": frozenset({400, 401, 402, *range(200_050, 200_057), 200_151}),
    "lite topics are not served yet": frozenset(range(200_070, 200_080)),
    "replication is not served yet": frozenset({43, 45, 905, 906, 907, 908, 1007, 1008}),
    "static topics are not served yet": frozenset({513}),
    "access control is not served yet": frozenset({*range(50, 55), *range(3_001, 3_011)}),
    "timers are not served yet": frozenset({60, 61, 5_001}),
    "cold data is not limited, and the page cache is the system's": frozenset(range(2_001, 2_005)),
    "queues and metadata are files, not a RocksDB": frozenset({354, 355}),
    "it is a request to a name server": frozenset(
        {*range(100, 107), 205, 206, 216, 217, 219, 224, 304, 311, 312, 313, 318, 319, 322, 327, 901, 904}
    ),
    "there is no controller": frozenset({*range(1_001, 1_007), *range(1_009, 1_019)}),
    "this process is one broker, not a container of brokers": frozenset({902, 903}),
    "it is a request of a broker to a client": frozenset({40, 220, 221}),
    "no tool or client sends it": frozenset({13, 22, 23, 27, 47, *range(209, 215), 301, 302}),
}

#: Code to reason.
UNSERVED: Final[Mapping[RequestCode, str]] = {
    RequestCode(code): reason for reason, codes in _REASONS.items() for code in codes
}
