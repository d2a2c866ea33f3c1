"""Policies: `acls.json`, the permissions of each user.

Owns the entries of every subject. Invariant: an entry is in the file before it grants anything, and a removed entry
grants nothing once its removal is acknowledged. Threads: the event loop's; the file is written in a worker.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from rmqpy._native import check_entry
from rmqpy.clock import Clock
from rmqpy.control.tables.file import TableFile
from rmqpy.control.tables.named import NamedTable
from rmqpy.errors import DecodeError
from rmqpy.protocol.requests.access import AclInfo, AclTable, Policy, PolicyEntry, PolicyType
from rmqpy.protocol.topics import DataVersion

#: The most entries of one subject. A request checks each of them once per connection.
ENTRIES_MAX: Final = 1_000
#: The prefix of a user as a subject.
SUBJECT_PREFIX: Final = "User:"

#: An entry in the native module's form: resource, actions, sources, decision.
EntryRow = tuple[str, Sequence[str], Sequence[str], str]


def user_of(subject: str) -> str | None:
    """Return the user that a subject names; `None` for other kinds, and without a subject."""
    prefix, name = subject[: len(SUBJECT_PREFIX)], subject[len(SUBJECT_PREFIX) :]
    return name if prefix.lower() == SUBJECT_PREFIX.lower() and name.strip() else None


def checked(policies: Iterable[Policy] | None) -> list[Policy]:
    """Return policies in their stored form: types and actions by name, one policy of each type.

    Raises `ValueError`, with Apache's texts, for missing parts.
    """
    merged: dict[str, list[PolicyEntry]] = {}
    for policy in policies or ():
        kind = _policy_type(policy.policy_type)
        if not policy.entries:
            raise ValueError("The policy entries is empty.")
        for entry in policy.entries:
            _replace(merged.setdefault(kind, []), _checked(entry))
    if not merged:
        raise ValueError("The policies is empty.")
    return [Policy(policy_type=kind, entries=entries) for kind, entries in merged.items()]


def merge(known: AclInfo | None, added: Sequence[Policy], subject: str) -> AclInfo:
    """Add policies to those of a subject; an entry replaces the one on the same resource."""
    merged = _by_type(known)
    for policy in added:
        for entry in policy.entries or ():
            _replace(merged.setdefault(_policy_type(policy.policy_type), []), entry)
    acl = AclInfo(
        subject=subject,
        policies=[Policy(policy_type=kind, entries=entries) for kind, entries in merged.items()],
    )
    if sum(len(entries) for entries in merged.values()) > ENTRIES_MAX:
        raise ValueError(f"{subject} has more than {ENTRIES_MAX} entries.")
    return acl


def without(known: AclInfo, policy_type: str | None, resource: str) -> AclInfo | None:
    """Remove the policies on one resource; return `None` if none is left."""
    merged, kind = _by_type(known), _policy_type(policy_type)
    merged[kind] = [entry for entry in merged.get(kind, []) if entry.resource != resource]
    policies = [Policy(policy_type=kind, entries=entries) for kind, entries in merged.items() if entries]
    return dataclasses.replace(known, policies=policies) if policies else None


def rows(acl: AclInfo | None, kind: PolicyType) -> list[EntryRow]:
    """Return the entries of one type in the native module's form."""
    return [
        (entry.resource or "", entry.actions or (), entry.source_ips or (), entry.decision or "")
        for entry in _by_type(acl).get(kind.name, [])
    ]


def _by_type(acl: AclInfo | None) -> dict[str, list[PolicyEntry]]:
    found: dict[str, list[PolicyEntry]] = {}
    for policy in (acl.policies if acl is not None else None) or ():
        found.setdefault(_policy_type(policy.policy_type), []).extend(policy.entries or ())
    return found


def _policy_type(name: str | None) -> str:
    for kind in PolicyType:
        if (name or PolicyType.Custom.name).lower() == kind.name.lower():
            return kind.name
    raise ValueError("The policy type is Custom or Default.")


def _checked(entry: PolicyEntry) -> PolicyEntry:
    if not entry.resource:
        raise ValueError("The resource is null.")
    if not entry.actions:
        raise ValueError("The actions is empty.")
    if any(action.lower() == "any" for action in entry.actions):
        raise ValueError("The actions can not be Any.")
    if not entry.decision:
        raise ValueError("The decision is null or illegal.")
    sources = [source.strip() for source in entry.source_ips or ()]
    resource, actions, sources, decision = check_entry(
        entry.resource.strip(), [action.strip() for action in entry.actions], sources, entry.decision.strip()
    )
    return PolicyEntry(resource=resource, actions=actions, source_ips=sources, decision=decision)


def _replace(entries: list[PolicyEntry], entry: PolicyEntry) -> None:
    for at, known in enumerate(entries):
        if known.resource == entry.resource:
            entries[at] = entry
            return
    entries.append(entry)


class Policies(NamedTable[AclInfo, AclTable]):
    """The policies of all subjects. `on_change` is called when the file's content has changed."""

    member = "aclTable"

    def __init__(self, path: Path, clock: Clock, on_change: Callable[[], None] = lambda: None) -> None:
        file = TableFile(path, AclTable, self._snapshot, clock, self._ended, is_secret=True)
        super().__init__(file, ())
        self._on_change = on_change

    def load(self) -> None:
        """Read the file. Blocks; raises `ConfigError` naming the file."""
        found = self._file.load(_check)
        if found is not None:
            self._entries.load(found.acl_table)

    def _snapshot(self) -> Callable[[DataVersion], AclTable]:
        table = self._entries.snapshot()
        return lambda version: AclTable(data_version=version, acl_table=table)

    def _ended(self, is_saved: bool) -> None:
        super()._ended(is_saved)
        if is_saved:
            self._on_change()

    @staticmethod
    def _name(entry: AclInfo) -> str:
        return entry.subject or ""

    def _publish(self, entry: AclInfo) -> None:
        """Do nothing: `on_change` publishes all entries."""

    def _retract(self, name: str) -> None:
        """Do nothing: `on_change` publishes all entries."""


def _check(content: AclTable) -> None:
    for subject, acl in content.acl_table.items():
        try:
            if subject != acl.subject or user_of(subject) is None:
                raise ValueError("its subject")
            checked(acl.policies)
        except ValueError as error:
            raise DecodeError(f"the policies of {subject!r} cannot be read: {error}") from None
