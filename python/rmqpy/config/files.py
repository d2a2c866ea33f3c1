"""Small text files that survive a crash at any moment, laid out as RocketMQ lays out its `config/*.json`.

Owns the rule of writing: new content goes to `NAME.tmp` and is flushed, the old file becomes `NAME.bak`, the new
one takes its name, the directory is flushed. A reader takes `NAME`, and `NAME.bak` where that is missing, empty or
damaged, so that it finds the last complete content whatever moment the crash chose. It then puts the damaged one aside
as `NAME.damaged`. Where nothing whole is left it touches nothing and refuses, each time, until somebody has decided.

A replaced file keeps its mode, its owner and its group; a symbolic link stays, and the file it points to is replaced.

Calls block on the disk: from an event loop they go through an executor. One writer per file.
"""

import logging
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from rmqpy.config import text as texts
from rmqpy.errors import ConfigError

log = logging.getLogger(__name__)

T = TypeVar("T")


#: Of a file with secrets: its owner alone reads it.
_SECRET_MODE = 0o600
#: The bits of a mode that give access to every user of the machine.
_EVERYONE = stat.S_IRWXO


def save(path: Path, text: str, *, is_secret: bool = False) -> None:
    """Replace the content of `path`; it is on the disk when this returns. Raises `OSError`.

    A secret file, and what is kept of earlier ones, is readable by its owner alone, from its first byte on, or by the
    group that the operator gave it; never by everyone.
    """
    _replace(path, [text.encode("utf-8")], is_secret=is_secret)


def save_pieces(path: Path, pieces: Iterable[str]) -> None:
    """The same of a large text, which is in memory one piece at a time. Raises `OSError`.

    Whenever a buffer is full it is written without the interpreter's lock, so that other threads get their turn.
    """
    _replace(path, (piece.encode("utf-8") for piece in pieces))


def save_bytes(path: Path, content: bytes, *, has_backup: bool = False) -> None:
    """The same of bytes; a file that is not text has no backup. Raises `OSError`."""
    _replace(path, [content], has_backup=has_backup)


def _replace(
    path: Path, pieces: Iterable[bytes], *, is_secret: bool = False, has_backup: bool = True
) -> None:
    """A new file in the place of `path`, which becomes the backup."""
    path = _target(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    before = _status(path)
    fresh = _written(path, pieces, before, is_secret=is_secret)
    if before is not None and has_backup:
        if is_secret and before.st_mode & _EVERYONE:
            path.chmod(_SECRET_MODE)
        path.replace(_beside(path, ".bak"))
    fresh.replace(path)
    _flush_directory(path.parent)


def _written(path: Path, pieces: Iterable[bytes], before: os.stat_result | None, *, is_secret: bool) -> Path:
    """A file beside `path` with these pieces, on the disk, and as accessible as the one it will replace."""
    fresh = _beside(path, ".tmp")
    if is_secret:
        # One that an unfinished write has left may be anybody's.
        fresh.unlink(missing_ok=True)
    with open(fresh, "wb", opener=_owners if is_secret or before is not None else None) as file:
        if before is not None:
            _keep_access(file.fileno(), path, before, is_secret=is_secret)
        file.writelines(pieces)
        file.flush()
        os.fsync(file.fileno())
    return fresh


def _keep_access(fresh: int, path: Path, before: os.stat_result, *, is_secret: bool) -> None:
    """Give a new file the owner, group and mode of the one before it; no wider access where that is not allowed."""
    mode = stat.S_IMODE(before.st_mode)
    if is_secret and mode & _EVERYONE:
        mode = _SECRET_MODE
    made = os.fstat(fresh)
    if (made.st_uid, made.st_gid) != (before.st_uid, before.st_gid):
        try:
            os.fchown(fresh, before.st_uid, before.st_gid)
        except PermissionError:
            log.warning(
                "%s had owner %d and group %d, which this process may not give it; run the server as that user",
                path,
                before.st_uid,
                before.st_gid,
            )
            # The group of this process is not the one that the mode was meant for.
            mode &= ~stat.S_IRWXG
    os.fchmod(fresh, mode)


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _target(path: Path) -> Path:
    """The file itself where `path` is a symbolic link to it."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def load(path: Path, parse: Callable[[str], T]) -> T | None:
    """The parsed content of `path` or of its backup; `None` when there has never been any.

    Raises `ConfigError` when something is there and none of it can be parsed: to start empty would lose it.
    """
    path = _target(path)
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
    text = texts.decode(path.read_bytes())
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
