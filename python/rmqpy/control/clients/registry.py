"""Registry of clients: the members of consumer groups and producer groups.

Owns both registries. Invariant: a closed connection is in neither. The data plane gets a copy of each consumer group's
subscriptions, to check pulls that carry none. Members of a changed group are notified in the same turn of the event
loop, once for all changes of that turn. Threads: the event loop's.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field
from types import MappingProxyType

from rmqpy._native import Metadata
from rmqpy.protocol import names
from rmqpy.protocol.requests.clients import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)

log = logging.getLogger(__name__)

#: The topics of a member, with type and text of each expression.
Subscriptions = frozenset[tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class ConnectedClient:
    """One client on one connection."""

    connection: int
    client_id: str
    address: str
    language: str
    version: int
    seen_ms: int
    #: The user that signed the heartbeat, with access control.
    user: str | None = None
    #: True if that user needs policies.
    is_guarded: bool = False


@dataclass(slots=True)
class ConsumerGroup:
    """The members of a group, and the properties in their last heartbeat."""

    consume_type: ConsumeType
    message_model: MessageModel
    consume_from_where: ConsumeFromWhere
    members: dict[int, ConnectedClient] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    #: Subscriptions by member. If members disagree, the last heartbeat counts.
    subscriptions_of: dict[int, Subscriptions] = field(default_factory=dict)
    #: The clients of each set of subscriptions, at the last disagreement.
    conflicts: dict[Subscriptions, list[str]] = field(default_factory=dict)
    #: The fingerprint of the last heartbeat of version 2.
    fingerprint: int | None = None
    #: The newest connection of each client id, and ids that two connections share.
    newest: dict[str, int] = field(default_factory=dict)
    shared: set[str] = field(default_factory=set)

    @property
    def client_ids(self) -> list[str]:
        """Return each client id once, oldest first."""
        return list(dict.fromkeys(member.client_id for member in self.members.values()))


class ClientGroups(ABC):
    """Groups of one kind, found by the connections of their members."""

    def __init__(self) -> None:
        self._groups_of: dict[int, set[str]] = {}

    @abstractmethod
    def unregister(self, connection: int, group_name: str) -> None:
        """Remove one client from one group."""

    def drop(self, connection: int) -> None:
        """Remove a closed connection from all groups."""
        for group_name in sorted(self._groups_of.get(connection, ())):
            self.unregister(connection, group_name)

    def groups_of(self, connection: int) -> Set[str]:
        """Return the groups of a connection."""
        return self._groups_of.get(connection, frozenset())

    def connections(self) -> list[int]:
        """Return the connections that are in some group."""
        return list(self._groups_of)

    def _join(self, connection: int, group_name: str) -> None:
        self._groups_of.setdefault(connection, set()).add(group_name)

    def _leave(self, connection: int, group_name: str) -> None:
        self._groups_of[connection].discard(group_name)
        if not self._groups_of[connection]:
            del self._groups_of[connection]


class Consumers(ClientGroups):
    """All consumer groups with members."""

    def __init__(self, metadata: Metadata, notify: Callable[[str, Collection[int]], None]) -> None:
        """`notify` gets the name of a changed group and the connections of its members."""
        super().__init__()
        self._metadata = metadata
        self._notify = notify
        self._groups: dict[str, ConsumerGroup] = {}
        self._changed: set[str] = set()

    @property
    def groups(self) -> Mapping[str, ConsumerGroup]:
        """Groups by name."""
        return MappingProxyType(self._groups)

    def register(
        self, member: ConnectedClient, data: ConsumerData, *, with_subscriptions: bool = True
    ) -> None:
        """Apply a member's heartbeat. Without subscriptions those of the group stay unchanged."""
        group = self._groups.get(data.group_name)
        if group is None:
            group = ConsumerGroup(data.consume_type, data.message_model, data.consume_from_where)
            self._groups[data.group_name] = group
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        known = group.members.get(member.connection)
        group.members[member.connection] = member
        self._join(member.connection, data.group_name)
        is_changed = known is None or known.client_id != member.client_id
        _note_id(data.group_name, group, member, is_new=is_changed)
        if with_subscriptions:
            is_changed |= _take_subscriptions(group, data.subscription_data_set)
            _compare(data.group_name, group, member, data.subscription_data_set)
            self._publish(data.group_name, group)
        if is_changed:
            self._announce(data.group_name)

    def take_fingerprint(self, group_name: str, fingerprint: int, *, without_subscriptions: bool) -> bool:
        """Note the fingerprint of a heartbeat of version 2; return whether its sender has to send everything again.

        It has to if its fingerprint is not the group's, or the group's subscriptions are unknown here.
        """
        group = self._groups.get(group_name)
        if group is None or group.fingerprint is None:
            if group is not None and not without_subscriptions:
                group.fingerprint = fingerprint
            return without_subscriptions
        is_different = group.fingerprint != fingerprint
        group.fingerprint = fingerprint
        return is_different

    def unregister(self, connection: int, group_name: str) -> None:
        group = self._groups.get(group_name)
        member = None if group is None else group.members.pop(connection, None)
        if group is None or member is None:
            return
        group.subscriptions_of.pop(connection, None)
        _forget_id(group, member)
        self._leave(connection, group_name)
        if not group.members:
            del self._groups[group_name]
            self._metadata.remove_subscriptions(group_name)
        else:
            self._announce(group_name)

    def subscribers(self, topic: str) -> list[str]:
        """Return the groups that subscribe to a topic."""
        return [name for name, group in self._groups.items() if topic in group.subscriptions]

    def subscription(self, group_name: str, topic: str) -> SubscriptionData | None:
        """Return the subscription of a group to a topic, or `None`."""
        group = self._groups.get(group_name)
        return group.subscriptions.get(topic) if group else None

    def _publish(self, name: str, group: ConsumerGroup) -> None:
        self._metadata.put_subscriptions(
            name,
            is_broadcast=group.message_model is MessageModel.BROADCASTING,
            subscriptions=[
                (topic, data.expression_type or "TAG", data.sub_string or "*", data.sub_version)
                for topic, data in group.subscriptions.items()
            ],
        )

    def _announce(self, group_name: str) -> None:
        if not self._changed:
            asyncio.get_running_loop().call_soon(self._notify_changed)
        self._changed.add(group_name)

    def _notify_changed(self) -> None:
        changed, self._changed = self._changed, set()
        for name in changed:
            group = self._groups.get(name)
            # Members of a broadcasting group read all queues, so nothing is rebalanced.
            if group is not None and group.message_model is not MessageModel.BROADCASTING:
                self._notify(name, list(group.members))


