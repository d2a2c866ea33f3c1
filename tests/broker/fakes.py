"""Stand-ins for the data plane: they record what they receive."""

from collections.abc import Collection, Iterable, Mapping

from rmqpy.protocol.requests.groups import SubscriptionGroup
from rmqpy.protocol.topics import TopicConfig


class MetadataTables:
    """Metadata as the data plane would have it."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicConfig] = {}
        self.groups: dict[str, SubscriptionGroup] = {}
        self.forbidden: set[tuple[str, str]] = set()
        self.subscriptions: dict[str, list[tuple[str, str, str, int]]] = {}

    def put_topic(self, entry: TopicConfig) -> None:
        self.topics[entry.topic_name] = entry

    def remove_topic(self, name: str) -> None:
        self.topics.pop(name, None)

    def put_group(self, entry: SubscriptionGroup) -> None:
        self.groups[entry.group_name] = entry

    def remove_group(self, name: str) -> None:
        self.groups.pop(name, None)

    def forbid(self, group: str, topic: str, is_forbidden: bool) -> None:
        (self.forbidden.add if is_forbidden else self.forbidden.discard)((group, topic))

    def put_subscriptions(
        self, group: str, *, is_broadcast: bool, subscriptions: Iterable[tuple[str, str, str, int]]
    ) -> None:
        self.subscriptions[group] = list(subscriptions)

    def remove_subscriptions(self, group: str) -> None:
        self.subscriptions.pop(group, None)


class OffsetTable:
    """Committed offsets."""

    def __init__(self) -> None:
        self.table: dict[str, dict[int, int]] = {}
        self.commits = 0

    def load(self, table: Mapping[str, Mapping[int, int]]) -> None:
        self.table = {key: dict(queues) for key, queues in table.items()}

    def snapshot(self) -> tuple[int, dict[str, dict[int, int]]]:
        return self.commits, {key: dict(queues) for key, queues in self.table.items()}

    def commit(self, key: str, queue_id: int, offset: int) -> None:
        self.table.setdefault(key, {})[queue_id] = offset
        self.commits += 1


class Notifications:
    """Connections notified of changes of a group."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[int]]] = []

    def __call__(self, group: str, connections: Collection[int]) -> None:
        self.calls.append((group, sorted(connections)))
