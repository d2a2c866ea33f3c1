"""Compression of bodies that Python sends itself: half messages and replies. The native half does what else is sent."""

import zlib
from typing import Final

#: Bits of a system flag: compressed, with zlib.
_ZLIB: Final = 0x1 | 3 << 8
_LEVEL: Final = 5


def compressed(body: bytes, above: int | None) -> tuple[bytes, int]:
    """A body as it travels, and the bits of the system flag that say so; as it is up to `above` bytes."""
    if above is None or len(body) <= above:
        return body, 0
    return zlib.compress(body, _LEVEL), _ZLIB
