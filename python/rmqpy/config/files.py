"""Crash-safe small text files, laid out like RocketMQ's `config/*.json`.

A write flushes the new content to `NAME.tmp`, renames the old file to `NAME.bak` and the new one to `NAME`, and
flushes the directory. A reader takes `NAME`, or `NAME.bak` if that is missing, empty or damaged, so it finds the last
complete content after any crash. It renames a damaged file to `NAME.damaged`. If neither file is whole it changes
nothing and refuses until an operator decides.

A replaced file keeps its mode, owner and group; behind a symbolic link the target is replaced.

Calls block on the disk: use an executor from an event loop. One writer per file.
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


#: The mode of a file with secrets: only its owner reads it.
_SECRET_MODE = 0o600
#: The mode bits that give access to all users of the machine.
_EVERYONE = stat.S_IRWXO


def save(path: Path, text: str, *, is_secret: bool = False) -> None:
    """Replace the content of `path` and flush it to disk. Raises `OSError`.

    A secret file and its backups are readable from the first byte only by the owner, or by the group that the operator
    gave it, never by everyone.
    """
    _replace(path, [text.encode("utf-8")], is_secret=is_secret)


def save_pieces(path: Path, pieces: Iterable[str]) -> None:
    """Replace the content by a large text, one piece in memory at a time. Raises `OSError`.

    A full buffer is written without the interpreter's lock, so that other threads can run.
    """
    _replace(path, (piece.encode("utf-8") for piece in pieces))


def save_bytes(path: Path, content: bytes, *, has_backup: bool = False) -> None:
    """Replace the content by bytes, by default without a backup. Raises `OSError`."""
    _replace(path, [content], has_backup=has_backup)


def _replace(
    path: Path, pieces: Iterable[bytes], *, is_secret: bool = False, has_backup: bool = True
) -> None:
    """Replace `path` by a new file and keep the old one as the backup."""
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
    """Write a flushed file next to `path`, with the access rights of the file it will replace."""
    fresh = _beside(path, ".tmp")
    if is_secret:
        # A file left by an interrupted write may belong to another user.
        fresh.unlink(missing_ok=True)
    with open(fresh, "wb", opener=_owners if is_secret or before is not None else None) as file:
        if before is not None:
            _keep_access(file.fileno(), path, before, is_secret=is_secret)
        file.writelines(pieces)
        file.flush()
        os.fsync(file.fileno())
    return fresh


def _keep_access(fresh: int, path: Path, before: os.stat_result, *, is_secret: bool) -> None:
    """Copy owner, group and mode of the previous file; grant no wider access if that is not permitted."""
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
            # The mode was meant for another group than that of this process.
            mode &= ~stat.S_IRWXG
    os.fchmod(fresh, mode)


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _target(path: Path) -> Path:
    """Return the target if `path` is a symbolic link, else `path`."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def load(path: Path, parse: Callable[[str], T]) -> T | None:
    """Return the parsed content of `path` or of its backup; `None` if neither ever existed.

    Raises `ConfigError` if files exist but none can be parsed: an empty start would lose them.
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
            # An unreadable file may be whole, and newer than its backup.
            raise ConfigError(
                f"{candidate} cannot be read: {error}", hint="make it readable, or move it away"
            ) from error
        except ValueError as error:
            damage[candidate] = str(error)
            continue
        if path in damage:
            log.warning("%s is damaged (%s): moved it to %s and used its backup", path, damage[path], aside)
            # Moved away, or the next `save` would replace the good backup by it.
            path.replace(aside)
        return content
    if aside.exists():
        damage[aside] = "moved away by an earlier start"
    if not damage:
        return None
    found = ", ".join(f"{each} ({reason})" for each, reason in damage.items())
    raise ConfigError(
        f"neither {path} nor its backup can be read: {found}",
        hint=f"restore {path} from a copy, or move away its remains to start without it",
    )


def _parsed(path: Path, parse: Callable[[str], T]) -> T:
    """Raises `FileNotFoundError`, another `OSError`, or `ValueError` for content that is not whole."""
    text = texts.decode(path.read_bytes())
    if not text.strip():
        raise ValueError("the file is empty")
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
