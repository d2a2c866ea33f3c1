"""Metrics of a server's connections, the same for each role."""

from collections.abc import Iterator, Mapping

from rmqpy.monitor.exposition import Family, plain

_REFUSED = {
    "all": "refused_connections",
    "address": "refused_of_address",
    "descriptors": "refused_for_descriptors",
}
_CLOSED = {"idle": "closed_idle", "slow": "closed_slow", "broken": "closed_broken"}


def families(counters: Mapping[str, int]) -> Iterator[Family]:
    """From the statistics of a native server."""
    yield plain("rmqpy_connections", "gauge", "Open connections.", counters.get("connections", 0))
    yield Family(
        "rmqpy_connections_refused_total",
        "counter",
        "New connections closed, by the limit that was reached.",
        [({"limit": limit}, counters.get(counter, 0)) for limit, counter in _REFUSED.items()],
    )
    yield Family(
        "rmqpy_connections_closed_total",
        "counter",
        "Connections closed by the server, by reason.",
        [({"reason": reason}, counters.get(counter, 0)) for reason, counter in _CLOSED.items()],
    )
    yield plain(
        "rmqpy_frames_refused_total",
        "counter",
        "Large frames refused for lack of memory.",
        counters.get("refused_frames", 0),
    )
    yield plain(
        "rmqpy_buffer_bytes",
        "gauge",
        "Memory of the buffers of all connections.",
        counters.get("buffer_bytes", 0),
    )
