"""Home folder of the user, asked for in one place.

A process may have none: a container runs it under a user id without an entry in the passwd file, and `HOME` is not
set. Invariant: a `~` that stands for no folder is an error, never a folder of that name.
"""

from __future__ import annotations

import os
from pathlib import Path

from rmqpy.errors import ConfigError


def find() -> Path | None:
    """The home folder; None where the user has none."""
    home = os.path.expanduser("~")
    return None if home.startswith("~") else Path(home)


def folder(purpose: str) -> Path:
    """The home folder. Raises `ConfigError` naming the `purpose`, such as "the data folder", where there is none."""
    home = find()
    if home is None:
        raise ConfigError(
            f"{purpose} is in the home folder, and the user {os.getuid()} has none",
            hint="set HOME, or name it",
        )
    return home


def expand(path: str) -> str:
    """The path with `~` or `~USER` at its begin replaced. Raises `ConfigError` where that stands for no folder."""
    expanded = os.path.expanduser(path)
    if path.startswith("~") and expanded == path:
        user = path[1:].partition("/")[0]
        reason = f"there is no user {user!r}" if user else f"the user {os.getuid()} has no home folder"
        raise ConfigError(f"{path}: {reason}", hint="set HOME, or give the path in full")
    return expanded
