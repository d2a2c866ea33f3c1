"""Lease: the time for which a master may acknowledge without another sign of the controllers.

Pure decisions about one lease; times are seconds of a monotonic clock. Invariants: a lease is counted from the moment
the heartbeat was sent, so the controller's end is never before this one; a lease is extended, never shortened, except
that a withdrawn one ends immediately; once a lease was granted in this process, acknowledging needs one.
"""

from __future__ import annotations


class Lease:
    """The lease of this broker."""

    def __init__(self) -> None:
        #: True once a controller has granted or refused a lease in this process.
        self.is_needed = False
        #: The end; in the past without a lease.
        self.until = 0.0
        #: Milliseconds of the last granted lease.
        self.millis: int | None = None
        self._released_at = 0.0

    @property
    def end(self) -> float | None:
        """The end of the lease; `None` if none is needed."""
        return self.until if self.is_needed else None

    def granted(self, sent_at: float, millis: int) -> bool:
        """Take the answer to a heartbeat that was sent at `sent_at`; return whether the end has changed."""
        if sent_at <= self._released_at:
            return False
        self.is_needed, self.millis = True, millis
        until = sent_at + millis / 1_000
        if until <= self.until:
            return False
        self.until = until
        return True

    def withdrawn(self) -> None:
        """End the lease, because an election waits for it."""
        self.is_needed, self.until = True, 0.0

    def released(self, now: float) -> None:
        """End the lease by this broker. Answers to heartbeats that were sent until `now` do not renew it."""
        self.until, self._released_at = 0.0, now
