"""Streams under Spark's admission control: Spark passes the start and the limit of each micro-batch (Spark 4.2)."""

from typing import Any

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from pyspark_rocketmq.stream import TopicStream


class AdmittedStream(TopicStream, SupportsTriggerAvailableNow):
    """A stream that supports `Trigger.AvailableNow`."""

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Let the run end where the topics end now."""
        self.fix_end()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return one limit for all: `latestOffset` applies the limits of the options together."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next micro-batch. `Trigger.Once` asks for everything, whatever the options say."""
        return self.next_offset(start, is_limited=not isinstance(limit, ReadAllAvailable))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the ends of the topics that the last `latestOffset` found."""
        return self.known_ends()
