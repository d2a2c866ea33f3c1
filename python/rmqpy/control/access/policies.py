"""Policies: `acls.json`, what each user may do.

Owns the entries of every subject. Invariant: an entry is in the file before it allows anything, and a removed one
allows nothing once its removal is answered. Threads: the event loop's; the file is written in a worker.
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

#: Entries of one subject: a request looks at each of them once for a connection.
ENTRIES_MAX: Final = 1_000
#: Before the name of a user.
SUBJECT_PREFIX: Final = "User:"

#: An entry as the native half takes it: resource, actions, sources, decision.
EntryRow = tuple[str, Sequence[str], Sequence[str], str]


def user_of(subject: str) -> str | None:
    """The user a subject is; None for other kinds, and for no subject."""
    prefix, name = subject[: len(SUBJECT_PREFIX)], subject[len(SUBJECT_PREFIX) :]
    return name if prefix.lower() == SUBJECT_PREFIX.lower() and name.strip() else None


def checked(policies: Iterable[Policy] | None) -> list[Policy]:
    """The same as they are kept: types and actions by their names, one policy of each type.

    Raises `ValueError` with the original's words for what they lack.
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
    """The policies of a subject with others added; an entry takes the place of the one on the same resource."""
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
    """The policies without those on one resource; None where nothing is left."""
    merged, kind = _by_type(known), _policy_type(policy_type)
    merged[kind] = [entry for entry in merged.get(kind, []) if entry.resource != resource]
    policies = [Policy(policy_type=kind, entries=entries) for kind, entries in merged.items() if entries]
    return dataclasses.replace(known, policies=policies) if policies else None


def rows(acl: AclInfo | None, kind: PolicyType) -> list[EntryRow]:
    """The entries of one type as the native half takes them."""
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
    """The policies of all subjects. `on_change` is called when what is in the file is another."""

    member = "aclTable"

    def __init__(self, path: Path, clock: Clock) -> None:
        file = TableFile(path, AclTable, self._snapshot, clock, self._ended, is_secret=True)
        super().__init__(file, ())
        self.on_change: Callable[[], None] = lambda: None

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
            self.on_change()

    @staticmethod
    def _name(entry: AclInfo) -> str:
        return entry.subject or ""

    def _publish(self, entry: AclInfo) -> None:
        """Published with all others, by `on_change`."""

    def _retract(self, name: str) -> None:
        """Likewise."""


def _check(content: AclTable) -> None:
    for subject, acl in content.acl_table.items():
        try:
            if subject != acl.subject or user_of(subject) is None:
                raise ValueError("its subject")
            checked(acl.policies)
        except ValueError as error:
            raise DecodeError(f"the policies of {subject!r} cannot be read: {error}") from None
