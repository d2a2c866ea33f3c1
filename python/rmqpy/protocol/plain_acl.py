"""Plain accounts: ACL 1.0, as in `plain_acl.yml` of releases up to 5.3.2.

Owns the parser of the file, and the conversion of an account into a user and policies, which are enforced here and
created by the migration, so both decide alike. Permissions for a listed topic or group replace the account's default,
even if they are fewer, so a Default entry denies unlisted resources.

`PUB` allows to send, `SUB` to receive and to query. Requests that ACL 1.0 allows to every account, such as reading a
broker's settings, require an administrator.

Pure; any thread. PyYAML is imported when a file is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rmqpy._native import is_listed
from rmqpy.errors import DecodeError
from rmqpy.protocol.access import Action
from rmqpy.protocol.requests.access import (
    AclInfo,
    Policy,
    PolicyEntry,
    PolicyType,
    UserInfo,
    UserStatus,
    UserType,
)

#: The fewest characters of keys and secrets.
KEY_CHARS_MIN: Final = 7
#: The most accounts of one file.
ACCOUNTS_MAX: Final = 10_000
#: Topics that every account may send to.
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"

Permission = frozenset[str]
_DENY: Final[Permission] = frozenset()
_PERMISSIONS: Final[Mapping[str, Permission]] = {
    "DENY": _DENY,
    "PUB": frozenset({"PUB"}),
    "SUB": frozenset({"SUB"}),
    "PUB|SUB": frozenset({"PUB", "SUB"}),
    "SUB|PUB": frozenset({"PUB", "SUB"}),
}
_ACTIONS: Final[Mapping[str, tuple[Action, ...]]] = {"PUB": (Action.PUB,), "SUB": (Action.SUB, Action.GET)}
#: Further rights of an administrator on topics and groups; with the right to receive also to set offsets.
_ADMINISTRATION: Final = (Action.CREATE, Action.DELETE, Action.LIST)


@dataclass(frozen=True, kw_only=True)
class PlainAccount:
    """One account of a file."""

    access_key: str
    secret_key: str = field(repr=False)
    white_address: str = ""
    is_admin: bool = False
    default_topic: Permission = _DENY
    default_group: Permission = _DENY
    topics: Mapping[str, Permission] = field(default_factory=dict)
    groups: Mapping[str, Permission] = field(default_factory=dict)

    @property
    def may_everything(self) -> bool:
        """An administrator without listed resources needs no permission."""
        return self.is_admin and not self.topics and not self.groups


@dataclass(frozen=True)
class PlainFile:
    """The content of one file."""

    white_addresses: tuple[str, ...] = ()
    accounts: tuple[PlainAccount, ...] = ()
    #: Entries without effect.
    remarks: tuple[str, ...] = ()


def members(text: str) -> dict[str, Any]:
    """The parsed members of a file. Raises `DecodeError`."""
    import yaml

    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        # Without the text: it may be a secret.
        raise DecodeError(f"not valid YAML, line {where.line + 1}" if where else "not valid YAML") from None
    if found is not None and not isinstance(found, dict):
        raise DecodeError("the file is not a mapping with globalWhiteRemoteAddresses and accounts")
    return found or {}


def written(found: Mapping[str, Any]) -> str:
    """Format a file with these members."""
    import yaml

    return yaml.safe_dump(dict(found), sort_keys=False, allow_unicode=True)


def read(text: str) -> PlainFile:
    """Parse a file. Raises `DecodeError` naming the account, never a secret."""
    found = members(text)
    addresses = tuple(str(each).strip() for each in _list(found, "globalWhiteRemoteAddresses"))
    for address in addresses:
        _check_addresses("globalWhiteRemoteAddresses", address)
    given = _list(found, "accounts")
    if len(given) > ACCOUNTS_MAX:
        raise DecodeError(f"the file has more than {ACCOUNTS_MAX} accounts")
    remarks: list[str] = []
    accounts: dict[str, PlainAccount] = {}
    for number, each in enumerate(given, 1):
        account = _account(number, each, remarks)
        if account.access_key in accounts:
            remarks.append(f"the account {account.access_key} is listed twice; the first one applies")
        accounts.setdefault(account.access_key, account)
    return PlainFile(addresses, tuple(accounts.values()), tuple(remarks))


def _account(number: int, given: Any, remarks: list[str]) -> PlainAccount:
    if not isinstance(given, dict):
        raise DecodeError(f"account {number} is not a mapping")
    key, secret = _text(given, "accessKey"), _text(given, "secretKey")
    label = f"account {key or number}"
    for name, value in (("accessKey", key), ("secretKey", secret)):
        if len(value) < KEY_CHARS_MIN:
            raise DecodeError(f"{label}: {name} has fewer than {KEY_CHARS_MIN} characters")
    if not key.isprintable() or key != key.strip() or len(key) > 255:
        raise DecodeError(
            f"{label}: accessKey has surrounding blanks, unprintable characters, or more than 255 characters"
        )
    white = _text(given, "whiteRemoteAddress").strip()
    _check_addresses(label, white)
    return PlainAccount(
        access_key=key,
        secret_key=secret,
        white_address=white,
        is_admin=_text(given, "admin").lower() == "true",
        default_topic=_permission(label, _text(given, "defaultTopicPerm"), remarks),
        default_group=_permission(label, _text(given, "defaultGroupPerm"), remarks),
        topics=_listed(label, _list(given, "topicPerms"), remarks),
        groups=_listed(label, _list(given, "groupPerms"), remarks),
    )


def _text(given: Mapping[str, Any], name: str) -> str:
    value = given.get(name)
    return "" if value is None else str(value)


def _list(given: Mapping[str, Any], name: str) -> list[Any]:
    value = given.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise DecodeError(f"{name} is not a list")
    return value


def _check_addresses(where: str, text: str) -> None:
    try:
        is_listed(text, "127.0.0.1")
    except ValueError as error:
        raise DecodeError(f"{where}: {error}") from None


def _permission(label: str, text: str, remarks: list[str]) -> Permission:
    # Case-sensitive: unknown words allow nothing in Apache's broker.
    name = text.strip() or "DENY"
    if name not in _PERMISSIONS:
        remarks.append(f"{label}: {text!r} is not a permission and allows nothing")
    return _PERMISSIONS.get(name, _DENY)


def _listed(label: str, given: Iterable[Any], remarks: list[str]) -> dict[str, Permission]:
    found = {}
    for each in given:
        name, sign, permission = str(each).partition("=")
        if not sign or "=" in permission or not name.strip():
            raise DecodeError(f"{label}: {each!r} is not NAME=PERMISSION")
        if "*" in name:
            remarks.append(f"{label}: {name.strip()!r} is not a valid name and matches nothing")
            continue
        found[name.strip()] = _permission(label, permission, remarks)
    return found


# ---- as users and policies ----


def user_of(account: PlainAccount) -> UserInfo:
    return UserInfo(
        username=account.access_key,
        password=account.secret_key,
        user_type=(UserType.Super if account.may_everything else UserType.Normal).name,
        user_status=UserStatus.enable.name,
    )


def acl_of(account: PlainAccount) -> AclInfo | None:
    """The policies for an account; None if it needs none."""
    if account.may_everything:
        return None
    besides = _ADMINISTRATION if account.is_admin else ()
    topics = dict(account.topics)
    topics[TRACE_TOPIC] = topics.get(TRACE_TOPIC, account.default_topic) | {"PUB"}
    custom, default = [], []
    for kind, listed, otherwise in (
        ("Topic", topics, account.default_topic),
        ("Group", account.groups, account.default_group),
    ):
        default.append(_entry(f"{kind}:*", otherwise, besides))
        for name, permission in listed.items():
            custom.append(_entry(f"{kind}:{name}", permission, besides))
            if otherwise - permission:
                # Unlisted resources are denied, whatever the default.
                denied = [action for each in sorted(otherwise - permission) for action in _ACTIONS[each]]
                default.append(_named(f"{kind}:{name}", denied, "Deny"))
    if account.is_admin:
        custom.append(_named("Cluster:*", [Action.ALL], "Allow"))
    policies = [
        Policy(policy_type=kind.name, entries=entries)
        for kind, entries in ((PolicyType.Custom, custom), (PolicyType.Default, default))
    ]
    return AclInfo(subject=f"User:{account.access_key}", policies=policies)


def _entry(resource: str, permission: Permission, besides: tuple[Action, ...]) -> PolicyEntry:
    actions = [action for each in sorted(permission) for action in _ACTIONS[each]]
    if not actions and not besides:
        return _named(resource, [Action.ALL], "Deny")
    if besides and "SUB" in permission:
        actions.append(Action.UPDATE)
    return _named(resource, [*actions, *besides], "Allow")


def _named(resource: str, actions: Iterable[Action], decision: str) -> PolicyEntry:
    return PolicyEntry(
        resource=resource, actions=[action.value for action in actions], source_ips=[], decision=decision
    )
