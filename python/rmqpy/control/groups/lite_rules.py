"""Rules of groups that consume lite topics, from their attributes. Pure; any thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rmqpy.control.tables import attributes


class LiteRules(NamedTuple):
    """The rules of one group."""

    #: The topic whose lite topics it consumes.
    parent: str
    #: Whether a lite topic has one client of the group, its last subscriber.
    is_exclusive: bool
    #: The most lite topics of one client; `None` for any number.
    quota: int | None
    #: Lite topics with messages for a client from which on others of the group get the next ones.
    events_max: int
    #: Whether a lite topic that another client takes over is consumed from its beginning.
    resets_taken: bool
    #: Whether the same holds after a client has unsubscribed.
    resets_removed: bool


def lite_rules(values: Mapping[str, str]) -> LiteRules | None:
    """Return the rules of a group with these attributes; `None` if it consumes no lite topics.

    >>> rules = lite_rules({"lite.bind.topic": "sessions", "lite.sub.model": "Exclusive"})
    >>> rules.parent, rules.is_exclusive, rules.quota
    ('sessions', True, 2000)
    """
    parent = values.get(attributes.LITE_PARENT)
    if not parent:
        return None
    quota = int(values.get(attributes.LITE_QUOTA, "2000"))
    return LiteRules(
        parent=parent,
        is_exclusive=values.get(attributes.LITE_MODEL) == "Exclusive",
        quota=None if quota < 0 else quota,
        events_max=int(values.get(attributes.LITE_EVENTS_MAX, "400")),
        resets_taken=values.get(attributes.LITE_RESETS_TAKEN) == "true",
        resets_removed=values.get(attributes.LITE_RESETS_REMOVED) == "true",
    )
