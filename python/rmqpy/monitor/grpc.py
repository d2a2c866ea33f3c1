"""Metrics of 5.x clients' calls, the same for a broker and a proxy."""

from collections.abc import Iterator, Sequence

from rmqpy.monitor.exposition import Family


def families(calls: Sequence[tuple[str, int, int]]) -> Iterator[Family]:
    """From the calls and refused calls of each method, as a native server counts them."""
    if not calls:
        return
    yield Family(
        "rmqpy_grpc_calls_total",
        "counter",
        "Calls of 5.x clients.",
        [({"method": method}, count) for method, count, _ in calls],
    )
    yield Family(
        "rmqpy_grpc_refused_calls_total",
        "counter",
        "Calls of 5.x clients that were answered with an error.",
        [({"method": method}, refused) for method, _, refused in calls],
    )
