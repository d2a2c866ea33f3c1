"""Attributes of topics and groups: their names, values, and the syntax of changes.

A change is a list such as `+message.type=FIFO,-reserve.time`; stored names have no signs. Pure; any thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from rmqpy.protocol.codes import ResponseCode
from rmqpy.remoting.server import Refused

_INT64_MAX: Final = (1 << 63) - 1


class Attribute(NamedTuple):
    """An attribute with choices, a range of numbers, or any text as values."""

    choices: tuple[str, ...] = ()
    low: int | None = None
    high: int = _INT64_MAX
    is_changeable: bool = True


MESSAGE_TYPE: Final = "message.type"
CLEANUP_POLICY: Final = "cleanup.policy"
#: How long a lite topic stays after its last message, in minutes; attribute of its parent.
LITE_EXPIRATION: Final = "lite.topic.expiration"
LITE_PARENT: Final = "lite.bind.topic"
LITE_MODEL: Final = "lite.sub.model"
LITE_QUOTA: Final = "lite.sub.client.quota"
LITE_EVENTS_MAX: Final = "lite.sub.client.max.event.cnt"
LITE_RESETS_TAKEN: Final = "lite.sub.reset.offset.exclusive"
LITE_RESETS_REMOVED: Final = "lite.sub.reset.offset.unsubscribe"
#: The policy that keeps the newest message of each key.
COMPACTION: Final = "COMPACTION"

TOPIC_ATTRIBUTES: Final[Mapping[str, Attribute]] = {
    MESSAGE_TYPE: Attribute(
        ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "PRIORITY", "LITE")
    ),
    "queue.type": Attribute(("SimpleCQ", "BatchCQ"), is_changeable=False),
    CLEANUP_POLICY: Attribute(("DELETE", COMPACTION), is_changeable=False),
    "reserve.time": Attribute(low=-1),
    LITE_EXPIRATION: Attribute(low=-1, high=43_200),
}

GROUP_ATTRIBUTES: Final[Mapping[str, Attribute]] = {
    "priority.factor": Attribute(low=0, high=100),
    LITE_PARENT: Attribute(),
    LITE_MODEL: Attribute(("Shared", "Exclusive")),
    "lite.sub.wildcard": Attribute(),
    LITE_QUOTA: Attribute(low=-1),
    LITE_EVENTS_MAX: Attribute(low=10),
    LITE_RESETS_TAKEN: Attribute(("true", "false")),
    LITE_RESETS_REMOVED: Attribute(("true", "false")),
}


class AttributeChangeError(Refused):
    """The refusal of a whole change, with the reason as remark."""

    def __init__(self, remark: str) -> None:
        super().__init__(ResponseCode.SYSTEM_ERROR, remark)


def is_lite_parent(attributes: Mapping[str, str]) -> bool:
    """Return whether a topic with these attributes has lite topics."""
    return attributes.get(MESSAGE_TYPE) == "LITE"


def is_compacted(attributes: Mapping[str, str]) -> bool:
    """Return whether a topic with these attributes keeps the newest message of each key."""
    return attributes.get(CLEANUP_POLICY) == COMPACTION


def parse(text: str) -> dict[str, str]:
    """Parse `+a=1,-b` into signed names and values."""
    changes: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        if name in changes:
            raise AttributeChangeError(f"key duplication: {name}")
        changes[name] = value
    return changes


def apply(
    known: Mapping[str, Attribute], current: Mapping[str, str] | None, changes: Mapping[str, str]
) -> dict[str, str]:
    """Return the attributes after a change; `current` is `None` for a new topic or group."""
    result = dict(current or {})
    for signed, value in changes.items():
        sign, name = signed[:1], signed[1:]
        attribute = known.get(name)
        if sign not in ("+", "-"):
            raise AttributeChangeError(f"the attribute {signed} needs a sign: +{signed}=value or -{signed}")
        if attribute is None:
            raise AttributeChangeError(f"unsupported key: {name}")
        if current is None and sign == "-":
            raise AttributeChangeError(f"only add attribute is supported while creating, key: {name}")
        if current is not None and not attribute.is_changeable and result.get(name) != value:
            raise AttributeChangeError(f"attempt to update an unchangeable attribute, key: {name}")
        if sign == "-":
            if name not in result:
                raise AttributeChangeError(f"attempt to delete a nonexistent key: {name}")
            del result[name]
        else:
            _check(name, attribute, value)
            result[name] = value
    return result


def _check(name: str, attribute: Attribute, value: str) -> None:
    if attribute.choices:
        if value not in attribute.choices:
            raise AttributeChangeError(f"{name}={value}: must be one of {', '.join(attribute.choices)}")
    elif attribute.low is not None:
        try:
            number = int(value)
        except ValueError:
            raise AttributeChangeError(f"{name}={value}: must be a whole number") from None
        if not (attribute.low <= number <= attribute.high):
            raise AttributeChangeError(f"{name}={value}: must be from {attribute.low} to {attribute.high}")
