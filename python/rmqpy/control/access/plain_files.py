"""Plain files: `plain_acl.yml` and the folder `acl`, read, watched and changed.

Owns the content of the ACL 1.0 files. Invariant: an unreadable file changes nothing and is logged once; a requested
change is in the file before it applies. Threads: the event loop's; files are read and written in a worker.
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

#: The interval of the watch.
WATCH_SECONDS: Final = 5.0
#: A changed file must stay unchanged for this long; otherwise the next check takes it.
SETTLE_SECONDS: Final = 0.2
#: The maximum bytes of a file, and number of files.
FILE_BYTES_MAX: Final = 16 << 20
FILES_MAX: Final = 1_000
#: In the same folder, but for the administrator's own use.
_SKIPPED: Final = "tools.yml"

Edit = Callable[[dict[str, Any]], None]


class PlainFiles:
    """The accounts and white lists of all files. `on_change` is called when they have changed."""

    def __init__(self, home: Path, clock: Clock, on_change: Callable[[], None] = lambda: None) -> None:
        self._folder = home / "conf"
        self._clock = clock
        self._files: dict[Path, PlainFile] = {}
        self._digests: dict[Path, bytes] = {}
        self._change = asyncio.Lock()
        self.accounts: Mapping[str, PlainAccount] = {}
        self.white_addresses: tuple[str, ...] = ()
        self.versions: Mapping[Path, DataVersion] = {}
        self._on_change = on_change

    @property
    def main(self) -> Path:
        """The file for new accounts."""
        return self._folder / "plain_acl.yml"

    async def load(self) -> None:
        """Read all files. Raises `ConfigError` with the name of an unreadable file."""
        found = await asyncio.to_thread(self._read_all)
        for path, content in found.items():
            self._take(path, content)
        self._publish()
        if not self.accounts and not self.white_addresses:
            log.warning("no accounts in %s: all requests are denied", self.main)

    async def watch(self) -> None:
        """Apply the changes since the last check."""
        async with self._change:
            try:
                found = await asyncio.to_thread(self._read_all)
                if self._changed(found):
                    # A writer may be half done: a partial or empty file would mean other accounts.
                    await asyncio.sleep(SETTLE_SECONDS)
                    if found != await asyncio.to_thread(self._read_all):
                        return
            except ConfigError as error:
                log.error("%s; keeping the previous accounts", error)
                return
            self._take_changed(found)

    async def edit(self, edit: Edit, path: Path | None = None) -> None:
        """Change the members of a file, by default `main`, and count it as a new version. Raises `DecodeError` if the
        result would be unreadable, and `ConfigError` or `OSError` for files."""
        async with self._change:
            found = await asyncio.to_thread(self._edited, path or self.main, edit)
            self._take_changed(found)

    def file_of(self, access_key: str) -> Path | None:
        """Return the file that defines this account."""
        for path, content in self._files.items():
            if any(account.access_key == access_key for account in content.accounts):
                return path
        return None

    def known(self, path: str) -> Path | None:
        """Return the file of this name, if it is one of the account files."""
        return next((each for each in (*self._files, self.main) if str(each) == path), None)

    # ---- in a worker ----

    def _paths(self) -> list[Path]:
        folder = self._folder / "acl"
        found = sorted(path for path in folder.rglob("*") if path.suffix in (".yml", ".yaml"))
        if self.main.exists():
            found.append(self.main)
        if len(found) > FILES_MAX:
            raise ConfigError(f"{folder} has more than {FILES_MAX} account files")
        return [path for path in found if path.is_file() and path.name != _SKIPPED]

    def _read_all(self) -> dict[Path, bytes]:
        try:
            return {path: _content(path) for path in self._paths()}
        except OSError as error:
            raise ConfigError(f"cannot read accounts: {error}") from error

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
        """Return the files that were changed or deleted."""
        changed = {path for path, content in found.items() if self._digests.get(path) != _digest(content)}
        return changed | (self._files.keys() - found.keys())

    def _take_changed(self, found: Mapping[Path, bytes]) -> None:
        changed = self._changed(found) & found.keys()
        gone = self._files.keys() - found.keys()
        if not changed and not gone:
            return
        for path in gone:
            log.info("%s was deleted: removing its accounts", path)
            self._files.pop(path)
            self._digests.pop(path, None)
        for path in changed:
            try:
                self._take(path, found[path])
            except ConfigError as error:
                log.error("%s; keeping its previous content", error)
                self._digests[path] = _digest(found[path])
        # In order of precedence.
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
                    log.warning(
                        "%s: ignoring account %s, which another file defines", path, account.access_key
                    )
                accounts.setdefault(account.access_key, account)
        self.accounts = accounts
        self.white_addresses = tuple(
            address for content in self._files.values() for address in content.white_addresses
        )
        self.versions = {path: self.versions[path] for path in self._files}
        log.info("accounts=%d files=%d", len(accounts), len(self._files))
        self._on_change()


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
