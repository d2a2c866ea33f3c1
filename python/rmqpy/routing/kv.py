"""Key-value configuration: namespaces of text values, the only data of a name server on disk.

Owns `kvConfig.json`, which holds `{"configTable":{namespace:{key:value}}}`. A change is on disk before it is visible
and acknowledged. Changes apply in order of arrival; those that arrive during a write share the next one. Each write
replaces the whole file, line by line, from cached lines: route requests wait while the loop, or a worker with the
interpreter's lock, works without a pause.

Threads: the event loop's; files are written in a worker.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from rmqpy.config import files
from rmqpy.protocol import fastjson
from rmqpy.protocol.declare import read_json, record

#: The most characters of all namespaces, keys and values: the file is rewritten with every change. 10,000 order topics
#: take 1 MiB.
TABLE_CHARS_MAX: Final = 4 << 20
#: The most changes that share a write.
_CHANGES_MAX: Final = 32
#: The most characters of values that the loop encodes without a pause.
_STEP_CHARS: Final = 64 << 10

Table = dict[str, dict[str, str]]


@record
class _File:
    config_table: Table


class KvTableFullError(Exception):
    """No room for another value."""

    def __init__(self) -> None:
        super().__init__(f"the table has {TABLE_CHARS_MAX} characters already; delete unused keys")


@dataclass
class _Content:
    """Values, and their encoded lines of the file."""

    values: Table = field(default_factory=dict)
    lines: Table = field(default_factory=dict)
    chars: int = 0

    def copy(self) -> "_Content":
        values, lines = (
            {namespace: dict(entries) for namespace, entries in table.items()}
            for table in (self.values, self.lines)
        )
        return _Content(values, lines, self.chars)

    def add_namespace(self, namespace: str) -> None:
        if namespace not in self.values:
            self.values[namespace], self.lines[namespace] = {}, {}
            self.chars += len(namespace)

    def chars_with(self, namespace: str, key: str, value: str) -> int:
        """The resulting `chars`."""
        entries = self.values.get(namespace)
        before = entries.get(key) if entries is not None else None
        more = len(value) + (len(key) if before is None else -len(before))
        return self.chars + more + (len(namespace) if entries is None else 0)

    def put(self, namespace: str, key: str, value: str) -> None:
        self.add_namespace(namespace)
        self.chars = self.chars_with(namespace, key, value)
        self.values[namespace][key] = value
        self.lines[namespace][key] = f"{fastjson.pretty(key)}:{fastjson.pretty(value)}"

    def delete(self, namespace: str, key: str) -> None:
        self.chars -= len(key) + len(self.values[namespace].pop(key))
        del self.lines[namespace][key]

    def text(self) -> Iterator[str]:
        """The file in pieces, laid out as by `fastjson.pretty`."""
        namespaces = (
            chain([f"{fastjson.pretty(namespace)}:"], _braces(([line] for line in lines.values()), 2))
            for namespace, lines in self.lines.items()
        )
        return _braces([chain(['"configTable":'], _braces(namespaces, 1))], 0)


def _braces(members: Iterable[Iterable[str]], depth: int) -> Iterator[str]:
    """An object of these members in pieces, indented by this many tabs."""
    start, end = "\n" + "\t" * (depth + 1), "\n" + "\t" * depth
    sign = "{"
    for member in members:
        yield sign + start
        yield from member
        sign = ","
    yield "{}" if sign == "{" else end + "}"


class _Change(NamedTuple):
    namespace: str
    key: str
    #: `None` deletes it.
    value: str | None
    made: asyncio.Future[None]


class KeyValues:
    """The table and its file; without a path it is only in memory."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._content = _Content()
        self._waiting: list[_Change] = []
        self._writing: asyncio.Task[None] | None = None

    def load(self) -> None:
        """Read the file before the first request. Raises `ConfigError` if it and its backup are damaged."""
        if self._path is not None:
            found = files.load(self._path, lambda text: read_json(_File, text))
            self._content = _Content()
            for namespace, values in found.config_table.items() if found else ():
                self._content.add_namespace(namespace)
                for key, value in values.items():
                    self._content.put(namespace, key, value)

    def get(self, namespace: str, key: str) -> str | None:
        """One value."""
        return self._content.values.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """All values of a namespace; `None` if it never had one."""
        return self._content.values.get(namespace)

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set one value. Nothing has changed if this raises `KvTableFullError`, or `OSError` for the file."""
        await self._change(namespace, key, value)

    async def delete(self, namespace: str, key: str) -> None:
        """Remove one value, if present. Raises like `put`."""
        await self._change(namespace, key, None)

    async def _change(self, namespace: str, key: str, value: str | None) -> None:
        made: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Change(namespace, key, value, made))
        if self._writing is None:
            # The first caller may be cancelled; the others wait for the same write.
            self._writing = asyncio.create_task(self._write())
        await made

    async def _write(self) -> None:
        """Apply pending changes until none are left."""
        try:
            while self._waiting:
                changes, self._waiting = self._waiting[:_CHANGES_MAX], self._waiting[_CHANGES_MAX:]
                await self._make(changes)
                # If nothing had to be written, let others run now.
                await asyncio.sleep(0)
        finally:
            self._writing = None

    async def _make(self, changes: list[_Change]) -> None:
        fresh, is_new, chars = self._content.copy(), False, 0
        for change in changes:
            if chars > _STEP_CHARS:
                # Let others run: `fresh` is not visible yet, and only this task makes changes.
                await asyncio.sleep(0)
                chars = 0
            namespace, key, value, _ = change
            before = fresh.values.get(namespace, {}).get(key)
            if value is None and before is not None:
                fresh.delete(namespace, key)
                is_new = True
            elif value is not None and fresh.chars_with(namespace, key, value) > TABLE_CHARS_MAX:
                _end(change.made, KvTableFullError())
            elif value is not None and value != before:
                fresh.put(namespace, key, value)
                is_new = True
                chars += len(value)
        error: Exception | None = None
        if is_new:
            try:
                if self._path is not None:
                    await asyncio.to_thread(lambda path: files.save_pieces(path, fresh.text()), self._path)
                self._content = fresh
            except Exception as raised:
                error = raised
        for change in changes:
            _end(change.made, error)


def _end(made: asyncio.Future[None], error: Exception | None) -> None:
    """Wake a waiter, unless it was woken or cancelled."""
    if made.done():
        return
    if error is None:
        made.set_result(None)
    else:
        made.set_exception(error)
