"""Small text files that survive a crash at any moment, laid out as RocketMQ lays out its `config/*.json`.

Owns the rule of writing: new content goes to `NAME.tmp` and is flushed, the old file becomes `NAME.bak`, the new
one takes its name, the directory is flushed. A reader takes `NAME`, and `NAME.bak` where that is missing, empty or
damaged, so that it finds the last complete content whatever moment the crash chose. It then puts the damaged one aside
as `NAME.damaged`. Where nothing whole is left it touches nothing and refuses, each time, until somebody has decided.

Calls block on the disk: from an event loop they go through an executor. One writer per file.
"""

import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from rmqpy.errors import ConfigError

log = logging.getLogger(__name__)

T = TypeVar("T")


#: Of a file with secrets: its owner alone reads it.
_SECRET_MODE = 0o600


def save(path: Path, text: str, *, is_secret: bool = False) -> None:
    """Replace the content of `path`; it is on the disk when this returns. Raises `OSError`.

    A secret file, and what is kept of earlier ones, is readable by its owner alone, from its first byte on.
    """
    _replace(path, [text.encode("utf-8")], is_secret=is_secret)


def save_pieces(path: Path, pieces: Iterable[str]) -> None:
    """The same of a large text, which is in memory one piece at a time. Raises `OSError`.

    Whenever a buffer is full it is written without the interpreter's lock, so that other threads get their turn.
    """
    _replace(path, (piece.encode("utf-8") for piece in pieces))


def save_bytes(path: Path, content: bytes) -> None:
    """The same of a file that is not text and has no backup. Raises `OSError`."""
    _written(path, [content]).replace(path)
    _flush_directory(path.parent)


def _replace(path: Path, pieces: Iterable[bytes], *, is_secret: bool = False) -> None:
    """A new file in the place of `path`, which becomes the backup."""
    fresh = _written(path, pieces, is_secret=is_secret)
    if path.exists():
        path.replace(_beside(path, ".bak"))
    fresh.replace(path)
    _flush_directory(path.parent)


def _written(path: Path, pieces: Iterable[bytes], *, is_secret: bool = False) -> Path:
    """A file beside `path` with these pieces, on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = _beside(path, ".tmp")
    if is_secret:
        # One that an unfinished write has left may be anybody's.
        fresh.unlink(missing_ok=True)
    with open(fresh, "wb", opener=_owners if is_secret else None) as file:
        file.writelines(pieces)
        file.flush()
        os.fsync(file.fileno())
    return fresh


def load(path: Path, parse: Callable[[str], T]) -> T | None:
    """The parsed content of `path` or of its backup; `None` when there has never been any.

    Raises `ConfigError` when something is there and none of it can be parsed: to start empty would lose it.
    """
    backup, aside = _beside(path, ".bak"), _beside(path, ".damaged")
    damage: dict[Path, str] = {}
    for candidate in (path, backup):
        try:
            content = _parsed(candidate, parse)
        except FileNotFoundError:
            continue
        except OSError as error:
            # It may be whole, and newer than its backup.
            raise ConfigError(
                f"{candidate} cannot be read: {error}", hint="make it readable, or move it away"
            ) from error
        except ValueError as error:
            damage[candidate] = str(error)
            continue
        if path in damage:
            log.warning(
                "%s is damaged (%s) and put aside as %s; its backup is used", path, damage[path], aside
            )
            # Out of the way, or the next `save` would put it in the place of the good backup.
            path.replace(aside)
        return content
    if aside.exists():
        damage[aside] = "an earlier start has put it aside"
    if not damage:
        return None
    found = ", ".join(f"{each} ({reason})" for each, reason in damage.items())
    raise ConfigError(
        f"neither {path} nor its backup can be read: {found}",
        hint=f"restore {path} from a copy, or move away what is left of it to start without",
    )


def _parsed(path: Path, parse: Callable[[str], T]) -> T:
    """Raises `FileNotFoundError`, any other `OSError`, or `ValueError` for what is not whole."""
    text = path.read_text(encoding="utf-8")
    if not text.strip():
        raise ValueError("it is empty")
    return parse(text)


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _owners(path: str, flags: int) -> int:
    return os.open(path, flags, _SECRET_MODE)


def _flush_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
