"""Options of a push consumer: a value, for any thread."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rmqpy.client.group.allocation import Allocate
from rmqpy.client.group.offset_store import OffsetStore
from rmqpy.client.group.offsets import StartFrom
from rmqpy.config.arguments import check_types
from rmqpy.config.client import ClientConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class PushOptions:
    """The options of a push consumer. Times are seconds."""

    group: str
    config: ClientConfig
    ordered: bool
    broadcast: bool
    start_from: StartFrom
    workers: int
    batch_size: int
    max_attempts: int | None
    consume_timeout: float
    prefetch_messages: int
    prefetch_bytes: int
    allocate: Allocate
    suspend: float
    instance: str | None
    offset_folder: Path | None
    offset_store: OffsetStore | None

    def __post_init__(self) -> None:
        for name in ("workers", "batch_size", "prefetch_messages", "prefetch_bytes", "max_attempts"):
            value = getattr(self, name)
            check_types(**{name: (value, int | None if name == "max_attempts" else int)})

    @property
    def is_locking(self) -> bool:
        """True if brokers lock its queues. Broadcast members all read every queue, so they need no locks."""
        return self.ordered and not self.broadcast
