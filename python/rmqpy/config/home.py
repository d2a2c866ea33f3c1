"""Home folder of the user: the only lookup of it.

A process may have none: in a container the user id may lack a passwd entry, with `HOME` not set. Invariant: a `~` that
cannot be expanded is an error, never a folder of that name.
"""

from __future__ import annotations

import os
from pathlib import Path

from rmqpy.errors import ConfigError


def find() -> Path | None:
    """Return the home folder, or None if the user has none."""
    home = os.path.expanduser("~")
    return None if home.startswith("~") else Path(home)


def folder(purpose: str) -> Path:
    """Return the home folder. Raises `ConfigError` naming the `purpose`, such as "the data folder", if there is
    none."""
    home = find()
    if home is None:
        raise ConfigError(
            f"{purpose} defaults to the home folder, and user {os.getuid()} has none",
            hint="set HOME, or name the folder",
        )
    return home


def expand(path: str) -> str:
    """Expand `~` or `~USER` at the beginning of a path. Raises `ConfigError` if the folder does not exist."""
    expanded = os.path.expanduser(path)
    if path.startswith("~") and expanded == path:
        user = path[1:].partition("/")[0]
        reason = f"unknown user {user!r}" if user else f"user {os.getuid()} has no home folder"
        raise ConfigError(f"{path}: {reason}", hint="set HOME, or give the path in full")
    return expanded
