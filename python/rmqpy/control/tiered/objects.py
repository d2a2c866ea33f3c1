"""Objects of one broker in a folder or an object store, under a common prefix.

Every failure is an `ObjectError` that names the object. An object appears whole or not at all, and one in a folder
survives a power loss. Calls block; any thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rmqpy.config import home
from rmqpy.config.tiered import TieredConfig
from rmqpy.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

#: Parts of an upload, of which a few are in memory.
PART_BYTES: Final = 8 << 20
PARTS_AT_ONCE: Final = 2
#: Parts of a file in a folder, each of which is made durable: a whole file in one step would delay the flushes of a log
#: on the same disk.
FOLDER_PART_BYTES: Final = 1 << 20
#: The most seconds of one request, of connecting, and of all attempts.
REQUEST_SECONDS: Final = 30
CONNECT_SECONDS: Final = 3
ATTEMPTS_SECONDS: Final = 20
ATTEMPTS_MAX: Final = 3
#: The end of the name of a file that is being written.
_UNFINISHED: Final = ".part"


class ObjectError(StoreError):
    """An object that could not be read or written, and why."""


class Objects:
    """The objects below one prefix."""

    def __init__(self, config: TieredConfig, prefix: str) -> None:
        """Raises `ConfigError` if the storage cannot be used. Contacts nothing but a local folder."""
        try:
            import obstore
        except ImportError as missing:
            raise ConfigError(
                f"tieredStorage needs obstore ({missing})", hint="pip install 'rmqpy[tiered]'"
            ) from None
        self._library: Any = obstore
        self._folder = None if config.is_url else Path(home.expand(config.storage))
        self._prefix = prefix
        #: The size of the parts of `put_parts`.
        self.part_bytes = PART_BYTES if self._folder is None else FOLDER_PART_BYTES
        #: What errors name.
        self.place = f"{config.storage.rstrip('/')}/{prefix}"
        try:
            self._store = self._opened(config)
        except Exception as error:
            raise ConfigError(f"tieredStorage={config.storage} cannot be used: {_line(error)}") from error

    def _opened(self, config: TieredConfig) -> ObjectStore:
        from obstore.store import LocalStore, from_url

        if self._folder is not None:
            return LocalStore(self._folder, mkdir=True)
        options: dict[str, Any] = {
            "timeout": f"{REQUEST_SECONDS}s",
            "connect_timeout": f"{CONNECT_SECONDS}s",
            "allow_http": True,
        }
        retry = {"max_retries": ATTEMPTS_MAX, "retry_timeout": timedelta(seconds=ATTEMPTS_SECONDS)}
        # One overload for each kind of store.
        open_url: Callable[..., ObjectStore] = from_url
        return open_url(config.storage, client_options=options, retry_config=retry)

    def put(self, name: str, content: bytes, *, is_first: bool = False) -> None:
        """Write an object, in place of an earlier one. Only the first one creates its folder: a folder that vanishes
        later is an unmounted one."""
        with self._errors("write", name):
            if self._folder is not None:
                if is_first:
                    (self._folder / self._prefix).mkdir(parents=True, exist_ok=True)
                self._write(self._folder, name, [content])
            else:
                self._library.put(self._store, self._path(name), content)

    def put_parts(self, name: str, parts: Iterable[bytes]) -> None:
        """Write an object from its parts, in order."""
        with self._errors("write", name):
            if self._folder is not None:
                self._write(self._folder, name, parts)
            else:
                self._library.put(
                    self._store,
                    self._path(name),
                    parts,
                    use_multipart=True,
                    chunk_size=PART_BYTES,
                    max_concurrency=PARTS_AT_ONCE,
                )

    def get(self, name: str) -> bytes | None:
        """Return an object; `None` if there is none."""
        with self._errors("read", name):
            try:
                return bytes(self._library.get(self._store, self._path(name)).bytes())
            except FileNotFoundError:
                return None

    def get_range(self, name: str, begin: int, end: int) -> bytes:
        """Return a part of an object, shorter if the object ends before."""
        with self._errors("read", name):
            return bytes(self._library.get_range(self._store, self._path(name), start=begin, end=end))

    def size(self, name: str) -> int | None:
        """Return the size of an object; `None` if there is none."""
        with self._errors("read", name):
            try:
                return int(self._library.head(self._store, self._path(name))["size"])
            except FileNotFoundError:
                return None

    def names(self) -> set[str]:
        """Return the names of all objects."""
        with self._errors("list", ""):
            found: set[str] = set()
            for batch in self._library.list(self._store, self._prefix):
                found |= {str(each["path"]).rpartition("/")[2] for each in batch}
            return found

    def delete(self, name: str) -> None:
        """Delete an object, if there is one."""
        with self._errors("delete", name):
            try:
                self._library.delete(self._store, self._path(name))
            except FileNotFoundError:
                return

    def _path(self, name: str) -> str:
        return f"{self._prefix}/{name}"

    @contextmanager
    def _errors(self, verb: str, name: str) -> Iterator[None]:
        try:
            yield
        except ObjectError:
            raise
        except Exception as error:
            raise ObjectError(f"cannot {verb} {self.place}/{name}: {_line(error)}") from error

    def _write(self, folder: Path, name: str, parts: Iterable[bytes]) -> None:
        """Write a file on this thread, whose priority the library's threads would not have; make it durable, with its
        name."""
        path = folder / self._path(name)
        written = path.with_name(f"{path.name}{_UNFINISHED}")
        with written.open("wb", buffering=0) as file:
            for part in parts:
                rest = memoryview(part)
                while rest:
                    rest = rest[file.write(rest) :]
                os.fdatasync(file)
        written.replace(path)
        for parent in path.parents:
            if not parent.is_relative_to(folder):
                break
            descriptor = os.open(parent, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _line(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else f"{text[:299]}…"
