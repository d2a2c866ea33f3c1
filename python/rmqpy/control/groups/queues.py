"""Interface of the queues of a broker: their offsets, and the times of their messages."""

from typing import Protocol


class Queues(Protocol):
    """Queues on the disk, or also those parts that are only in the tiered storage. Calls may block."""

    def min_offset(self, topic: str, queue_id: int) -> int:
        """See `Store.min_offset`."""

    def max_offset(self, topic: str, queue_id: int) -> int:
        """See `Store.max_offset`."""

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, *, upper: bool = False) -> int:
        """See `Store.offset_by_time`."""

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """See `Store.store_time`."""

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """See `Store.earliest_store_time`."""
