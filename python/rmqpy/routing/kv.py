"""The key-value configuration: namespaces of text values, the only thing a name server keeps on disk.

Owns `kvConfig.json`, which holds `{"configTable":{namespace:{key:value}}}`. A change is on disk before it is seen
and before it is answered; changes are written one after the other.

Threads: the event loop's; files are written in a worker.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from rmqpy.config import files
from rmqpy.protocol import fastjson
from rmqpy.protocol.declare import json_tree, read_json, record

log = logging.getLogger(__name__)

#: Characters of all namespaces, keys and values together: the file is written anew with every change. 10,000 order
#: topics take 1 MiB.
TABLE_CHARS_MAX: Final = 4 << 20

Table = dict[str, dict[str, str]]


@record
class _File:
    config_table: Table


class KvTableFullError(Exception):
    """There is no room for another value."""


class KeyValues:
    """The table and its file; without a path it lives in memory only."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._table: Table = {}
        self._turn = asyncio.Lock()

    def load(self) -> None:
        """Read the file, before the first request. Raises `ConfigError` when it and its backup are damaged."""
        if self._path is not None:
            found = files.load(self._path, lambda text: read_json(_File, text))
            self._table = found.config_table if found else {}

    def get(self, namespace: str, key: str) -> str | None:
        """One value."""
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """All values of a namespace; `None` when it has never had one."""
        return self._table.get(namespace)

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set one value. Nothing has changed when this raises `KvTableFullError`, or `OSError` for the file."""

        def set_value(table: Table) -> None:
            table.setdefault(namespace, {})[key] = value
            if _chars_of(table) > TABLE_CHARS_MAX:
                raise KvTableFullError(
                    f"the table has {TABLE_CHARS_MAX} characters already; delete what is not needed"
                )

        await self._change(set_value)

    async def delete(self, namespace: str, key: str) -> None:
        """Remove one value, if it is there. Raises as `put` does."""
        await self._change(lambda table: table.get(namespace, {}).pop(key, None))

    async def _change(self, change: Callable[[Table], object]) -> None:
        async with self._turn:
            fresh = {namespace: dict(values) for namespace, values in self._table.items()}
            change(fresh)
            if self._path is not None:
                text = fastjson.pretty(json_tree(_File(config_table=fresh)))
                await asyncio.to_thread(files.save, self._path, text)
            self._table = fresh


def _chars_of(table: Table) -> int:
    return sum(
        len(namespace) + sum(len(key) + len(value) for key, value in values.items())
        for namespace, values in table.items()
    )
