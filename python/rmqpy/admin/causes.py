"""Causes: the problems of a cluster with one entry for each cause, for pages that have room for few. Pure.

`doctor` lists all checks; a paused slave fails three of them.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from rmqpy.admin.checks import REFUSES, CheckResult

_AT_ADDRESS: Final = re.compile(r"broker (\S+) at (\S+)")
_SLAVE: Final = re.compile(r"slave \d+ of (\S+)")
_OF_NAME: Final = re.compile(r"(?:slave \d+|master) of (\S+)")
_REPLICAS: Final = "replicas of "


def by_cause(checks: Sequence[CheckResult]) -> list[CheckResult]:
    """Return the checks without consequences of other problems.

    - A server that does not answer, if a check of its role names its address.
    - Missing replicas, if a slave has a problem: the slave's entry has both sentences.
    - The refusal of messages, if another check has its reason.

    >>> silent = CheckResult("slave 1 of a", "bad", "does not answer at 10.0.0.3:10911, silent for 40 s", "resume it")
    >>> few = CheckResult("replicas of a", "warn", "0 of 1 slaves are connected", "start the slave")
    >>> [(each.check, each.level, each.found) for each in by_cause([silent, few])]
    [('slave 1 of a', 'bad', 'does not answer at 10.0.0.3:10911, silent for 40 s; 0 of 1 slaves are connected')]
    """
    failed = [each for each in checks if each.level != "ok"]
    advice = Counter(each.advice for each in failed)
    lost_slaves = {
        found[1]: each.check
        for each in reversed(failed)
        if each.level == "bad" and (found := _SLAVE.fullmatch(each.check))
    }
    merged = {
        lost_slaves[name]: each
        for each in failed
        if each.check.startswith(_REPLICAS) and (name := each.check.removeprefix(_REPLICAS)) in lost_slaves
    }
    consequences = list(merged.values())
    kept = []
    for each in checks:
        if each.level == "ok" or not (
            _is_named_elsewhere(each, failed)
            or any(each is other for other in consequences)
            or (each.found == REFUSES and advice[each.advice] > 1)
        ):
            other = merged.pop(each.check, None) if each.level == "bad" else None
            kept.append(each if other is None else each._replace(found=f"{each.found}; {other.found}"))
    return kept


def _is_named_elsewhere(check: CheckResult, failed: Sequence[CheckResult]) -> bool:
    """Whether a broker fails to answer at an address that another problem of its name has."""
    place = _AT_ADDRESS.fullmatch(check.check)
    if place is None or check.found == REFUSES:
        return False
    return any(
        (named := _OF_NAME.fullmatch(each.check)) and named[1] == place[1] and _contains(each.found, place[2])
        for each in failed
    )


def _contains(sentence: str, address: str) -> bool:
    return re.search(rf"(?<![\w.:]){re.escape(address)}(?!\d)", sentence) is not None
