"""Alert rules and receivers, as a TOML file declares them. Pure, except for reading the files."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args
from urllib.parse import urlsplit

from rmqpy.errors import ConfigError

RULES_MAX: Final = 200
RECEIVERS_MAX: Final = 50

When = Literal["no-master", "gone", "disk", "replication", "certificate", "check", "lag", "dead-letters"]
Encryption = Literal["none", "starttls", "tls"]

#: Check names of the doctor for each kind of rule.
_CHECKS: Final[Mapping[str, Sequence[str]]] = {
    "no-master": ("master of *",),
    "gone": ("broker *",),
    "disk": ("disk of *", "store of *"),
    "replication": ("replicas of *", "slave * of *", "log of *", "promise of *", "port for slaves of *"),
    "certificate": ("certificate *",),
    "check": ("*",),
}


class Rule(NamedTuple):
    """A condition, and where to report it."""

    name: str
    when: When
    #: Pattern of check names, of `check`; or of group names.
    matches: str = "*"
    #: The largest value without an alert, of lags and dead letters.
    above: int = 0
    #: Whether warnings count, too, of checks.
    with_warnings: bool = False
    #: Seconds that it has to last.
    lasting: float = 0.0
    #: Receivers; empty: all.
    to: tuple[str, ...] = ()

    @property
    def is_of_groups(self) -> bool:
        """Whether it measures groups, rather than checks."""
        return self.when in ("lag", "dead-letters")

    def covers(self, check: str, level: str) -> bool:
        """Whether a check with this level fires it."""
        if level == "ok" or (level == "warn" and not self.with_warnings):
            return False
        patterns = _CHECKS[self.when]
        return any(fnmatchcase(check, each) for each in patterns) and fnmatchcase(check, self.matches)


class Receiver(NamedTuple):
    """A webhook, a mail server or a command; exactly one is set."""

    name: str
    webhook: str = ""
    #: `host:port`.
    smtp: str = ""
    encryption: Encryption = "starttls"
    sender: str = ""
    recipients: tuple[str, ...] = ()
    user: str = ""
    command: tuple[str, ...] = ()
    #: File with the password of `user`, or with the value of the header Authorization.
    secret_file: str = ""

    @property
    def target(self) -> str:
        """The target without secrets; addresses of webhooks often contain one."""
        if self.webhook:
            parts = urlsplit(self.webhook)
            return f"{parts.scheme}://{parts.hostname}/…"
        return f"{', '.join(self.recipients)} by {self.smtp}" if self.smtp else self.command[0]


@dataclass(frozen=True, slots=True)
class AlertConfig:
    """All rules and receivers."""

    rules: tuple[Rule, ...]
    receivers: Mapping[str, Receiver]
    #: Seconds between evaluations, and between repeats of a lasting alert; 0: no repeats.
    every: float = 30.0
    repeat: float = 14_400.0
    console_url: str = field(default="")


def load(path: Path) -> AlertConfig:
    """Read a file. Raises `ConfigError` naming it and the mistake."""
    try:
        return read(tomllib.loads(path.read_text("utf-8")))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.args[0]}", hint=error.hint) from None


def read(given: Mapping[str, Any]) -> AlertConfig:
    """Check the parsed file. Raises `ConfigError`."""
    top = dict(given)
    receivers = {
        name: _receiver(name, table)
        for name, table in _typed(top.pop("receivers", {}), dict, "receivers").items()
    }
    rules = tuple(
        _rule(number, table, receivers)
        for number, table in enumerate(_typed(top.pop("rules", []), list, "rules"), 1)
    )
    if not receivers:
        raise ConfigError("no receiver", hint='for example: [receivers.ops] webhook = "https://…"')
    if not rules:
        raise ConfigError("no rule", hint='for example: [[rules]] when = "no-master"')
    if len(rules) > RULES_MAX or len(receivers) > RECEIVERS_MAX:
        raise ConfigError(f"at most {RULES_MAX} rules and {RECEIVERS_MAX} receivers are allowed")
    if len({rule.name for rule in rules}) < len(rules):
        raise ConfigError("two rules have one name")
    every = _number(top, "every", 30, 5, 3_600)
    repeat = _number(top, "repeat", 14_400, 0, 7 * 86_400)
    url = _text(top, "console")
    _no_more(top, "the file")
    return AlertConfig(rules, receivers, every, repeat, url)


def _rule(number: int, table: Any, receivers: Mapping[str, Receiver]) -> Rule:
    given = dict(_typed(table, dict, f"rule {number}"))
    when = given.pop("when", None)
    if when not in get_args(When):
        raise ConfigError(f"rule {number}: when must be one of {', '.join(get_args(When))}")
    is_of_groups = when in ("lag", "dead-letters")
    matches = _text(given, "groups" if is_of_groups else "checks") or "*"
    to = tuple(_texts(given, "to"))
    if unknown := [each for each in to if each not in receivers]:
        raise ConfigError(f"rule {number}: no receiver is called {unknown[0]!r}")
    rule = Rule(
        _text(given, "name") or f"{when} {matches}",
        when,
        matches,
        int(_number(given, "above", 0, 0, 1 << 62)) if is_of_groups else 0,
        bool(_typed(given.pop("warnings", False), bool, "warnings")),
        _number(given, "for", 0, 0, 86_400),
        to,
    )
    _no_more(given, f"rule {number}")
    return rule


def _receiver(name: str, table: Any) -> Receiver:
    given = dict(_typed(table, dict, f"receiver {name}"))
    encryption = given.pop("encryption", "starttls")
    if encryption not in get_args(Encryption):
        raise ConfigError(f"receiver {name}: encryption must be one of {', '.join(get_args(Encryption))}")
    made = Receiver(
        name,
        _text(given, "webhook"),
        _text(given, "smtp"),
        encryption,
        _text(given, "from"),
        tuple(_texts(given, "to")),
        _text(given, "user"),
        tuple(_texts(given, "command")),
        _text(given, "secret_file"),
    )
    _no_more(given, f"receiver {name}")
    if sum(map(bool, (made.webhook, made.smtp, made.command))) != 1:
        raise ConfigError(f"receiver {name}: set one of webhook, smtp and command")
    if made.webhook and (
        urlsplit(made.webhook).scheme not in ("http", "https") or not urlsplit(made.webhook).hostname
    ):
        raise ConfigError(f"receiver {name}: webhook is not an http or https address")
    if made.smtp and not (made.sender and made.recipients and made.smtp.rpartition(":")[2].isdigit()):
        raise ConfigError(f"receiver {name}: mail needs smtp as host:port, from and to")
    return made


def _typed(value: Any, kind: type, name: str) -> Any:
    if not isinstance(value, kind):
        raise ConfigError(f"{name} must be of type {kind.__name__}")
    return value


def _text(given: dict[str, Any], name: str) -> str:
    return str(_typed(given.pop(name, ""), str, name))


def _texts(given: dict[str, Any], name: str) -> list[str]:
    value = given.pop(name, [])
    found = [value] if isinstance(value, str) else _typed(value, list, name)
    return [_typed(each, str, name) for each in found]


def _number(given: dict[str, Any], name: str, otherwise: float, low: float, high: float) -> float:
    value = given.pop(name, otherwise)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ConfigError(f"{name} must be a number from {low} to {high}")
    return float(value)


def _no_more(given: Mapping[str, Any], where: str) -> None:
    if given:
        raise ConfigError(f"{where}: unknown key {next(iter(given))!r}")
