"""Transfer of a cluster's definitions: topics, groups, users and rules as one document, and its plan for a cluster.

An import creates and changes, and deletes nothing. Users have no secrets in the document, because no server returns
them. Messages and offsets are not part of it: see `rmqpy.backup`.
"""

import dataclasses
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple

from rmqpy import __version__
from rmqpy.admin.access import Access, AccessRule, rules_of
from rmqpy.admin.connection import AdminConnection, Part
from rmqpy.admin.groups import Groups
from rmqpy.admin.topics import Topics, change_to
from rmqpy.errors import AuthError, ConfigError, DecodeError, Unsupported
from rmqpy.protocol import names
from rmqpy.protocol.declare import Request, json_tree, read_tree
from rmqpy.protocol.requests.access import (
    AclInfo,
    CreateAcl,
    CreateUser,
    ListAcls,
    ListUsers,
    Policy,
    PolicyEntry,
    UpdateUser,
    UserInfo,
)
from rmqpy.protocol.requests.groups import (
    GetAllSubscriptionGroupConfig,
    SubscriptionGroup,
    UpdateAndCreateSubscriptionGroup,
    UpdateAndGetGroupForbidden,
)
from rmqpy.protocol.requests.topics import GetAllTopicConfig, UpdateAndCreateTopic
from rmqpy.protocol.topics import TopicConfig

KIND: Final = "rmqpy cluster"
FORMAT: Final = 1
_REMARK: Final = (
    "Users have no secrets here: an import gives new ones a random secret. Messages are not included."
)
_FORBIDDEN: Final = "forbiddenTopics"
#: The bit that forbids reading.
_FORBIDDEN_READ: Final = 1 << 2
_SECRET_BYTES: Final = 32

Action = Literal["create", "change", "unchanged"]


class Step(NamedTuple):
    """One definition on one server, and what an import does with it."""

    kind: Literal["topic", "group", "user", "rule"]
    name: str
    server: str
    action: Action
    #: The changed settings, or a remark.
    changes: str
    #: The server's address, and the requests of the change.
    address: str
    requests: tuple[Request[Any], ...]


class Transfer(Part):
    """Exports and imports of one cluster."""

    def __init__(self, cluster: AdminConnection) -> None:
        super().__init__(cluster)
        self._topics = Topics(cluster)
        self._groups = Groups(cluster)
        self._access = Access(cluster)

    async def export(self) -> dict[str, Any]:
        """Return the document of all masters of the cluster, without topics and groups of the system."""
        masters = await self._cluster.masters()
        wanted = set(await self._topics.names())
        topics: dict[str, dict[str, TopicConfig]] = {}
        groups: dict[str, dict[str, SubscriptionGroup]] = {}
        forbidden: dict[str, dict[str, tuple[str, ...]]] = {}
        for broker, address in sorted(masters.items()):
            for name, topic in (await self._topic_table(address)).items():
                if name in wanted:
                    topics.setdefault(name, {})[broker] = topic
            table, barred = await self._group_table(address)
            for name, group in table.items():
                groups.setdefault(name, {})[broker] = group
                forbidden.setdefault(name, {})[broker] = barred.get(name, ())
        users, rules, fault = await self._access_tables()
        return {
            "kind": KIND,
            "format": FORMAT,
            "version": __version__,
            "exported_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "remark": _REMARK,
            "brokers": sorted(masters),
            "topics": [
                row
                for name, each in sorted(topics.items())
                for row in _rows(name, {b: _settings(topic) for b, topic in each.items()}, len(masters))
            ],
            "groups": [
                row
                for name, each in sorted(groups.items())
                for row in _rows(
                    name,
                    {b: _settings(group) | _barred(forbidden[name][b]) for b, group in each.items()},
                    len(masters),
                )
            ],
            "users": users,
            "rules": rules,
            "access_fault": fault,
        }

    async def plan(self, document: Mapping[str, Any]) -> list[Step]:
        """Return the steps of an import into this cluster, the unchanged ones included. Raises `ConfigError` for an
        invalid document, or if it names an unknown broker."""
        masters = await self._cluster.masters(is_change=True)
        given = _checked(document, masters)
        steps = []
        for broker, address in sorted(masters.items()):
            topics = await self._topic_table(address)
            groups, barred = await self._group_table(address)
            for row in given.topics:
                if broker in row.brokers:
                    steps.append(_topic_step(broker, address, row.name, row.topic(), topics.get(row.name)))
            for row in given.groups:
                if broker in row.brokers:
                    known, bars = groups.get(row.name), barred.get(row.name, ())
                    steps.append(_group_step(broker, address, row, known, bars))
        if given.users or given.rules:
            made_up = {user.username: secrets.token_urlsafe(_SECRET_BYTES) for user in given.users}
            for server, address in await self._access.servers():
                steps += await self._access_steps(given, server, address, made_up)
        return sorted(steps, key=lambda step: _KINDS.index(step.kind))

    async def apply(self, steps: Sequence[Step]) -> int:
        """Make the changes of a plan; return their number. After a failure, repeat the import."""
        count = 0
        ordered: dict[str, dict[str, int]] = {}
        for step in steps:
            for ask in step.requests:
                await self._cluster.ask(step.address, ask)
                if isinstance(ask, UpdateAndCreateTopic) and ask.order:
                    ordered.setdefault(step.name, {})[step.server] = ask.write_queue_nums
            count += bool(step.requests)
        for name, queues in ordered.items():
            await self._topics.list_queues(name, queues)
        return count

    async def _topic_table(self, address: str) -> Mapping[str, TopicConfig]:
        return (await self._cluster.ask(address, GetAllTopicConfig())).body.topic_config_table

    async def _group_table(
        self, address: str
    ) -> tuple[Mapping[str, SubscriptionGroup], Mapping[str, tuple[str, ...]]]:
        """Return the groups of a broker, and the topics that each must not read."""
        body = (await self._cluster.ask(address, GetAllSubscriptionGroupConfig())).body
        barred = {
            group: tuple(sorted(topic for topic, bits in topics.items() if bits & _FORBIDDEN_READ))
            for group, topics in body.forbidden_table.items()
        }
        table = body.subscription_group_table
        return {name: table[name] for name in table if not names.is_system_group(name)}, barred

    async def _access_tables(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]], str | None]:
        """Return users and rules, those of the first server that has them, or the reason if they cannot be read."""
        users: dict[str, dict[str, Any]] = {}
        rules: dict[tuple[str, str, str], dict[str, Any]] = {}
        try:
            for user in await self._access.users():
                row = {"name": user.name, "super": user.is_super, "enabled": user.is_enabled}
                users.setdefault(user.name, row)
            for rule in await self._access.rules():
                rules.setdefault(_key(rule), _rule_row(rule))
        except (AuthError, Unsupported) as error:
            return [], [], str(error.args[0] if error.args else error)
        return list(users.values()), list(rules.values()), None

    async def _access_steps(
        self, given: "_Document", server: str, address: str, made_up: Mapping[str | None, str]
    ) -> list[Step]:
        known_users = {
            user.username: user for user in (await self._cluster.ask(address, ListUsers())).body or ()
        }
        known_rules = {
            _key(rule): _rule_row(rule)
            for acl in (await self._cluster.ask(address, ListAcls())).body or ()
            for rule in rules_of(server, acl)
        }
        steps = [
            _user_step(server, address, user, known_users.get(user.username), made_up) for user in given.users
        ]
        for rule in given.rules:
            ask = _rule_request(rule)
            row, before = _rule_row(rule), known_rules.get(_key(rule))
            action: Action = "create" if before is None else "unchanged" if before == row else "change"
            name = f"{rule.user} {rule.resource}"
            changes = "" if before is None else _differences(before, row)
            steps.append(
                Step("rule", name, server, action, changes, address, () if action == "unchanged" else (ask,))
            )
        return steps


