"""Manifest of a backup: `backup.json`, its broker, its part of the log, and the checksum of each file.

Invariant: the manifest says `complete` only while the files are those that it lists: a run first marks it incomplete,
and completes it after everything is on disk. One run at a time: it holds the lock of the folder. Functions block on the
disk.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from rmqpy.config import files
from rmqpy.config.folders import STORE
from rmqpy.errors import ConfigError

MANIFEST: Final = "backup.json"
#: Users and rules, without secrets.
ACCESS: Final = "access.json"
_LOCK: Final = "backup.lock"
_KIND: Final = "rmqpy backup"
_FORMAT: Final = 1
#: The largest manifest that is read: some million files.
_BYTES_MAX: Final = 1 << 30

COMPLETE: Final = "complete"
INCOMPLETE: Final = "incomplete"


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a complete backup. `path` is relative to the backup."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The content of a backup. Positions are bytes of the log."""

    broker: str
    cluster: str
    #: The address of the master that was read.
    address: str
    #: The version of rmqpy that wrote it.
    version: str
    state: Literal["complete", "incomplete"]
    #: The begin and end of the last run, in ISO 8601.
    started_at: str
    ended_at: str | None = None
    #: The part of the log in the backup, and the end of the master's log when the run began.
    log_begin: int = 0
    log_end: int = 0
    master_end: int = 0
    #: Settings of the broker that its files depend on.
    settings: Mapping[str, str] = field(default_factory=dict)
    #: The number of users and rules in `access.json`; the reason if they could not be read.
    users: int = 0
    rules: int = 0
    access_fault: str | None = None
    files: tuple[FileEntry, ...] = ()

    @property
    def is_complete(self) -> bool:
        return self.state == COMPLETE

    def begun(self, **changes: Any) -> Manifest:
        """Return the manifest of a run that begins now."""
        return replace(self, state=INCOMPLETE, ended_at=None, **changes)


def store_of(backup: Path) -> Path:
    """The root of the store in a backup, which is laid out like the data folder of a standalone server."""
    return backup / STORE


def load(backup: Path) -> Manifest:
    """Read the manifest. Raises `ConfigError` if the folder is not a backup, or its manifest is damaged."""
    path = backup / MANIFEST
    try:
        if path.stat().st_size > _BYTES_MAX:
            raise ValueError(f"it is larger than {_BYTES_MAX >> 20} MiB")
        return _read(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise ConfigError(f"{backup} is not a backup: it has no {MANIFEST}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path} cannot be read: {error}", hint="use another backup, or back up into a new folder"
        ) from None


def save(backup: Path, manifest: Manifest) -> None:
    """Replace the manifest durably. Raises `OSError`."""
    tree = {"kind": _KIND, "format": _FORMAT, **asdict(manifest)}
    text = json.dumps(tree, indent=1, ensure_ascii=False)
    files.save_bytes(backup / MANIFEST, f"{text}\n".encode())


def _read(tree: Any) -> Manifest:
    if not isinstance(tree, dict) or tree.pop("kind", None) != _KIND:
        raise ValueError("it is not the manifest of a backup")
    if (number := tree.pop("format", None)) != _FORMAT:
        raise ValueError(f"its format is {number!r}, and this release reads {_FORMAT}")
    if tree.get("state") not in (COMPLETE, INCOMPLETE):
        raise ValueError("its state is neither complete nor incomplete")
    listed = tuple(FileEntry(**each) for each in tree.pop("files"))
    for each in listed:
        if not (isinstance(each.path, str) and isinstance(each.sha256, str) and isinstance(each.size, int)):
            raise ValueError(f"it lists {each.path!r} without size and checksum")
        if Path(each.path).is_absolute() or ".." in Path(each.path).parts:
            raise ValueError(f"it lists {each.path!r}, which is not below the backup")
    found = Manifest(**tree, files=listed)
    if not (isinstance(found.broker, str) and isinstance(found.cluster, str)):
        raise ValueError("it does not name its broker and cluster")
    if not (isinstance(found.log_begin, int) and isinstance(found.log_end, int)):
        raise ValueError("its positions are not numbers")
    if not (
        isinstance(found.settings, dict) and all(isinstance(each, str) for each in found.settings.values())
    ):
        raise ValueError("its settings are not text")
    return found


@contextmanager
def locked(backup: Path) -> Iterator[None]:
    """Create the folder if it is missing, and hold its lock. Raises `ConfigError` while another run holds it."""
    # Like a store, the folder is readable by its owner alone.
    backup.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (backup / _LOCK).open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"another command is working on {backup}", hint="wait until it ends") from None
        yield


def is_unused(folder: Path) -> bool:
    """Whether a folder is missing or empty; the lock of a failed run does not count."""
    try:
        return not set(os.listdir(folder)) - {_LOCK}
    except FileNotFoundError:
        return True
