"""Alert state: firing, repeats, silences and ends of alerts.

Owns the active alerts and the silences. Invariants: an alert is reported as resolved only if it was reported as firing;
an alert whose facts are unknown neither fires nor ends. Pure; the caller passes the time, in seconds.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final, Literal, NamedTuple

from rmqpy.alerts.rules import AlertConfig, Rule

#: Most active alerts and silences; further ones are dropped.
ACTIVE_MAX: Final = 1_000
SILENCES_MAX: Final = 200


class Fact(NamedTuple):
    """A rule that applies to a subject now."""

    rule: Rule
    #: A check or a group.
    subject: str
    level: str
    found: str
    advice: str

    @property
    def id(self) -> str:
        """Stable while the alert lasts, so that receivers recognize repeats."""
        return f"{self.rule.name}: {self.subject}"


@dataclass(frozen=True, slots=True)
class Active:
    """An alert that is pending or firing."""

    fact: Fact
    since: float
    #: Of the last report; None before the first.
    reported: float | None = None


class Notice(NamedTuple):
    """A message to receivers."""

    kind: Literal["firing", "repeated", "resolved", "test"]
    id: str
    rule: str
    subject: str
    level: str
    found: str
    advice: str
    #: Seconds since the problem was first seen.
    lasted: float
    to: tuple[str, ...]


class AlertState:
    """All alerts of one process."""

    def __init__(self, config: AlertConfig) -> None:
        self._config = config
        self.active: dict[str, Active] = {}
        #: Id of an alert, or name of a rule → end.
        self.silences: dict[str, float] = {}

    def step(self, now: float, facts: Iterable[Fact], is_unknown: "IsUnknown") -> list[Notice]:
        """Take the facts of one evaluation. Returns what is to be reported."""
        self.silences = {key: until for key, until in self.silences.items() if until > now}
        present = {fact.id: fact for fact in facts}
        for key, fact in present.items():
            known = self.active.get(key)
            if known is not None:
                self.active[key] = replace(known, fact=fact)
            elif len(self.active) < ACTIVE_MAX:
                self.active[key] = Active(fact, now)
        notices = []
        for key, each in list(self.active.items()):
            if key not in present:
                if is_unknown(each.fact):
                    continue
                del self.active[key]
                if each.reported is not None:
                    notices.append(_notice("resolved", each, now))
            elif (kind := self._due(each, now)) is not None:
                self.active[key] = replace(each, reported=now)
                notices.append(_notice(kind, each, now))
        return notices

    def silence(self, key: str, until: float) -> bool:
        """Report nothing about an alert or a rule until then; a time that has passed ends the silence."""
        self.silences.pop(key, None)
        if len(self.silences) >= SILENCES_MAX:
            return False
        self.silences[key] = until
        return True

    def silent_until(self, fact: Fact) -> float | None:
        """The end of the silence of an alert; None without one."""
        return max(
            (self.silences[key] for key in (fact.id, fact.rule.name) if key in self.silences), default=None
        )

    def _due(self, each: Active, now: float) -> Literal["firing", "repeated"] | None:
        if self.silent_until(each.fact) is not None or now - each.since < each.fact.rule.lasting:
            return None
        if each.reported is None:
            return "firing"
        repeat = self._config.repeat
        return "repeated" if repeat and now - each.reported >= repeat else None


class IsUnknown(NamedTuple):
    """Whether the facts behind an alert could not be read: checks of all servers, or of some brokers; groups."""

    checks: bool
    groups: bool
    brokers: frozenset[str] = frozenset()

    def __call__(self, fact: Fact) -> bool:
        if fact.rule.is_of_groups:
            return self.groups
        return self.checks or not self.brokers.isdisjoint(fact.subject.split())


def _notice(kind: Literal["firing", "repeated", "resolved"], each: Active, now: float) -> Notice:
    fact = each.fact
    return Notice(
        kind,
        fact.id,
        fact.rule.name,
        fact.subject,
        fact.level,
        fact.found,
        fact.advice,
        now - each.since,
        fact.rule.to,
    )


def facts_of_checks(rules: Iterable[Rule], checks: Iterable[tuple[str, str, str, str | None]]) -> list[Fact]:
    """Facts of the doctor's checks: name, level, text, advice."""
    every = list(checks)
    return [
        Fact(rule, check, level, found, advice or "")
        for rule in rules
        if not rule.is_of_groups
        for check, level, found, advice in every
        if rule.covers(check, level)
    ]


def facts_of_groups(
    rules: Iterable[Rule], lags: Mapping[str, int], dead_letters: Mapping[str, int]
) -> list[Fact]:
    """Facts of groups: pending messages and dead letters."""
    found = []
    for rule in rules:
        if not rule.is_of_groups:
            continue
        values, noun = (lags, "pending messages") if rule.when == "lag" else (dead_letters, "dead letters")
        advice = {
            "lag": "find the reason: rmqpy doctor --group {}",
            "dead-letters": "read their causes with rmqpy dlq list {}, and send them again once these are gone",
        }[rule.when]
        found += [
            Fact(
                rule,
                group,
                "warn",
                f"{group} has {value} {noun}, more than {rule.above}",
                advice.format(group),
            )
            for group, value in values.items()
            if value > rule.above and fnmatchcase(group, rule.matches)
        ]
    return found
