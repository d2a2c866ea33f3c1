"""Configuration of tiered storage: keys of `broker.conf`. Apache's broker has none of them."""

from __future__ import annotations

import dataclasses
import re
from typing import Final

from rmqpy.config.keys import Settings, key
from rmqpy.errors import ConfigError

#: Schemes of object stores; anything else is the path of a folder.
_URL: Final = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*)://")
SCHEMES: Final = ("s3", "gs", "az", "https", "http", "file")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TieredConfig(Settings):
    """Files of the commit log that are kept elsewhere after they leave the disk."""

    storage: str = key(
        "tieredStorage",
        "",
        "Folder, or URL of an object store such as s3://bucket/prefix, to which full files of the commit log are "
        "copied, and from which they are read after they expired here; empty: none. See tiered-storage.md. Apache's "
        "broker has no such key.",
    )
    reserved_hours: int = key(
        "tieredStorageReservedTime",
        0,
        "Time a file is kept there after its newest message was stored; 0: for ever. Apache's broker has no such key.",
        unit="hours",
        low=0,
        high=10_000_000,
    )
    cache_bytes: int = key(
        "tieredStorageCacheBytes",
        64 << 20,
        "Memory for parts of these files that were read. Apache's broker has no such key.",
        unit="bytes",
        low=16 << 20,
        high=16 << 30,
    )
    upload_rate: int = key(
        "tieredStorageUploadRate",
        100 << 20,
        "Bytes a second of the copies, so that they leave disk and network to messages. Apache's broker has no such "
        "key.",
        unit="bytes",
        low=1 << 10,
        high=100 << 30,
    )

    @property
    def is_on(self) -> bool:
        """Whether files are kept elsewhere."""
        return bool(self.storage)

    @property
    def is_url(self) -> bool:
        """Whether the storage is an object store, and not a folder."""
        return _URL.match(self.storage) is not None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (url := _URL.match(self.storage)) and url[1].lower() not in SCHEMES:
            known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
            raise ConfigError(f"tieredStorage={self.storage}: {url[1]} is not one of {known}, or a folder")
