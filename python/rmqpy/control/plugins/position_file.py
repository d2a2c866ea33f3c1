"""Position of a follower in the log: a small file that is replaced atomically. Blocks; the follower's thread."""

from __future__ import annotations

import json
from pathlib import Path

from rmqpy.config import files


class PositionFile:
    """The file of one follower."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> int | None:
        """Return the position, or `None` before the first start. Raises `ConfigError` naming a damaged file."""
        return files.load(self._path, _parse)

    def save(self, position: int) -> None:
        """Replace the position, durably. Raises `OSError`."""
        files.save(self._path, json.dumps({"position": position}) + "\n")


def _parse(text: str) -> int:
    match json.loads(text):
        case {"position": int(position)} if position >= 0:
            return position
    raise ValueError('expected {"position": BYTES}')