_KINDS: Final = ("topic", "group", "user", "rule")


class _Row(NamedTuple):
    """A topic or a group of a document, with the brokers that get it."""

    name: str
    brokers: frozenset[str]
    settings: dict[str, Any]

    def topic(self) -> TopicConfig:
        return read_tree(TopicConfig, {**self.settings, "topicName": self.name})

    def group(self) -> SubscriptionGroup:
        tree = {name: value for name, value in self.settings.items() if name != _FORBIDDEN}
        return read_tree(SubscriptionGroup, {**tree, "groupName": self.name})

    @property
    def barred(self) -> tuple[str, ...]:
        return tuple(self.settings.get(_FORBIDDEN, ()))


class _Document(NamedTuple):
    """A document whose parts were checked."""

    topics: list[_Row]
    groups: list[_Row]
    users: list[UserInfo]
    rules: list[AccessRule]


def _key(rule: AccessRule) -> tuple[str, str, str]:
    return rule.user, rule.kind, rule.resource


def _rule_row(rule: AccessRule) -> dict[str, Any]:
    return {name: value for name, value in rule._asdict().items() if name != "broker"}


def _settings(entry: TopicConfig | SubscriptionGroup) -> dict[str, Any]:
    """Return the settings of a topic or a group by their names on the wire, without its name."""
    tree = json_tree(entry)
    return {name: value for name, value in sorted(tree.items()) if name not in ("topicName", "groupName")}


def _barred(topics: Sequence[str]) -> dict[str, Any]:
    return {_FORBIDDEN: list(topics)} if topics else {}


def _rows(name: str, by_broker: Mapping[str, dict[str, Any]], brokers: int) -> Iterator[dict[str, Any]]:
    """One row for all brokers if they agree, else one for each kind of settings."""
    kinds: list[tuple[dict[str, Any], list[str]]] = []
    for broker, settings in by_broker.items():
        for known, members in kinds:
            if known == settings:
                members.append(broker)
                break
        else:
            kinds.append((settings, [broker]))
    for settings, members in kinds:
        where = {} if len(members) == brokers else {"brokers": members}
        yield {"name": name, **where, "settings": settings}


