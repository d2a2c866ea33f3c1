"""Users: `users.json`, readable only by its owner, because signatures are checked with the plain secrets.

Owns names and secrets of users. Invariant: a user is in the file before it may do anything, and is removed from it
before the removal is acknowledged. Threads: the event loop's; the file is written in a worker.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from rmqpy.clock import Clock
from rmqpy.control.tables.file import TableFile
from rmqpy.control.tables.named import NamedTable
from rmqpy.errors import DecodeError
from rmqpy.protocol.requests.access import UserInfo, UserStatus, UserTable, UserType
from rmqpy.protocol.topics import DataVersion

#: The most users of one broker.
USERS_MAX: Final = 10_000
_NAME_CHARS_MAX: Final = 255
_SECRET_CHARS_MAX: Final = 1_024


def name_fault(name: str) -> str | None:
    """Return the error in a user name, or `None`."""
    if not name.strip():
        return "The username is blank."
    if len(name) > _NAME_CHARS_MAX or not name.isprintable() or name != name.strip():
        return (
            f"The username has at most {_NAME_CHARS_MAX} characters, all printable, and no blanks around it."
        )
    return None


def fault(user: UserInfo) -> str | None:
    """Return the error in a user's stored form, or `None`."""
    if reason := name_fault(user.username or ""):
        return reason
    if not (user.password or "").strip():
        return "The password is blank."
    if len(user.password or "") > _SECRET_CHARS_MAX:
        return f"The password has at most {_SECRET_CHARS_MAX} characters."
    if user.user_type not in UserType.__members__:
        return f"The user type is {' or '.join(UserType.__members__)}."
    if user.user_status not in UserStatus.__members__:
        return f"The user status is {' or '.join(UserStatus.__members__)}."
    return None


def is_super(user: UserInfo) -> bool:
    """Return whether the user has all permissions."""
    return user.user_type == UserType.Super.name


def is_enabled(user: UserInfo) -> bool:
    """Return whether the user may send requests."""
    return user.user_status == UserStatus.enable.name


class Users(NamedTable[UserInfo, UserTable]):
    """All users of this broker. `on_change` is called when the file's content has changed."""

    member = "userTable"

    def __init__(self, path: Path, clock: Clock, on_change: Callable[[], None] = lambda: None) -> None:
        file = TableFile(path, UserTable, self._snapshot, clock, self._ended, is_secret=True)
        super().__init__(file, ())
        self._on_change = on_change

    def load(self) -> None:
        """Read the file. Blocks; raises `ConfigError` naming the file."""
        found = self._file.load(_check)
        if found is not None:
            self._entries.load(found.user_table)

    def _snapshot(self) -> Callable[[DataVersion], UserTable]:
        table = self._entries.snapshot()
        return lambda version: UserTable(data_version=version, user_table=table)

    def _ended(self, is_saved: bool) -> None:
        super()._ended(is_saved)
        if is_saved:
            self._on_change()

    @staticmethod
    def _name(entry: UserInfo) -> str:
        return entry.username or ""

    def _publish(self, entry: UserInfo) -> None:
        """Do nothing: `on_change` publishes all entries."""

    def _retract(self, name: str) -> None:
        """Do nothing: `on_change` publishes all entries."""


def _check(content: UserTable) -> None:
    for name, user in content.user_table.items():
        if name != user.username or (reason := fault(user)):
            raise DecodeError(
                f"the user {name!r} cannot be read: {reason if name == user.username else 'its name'}"
            )
