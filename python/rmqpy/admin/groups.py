"""Consumer groups of a cluster: settings, members, lag and offsets.

A group exists on each master of its cluster.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from rmqpy.admin.connection import AdminConnection, Part
from rmqpy.admin.topics import Topics
from rmqpy.config.ends import End, end_of
from rmqpy.config.keys import nearest
from rmqpy.errors import ConfigError, GroupExists, GroupNotFound, RocketMQError
from rmqpy.protocol import fastjson, names
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.releases import release
from rmqpy.protocol.requests.clients import Connection, GetConsumerConnectionList
from rmqpy.protocol.requests.groups import (
    DeleteSubscriptionGroup,
    GetAllSubscriptionGroupConfig,
    SubscriptionGroup,
    UpdateAndCreateSubscriptionGroup,
    UpdateAndGetGroupForbidden,
)
from rmqpy.protocol.requests.introspection import GetConsumerRunningInfo
from rmqpy.protocol.requests.offsets import (
    GetConsumeStats,
    GetMaxOffset,
    GetMinOffset,
    InvokeBrokerToResetOffset,
    SearchOffsetByTimestamp,
)
from rmqpy.protocol.requests.progress import CloneGroupOffset, QueryConsumeTimeSpan
from rmqpy.protocol.requests.queues import MessageQueue

#: Target of an offset reset: an end of the queues, or a time in ms since the epoch.
Place = End | int
_LITE_PARENT: Final = "lite.bind.topic"
_LITE_MODEL: Final = "lite.sub.model"
_PRIORITY_FACTOR: Final = "priority.factor"
_PRIORITY_FACTOR_USUAL: Final = 100


class Progress(NamedTuple):
    """Committed offset of a group in one queue, and the end of the queue."""

    broker: str
    topic: str
    queue_id: int
    offset: int
    end: int
    #: Age of the next message to consume; 0 without one.
    behind_ms: int
    #: Messages delivered to members and not finished. Apache's broker does not count popped ones.
    in_flight: int = 0

    @property
    def lag(self) -> int:
        """Pending messages, including those that a filter will skip."""
        return max(0, self.end - self.offset)


class Member(NamedTuple):
    """One client of a group. Its subscriptions are None if it did not report them."""

    client_id: str
    address: str
    language: str
    version: int
    #: The release of RocketMQ with that number.
    release: str
    brokers: tuple[str, ...]
    subscriptions: Mapping[str, str] | None


class Move(NamedTuple):
    """One queue of a group that moves, or would move."""

    broker: str
    topic: str
    queue_id: int
    offset: int
    target: int


class _GroupQueue(NamedTuple):
    """A queue, its broker, and the group's offset in it."""

    broker: str
    address: str
    queue: MessageQueue
    offset: int


