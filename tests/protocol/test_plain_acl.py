"""Accounts of ACL 1.0: parsing of their file, and equal permissions of the migrated users."""

import random
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from rmqpy._native import decide
from rmqpy.errors import DecodeError
from rmqpy.protocol import plain_acl
from rmqpy.protocol.plain_acl import TRACE_TOPIC, PlainAccount
from rmqpy.protocol.requests.access import PolicyEntry, UserType

#: As Apache's documentation has it.
DOCUMENTED = """
globalWhiteRemoteAddresses:
- 10.10.103.*
- 192.168.0.*

accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - topicA=DENY
  - topicB=PUB|SUB
  - topicC=SUB
  groupPerms:
  # the group should convert to retry topic
  - groupA=DENY
  - groupB=PUB|SUB
  - groupC=SUB

- accessKey: rocketmq2
  secretKey: 12345678
  whiteRemoteAddress: 192.168.1.*
  # if it is admin, it could access all resources
  admin: true
"""


class Need(NamedTuple):
    """One thing a request needs by ACL 1.0, and the actions of which one will do here."""

    kind: str
    name: str
    permission: str
    actions: tuple[str, ...]


#: The permissions that ACL 1.0 requires for a request, by its description; administration of topics, groups and brokers
#: is for administrators only.
REQUESTS: Mapping[str, tuple[tuple[str, str, tuple[str, ...]], ...]] = {
    "send": (("Topic", "PUB", ("Pub",)),),
    "send to a retry topic": (("Group", "SUB", ("Sub",)),),
    "send back": (("Group", "SUB", ("Sub",)),),
    "pull": (("Topic", "SUB", ("Sub",)), ("Group", "SUB", ("Sub",))),
    "query": (("Topic", "SUB", ("Sub", "Get")),),
    "heartbeat": (("Group", "SUB", ("Sub",)), ("Topic", "SUB", ("Sub",))),
    "unregister": (("Group", "SUB", ("Sub",)),),
    "list consumers": (("Group", "SUB", ("Sub", "Get")),),
    "commit": (("Group", "SUB", ("Sub", "Update")), ("Topic", "SUB", ("Sub", "Update"))),
}
ADMINISTRATION = (
    ("Topic", "Create"),
    ("Topic", "Delete"),
    ("Group", "Delete"),
    ("Cluster", "Update"),
)


def acl_1(account: PlainAccount, kind: str, name: str, permission: str) -> bool:
    """Return the decision of ACL 1.0, by its description."""
    if kind == "Topic" and name == TRACE_TOPIC and permission == "PUB":
        return True
    if account.is_admin and not account.topics and not account.groups:
        return True
    listed, otherwise = (
        (account.topics, account.default_topic)
        if kind == "Topic"
        else (account.groups, account.default_group)
    )
    return permission in listed.get(name, otherwise)


def rows(entries: list[PolicyEntry] | None) -> list[Any]:
    return [(each.resource, each.actions, each.source_ips, each.decision) for each in entries or ()]


def second_kind(account: PlainAccount, kind: str, name: str, actions: tuple[str, ...]) -> bool:
    """Return the decision for the migrated user."""
    acl = plain_acl.acl_of(account)
    if acl is None:
        return plain_acl.user_of(account).user_type == UserType.Super.name
    custom, default = (policy.entries for policy in acl.policies or ())
    for entries in (custom, default):
        resources = [each.resource for each in entries or ()]
        assert len(resources) == len(set(resources)), "one entry of a resource takes another's place"
    return decide(rows(custom), rows(default), (kind, name, list(actions)), "10.0.0.7")[0]


