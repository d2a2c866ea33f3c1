"""Needs: what a request does to which topic, group or cluster, said where the request is declared.

::

    @request(RequestCode.QUERY_MESSAGE, needs=(topic("topic", Action.SUB, Action.GET),))
    class QueryMessage(Request[QueriedMessages]):
        topic: Resource

A need names the field that has the name of the resource; `body.mq_set[].topic` goes into the body, and through every
member of a list or set. One of the actions is enough. With access control on, what a request needs is looked up once it
has been read and before anything is done. One that declares no needs, or whose field is empty although it is not
`optional`, takes `Cluster` `Update`. `NOTHING` is for what every user may do who is known.

Pure, for any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any, Final


class Action(StrEnum):
    """What is done to a resource. `ALL` stands in policies only, for each of the others."""

    ALL = "All"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class ResourceKind(StrEnum):
    """Kinds of resources."""

    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"


@dataclass(frozen=True, slots=True)
class Need:
    """One of some actions on what a field of the request names."""

    kind: ResourceKind
    #: Where the names are; empty for the cluster, which has one.
    path: str
    actions: tuple[Action, ...]
    #: Of a field that holds several names: what stands between them.
    separator: str = ""
    #: The field may be empty; then nothing is done to such a resource.
    is_optional: bool = False


#: Kind and name of a resource, and the actions of which one is needed.
Needed = tuple[str, str, list[str]]


def topic(path: str, *actions: Action, optional: bool = False, separator: str = "") -> Need:
    """One of these actions on each topic that is named there; on its group, where it is a group's retry topic."""
    return Need(ResourceKind.TOPIC, path, actions, separator, optional or "[]" in path)


def group(path: str, *actions: Action, optional: bool = False) -> Need:
    """One of these actions on each group that is named there."""
    return Need(ResourceKind.GROUP, path, actions, is_optional=optional or "[]" in path)


def cluster(*actions: Action) -> tuple[Need, ...]:
    """One of these actions on the cluster."""
    return (Need(ResourceKind.CLUSTER, "", actions),)


#: What every user may do, who is known.
NOTHING: Final[tuple[Need, ...]] = ()
#: What a request needs that says nothing about it.
UNDECLARED: Final = cluster(Action.UPDATE)


_CHANGES: Final = frozenset({Action.CREATE, Action.UPDATE, Action.DELETE})


def is_change(needs: Iterable[Need]) -> bool:
    """Whether a request with these needs creates, changes or deletes something."""
    return any(action in _CHANGES for need in needs for action in need.actions)


def needed(needs: Iterable[Need], ask: object) -> list[Needed]:
    """What this very request needs."""
    found: list[Needed] = []
    for need in needs:
        actions = [action.value for action in need.actions]
        if not need.path:
            found.append((need.kind.value, "", actions))
            continue
        names = [
            name
            for value in _reader(need.path)(ask)
            for name in (value.split(need.separator) if need.separator else (value,))
            if name
        ]
        found += ((need.kind.value, name, actions) for name in names)
        if not names and not need.is_optional:
            found += needed(UNDECLARED, ask)
    return found


@cache
def _reader(path: str) -> Callable[[Any], Iterator[str]]:
    """What finds the names at this path."""
    steps = path.split(".")

    def read(value: Any, at: int = 0) -> Iterator[str]:
        if value is None:
            return
        if at == len(steps):
            yield value
            return
        member, is_many = steps[at].removesuffix("[]"), steps[at].endswith("[]")
        inner = getattr(value, member)
        for each in (inner or ()) if is_many else (inner,):
            yield from read(each, at + 1)

    return read
