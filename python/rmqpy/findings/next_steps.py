"""Steps that tools offer for a finding."""

import re
from typing import Final, Literal, NamedTuple

from rmqpy.findings.finding import Finding


class Step(NamedTuple):
    """What a tool can offer for a finding: a change, or the place that shows more."""

    kind: Literal["promote", "replicas", "controllers", "broker", "brokers", "group", "dead-letters"]
    #: A broker or a group.
    name: str
    broker_id: int = 0


_PROMOTION: Final = re.compile(r"rmqpy cluster promote (\S+) --id (\d+)")
_OF_REPLICAS: Final = re.compile(
    r"(?:replicas|promise|port for slaves|log|slave \d+) of (\S+?)(?:, slave \d+)?$"
)
_OF_BROKER: Final = re.compile(
    r"(?:disk|store|tiered storage|permission|waiting messages|clock|exposure|cluster|plug-in \S+) of (\S+)$"
    r"|broker (\S+)"
)


def steps(check: str, finding: Finding) -> list[Step]:
    """Return what a tool can offer for a finding, the remedy first.

    >>> from rmqpy.findings import no_master, no_room, without_role
    >>> lost = no_master("broker-a", 1, None, 3.0, acts=False)
    >>> [step.kind for step in steps("master of broker-a", lost)]
    ['promote', 'replicas']
    >>> steps("disk of broker-a", no_room("broker-a", "/data", 96.2, 0))
    [Step(kind='broker', name='broker-a', broker_id=0)]
    >>> steps("role of broker-a", without_role("broker-a", "no controller knows a leader"))
    [Step(kind='controllers', name='', broker_id=0)]
    """
    found = []
    # A former master first has to follow.
    if check.startswith("master of ") and (named := _PROMOTION.search(finding.advice)):
        found.append(Step("promote", named[1], int(named[2])))
    if check.startswith("master of "):
        found.append(Step("replicas", check.removeprefix("master of ")))
    elif replicas := _OF_REPLICAS.match(check):
        found.append(Step("replicas", replicas[1]))
    elif broker := _OF_BROKER.match(check):
        found.append(Step("broker", broker[1] or broker[2]))
    elif check.startswith("role of "):
        found.append(Step("controllers", ""))
    elif check.startswith("dead letters of "):
        found.append(Step("dead-letters", check.removeprefix("dead letters of ")))
    elif check.startswith("certificate of "):
        found.append(Step("brokers", ""))
    elif check.startswith("group "):
        found.append(Step("group", check.removeprefix("group ")))
    return found