class Groups(Part):
    """The consumer groups of one cluster, seen through its name servers."""

    def __init__(self, cluster: AdminConnection) -> None:
        super().__init__(cluster)
        self._topics = Topics(cluster)

    async def names(self, *, with_system: bool = False) -> list[str]:
        """List all groups, sorted; RocketMQ's own only on request."""
        tables = await self.tables()
        every = {name for table in tables.values() for name in table}
        return sorted(name for name in every if with_system or not names.is_system_group(name))

    async def describe(self, name: str) -> dict[str, SubscriptionGroup]:
        """Return the settings of a group on each broker. Raises `GroupNotFound`."""
        tables = await self.tables()
        found = {broker: table[name] for broker, table in tables.items() if name in table}
        if not found:
            meant = nearest(name, {group for table in tables.values() for group in table})
            hint = f"did you mean {meant!r}?" if meant else "list groups with rmqpy group list"
            raise GroupNotFound(f"group {name!r} does not exist", hint=hint)
        return found

    async def create(
        self,
        name: str,
        *,
        retry_max: int | None = None,
        retry_queues: int | None = None,
        consume: bool | None = None,
        broadcast: bool | None = None,
        order: bool | None = None,
        priority_factor: int | None = None,
        lite_parent: str | None = None,
        lite_exclusive: bool | None = None,
        cluster: str | None = None,
        exist_ok: bool = False,
    ) -> list[str]:
        """Create the group on every master. Returns the brokers that did not have it.

        `retry_max`: retries after the first delivery, before a message is given up. `retry_queues`: queues of its retry
        topic; 0 means no retries and no dead letters: a message whose handler fails is dropped. `order`: 5.x clients
        consume each message group in order. `priority_factor`: the percentage of pops that read topics of the type
        PRIORITY by priority; the others begin at a random queue. `lite_parent`: the topic of the type LITE whose lite
        topics it consumes; with `lite_exclusive` each of them has one client of the group. Others default to RocketMQ's
        values. If the group exists on any master, raises `GroupExists` and changes nothing; with `exist_ok` it stays
        unchanged there. `update_group` changes one.
        """
        if wrong := names.group_fault(name):
            raise ConfigError(f"group {name!r}: {wrong}")
        brokers = await self._cluster.masters(cluster, is_change=True)
        tables = await self.tables()
        known = [broker for broker in brokers if name in tables.get(broker, ())]
        if known and not exist_ok:
            raise GroupExists(
                f"group {name!r} already exists ({', '.join(sorted(known))})",
                hint=f"keep it with --if-not-exists, or change it with rmqpy group alter {name}",
            )
        brokers = {broker: address for broker, address in brokers.items() if broker not in known}
        body = SubscriptionGroup(
            group_name=name,
            attributes=_attributes(priority_factor, lite_parent, lite_exclusive),
            **_given(retry_max, retry_queues, consume, broadcast, order),
        )
        ask = UpdateAndCreateSubscriptionGroup(body=body)
        await self._cluster.tell(brokers, ask, f"group {name!r} was created")
        return sorted(brokers)

    async def alter(
        self,
        name: str,
        *,
        retry_max: int | None = None,
        retry_queues: int | None = None,
        consume: bool | None = None,
        broadcast: bool | None = None,
        order: bool | None = None,
        priority_factor: int | None = None,
        lite_parent: str | None = None,
        lite_exclusive: bool | None = None,
    ) -> list[str]:
        """Change settings of a group on the brokers that have it. Raises `GroupNotFound`."""
        changes = _given(retry_max, retry_queues, consume, broadcast, order)
        attributes = _attributes(priority_factor, lite_parent, lite_exclusive)
        if not changes and not attributes:
            raise ConfigError("nothing to change: name a setting")
        brokers = await self._cluster.masters(is_change=True)
        known = await self.describe(name)
        for broker, group in known.items():
            # Attributes in a request are changes.
            body = dataclasses.replace(group, attributes=attributes, **changes)
            await self._cluster.ask(brokers[broker], UpdateAndCreateSubscriptionGroup(body=body))
        return sorted(known)

    async def delete(self, name: str, *, with_offsets: bool = True) -> list[str]:
        """Delete a group, but not its retry and dead-letter topics: they may hold messages. Raises `GroupNotFound`."""
        brokers = await self._cluster.masters(is_change=True)
        known = await self.describe(name)
        for broker in known:
            await self._cluster.ask(
                brokers[broker], DeleteSubscriptionGroup(group_name=name, clean_offset=with_offsets)
            )
        return sorted(known)

    async def progress(self, name: str, topic: str | None = None) -> list[Progress]:
        """Return progress of a group in every queue it consumes, by topic, broker and queue.

        Raises `GroupNotFound`, and `TopicNotFound` if the given topic does not exist.
        """
        await self._check_names(name, topic)
        return await self.known_progress(name, topic)

    async def known_progress(self, name: str, topic: str | None = None) -> list[Progress]:
        """`progress` of a group known to exist: brokers report no progress for unknown ones."""
        rows = []
        asked = GetConsumeStats(consumer_group=name, topic=topic)
        for broker, address, stats in await self._cluster.ask_masters(asked):
            behind: dict[MessageQueue, int] = {}
            for each in sorted({queue.topic for queue in stats.offset_table}):
                spans = await self._cluster.ask(address, QueryConsumeTimeSpan(topic=each, group=name))
                behind |= {span.message_queue: span.delay_time for span in spans.consume_time_span_set}
            rows += [
                Progress(
                    broker,
                    queue.topic,
                    queue.queue_id,
                    held.consumer_offset,
                    held.broker_offset,
                    behind.get(queue, 0) if held.broker_offset > held.consumer_offset else 0,
                    max(0, held.pull_offset - held.consumer_offset),
                )
                for queue, held in stats.offset_table.items()
            ]
        return sorted(rows, key=lambda row: (row.topic, row.broker, row.queue_id))

    async def members(self, name: str) -> list[Member]:
        """Return the clients in the group with their subscriptions, by client id."""
        await self.describe(name)
        return await self.known_members(name)

    async def known_members(self, name: str) -> list[Member]:
        """`members` of a group known to exist: brokers report none for unknown ones."""
        found: dict[str, Member] = {}
        for broker, address in (await self._cluster.masters()).items():
            online: Sequence[Connection] = ()
            with self._cluster.may_miss(broker):
                online = await self.online(address, name)
            for client in online:
                known = found.get(client.client_id)
                found[client.client_id] = Member(
                    client.client_id,
                    client.client_addr,
                    client.language,
                    client.version,
                    release(client.version),
                    (*(known.brokers if known else ()), broker),
                    known.subscriptions
                    if known
                    else await self._subscriptions(address, name, client.client_id),
                )
        return sorted(found.values())

    async def online(self, address: str, name: str) -> Sequence[Connection]:
        """The clients of a group that one broker knows."""
        ask = GetConsumerConnectionList(consumer_group=name)
        online = await self._cluster.ask_unless(ResponseCode.CONSUMER_NOT_ONLINE, address, ask)
        return online.connection_set if online else ()

    async def stack(self, name: str, client_id: str) -> str:
        """Return the thread stacks of a member, in the format of its language. Raises `GroupNotFound`.

        If the member is offline or does not answer, raises the error of the last broker asked.
        """
        await self.describe(name)
        ask = GetConsumerRunningInfo(consumer_group=name, client_id=client_id, jstack_enable=True)
        refused: RocketMQError | None = None
        for address in (await self._cluster.masters()).values():
            try:
                answer = await self._cluster.ask(address, ask)
            except RocketMQError as error:
                refused = error
            else:
                return str(fastjson.loads(answer).get("jstack") or "")
        assert refused is not None, "there is at least one master"
        raise refused

    async def reset(
        self,
        name: str,
        topic: str,
        to: Place,
        *,
        broker: str | None = None,
        queue_id: int | None = None,
        offset: int | None = None,
        dry_run: bool = False,
    ) -> list[Move]:
        """Reset the offsets of a group in a topic: to an end, to a time, or one queue to an offset.

        `broker` and `queue_id` select queues, all by default; a queue id that several brokers have needs its broker.
        Takes effect at the next pull, whether members are online or not; messages already fetched may still be
        handled. With `dry_run` nothing moves. Raises `GroupNotFound`, `TopicNotFound`, and `ConfigError` for an
        unknown queue or an offset outside it; then nothing has moved.
        """
        if isinstance(to, str) and (to := end_of(to) or to) not in ("begin", "end"):
            raise ConfigError(f"to={to!r} is neither 'begin', 'end' nor a time in ms")
        if offset is not None and queue_id is None:
            raise ConfigError("an offset belongs to one queue: give queue_id")
        await self._check_names(name, topic)
        if broker is None and not dry_run:
            await self._cluster.masters(is_change=True)
        found = await self._queues(name, topic, broker, queue_id)
        if not found:
            raise ConfigError(f"group {name!r} consumes no such queue of {topic!r}")
        if queue_id is not None and len(found) > 1:
            brokers = ", ".join(each.broker for each in found)
            raise ConfigError(f"queue {queue_id} is at several brokers: name one of {brokers}")
        return await self._reset(name, found, to, offset, dry_run)

    async def skip(self, name: str, topic: str | None = None, *, dry_run: bool = False) -> list[Move]:
        """Skip the backlog in one topic or all: consumption continues with messages sent from now on.

        Raises `GroupNotFound` and `TopicNotFound`.
        """
        if not dry_run:
            await self._cluster.masters(is_change=True)
        topics = {row.topic for row in await self.progress(name, topic)}
        found = [queue for each in sorted(topics) for queue in await self._queues(name, each)]
        return await self._reset(name, found, "end", None, dry_run)

    async def clone(self, source: str, target: str, topic: str | None = None) -> list[str]:
        """Copy the offsets of `source` to `target`, in one topic or all. Returns the brokers."""
        brokers = await self._cluster.masters(is_change=True)
        known = await self.describe(source)
        for broker in known:
            ask = CloneGroupOffset(src_group=source, dest_group=target, topic=topic)
            await self._cluster.ask(brokers[broker], ask)
        return sorted(known)

    async def _check_names(self, group: str, topic: str | None) -> None:
        """Raise `GroupNotFound` or `TopicNotFound`: brokers report no progress for unknown names."""
        await self.describe(group)
        if topic is not None:
            await self._topics.route(topic)

    async def _queues(
        self, group: str, topic: str, broker: str | None = None, queue_id: int | None = None
    ) -> list[_GroupQueue]:
        """The queues of a topic with an offset of the group, optionally of one broker and number."""
        found = []
        for master, address in (await self._cluster.masters()).items():
            if broker in (None, master):
                stats = await self._cluster.ask(address, GetConsumeStats(consumer_group=group, topic=topic))
                for queue, held in sorted(stats.offset_table.items(), key=lambda item: item[0].queue_id):
                    if queue_id in (None, queue.queue_id):
                        found.append(_GroupQueue(master, address, queue, held.consumer_offset))
        return found

    async def _reset(
        self, group: str, queues: Sequence[_GroupQueue], to: Place, offset: int | None, dry_run: bool
    ) -> list[Move]:
        """Move a group in these queues, once all targets are known to exist."""
        moves = []
        for each in queues:
            target = await self._target(each.address, each.queue, to, offset)
            moves.append(Move(each.broker, each.queue.topic, each.queue.queue_id, each.offset, target))
        if not dry_run:
            for each, move in zip(queues, moves, strict=True):
                await self._move(each.address, group, move, to)
        return moves

    async def readable(self, name: str, topic: str, readable: bool | None = None) -> dict[str, bool]:
        """Return whether the group may read the topic, by broker; `readable` sets it first. Reads of a forbidden
        topic raise `AuthError`. Raises `GroupNotFound`."""
        brokers = await self._cluster.masters(is_change=readable is not None)
        known = await self.describe(name)
        found = {}
        for broker in sorted(known):
            ask = UpdateAndGetGroupForbidden(group=name, topic=topic, readable=readable)
            found[broker] = (await self._cluster.ask(brokers[broker], ask)).readable
        return found

    async def _target(self, address: str, queue: MessageQueue, to: Place, offset: int | None) -> int:
        topic, queue_id = queue.topic, queue.queue_id
        if not isinstance(to, str) and offset is None:
            ask = SearchOffsetByTimestamp(topic=topic, queue_id=queue_id, timestamp=to)
            return (await self._cluster.ask(address, ask)).offset
        begin = (await self._cluster.ask(address, GetMinOffset(topic=topic, queue_id=queue_id))).offset
        end = (await self._cluster.ask(address, GetMaxOffset(topic=topic, queue_id=queue_id))).offset
        if offset is None:
            return begin if to == "begin" else end
        if not (begin <= offset <= end):
            raise ConfigError(f"offset {offset} is outside queue {queue_id}, which has {begin} to {end}")
        return offset

    async def _move(self, address: str, group: str, move: Move, to: Place) -> None:
        # Brokers that reset offsets on members know only times.
        timestamp = {"begin": 0, "end": -1}.get(to, to) if isinstance(to, str) else to
        ask = InvokeBrokerToResetOffset(
            group=group,
            topic=move.topic,
            timestamp=int(timestamp),
            is_force=True,
            queue_id=move.queue_id,
            offset=move.target,
        )
        await self._cluster.ask(address, ask)

    async def _subscriptions(self, address: str, group: str, client_id: str) -> dict[str, str] | None:
        try:
            answer = await self._cluster.ask(
                address, GetConsumerRunningInfo(consumer_group=group, client_id=client_id)
            )
            found = fastjson.loads(answer)["subscriptionSet"]
            plain_name = self._cluster.caller.plain_name
            return {plain_name(each["topic"]): each.get("subString") or "*" for each in found}
        except (RocketMQError, LookupError, TypeError):
            return None

    async def tables(self) -> dict[str, Mapping[str, SubscriptionGroup]]:
        """Return the settings of every group, by broker."""
        return {
            broker: reply.body.subscription_group_table
            for broker, _, reply in await self._cluster.ask_masters(GetAllSubscriptionGroupConfig())
        }