def _take_subscriptions(group: ConsumerGroup, found: Iterable[SubscriptionData]) -> bool:
    """Replace the group's subscriptions by those of its last heartbeat; return whether topics were added or removed."""
    subscriptions: dict[str, SubscriptionData] = {}
    for data in found:
        known = group.subscriptions.get(data.topic)
        # A member that has not been updated yet reports an older version of the subscription.
        is_newer = known is None or data.sub_version > known.sub_version
        subscriptions[data.topic] = data if is_newer or known is None else known
    is_changed = subscriptions.keys() != group.subscriptions.keys()
    group.subscriptions = subscriptions
    return is_changed


def _compare(
    name: str, group: ConsumerGroup, member: ConnectedClient, found: Iterable[SubscriptionData]
) -> None:
    """Log each disagreement about subscriptions once: it is the most common mistake with groups."""
    group.subscriptions_of[member.connection] = frozenset(
        (data.topic, data.expression_type or "TAG", data.sub_string or "*")
        for data in found
        if not names.is_derived(data.topic)
    )
    clients: dict[Subscriptions, list[str]] = {}
    for connection, of in group.subscriptions_of.items():
        clients.setdefault(of, []).append(group.members[connection].client_id)
    conflicts = {of: sorted(ids) for of, ids in clients.items()} if len(clients) > 1 else {}
    if conflicts and conflicts != group.conflicts:
        log.warning(
            "members of group %s have different subscriptions, using the last heartbeat: %s",
            name,
            "; ".join(f"{', '.join(ids)} to {_words(of)}" for of, ids in conflicts.items()),
        )
    group.conflicts = conflicts


def _note_id(name: str, group: ConsumerGroup, member: ConnectedClient, *, is_new: bool) -> None:
    """Log once if two live connections claim the same member: both take all of its queues, and messages are handled
    twice. A connection that its client has replaced does not count."""
    if is_new:
        group.newest[member.client_id] = member.connection
    newest = group.members.get(group.newest.get(member.client_id, -1))
    if (
        newest is None
        or newest.connection == member.connection
        or member.client_id in group.shared
        or group.message_model is MessageModel.BROADCASTING
    ):
        return
    group.shared.add(member.client_id)
    log.warning(
        "group %s: clients at %s and %s both use the id %s, get the same queues, and handle each message twice; "
        "give each a different instance name",
        *(name, member.address, newest.address, member.client_id),
    )


def _forget_id(group: ConsumerGroup, member: ConnectedClient) -> None:
    group.shared.discard(member.client_id)
    if group.newest.get(member.client_id) == member.connection:
        del group.newest[member.client_id]


def _words(subscriptions: Subscriptions) -> str:
    return ", ".join(f"{topic} ({text})" for topic, _, text in sorted(subscriptions)) or "nothing"


class Producers(ClientGroups):
    """All producer groups with members."""

    def __init__(self) -> None:
        super().__init__()
        self._groups: dict[str, dict[int, ConnectedClient]] = {}
        #: The connections of each client with their users, newest last, and the reverse table.
        self._connections: dict[str, dict[int, str | None]] = {}
        self._clients: dict[int, str] = {}

    @property
    def groups(self) -> Mapping[str, Mapping[int, ConnectedClient]]:
        """Members by group and connection."""
        return MappingProxyType(self._groups)

    def connection_of(self, client_id: str) -> int | None:
        """Return the newest connection of a client with a producer, or `None`.

        A client id is only a claim: other users' connections are ignored while a connection of the first user to claim
        it exists.
        """
        connections = self._connections.get(client_id, {})
        owner = next(iter(connections.values()), None)
        return next((each for each in reversed(connections) if connections[each] == owner), None)

    def register(self, member: ConnectedClient, group_name: str) -> None:
        """Apply a member's heartbeat."""
        self._groups.setdefault(group_name, {})[member.connection] = member
        self._join(member.connection, group_name)
        known = self._connections.get(member.client_id, {})
        if member.connection not in known or known[member.connection] != member.user:
            self._forget(member.connection)
            self._clients[member.connection] = member.client_id
            self._connections.setdefault(member.client_id, {})[member.connection] = member.user

    def unregister(self, connection: int, group_name: str) -> None:
        members = self._groups.get(group_name)
        if members is None or members.pop(connection, None) is None:
            return
        self._leave(connection, group_name)
        if not members:
            del self._groups[group_name]
        if not self.groups_of(connection):
            self._forget(connection)

    def _forget(self, connection: int) -> None:
        """Remove a connection from its client."""
        client_id = self._clients.pop(connection, None)
        if client_id is not None:
            del self._connections[client_id][connection]
            if not self._connections[client_id]:
                del self._connections[client_id]
