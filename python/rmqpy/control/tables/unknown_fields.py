"""Unknown fields: members of a broker's file that this release does not know.

Owns the members that another release or Apache's broker wrote. They are written back unchanged while their topic, group
or table exists, so that a folder loses nothing here.

Values of this type never change, so any thread may use one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from rmqpy.protocol import fastjson
from rmqpy.protocol.declare import json_tree, read_tree

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class UnknownFields:
    """The unknown members of one JSON object and of the objects in it."""

    members: Mapping[str, object] = field(default_factory=dict)
    #: Lists with more content than rmqpy would write: the found list, and rmqpy's.
    lists: Mapping[str, tuple[object, object]] = field(default_factory=dict)
    below: Mapping[str, UnknownFields] = field(default_factory=dict)

    @classmethod
    def between(cls, found: Mapping[str, Any], written: Mapping[Any, Any]) -> UnknownFields:
        """Return the members of `found` that are missing in `written`, which was built from it."""
        ours = {str(name): value for name, value in written.items()}
        folded: set[str] | None = None
        members: dict[str, object] = {}
        lists: dict[str, tuple[object, object]] = {}
        below: dict[str, UnknownFields] = {}
        for name, value in found.items():
            if name not in ours:
                # Names are read in any case, so such a member is known.
                folded = {known.lower() for known in ours} if folded is None else folded
                if value is not None and name.lower() not in folded:
                    members[name] = value
            elif isinstance(value, dict):
                if inner := cls.between(value, ours[name]):
                    below[name] = inner
            elif isinstance(value, list) and value != ours[name]:
                lists[name] = (value, ours[name])
        return cls(members, lists, below)

    def __bool__(self) -> bool:
        return bool(self.members or self.lists or self.below)

    def put_back(self, tree: dict[Any, Any]) -> dict[Any, Any]:
        """Add these members to a tree that is about to be written, except below entries that it no longer has."""
        for name, value in self.members.items():
            tree.setdefault(name, value)
        if self.lists or self.below:
            for name, value in tree.items():
                found, written = self.lists.get(str(name), (None, None))
                if found is not None and value == written:
                    tree[name] = found
                elif inner := self.below.get(str(name)):
                    inner.put_back(value)
        return tree

    def without(self, name: str, *path: str) -> UnknownFields:
        """Return the fields without a member, or without the unknown members below it."""
        if path:
            inner = self.below.get(name)
            return replace(self, below={**self.below, name: inner.without(*path)}) if inner else self
        return UnknownFields(_but(self.members, name), _but(self.lists, name), _but(self.below, name))


def read(kind: type[T], text: str) -> tuple[T, UnknownFields]:
    """Return the declared record of a file's text, and its unknown fields. Raises `DecodeError`."""
    tree = fastjson.loads(text)
    record = read_tree(kind, tree)
    return record, UnknownFields.between(tree, json_tree(record))


def _but(table: Mapping[str, T], name: str) -> dict[str, T]:
    return {key: value for key, value in table.items() if key != name}
