"""Small text files that survive a crash at any moment, laid out as RocketMQ lays out its `config/*.json`.

Owns the rule of writing: new content goes to `NAME.tmp` and is flushed, the old file becomes `NAME.bak`, the new
one takes its name, the directory is flushed. A reader takes `NAME`, and `NAME.bak` where that is missing, empty or
unreadable, so that it finds the last complete content whatever moment the crash chose.

Calls block on the disk: from an event loop they go through an executor. One writer per file.
"""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from rmqpy.errors import ConfigError

log = logging.getLogger(__name__)

T = TypeVar("T")


def save(path: Path, text: str) -> None:
    """Replace the content of `path`; it is on the disk when this returns. Raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = _beside(path, ".tmp")
    with open(fresh, "w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    if path.exists():
        path.replace(_beside(path, ".bak"))
    fresh.replace(path)
    _flush_directory(path.parent)


def load(path: Path, parse: Callable[[str], T]) -> T | None:
    """The parsed content of `path` or of its backup; `None` when there is neither.

    Raises `ConfigError` when something is there and none of it can be parsed: to start empty would lose it.
    """
    failure: ValueError | None = None
    for candidate in (path, _beside(path, ".bak")):
        try:
            text = candidate.read_text(encoding="utf-8")
            if text.strip():
                return parse(text)
        except FileNotFoundError:
            continue
        except ValueError as error:
            log.warning("%s cannot be read: %s", candidate, error)
            failure = failure or error
            if candidate == path:
                # Out of the way, or the next `save` would put it in the place of the good backup.
                path.replace(_beside(path, ".damaged"))
    if failure is not None:
        raise ConfigError(
            f"neither {path} nor its backup can be read: {failure}",
            hint="restore it from a copy, or move both away to start without",
        ) from failure
    return None


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _flush_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
