"""Needs: the access that a request requires to topics, groups or the cluster, declared with the request.

::

    @request(RequestCode.QUERY_MESSAGE, needs=(topic("topic", Action.SUB, Action.GET),))
    class QueryMessage(Request[QueriedMessages]):
        topic: Resource

A need names the field with the name of the resource; `body.mq_set[].topic` goes into the body, through every member
of a list or set. One of the actions is enough. With access control, needs are checked after a request is parsed and
before it runs. A request without needs, or with an empty field that is not `optional`, requires `Cluster` `Update`.
`NOTHING` is for requests that every known user may make.

Pure; any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any, Final


class Action(StrEnum):
    """Action on a resource. `ALL` occurs only in policies and stands for all others."""

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
    """One of several actions on the resources named by a field."""

    kind: ResourceKind
    #: The path of the names; empty for the cluster.
    path: str
    actions: tuple[Action, ...]
    #: The separator, if a field holds several names.
    separator: str = ""
    #: True if the field may be empty, which means that the request has no such resource.
    is_optional: bool = False


#: Kind and name of a resource, and the actions of which one is needed.
Needed = tuple[str, str, list[str]]


def topic(path: str, *actions: Action, optional: bool = False, separator: str = "") -> Need:
    """One of these actions on each named topic, or on the group of a retry topic."""
    return Need(ResourceKind.TOPIC, path, actions, separator, optional or "[]" in path)


def group(path: str, *actions: Action, optional: bool = False) -> Need:
    """One of these actions on each named group."""
    return Need(ResourceKind.GROUP, path, actions, is_optional=optional or "[]" in path)


def cluster(*actions: Action) -> tuple[Need, ...]:
    """One of these actions on the cluster."""
    return (Need(ResourceKind.CLUSTER, "", actions),)


#: Allowed to every known user.
NOTHING: Final[tuple[Need, ...]] = ()
#: The default for a request without declared needs.
UNDECLARED: Final = cluster(Action.UPDATE)


_CHANGES: Final = frozenset({Action.CREATE, Action.UPDATE, Action.DELETE})


def is_change(needs: Iterable[Need]) -> bool:
    """Whether a request with these needs creates, changes or deletes something."""
    return any(action in _CHANGES for need in needs for action in need.actions)


def needed(needs: Iterable[Need], ask: object) -> list[Needed]:
    """Return the needs of this request."""
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
    """Return a function that finds the names at this path."""
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
