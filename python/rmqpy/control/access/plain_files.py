"""Plain files: `plain_acl.yml` and the folder `acl` beside it, read, watched and changed.

Owns what the files of ACL 1.0 say now. Invariant: a file that cannot be read changes nothing,
and is told once; a change that was asked for is in the file before it counts. Threads: the event loop's; files are read
and written in a worker.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from rmqpy.clock import Clock
from rmqpy.config import files
from rmqpy.config import text as texts
from rmqpy.errors import ConfigError
from rmqpy.protocol import plain_acl
from rmqpy.protocol.plain_acl import PlainAccount, PlainFile
from rmqpy.protocol.topics import DataVersion

log = logging.getLogger(__name__)

#: How often the files are looked at.
WATCH_SECONDS: Final = 5.0
#: What has changed counts once it has stayed so for this long; otherwise at the next look.
SETTLE_SECONDS: Final = 0.2
#: Bytes of one file, and files.
FILE_BYTES_MAX: Final = 16 << 20
FILES_MAX: Final = 1_000
#: Beside the others, and the administrator's own.
_SKIPPED: Final = "tools.yml"

Edit = Callable[[dict[str, Any]], None]


class PlainFiles:
    """The accounts and white lists of all files. `on_change` is called when they are others."""

    def __init__(self, home: Path, clock: Clock) -> None:
        self._folder = home / "conf"
        self._clock = clock
        self._files: dict[Path, PlainFile] = {}
        self._digests: dict[Path, bytes] = {}
        self._change = asyncio.Lock()
        self.accounts: Mapping[str, PlainAccount] = {}
        self.white_addresses: tuple[str, ...] = ()
        self.versions: Mapping[Path, DataVersion] = {}
        self.on_change: Callable[[], None] = lambda: None

    @property
    def main(self) -> Path:
        """The file that new accounts are written to."""
        return self._folder / "plain_acl.yml"

    async def load(self) -> None:
        """Read all files. Raises `ConfigError` naming the one that cannot be read."""
        found = await asyncio.to_thread(self._read_all)
        for path, content in found.items():
            self._take(path, content)
        self._publish()
        if not self.accounts and not self.white_addresses:
            log.warning("there is no account in %s, so that nobody may do anything", self.main)

    async def watch(self) -> None:
        """Take what has changed since the last look."""
        async with self._change:
            try:
                found = await asyncio.to_thread(self._read_all)
                if self._changed(found):
                    # Somebody may be writing: half a file, or an empty one, would be other accounts.
                    await asyncio.sleep(SETTLE_SECONDS)
                    if found != await asyncio.to_thread(self._read_all):
                        return
            except ConfigError as error:
                log.error("%s; the accounts stay as they were", error)
                return
            self._take_changed(found)

    async def edit(self, edit: Edit, path: Path | None = None) -> None:
        """Change the members of a file, of `main` unless another one is named, and count it as a new version. Raises
        `DecodeError` for what could not be read again, and `ConfigError` or `OSError` for files."""
        async with self._change:
            found = await asyncio.to_thread(self._edited, path or self.main, edit)
            self._take_changed(found)

    def file_of(self, access_key: str) -> Path | None:
        """The file with this account."""
        for path, content in self._files.items():
            if any(account.access_key == access_key for account in content.accounts):
                return path
        return None

    def known(self, path: str) -> Path | None:
        """The file of this name, if it is one of them."""
        return next((each for each in (*self._files, self.main) if str(each) == path), None)

    # ---- in a worker ----

    def _paths(self) -> list[Path]:
        folder = self._folder / "acl"
        found = sorted(path for path in folder.rglob("*") if path.suffix in (".yml", ".yaml"))
        if self.main.exists():
            found.append(self.main)
        if len(found) > FILES_MAX:
            raise ConfigError(f"{folder} has more than {FILES_MAX} files of accounts")
        return [path for path in found if path.is_file() and path.name != _SKIPPED]

    def _read_all(self) -> dict[Path, bytes]:
        try:
            return {path: _content(path) for path in self._paths()}
        except OSError as error:
            raise ConfigError(f"accounts cannot be read: {error}") from error

    def _edited(self, path: Path, edit: Edit) -> dict[Path, bytes]:
        found = plain_acl.members(_text(path) if path.exists() else "")
        edit(found)
        version = _version(found).next(self._clock.wall_ms())
        found["dataVersion"] = [
            {
                "counter": version.counter,
                "timestamp": version.timestamp,
                "stateVersion": version.state_version,
            }
        ]
        text = plain_acl.written(found)
        plain_acl.read(text)
        files.save(path, text, is_secret=True)
        return self._read_all()

    # ---- on the loop ----

    def _changed(self, found: Mapping[Path, bytes]) -> set[Path]:
        """Files that are others than they were, or gone."""
        changed = {path for path, content in found.items() if self._digests.get(path) != _digest(content)}
        return changed | (self._files.keys() - found.keys())

    def _take_changed(self, found: Mapping[Path, bytes]) -> None:
        changed = self._changed(found) & found.keys()
        gone = self._files.keys() - found.keys()
        if not changed and not gone:
            return
        for path in gone:
            log.info("%s is gone, and its accounts with it", path)
            self._files.pop(path)
            self._digests.pop(path, None)
        for path in changed:
            try:
                self._take(path, found[path])
            except ConfigError as error:
                log.error("%s; what it said before holds", error)
                self._digests[path] = _digest(found[path])
        # In the order in which they count.
        self._files = {path: self._files[path] for path in found if path in self._files}
        self._publish()

    def _take(self, path: Path, content: bytes) -> None:
        try:
            decoded = texts.decode(content)
            read, version = plain_acl.read(decoded), _version(plain_acl.members(decoded))
        except ValueError as error:
            raise ConfigError(f"{path} cannot be read: {error}") from None
        for remark in read.remarks:
            log.warning("%s: %s", path, remark)
        self._files[path], self._digests[path] = read, _digest(content)
        self.versions = {**self.versions, path: version}

    def _publish(self) -> None:
        accounts: dict[str, PlainAccount] = {}
        for path, content in self._files.items():
            for account in content.accounts:
                if account.access_key in accounts:
                    log.warning("%s: the account %s is another file's already", path, account.access_key)
                accounts.setdefault(account.access_key, account)
        self.accounts = accounts
        self.white_addresses = tuple(
            address for content in self._files.values() for address in content.white_addresses
        )
        self.versions = {path: self.versions[path] for path in self._files}
        log.info("%d accounts in %d files", len(accounts), len(self._files))
        self.on_change()


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise ConfigError(f"{path} has more than {FILE_BYTES_MAX >> 20} MiB")
    return content


def _text(path: Path) -> str:
    try:
        return texts.decode(_content(path))
    except ValueError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def _version(found: Mapping[str, Any]) -> DataVersion:
    versions = found.get("dataVersion")
    last = versions[0] if isinstance(versions, list) and versions else {}
    number = {
        name: value
        for name in ("counter", "timestamp")
        if isinstance(last, dict) and isinstance(value := last.get(name), int)
    }
    return DataVersion(**number)
