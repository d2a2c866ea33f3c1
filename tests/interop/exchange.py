"""One client at one cluster with a topic of its own: what a scenario works with."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from .messages import Outgoing, Received, Sent
from .peers import Peer, ProcessPeer
from .servers import Cluster

_groups = itertools.count()


@dataclass
class Exchange:
    """Sends with the client under test and consumes with it, the way it prefers: by listening if it can."""

    peer: Peer
    cluster: Cluster
    topic: str
    group: str = field(default_factory=lambda: f"interop-group-{next(_groups)}")

    def send(self, messages: Sequence[Outgoing], *, mode: str = "sync", compression: str = "zlib") -> list[Sent]:
        return self.peer.send(self.cluster.namesrv, self.topic, messages, mode=mode, compression=compression)

    def consume(self, count: int, *, tags: str = "*", ordered: bool = False) -> list[Received]:
        """Everything the group consumes until it has `count` messages, and whatever came with them."""
        if not isinstance(self.peer, ProcessPeer):
            [api] = self.peer.pulls
            return self.peer.pull(self.cluster.namesrv, self.topic, self.group, api=api, count=count, tags=tags)
        listener = self.peer.listen(self.cluster.namesrv, self.topic, self.group, tags=tags, ordered=ordered)
        try:
            listener.wait_for(count)
        finally:
            consumed = listener.stop()
        return consumed

    def pull(self, count: int, *, api: str, tags: str = "*") -> list[Received]:
        """The same by pulling, for a group that has not consumed before."""
        group = f"interop-pull-{next(_groups)}"
        return self.peer.pull(self.cluster.namesrv, self.topic, group, api=api, count=count, tags=tags)
