"""Options of a native sender, which reads them by name. A value, for any thread."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from rmqpy.config.arguments import check_types


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderOptions:
    """Options of a native sender. Raises `TypeError` and `ConfigError`."""

    group: str
    #: The default for sends, in seconds.
    send_timeout: float = 3.0
    #: Bodies larger than this many bytes are compressed.
    compress_above: int | None = 4096
    compression: str = "zlib"
    #: Queue count of a topic created by its first message.
    template_queues: int = 4
    max_message_size: int = 4 << 20
    max_in_flight: int = 1024
    max_buffered_bytes: int = 64 << 20
    #: A message stored less safely than requested counts as a failed attempt.
    retry_not_stored: bool = False
    #: Brokers that were slow or failed are skipped for a while if there are others.
    latency_fault_tolerance: bool = False
    #: A send without budget blocks, up to its timeout.
    waits_for_room: bool = False
    #: `Sender.region` is read from replies.
    learns_regions: bool = False
    #: Messages are replies to requests, for topics in no namespace.
    sends_replies: bool = False
    #: Called by `SendFuture.add_done_callback`.
    add_callback: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        kinds = {each.name: each.type for each in fields(self) if each.name != "add_callback"}
        check_types(**{name: (getattr(self, name), kind) for name, kind in kinds.items()})