def _checked(document: Mapping[str, Any], brokers: Mapping[str, str]) -> _Document:
    if document.get("kind") != KIND or document.get("format") != FORMAT:
        raise ConfigError(f"this is not an export of a cluster in format {FORMAT}")
    try:
        topics = [_row(each, brokers) for each in document["topics"]]
        groups = [_row(each, brokers) for each in document["groups"]]
        for row in topics:
            if fault := names.topic_fault(row.name):
                raise ValueError(f"topic {row.name!r}: {fault}")
            row.topic()
        for row in groups:
            if fault := names.group_fault(row.name):
                raise ValueError(f"group {row.name!r}: {fault}")
            row.group()
        users = [
            UserInfo(
                username=str(each["name"]),
                user_type="Super" if each["super"] else "Normal",
                user_status="enable" if each["enabled"] else "disable",
            )
            for each in document["users"]
        ]
        rules = [AccessRule(broker="", **each) for each in document["rules"]]
    except (KeyError, TypeError, ValueError, AttributeError, DecodeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else error
        raise ConfigError(f"the export is invalid: {reason}") from None
    return _Document(topics, groups, users, rules)


def _row(each: Mapping[str, Any], brokers: Mapping[str, str]) -> _Row:
    named = frozenset(each.get("brokers", brokers))
    if unknown := named - brokers.keys():
        raise ValueError(
            f"{each['name']!r} is on {', '.join(sorted(unknown))}, and the brokers here are "
            f"{', '.join(sorted(brokers))}: rename them in the file, or remove `brokers` for all"
        )
    if not isinstance(each["settings"], dict):
        raise TypeError(f"the settings of {each['name']!r} are not an object")
    return _Row(str(each["name"]), named, dict(each["settings"]))


def _topic_step(broker: str, address: str, name: str, wanted: TopicConfig, known: TopicConfig | None) -> Step:
    before, after = {} if known is None else _settings(known), _settings(wanted)
    if before == after:
        return Step("topic", name, broker, "unchanged", "", address, ())
    attributes = ",".join(
        f"{sign}{key}={value}" if sign == "+" else f"-{key}"
        for sign, key, value in _signed(known.attributes if known else {}, wanted.attributes)
    )
    ask = change_to(name, wanted, attributes or None)
    action: Action = "create" if known is None else "change"
    return Step("topic", name, broker, action, _differences(before, after) if known else "", address, (ask,))


def _group_step(
    broker: str, address: str, row: _Row, known: SubscriptionGroup | None, barred: Sequence[str]
) -> Step:
    wanted = row.group()
    before = {} if known is None else _settings(known) | _barred(barred)
    after = _settings(wanted) | _barred(row.barred)
    if before == after:
        return Step("group", row.name, broker, "unchanged", "", address, ())
    attributes = {
        f"{sign}{key}": value
        for sign, key, value in _signed(known.attributes if known else {}, wanted.attributes)
    }
    body = dataclasses.replace(wanted, attributes=attributes)
    asks: list[Request[Any]] = [UpdateAndCreateSubscriptionGroup(body=body)]
    for topic in sorted({*barred} ^ {*row.barred}):
        asks.append(UpdateAndGetGroupForbidden(group=row.name, topic=topic, readable=topic not in row.barred))
    action: Action = "create" if known is None else "change"
    changes = _differences(before, after) if known else ""
    return Step("group", row.name, broker, action, changes, address, tuple(asks))


def _user_step(
    server: str, address: str, wanted: UserInfo, known: UserInfo | None, made_up: Mapping[str | None, str]
) -> Step:
    name = wanted.username or ""
    if known is None:
        body = dataclasses.replace(wanted, password=made_up[name])
        asks: tuple[Request[Any], ...] = (CreateUser(username=name, body=body),)
        if wanted.user_status == "disable":
            asks += (UpdateUser(username=name, body=UserInfo(username=name, user_status="disable")),)
        return Step("user", name, server, "create", "with a random secret", address, asks)
    before, after = _user_row(known), _user_row(wanted)
    if before == after:
        return Step("user", name, server, "unchanged", "", address, ())
    ask = UpdateUser(username=name, body=wanted)
    return Step("user", name, server, "change", _differences(before, after), address, (ask,))


def _user_row(user: UserInfo) -> dict[str, Any]:
    return {"type": user.user_type, "status": user.user_status}


def _rule_request(rule: AccessRule) -> CreateAcl:
    entry = PolicyEntry(
        resource=rule.resource,
        actions=list(rule.actions),
        source_ips=list(rule.sources),
        decision=rule.decision,
    )
    subject = f"User:{rule.user}"
    return CreateAcl(
        subject=subject,
        body=AclInfo(subject=subject, policies=[Policy(policy_type=rule.kind, entries=[entry])]),
    )


def _signed(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """The changes of attributes: sign, name, value."""
    for key in sorted(before.keys() - after.keys()):
        yield "-", key, ""
    for key, value in sorted(after.items()):
        if before.get(key) != value:
            yield "+", key, value


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """
    >>> _differences({"perm": 6, "order": False}, {"perm": 4, "order": False})
    'perm: 6 → 4'
    """
    return "; ".join(
        f"{name}: {_text(before.get(name))} → {_text(after.get(name))}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