def _given(
    retry_max: int | None,
    retry_queues: int | None,
    consume: bool | None,
    broadcast: bool | None,
    order: bool | None,
) -> dict[str, Any]:
    """The given fields of `SubscriptionGroup`."""
    settings = {
        "retry_max_times": retry_max,
        "retry_queue_nums": retry_queues,
        "consume_enable": consume,
        "consume_broadcast_enable": broadcast,
        "consume_message_orderly": order,
    }
    return {field: value for field, value in settings.items() if value is not None}


def _attributes(
    priority_factor: int | None, lite_parent: str | None, lite_exclusive: bool | None
) -> dict[str, str]:
    """The given attributes, as changes."""
    model = None if lite_exclusive is None else "Exclusive" if lite_exclusive else "Shared"
    given = {_PRIORITY_FACTOR: priority_factor, _LITE_PARENT: lite_parent, _LITE_MODEL: model}
    return {f"+{name}": str(value) for name, value in given.items() if value is not None}


def priority_factor(group: SubscriptionGroup) -> int:
    """Return the percentage of a group's pops that read topics of the type PRIORITY by priority."""
    return int(group.attributes.get(_PRIORITY_FACTOR, _PRIORITY_FACTOR_USUAL))


def disagreements(members: list[Member]) -> list[tuple[list[str], dict[str, str]]]:
    """Client ids by subscription, without retries. More than one entry means that the group is misconfigured: its
    messages depend on which heartbeat came last.
    """
    differing: list[tuple[list[str], dict[str, str]]] = []
    for member in members:
        if member.subscriptions is None:
            continue
        subscriptions = {
            topic: text
            for topic, text in member.subscriptions.items()
            if not topic.startswith(names.RETRY_PREFIX)
        }
        for clients, known in differing:
            if known == subscriptions:
                clients.append(member.client_id)
                break
        else:
            differing.append(([member.client_id], subscriptions))
    return differing
