"""One client at one cluster with a separate topic, for scenarios."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from waiting import until

from . import wire
from .clients import InteropClient, ProcessClient
from .messages import MessageSpec, Received, SendOutcome
from .servers import Cluster

QUEUES = 4
COMMIT_SECONDS_MAX = 20.0

_groups = itertools.count()


@dataclass
class Exchange:
    """Sends with the client under test and consumes with it, the way it prefers: by listening if it can."""

    client: InteropClient
    cluster: Cluster
    topic: str
    group: str = field(default_factory=lambda: f"interop-group-{next(_groups)}")

    def send(
        self, messages: Sequence[MessageSpec], *, mode: str = "sync", compression: str = "zlib"
    ) -> list[SendOutcome]:
        return self.client.send(
            self.cluster.namesrv, self.topic, messages, mode=mode, compression=compression
        )

    def consume(
        self, count: int, *, tags: str = "*", ordered: bool = False, until_committed: int = 0
    ) -> list[Received]:
        """Return everything the group consumes until it has `count` messages, including surplus ones.

        `until_committed`: the consumer continues until this number of messages is committed at the broker.
        """
        if not isinstance(self.client, ProcessClient):
            [api] = self.client.pulls
            return self.client.pull(
                self.cluster.namesrv, self.topic, self.group, api=api, count=count, tags=tags
            )
        listener = self.client.listen(
            self.cluster.namesrv, self.topic, self.group, tags=tags, ordered=ordered
        )
        try:
            listener.wait_for(count)
            self._wait_for_commits(until_committed)
        finally:
            consumed = listener.stop()
        return consumed

    def _wait_for_commits(self, count: int) -> None:
        """Clients commit every five seconds, and at their end the offsets that their threads reported by then."""
        until(self._committed, COMMIT_SECONDS_MAX, wanted=lambda found: found >= count)

    def _committed(self) -> int:
        return sum(
            wire.committed(self.cluster.broker, self.group, self.topic, queue) for queue in range(QUEUES)
        )

    def pull(self, count: int, *, api: str, tags: str = "*") -> list[Received]:
        """The same by pulling, for a group that has not consumed before."""
        group = f"interop-pull-{next(_groups)}"
        return self.client.pull(self.cluster.namesrv, self.topic, group, api=api, count=count, tags=tags)