def random_account(chance: random.Random) -> PlainAccount:
    permissions = [frozenset(), frozenset({"PUB"}), frozenset({"SUB"}), frozenset({"PUB", "SUB"})]
    names = ["a", "b", "c", "d", TRACE_TOPIC]

    def listed() -> dict[str, frozenset[str]]:
        return {
            name: chance.choice(permissions) for name in chance.sample(names, chance.choice([0, 0, 1, 2, 4]))
        }

    return PlainAccount(
        access_key="account",
        secret_key="account-secret",
        is_admin=chance.random() < 0.3,
        default_topic=chance.choice(permissions),
        default_group=chance.choice(permissions),
        topics=listed(),
        groups=listed(),
    )


def test_account_and_migrated_user_have_equal_permissions() -> None:
    chance, asked = random.Random(19), 0
    for _ in range(400):
        account = random_account(chance)
        for name, needs in REQUESTS.items():
            for resource in ("a", "b", "c", "d", "e", TRACE_TOPIC):
                before = all(acl_1(account, kind, resource, permission) for kind, permission, _ in needs)
                after = all(second_kind(account, kind, resource, actions) for kind, _, actions in needs)
                assert before == after, (name, resource, account)
                asked += before
        for kind, action in ADMINISTRATION:
            assert second_kind(account, kind, "a", (action,)) == account.is_admin, (kind, action, account)
    assert asked > 3_000


def test_the_file_of_the_documentation_is_read() -> None:
    found = plain_acl.read(DOCUMENTED)
    assert found.white_addresses == ("10.10.103.*", "192.168.0.*")
    first, second = found.accounts
    assert (first.access_key, first.secret_key, first.white_address) == ("RocketMQ", "12345678", "")
    assert first.topics == {"topicA": set(), "topicB": {"PUB", "SUB"}, "topicC": {"SUB"}}
    assert first.groups == {"groupA": set(), "groupB": {"PUB", "SUB"}, "groupC": {"SUB"}}
    assert (first.default_topic, first.default_group) == (set(), {"SUB"})
    assert second.may_everything
    assert second.white_address == "192.168.1.*"
    assert "12345678" not in repr(found)
    for name, (pub, sub) in {
        "topicA": (False, False),
        "topicB": (True, True),
        "topicC": (False, True),
        "topicD": (False, False),
    }.items():
        assert second_kind(first, "Topic", name, ("Pub",)) == pub, name
        assert second_kind(first, "Topic", name, ("Sub",)) == sub, name
    for name, sub in {"groupA": False, "groupB": True, "groupC": True, "groupD": True}.items():
        assert second_kind(first, "Group", name, ("Sub",)) == sub, name


ACCOUNT = "accounts:\n- accessKey: account\n  secretKey: account-secret\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: [", "not valid YAML, line"),
        ("- a", "is not a mapping"),
        ("accounts: 5", "accounts is not a list"),
        ("accounts: [5]", "account 1 is not a mapping"),
        ("accounts:\n- accessKey: short\n  secretKey: account-secret", "fewer than 7"),
        ("accounts:\n- accessKey: account\n", "account account: secretKey has fewer"),
        (ACCOUNT + "  topicPerms: [a]", "is not NAME=PERMISSION"),
        (ACCOUNT + "  whiteRemoteAddress: 10.0.0", "is not \\*, an address"),
        ("globalWhiteRemoteAddresses: [10.0.0.0/8]", "is not \\*, an address"),
    ],
)
def test_unreadable_file_is_refused_with_the_reason_but_no_secret(text: str, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason) as caught:
        plain_acl.read(text)
    assert "account-secret" not in str(caught.value)


def test_entries_without_effect_are_reported() -> None:
    found = plain_acl.read(
        ACCOUNT
        + "  defaultTopicPerm: ALL\n  topicPerms: ['a*=PUB', b=pub, c=PUB | SUB]\n"
        + ACCOUNT.removeprefix("accounts:\n")
    )
    assert len(found.accounts) == 1
    assert found.accounts[0].default_topic == set()
    assert found.accounts[0].topics == {"b": set(), "c": set()}
    for part in ("'ALL'", "'a*'", "'pub'", "'PUB | SUB'", "twice"):
        assert part in " ".join(found.remarks)
