"""Streams that pace themselves: Spark 4.0 and 4.1 pass neither the start nor the limit of a micro-batch.

Invariant: the position is the last offset that Spark was given. Spark logs every offset that differs from the previous
one before it plans the micro-batch. After a restart it first calls `partitions` with the last logged offset as start
and end. So a restart continues from the checkpoint, as it does with admission control.
"""

from typing import Any

from pyspark.sql.datasource import InputPartition

from pyspark_rocketmq.offsets import Position
from pyspark_rocketmq.stream import TopicStream


class PacedStream(TopicStream):
    """A stream that applies its limits itself. Spark cannot announce `Trigger.AvailableNow` to it, the option can."""

    _position: dict[str, Any] | None = None

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
        """Return the end of the next micro-batch, with the ends of the topics where messages remain."""
        start = self.initialOffset() if self._position is None else self._position
        end = self.next_offset(start, is_limited=True)
        if end is not start:
            position = Position.of_json(end)
            if position.queues != self._ends:
                end = position._replace(ends=self._ends).to_json()
        self._position = end
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of one micro-batch, or take the position after a restart."""
        if self._position is None:
            self._position = end
        return super().partitions(start, end)
